"""From a portable snapshot to a checkpoint location of its own, which begins as a fork of the snapshot's query does.

Everything is checked before anything is written: the directory may come from anywhere. The new location's log begins
with ``Forked``, so that the next query there goes on behind the snapshot, and commits none of its epochs.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.errors import CheckpointFailed, CorruptSnapshot, LocationError
from penstock.ids import SubtaskId
from penstock.operators.base import Plain
from penstock.snapshot.blob import Blob
from penstock.snapshot.blobs import BlobStore, joined
from penstock.snapshot.catalog import Catalog
from penstock.snapshot.location import claim_identity, open_location, release_identity
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.log_entries import Forked, SnapshotRecord
from penstock.snapshot.model import FORMAT_VERSION, InflightEntry, QueryIdentity, SnapshotMetadata, StateEntry
from penstock.snapshot.plan import targets_of
from penstock.snapshot.portable.checks import checked_entry, checked_manifest
from penstock.snapshot.portable.files import AT_ONCE, checked_file, new_directory
from penstock.snapshot.portable.foreign import Batch, read_rows, read_stream
from penstock.snapshot.portable.layout import Manifest, Stream, Table, TablePart, read_manifest
from penstock.snapshot.sections import SectionWriter, data_path, state_path
from penstock.snapshot.state_index import BASE
from penstock.snapshot.state_sections import cut
from penstock.snapshot.store import LocalStore, Store
from penstock.snapshot.store_access import StoreAccess
from penstock.snapshot.stores import is_object_store

_Place = tuple[int, int, int]


def convert_snapshot(directory: Path, location: str | Path, access: StoreAccess | None = None) -> SnapshotMetadata:
    """Make a checkpoint location with this one snapshot; returns its metadata.

    A query that is started there goes on from the snapshot, as a fork: its id is another one than the snapshot's, and
    epochs up to the snapshot are not its own to commit. ``startFrom`` may name the location, too.

    Args:
        directory: a portable snapshot.
        location: a new folder, or an empty one, which is there as a whole or not at all. Or an empty place of an object
            store: there the log comes last, and what an interruption leaves is no snapshot.
        access: to an object store; None: as the environment says.

    Raises:
        LocationError: the directory is of a later version, or the location cannot be made there.
        CorruptSnapshot: the directory is damaged, or says what cannot be.
    """
    manifest = read_manifest(directory)
    checked_manifest(manifest, str(directory))
    paths = {ref.path: checked_file(directory, ref) for ref in manifest.files()}
    try:
        if is_object_store(str(location)):
            return _converted_in_place(manifest, paths, open_location(str(location), access))
        with new_directory(Path(location), "the location") as folder:
            store = LocalStore(folder)
            claim_identity(store, _identity(manifest.metadata))
            conversion = _Conversion(manifest, paths, store)
            return conversion.logged(conversion.written())
    except (CheckpointFailed, OSError) as error:
        raise LocationError(f"the location {location} cannot be written: {error}") from error


def _converted_in_place(manifest: Manifest, paths: dict[str, Path], store: Store) -> SnapshotMetadata:
    if store.names():
        raise LocationError(f"the location {store.root} is not empty; name one that is not there yet")
    identity = _identity(manifest.metadata)
    if claim_identity(store, identity) is not identity:
        raise LocationError(f"another query was begun at {store.root} at the same time; name another location")
    conversion = _Conversion(manifest, paths, store)
    try:
        metadata = conversion.written()
    except BaseException:
        with suppress(OSError):
            release_identity(store)
        raise
    return conversion.logged(metadata)


def _identity(metadata: SnapshotMetadata) -> QueryIdentity:
    plan = metadata.plan
    assert plan is not None
    return QueryIdentity(
        operators=plan.operators,
        edges=plan.edges,
        format_version=FORMAT_VERSION,
        query_id=str(uuid.uuid4()),
        max_parallelism=metadata.max_parallelism,
        parallelism=metadata.parallelism,
        origin=metadata.query_id,
    )


class _Conversion:
    """Of one directory whose manifest and files are checked; what is in the files is not."""

    def __init__(self, manifest: Manifest, paths: dict[str, Path], store: Store) -> None:
        self._manifest = manifest
        self._metadata = manifest.metadata
        self._paths = paths
        self._store = store
        self._prefix = f"g{self._metadata.generation}/c{self._metadata.checkpoint}"

    def written(self) -> SnapshotMetadata:
        """All files; the log comes behind them."""
        states = self._states()
        inflight = self._inflight()
        metadata = self._with_blobs(self._filled(states, inflight))
        for ref in self._manifest.lane:
            self._bring(ref.path)
        return metadata

    def logged(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        """Its metadata is written, and then it exists."""
        record = SnapshotRecord(
            metadata.checkpoint,
            metadata.generation,
            metadata.requested,
            Catalog(self._store).write(metadata),
            metadata.label,
        )
        log = SnapshotLog(self._store, lambda: secrets.token_hex(16))
        assert metadata.plan is not None
        sinks = sorted({target for some in targets_of(metadata.plan).values() for target in some})
        log.append(Forked(metadata.query_id, record, metadata.checkpoint + 1, sinks))
        return metadata

    # -- state --------------------------------------------------------------------------------------------------------

    def _states(self) -> dict[tuple[int, int], list[StateEntry]]:
        """By vertex and subtask."""
        found: dict[tuple[int, int], list[StateEntry]] = {}
        generation, checkpoint = self._metadata.generation, self._metadata.checkpoint
        for subtask in range(self._metadata.parallelism):
            with SectionWriter(self._store, state_path(generation, checkpoint, subtask)) as writer:
                for table in self._manifest.tables:
                    for part in (part for part in table.parts if part.subtask == subtask):
                        vertex = self._vertex(table.operator_id)
                        found.setdefault((vertex, subtask), []).extend(self._entries(writer, table, part, vertex))
        return found

    def _entries(self, writer: SectionWriter, table: Table, part: TablePart, vertex: int) -> Iterator[StateEntry]:
        schema, batches = read_rows(self._paths[part.file.path], table, part, self._metadata.max_parallelism)
        prefix = f"{self._prefix}/{SubtaskId(vertex, part.subtask)}/state/{table.operator_id}/{table.table}"
        if part.rows == 0:
            section = writer.append(f"{prefix}/{writer.written:x}", schema, ())
            yield StateEntry(table.operator_id, table.table, BASE, 0, 0, -1, section)
        for content in cut(batches):
            section = writer.append(f"{prefix}/{writer.written:x}", schema, ((batch, None) for batch in content))
            yield StateEntry(table.operator_id, table.table, BASE, content.rows, content.first, content.last, section)

    def _vertex(self, operator_id: str) -> int:
        plan = self._metadata.plan
        assert plan is not None
        vertex = plan.operators[operator_id]["vertex"]
        assert isinstance(vertex, int)
        return vertex

    # -- rows in flight -----------------------------------------------------------------------------------------------

    def _inflight(self) -> dict[_Place, InflightEntry]:
        """By the place where they are listed."""
        found: dict[_Place, InflightEntry] = {}
        generation, checkpoint = self._metadata.generation, self._metadata.checkpoint
        with ExitStack() as stack:
            writers = [
                stack.enter_context(SectionWriter(self._store, data_path(generation, checkpoint, consumer)))
                for consumer in range(self._metadata.parallelism)
            ]
            for stream in self._manifest.streams:
                for place, entry in self._stream(writers[stream.consumer], stream):
                    if place in found:
                        raise CorruptSnapshot(f"{stream.file.path} has rows for place {place}, which has others")
                    found[place] = entry
        return found

    def _stream(self, writer: SectionWriter, stream: Stream) -> Iterator[tuple[_Place, InflightEntry]]:
        plan = self._metadata.plan
        assert plan is not None
        edge = plan.edges[stream.exchange]
        schema, batches = read_stream(self._paths[stream.file.path], stream.file.path, edge["schema"])
        described = ((checked_entry(one.custom, stream, self._metadata), one) for one in batches)
        rows = 0
        for said, same in groupby(described, key=lambda pair: pair[0]):
            counted = _Counted(one for _, one in same)
            subtask = SubtaskId(int(str(edge["consumer"])), stream.consumer)
            identity = f"{self._prefix}/{subtask}/inflight/{':'.join(map(str, said.place))}"
            section = writer.append(identity, schema, counted)
            rows += counted.rows
            yield (
                said.place,
                InflightEntry(
                    layer=said.layer,
                    edge=int(str(edge["id"])),
                    producer=said.producer,
                    consumer=said.consumer,
                    side=said.side,
                    row_start=0,
                    rows=counted.rows,
                    key_group_first=said.key_group_first,
                    key_group_last=said.key_group_last,
                    section=section,
                    narrowed=said.narrowed,
                ),
            )
        if rows != stream.rows:
            raise CorruptSnapshot(f"{stream.file.path} has {rows} rows instead of {stream.rows}")

    def _filled(
        self, states: dict[tuple[int, int], list[StateEntry]], inflight: dict[_Place, InflightEntry]
    ) -> SnapshotMetadata:
        slots = [
            msgspec.structs.replace(
                slot,
                subtasks=[
                    msgspec.structs.replace(
                        subtask,
                        states=states.get((subtask.vertex, subtask.index), []),
                        inflight=[inflight[p] for p in sorted(inflight) if p[:2] == (slot.slot, number)],
                    )
                    for number, subtask in enumerate(slot.subtasks)
                ],
            )
            for slot in self._metadata.slots
        ]
        return msgspec.structs.replace(self._metadata, slots=slots)

    # -- sources ------------------------------------------------------------------------------------------------------

    def _with_blobs(self, metadata: SnapshotMetadata) -> SnapshotMetadata:
        blobs = {one.operator_id: [self._blob(ref.path) for ref in one.files] for one in self._manifest.blobs}
        sources = []
        for source in metadata.sources:
            state: Plain = source.state
            try:
                state = joined(state, blobs.get(source.operator_id, []))
            except (IndexError, RecursionError):
                raise CorruptSnapshot(f"the state of source {source.operator_id!r} lacks a blob") from None
            sources.append(msgspec.structs.replace(source, state=state))
        return BlobStore(self._store).written(msgspec.structs.replace(metadata, sources=sources))

    def _blob(self, path: str) -> Blob:
        """A whole Arrow stream that can be read."""
        _, batches = read_stream(self._paths[path], path)
        for _ in batches:
            pass
        return Blob(self._paths[path].read_bytes())

    def _bring(self, path: str) -> None:
        target = self._store.create(path)
        with self._paths[path].open("rb") as file:
            while data := file.read(AT_ONCE):
                target.write(data)
        target.close()


class _Counted:
    """The batches of one entry on their way into a section."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        for one in self._batches:
            self.rows += one.rows.num_rows
            yield one.rows, one.of_buffer
