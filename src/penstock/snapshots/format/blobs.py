"""Discovery states and the blobs in them: the rest goes into the metadata, each blob is a section of its own.

A blob is stored by the first snapshot that has it, in the driver's data file of that checkpoint, and later ones refer
to it. It is known by its content, so whoever makes states need not know what is stored already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
import pyarrow as pa
import xxhash

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import SectionRef, SnapshotMetadata, SourceManifest
from penstock.model.plain import Plain
from penstock.snapshots.format.blob import Blob
from penstock.snapshots.format.sections import SectionWriter, data_path, read_verified
from penstock.snapshots.store.store import Store

PLACE = "__blob__"
"""``{"__blob__": i}`` in a stored state stands for the content of the source's section ``i``."""


def apart(state: Plain) -> tuple[Plain, list[Blob]]:
    """The state with each blob replaced by its place, and the blobs by place."""
    blobs: list[Blob] = []

    def walk(value: Plain) -> Plain:
        if isinstance(value, Blob):
            blobs.append(value)
            return {PLACE: len(blobs) - 1}
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return value

    return walk(state), blobs


def joined(state: Plain, blobs: Sequence[bytes]) -> Plain:
    """What ``apart`` was given. Raises IndexError for a place where there is no blob."""
    if isinstance(state, dict):
        if set(state) == {PLACE}:
            place = state[PLACE]
            if type(place) is not int or not 0 <= place < len(blobs):
                raise IndexError(f"there is no blob {place!r:.40}")
            return cast("Plain", Blob(blobs[place]))
        return {key: joined(item, blobs) for key, item in state.items()}
    if isinstance(state, list):
        return [joined(item, blobs) for item in state]
    return state


class BlobStore:
    """Writes the blobs of snapshots, once each; owned by one thread.

    Args:
        store: the location.
        first_file: what the numbers of slots in the names of data files begin at.
    """

    def __init__(self, store: Store, first_file: int = 0) -> None:
        self._store = store
        self._first_file = first_file
        self._known: dict[str, SectionRef] = {}
        self._newest = 0

    def written(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """The metadata as it is stored. What it needs is durable on return.

        Raises:
            CheckpointFailed: the store is full or fails.
        """
        path = data_path(metadata.generation, metadata.checkpoint, self._first_file + metadata.parallelism)
        with SectionWriter(self._store, path) as writer:
            sources = [self._stored(writer, metadata, source) for source in metadata.sources]
        return msgspec.structs.replace(metadata, sources=sources)

    def _stored(self, writer: SectionWriter, metadata: SnapshotMetadata, source: SourceManifest) -> SourceManifest:
        state, blobs = apart(source.state)
        sections = []
        for blob in blobs:
            key = xxhash.xxh3_128_hexdigest(blob)
            ref = self._known.get(key)
            if ref is None:
                identity = f"g{metadata.generation}/c{metadata.checkpoint}/v{source.vertex}/blob/{key}"
                reader = pa.ipc.open_stream(blob)
                ref = writer.append(identity, reader.schema, [(batch, None) for batch in reader])
            sections.append(ref)
        return msgspec.structs.replace(source, state=state, sections=sections)

    def completed(self, metadata: SnapshotMetadata) -> None:
        """A snapshot exists, with this metadata as stored: later ones may refer to its blobs. The newest one is never
        collected, so nothing but its blobs need be known.
        """
        if metadata.checkpoint < self._newest:
            return
        self._newest = metadata.checkpoint
        refs = (ref for source in metadata.sources for ref in source.sections)
        self._known = {ref.identity.rpartition("/")[2]: ref for ref in refs}

    def forget(self) -> None:
        """Write every blob again, because files of older snapshots are damaged."""
        self._known.clear()

    def restored(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """An existing snapshot's metadata with the states as their sources gave them.

        Raises:
            CorruptSnapshot: a blob is missing or changed.
        """
        self._newest = 0
        self.completed(metadata)
        sources = []
        for source in metadata.sources:
            blobs = [read_verified(self._store, ref) for ref in source.sections]
            try:
                state = joined(source.state, blobs)
            except (IndexError, RecursionError):
                raise CorruptSnapshot(f"{metadata.id}: the state of {source.operator_id} lacks a blob") from None
            sources.append(msgspec.structs.replace(source, state=state, sections=[]))
        return msgspec.structs.replace(metadata, sources=sources)
