"""Blobs of discovery states: each blob is a section of its own. The rest of the state is in the metadata.

The first snapshot with a blob stores it in the driver's data file of that checkpoint, and later snapshots refer to it.
Blobs are identified by their content, so a source need not know which blobs are stored already.
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
from penstock.snapshots.format.sections import SectionWriter, data_path, read_verified
from penstock.snapshots.store.store import Store

PLACEHOLDER = "__blob__"
"""Key of a placeholder: ``{"__blob__": i}`` in a stored state stands for the content of the source's section ``i``."""


class Blob(bytes):
    """Immutable part of a discovery state that is too large to be stored in every snapshot: an Arrow IPC stream.

    A state is plain JSON data in which a ``Blob`` may take the place of any value. Snapshots store each blob once, as a
    section, and refer to it while states contain the same bytes. The rest of the state is written every time.
    ``discover`` gets its blobs back unchanged.
    """


def extract_blobs(state: Plain) -> tuple[Plain, list[Blob]]:
    """Return the state with placeholders for its blobs, and the blobs."""
    blobs: list[Blob] = []

    def walk(value: Plain) -> Plain:
        if isinstance(value, Blob):
            blobs.append(value)
            return {PLACEHOLDER: len(blobs) - 1}
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        return value

    return walk(state), blobs


def insert_blobs(state: Plain, blobs: Sequence[bytes]) -> Plain:
    """Return the state with its blobs. This is the inverse of ``extract_blobs``.

    Raises IndexError for a placeholder without a blob.
    """
    if isinstance(state, dict):
        if set(state) == {PLACEHOLDER}:
            index = state[PLACEHOLDER]
            if type(index) is not int or not 0 <= index < len(blobs):
                raise IndexError(f"there is no blob {index!r:.40}")
            return cast("Plain", Blob(blobs[index]))
        return {key: insert_blobs(item, blobs) for key, item in state.items()}
    if isinstance(state, list):
        return [insert_blobs(item, blobs) for item in state]
    return state


class BlobStore:
    """Writer of the blobs of snapshots. It writes each blob once. One thread owns it.

    Args:
        store: the location.
        first_file: number of slot 0 in the names of data files.
    """

    def __init__(self, store: Store, first_file: int = 0) -> None:
        self._store = store
        self._first_file = first_file
        self._known: dict[str, SectionRef] = {}
        self._newest = 0

    def write_blobs(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """Write new blobs and return the metadata as it is stored. All files that it refers to are durable on return.

        Raises:
            CheckpointFailed: the store is full or fails.
        """
        path = data_path(metadata.generation, metadata.checkpoint, self._first_file + metadata.parallelism)
        with SectionWriter(self._store, path) as writer:
            sources = [self._write_source(writer, metadata, source) for source in metadata.sources]
        return msgspec.structs.replace(metadata, sources=sources)

    def _write_source(
        self, writer: SectionWriter, metadata: SnapshotMetadata, source: SourceManifest
    ) -> SourceManifest:
        state, blobs = extract_blobs(source.state)
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

    def snapshot_completed(self, metadata: SnapshotMetadata) -> None:
        """Record that a snapshot exists with this stored metadata, so that later snapshots may refer to its blobs.

        Only the blobs of the newest snapshot are remembered, because only the newest snapshot is never deleted.
        """
        if metadata.checkpoint < self._newest:
            return
        self._newest = metadata.checkpoint
        refs = (ref for source in metadata.sources for ref in source.sections)
        self._known = {ref.identity.rpartition("/")[2]: ref for ref in refs}

    def forget(self) -> None:
        """Forget all blobs, so that they are written again. Needed if files of older snapshots are damaged."""
        self._known.clear()

    def restore_blobs(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """Return an existing snapshot's metadata, with the states as their sources returned them.

        Raises:
            CorruptSnapshot: a blob is missing or changed.
        """
        self._newest = 0
        self.snapshot_completed(metadata)
        sources = []
        for source in metadata.sources:
            blobs = [read_verified(self._store, ref) for ref in source.sections]
            try:
                state = insert_blobs(source.state, blobs)
            except (IndexError, RecursionError):
                raise CorruptSnapshot(f"{metadata.id}: the state of {source.operator_id} lacks a blob") from None
            sources.append(msgspec.structs.replace(source, state=state, sections=[]))
        return msgspec.structs.replace(metadata, sources=sources)
