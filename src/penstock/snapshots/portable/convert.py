"""Conversion of a portable snapshot into a new checkpoint location, which begins as a fork of the snapshot's query.

Everything is checked before anything is written, because the directory may be forged. The new location's log begins
with ``Forked``. So the next query there continues after the snapshot, and commits none of its epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow as pa
import xxhash

from penstock.errors import CheckpointFailed, CorruptSnapshot, LocationError
from penstock.model.ids import SubtaskId
from penstock.model.manifest import InflightEntry, SnapshotMetadata, StateEntry
from penstock.model.plain import Plain
from penstock.snapshots.bootstrap import (
    LocationBootstrap,
    bootstrap_location,
    location_in_use_error,
    new_attempt,
    without_data_references,
)
from penstock.snapshots.format.blobs import Blob, BlobStore, insert_blobs
from penstock.snapshots.format.sections import SectionWriter, data_path, state_path
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.portable.files import COPY_BYTES, new_directory
from penstock.snapshots.portable.layout import FileRef, Manifest, Stream, Table, TablePart
from penstock.snapshots.portable.local_snapshot import LocalSnapshot, open_portable
from penstock.snapshots.portable.manifest_checks import checked_entry
from penstock.snapshots.portable.untrusted_files import Batch, read_rows, read_stream
from penstock.snapshots.progress_meter import Meter, Progress, no_progress
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import is_object_store, local_folder
from penstock.snapshots.writing.base_sections import append_empty_table, append_rows

_EntryPosition = tuple[int, int, int]
StatesBySubtask = dict[tuple[int, int], list[StateEntry]]
"""State entries of subtasks, by vertex and index."""


@dataclass(frozen=True)
class StatePart:
    """One subtask's part of a table, in a checked file."""

    path: Path
    table: Table
    part: TablePart
    vertex: int

    def prefix(self, generation: int, checkpoint: int) -> str:
        """Return the prefix of the identities of its sections."""
        subtask_prefix = f"g{generation}/c{checkpoint}/{SubtaskId(self.vertex, self.part.subtask)}"
        return f"{subtask_prefix}/state/{self.table.operator_id}/{self.table.table}"


WriteStates = Callable[[LocationBootstrap, Manifest, Sequence[StatePart], Meter], StatesBySubtask]


def write_states(
    made: LocationBootstrap, manifest: Manifest, parts: Sequence[StatePart], meter: Meter
) -> StatesBySubtask:
    """Write all tables into data files of the location, in this process. ``meter`` counts the bytes of the parts."""
    found: StatesBySubtask = {}
    metadata = manifest.metadata
    for subtask in range(metadata.parallelism):
        path = state_path(metadata.generation, metadata.checkpoint, made.first_file + subtask)
        with SectionWriter(made.store, path) as writer:
            for one in (one for one in parts if one.part.subtask == subtask):
                found.setdefault((one.vertex, subtask), []).extend(_entries(writer, one, metadata, meter))
    return found


def _entries(writer: SectionWriter, one: StatePart, metadata: SnapshotMetadata, meter: Meter) -> Iterator[StateEntry]:
    part = meter.part(one.part.file.length)
    schema, batches = read_rows(one.path, one.table, one.part, metadata.max_parallelism)
    name = one.prefix(metadata.generation, metadata.checkpoint), one.table.operator_id, one.table.table
    if one.part.rows == 0:
        yield append_empty_table(writer, *name, schema)
    yield from append_rows(writer, *name, schema, _with_progress(batches, one.part, part))
    part.finish()


def _with_progress(batches: Iterator[pa.RecordBatch], part: TablePart, meter: Meter) -> Iterator[pa.RecordBatch]:
    """Yield the batches and report progress. The bytes of the part are attributed equally to its rows."""
    for batch in batches:
        yield batch
        meter.add(part.file.length * batch.num_rows // max(part.rows, 1))


def convert_snapshot(
    directory: str | Path,
    location: str | Path,
    states: WriteStates = write_states,
    access: StoreAccess | None = None,
    progress: Progress = no_progress,
) -> SnapshotMetadata:
    """Create a checkpoint location with this one snapshot; return its metadata.

    A query that starts there continues from the snapshot as a fork: it has another id than the snapshot's query, and
    does not commit epochs up to the snapshot. ``startFrom`` may also name the location.

    Args:
        directory: a portable snapshot: a folder, or ``s3://bucket/prefix``. Files of an object store are downloaded to
            a temporary folder beside the location (or to the system's), which is removed at the end.
        location: a new or empty folder, which is created completely or not at all; or an empty prefix of an object
            store. On an object store the same call completes an interrupted conversion.
        states: writes the tables, in this process or in parallel.
        access: access to object stores; None takes it from the environment.
        progress: counts bytes. Each byte counts twice: when it is checked and when it is copied.

    Raises:
        LocationError: the directory has a later format version, or the location cannot be written.
        CorruptSnapshot: the directory is damaged or has impossible values.
    """
    folder = None if is_object_store(str(location)) else local_folder(str(location))
    staging = None if folder is None else folder.parent
    try:
        with open_portable(directory, access, staging, progress) as found:
            if folder is not None:
                with new_directory(folder, "the location") as new:
                    return _Conversion(found, LocationBootstrap(LocalStore(new)), states).write()
            with bootstrap_location(str(location), access) as made:
                return _written_in_place(found, made, states)
    except (CheckpointFailed, OSError) as error:
        raise LocationError(f"the location {location} cannot be written: {error}") from error


def copy_portable_snapshot(
    directory: str, store: Store, access: StoreAccess | None = None
) -> tuple[SnapshotRecord, SnapshotMetadata]:
    """Copy a portable snapshot to a location whose log has not begun, durably and verified.

    Args:
        directory: as in ``convert_snapshot``.
        store: the location. It may hold files of an interrupted call.
        access: access to the directory.

    Returns:
        The record for the first log entry, and the metadata. Retention treats the snapshot like a periodic one.

    Raises:
        LocationError, CorruptSnapshot: as ``convert_snapshot``.
        OSError: the store is full or fails.
    """
    staging = Path(store.root).parent if isinstance(store, LocalStore) else None
    try:
        with open_portable(directory, access, staging) as found:
            made = new_attempt(store)
            ref, metadata = made.write_metadata(_Conversion(found, made, write_states).data())
    except CheckpointFailed as error:
        raise LocationError(f"the location {store.root} cannot be written: {error}") from error
    record = SnapshotRecord(
        metadata.checkpoint,
        metadata.generation,
        requested=False,
        metadata=ref,
        label=metadata.label,
        note=metadata.note,
    )
    return record, metadata


def _written_in_place(found: LocalSnapshot, made: LocationBootstrap, states: WriteStates) -> SnapshotMetadata:
    if made.found is None:
        return _Conversion(found, made, states).write()
    if without_data_references(made.found) != found.manifest.metadata:
        raise location_in_use_error(made.store)
    return made.found  # An earlier attempt was interrupted after it had written the metadata.


class _Conversion:
    """Conversion of one directory. Its manifest and checksums are checked, but not the contents of its files."""

    def __init__(self, found: LocalSnapshot, made: LocationBootstrap, write_states: WriteStates) -> None:
        self._manifest = found.manifest
        self._metadata = found.manifest.metadata
        self._paths = found.paths
        self._meter = found.meter
        self._made = made
        self._store = made.store
        self._write_states = write_states
        self._prefix = f"g{self._metadata.generation}/c{self._metadata.checkpoint}"

    def write(self) -> SnapshotMetadata:
        """Write all files, the log last. Return the metadata."""
        return self._made.complete(self.data())

    def data(self) -> SnapshotMetadata:
        """Write all data files. Return the metadata that refers to them."""
        states = self._states()
        inflight = self._inflight()
        metadata = self._with_blobs(self._filled(states, inflight))
        for ref in self._manifest.source_files:
            self._copy_file(ref)
        return metadata

    # -- state --------------------------------------------------------------------------------------------------------

    def _states(self) -> StatesBySubtask:
        parts = [(table, part) for table in self._manifest.tables for part in table.parts]
        meter = self._meter.part(sum(part.file.length for _, part in parts))
        states = self._write_states(self._made, self._manifest, [self._state_part(*one) for one in parts], meter)
        meter.finish()
        return states

    def _state_part(self, table: Table, part: TablePart) -> StatePart:
        return StatePart(self._paths[part.file.path], table, part, self._vertex(table.operator_id))

    def _vertex(self, operator_id: str) -> int:
        plan = self._metadata.plan
        assert plan is not None
        vertex = plan.operators[operator_id]["vertex"]
        assert isinstance(vertex, int)
        return vertex

    # -- rows in flight -----------------------------------------------------------------------------------------------

    def _inflight(self) -> dict[_EntryPosition, InflightEntry]:
        """Return the entries by their position in the metadata."""
        found: dict[_EntryPosition, InflightEntry] = {}
        generation, checkpoint = self._metadata.generation, self._metadata.checkpoint
        first = self._made.first_file
        with ExitStack() as stack:
            writers = [
                stack.enter_context(SectionWriter(self._store, data_path(generation, checkpoint, first + consumer)))
                for consumer in range(self._metadata.parallelism)
            ]
            for stream in self._manifest.streams:
                for position, entry in self._stream(writers[stream.consumer], stream):
                    if position in found:
                        raise CorruptSnapshot(f"{stream.file.path} has rows for position {position}, which has others")
                    found[position] = entry
                self._meter.add(stream.file.length)
        return found

    def _stream(self, writer: SectionWriter, stream: Stream) -> Iterator[tuple[_EntryPosition, InflightEntry]]:
        plan = self._metadata.plan
        assert plan is not None
        edge = plan.edges[stream.exchange]
        schema, batches = read_stream(self._paths[stream.file.path], stream.file.path, edge["schema"])
        described = ((checked_entry(one.custom, stream, self._metadata), one) for one in batches)
        rows = 0
        for entry, same in groupby(described, key=lambda pair: pair[0]):
            counted = _CountedBatches(one for _, one in same)
            subtask = SubtaskId(int(str(edge["consumer"])), stream.consumer)
            identity = f"{self._prefix}/{subtask}/inflight/{':'.join(map(str, entry.place))}"
            section = writer.append(identity, schema, counted)
            rows += counted.rows
            yield (
                entry.place,
                InflightEntry(
                    layer=entry.layer,
                    edge=int(str(edge["id"])),
                    producer=entry.producer,
                    consumer=entry.consumer,
                    side=entry.side,
                    row_start=0,
                    rows=counted.rows,
                    key_group_first=entry.key_group_first,
                    key_group_last=entry.key_group_last,
                    section=section,
                    narrowed=entry.narrowed,
                ),
            )
        if rows != stream.rows:
            raise CorruptSnapshot(f"{stream.file.path} has {rows} rows instead of {stream.rows}")

    def _filled(self, states: StatesBySubtask, inflight: dict[_EntryPosition, InflightEntry]) -> SnapshotMetadata:
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
                state = insert_blobs(state, blobs.get(source.operator_id, []))
            except (IndexError, RecursionError):
                raise CorruptSnapshot(f"the state of source {source.operator_id!r} lacks a blob") from None
            sources.append(msgspec.structs.replace(source, state=state))
        return BlobStore(self._store, self._made.first_file).write_blobs(
            msgspec.structs.replace(metadata, sources=sources)
        )

    def _blob(self, path: str) -> Blob:
        """Return the content of a file, which must be a valid Arrow stream."""
        _, batches = read_stream(self._paths[path], path)
        for _ in batches:
            pass
        content = self._paths[path].read_bytes()
        self._meter.add(len(content))
        return Blob(content)

    def _copy_file(self, ref: FileRef) -> None:
        """Copy a file under its own path, because splits refer to the path."""
        try:
            target = self._store.create(ref.path)
        except FileExistsError:
            self._check_existing_file(ref)
            return
        with self._paths[ref.path].open("rb") as file:
            while data := file.read(COPY_BYTES):
                target.write(data)
        target.close()
        self._meter.add(ref.length)

    def _check_existing_file(self, ref: FileRef) -> None:
        """Check a file that an earlier attempt has left."""
        found = xxhash.xxh3_128()
        for offset in range(0, ref.length, COPY_BYTES):
            found.update(self._store.read_range(ref.path, offset, min(COPY_BYTES, ref.length - offset)))
        if self._store.size(ref.path) != ref.length or found.hexdigest() != ref.checksum:
            raise LocationError(
                f"{self._store.root}: {ref.path} is there with other content, as an interrupted command may "
                "have left it; give an empty location"
            )


class _CountedBatches:
    """Batches of one entry. They are counted as they are written to a section."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        for one in self._batches:
            self.rows += one.rows.num_rows
            yield one.rows, one.of_buffer
