"""Export of a snapshot as a portable snapshot. The checkpoint location is only read; its query may be running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from penstock.errors import CorruptSnapshot
from penstock.model.elements import Side
from penstock.model.ids import snapshot_id
from penstock.model.manifest import InflightEntry, PlanManifest, SnapshotMetadata, StateEntry
from penstock.model.plain import Plain
from penstock.snapshots.bootstrap import without_data_references
from penstock.snapshots.commands.opened_location import OpenedLocation, open_location_to_read, plan_of_snapshot
from penstock.snapshots.format.plan import first_optional_column, key_column_count
from penstock.snapshots.format.sections import read_verified
from penstock.snapshots.location import SOURCE_FOLDER
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.portable.columns import declared_schema, portable_columns
from penstock.snapshots.portable.files import COPY_BYTES, NewFile, new_directory
from penstock.snapshots.portable.in_place import write_in_place
from penstock.snapshots.portable.jobs import (
    EntryPosition,
    Job,
    RunJobs,
    StreamJob,
    TableJob,
    WrittenFile,
    run_in_threads,
)
from penstock.snapshots.portable.layout import (
    BLOB_FOLDER,
    FORMAT,
    FORMAT_VERSION,
    INFLIGHT_FOLDER,
    MANIFEST,
    STATE_FOLDER,
    Blobs,
    FileRef,
    Manifest,
    Stream,
    Table,
    TablePart,
    manifest_bytes,
    safe_file_name,
)
from penstock.snapshots.portable.tables import RANGE_BYTES, written_schema
from penstock.snapshots.progress_meter import Meter, Progress, no_progress
from penstock.snapshots.restoring.local_state import entries_by_table
from penstock.snapshots.store.store import LocalStore, Store
from penstock.snapshots.store.store_access import StoreAccess
from penstock.snapshots.store.stores import is_object_store, local_folder, store_at
from penstock.snapshots.transfer import source_files


def export_snapshot(
    location: str,
    snapshot: str,
    directory: str | Path,
    *,
    range_bytes: int = RANGE_BYTES,
    run: RunJobs = run_in_threads,
    access: StoreAccess | None = None,
    progress: Progress = no_progress,
) -> Manifest:
    """Write one snapshot as a portable snapshot; return its manifest.

    Args:
        location: a checkpoint location.
        snapshot: an id (``chk-7``) or a label.
        directory: a new or empty folder, which is created completely or not at all; or an empty prefix of an object
            store (``s3://bucket/prefix``). On an object store the manifest is written last, and the same call completes
            an interrupted export.
        range_bytes: approximate number of bytes of a table that each job holds in memory.
        run: runs the jobs that write the large files; see ``jobs.py``.
        access: access to object stores; None takes it from the environment.
        progress: counts rows.

    Raises:
        LocationError: the snapshot does not exist, is damaged or is deleted in the meantime, or the directory cannot be
            written.
        NotSupported: a table cannot be written as Parquet.
    """
    opened = open_location_to_read(location, access)
    record = opened.record(snapshot)

    def write(target: Store) -> Manifest:
        return write_portable(opened, record, target, range_bytes=range_bytes, run=run, progress=progress)

    if isinstance(directory, str) and is_object_store(directory):
        query_id = opened.metadata(record).query_id
        return write_in_place(store_at(directory, access), query_id, snapshot_id(record.checkpoint), write)
    folder = directory if isinstance(directory, Path) else local_folder(directory)
    with new_directory(folder, "the directory") as new:
        return write(LocalStore(new))


def write_portable(
    opened: OpenedLocation,
    record: SnapshotRecord,
    target: Store,
    *,
    range_bytes: int = RANGE_BYTES,
    run: RunJobs = run_in_threads,
    progress: Progress = no_progress,
) -> Manifest:
    """Write one snapshot as a portable snapshot into an empty store; see ``export_snapshot``.

    The manifest is written last: readers ignore the other files without it.
    """
    metadata = opened.metadata(record)
    try:
        plan = plan_of_snapshot(metadata, opened.identity)
        manifest = _Export(opened.store, metadata, plan, target, range_bytes).write(run, progress)
        target.create_if_absent(MANIFEST, manifest_bytes(manifest))
    except (CorruptSnapshot, FileNotFoundError, ValueError) as error:
        raise opened.damage_error([record.checkpoint], error) from error
    return manifest


@dataclass(frozen=True)
class _TableJobs:
    """Jobs that write the parts of one table, one part per subtask. ``table`` has no parts yet."""

    table: Table
    subtasks: list[int]
    jobs: list[TableJob]

    def stored(self, written: Iterator[WrittenFile]) -> Table:
        parts = [TablePart(index, done.rows, done.file) for index, done in zip(self.subtasks, written, strict=False)]
        return msgspec.structs.replace(self.table, parts=parts)


@dataclass(frozen=True)
class _StreamJob:
    consumer: int
    job: StreamJob

    def stored(self, written: WrittenFile) -> Stream:
        return Stream(self.job.exchange, self.consumer, written.rows, written.file)


class _Export:
    """Export of one snapshot. Each job holds only one section, or one range of key groups, in memory."""

    def __init__(
        self, source: Store, metadata: SnapshotMetadata, plan: PlanManifest, target: Store, range_bytes: int
    ) -> None:
        self._source = source
        self._metadata = msgspec.structs.replace(metadata, plan=PlanManifest(plan.operators, plan.edges))
        self._plan = plan
        self._target = target
        self._range_bytes = range_bytes

    def write(self, run: RunJobs, progress: Progress) -> Manifest:
        tables, streams = list(self._tables()), list(self._streams())
        jobs: list[Job] = [job for table in tables for job in table.jobs]
        jobs += [stream.job for stream in streams]
        meter = Meter(sum(job.stored_rows for job in jobs), progress)
        written = iter(run(jobs, self._source, self._target, meter))
        meter.finish()
        stored_tables = [table.stored(written) for table in tables]
        stored_streams = [stream.stored(next(written)) for stream in streams]
        blobs = [self._blobs(source.operator_id) for source in self._metadata.sources if source.sections]
        bare, source_files = without_data_references(self._metadata), list(self._source_files())
        return Manifest(FORMAT, FORMAT_VERSION, bare, stored_tables, stored_streams, blobs, source_files)

    # -- state --------------------------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[_TableJobs]:
        subtasks = [subtask for slot in self._metadata.slots for subtask in slot.subtasks]
        by_table: dict[tuple[str, str], list[tuple[int, Sequence[StateEntry]]]] = {}
        for table, entries in entries_by_table(subtasks).items():
            by_table.setdefault((table.operator_id, table.table), []).append((table.subtask.index, entries))
        for (operator_id, name), parts in by_table.items():
            yield self._table(operator_id, name, sorted(parts, key=lambda part: part[0]))

    def _table(self, operator_id: str, name: str, parts: Sequence[tuple[int, Sequence[StateEntry]]]) -> _TableJobs:
        what = f"table {name!r} of {operator_id}"
        states = self._plan.operators.get(operator_id, {}).get("states")
        if not isinstance(states, dict) or name not in states:
            raise CorruptSnapshot(f"{what} is not in the snapshot's plan")
        columns = states[name]
        assert isinstance(columns, list)
        written = written_schema(self._source, parts[0][1])
        first_optional = first_optional_column(self._plan, operator_id, name)
        schema = declared_schema([str(one) for one in columns], written, what, first_optional)
        keys = key_column_count(self._plan, operator_id, name)
        folder = f"{STATE_FOLDER}/{safe_file_name(operator_id)}/{safe_file_name(name)}"
        jobs = [
            TableJob(f"{folder}/part-{index:05d}.parquet", entries, schema, keys, self._range_bytes)
            for index, entries in parts
        ]
        table = Table(operator_id, name, keys, portable_columns(schema), [])
        return _TableJobs(table, [index for index, _ in parts], jobs)

    # -- rows in flight -----------------------------------------------------------------------------------------------

    def _streams(self) -> Iterator[_StreamJob]:
        identities = {edge["id"]: identity for identity, edge in self._plan.edges.items()}
        found: dict[tuple[str, int], list[tuple[EntryPosition, InflightEntry]]] = {}
        for slot in self._metadata.slots:
            for number, subtask in enumerate(slot.subtasks):
                for position, entry in enumerate(subtask.inflight):
                    if entry.edge not in identities:
                        raise CorruptSnapshot(
                            f"{self._metadata.id} has rows on exchange {entry.edge}, which no plan has"
                        )
                    key = identities[entry.edge], entry.consumer
                    found.setdefault(key, []).append(((slot.slot, number, position), entry))
        for (exchange, consumer), entries in sorted(found.items()):
            columns, keys = (_texts(self._plan.edges[exchange][part]) for part in ("schema", "keys"))
            path = f"{INFLIGHT_FOLDER}/{safe_file_name(exchange)}/consumer-{consumer:05d}.arrows"
            ordered = sorted(entries, key=_restore_order)
            groups = self._metadata.max_parallelism
            yield _StreamJob(consumer, StreamJob(path, exchange, columns, keys, groups, ordered))

    # -- sources ------------------------------------------------------------------------------------------------------

    def _blobs(self, operator_id: str) -> Blobs:
        (source,) = [source for source in self._metadata.sources if source.operator_id == operator_id]
        files = []
        for number, ref in enumerate(source.sections):
            with NewFile(self._target, f"{BLOB_FOLDER}/{safe_file_name(operator_id)}/blob-{number:05d}.arrows") as file:
                file.write(read_verified(self._source, ref))
            files.append(file.ref())
        return Blobs(operator_id, files)

    def _source_files(self) -> Iterator[FileRef]:
        """Copy the sources' own files. Files that splits name must exist; other files are copied if they exist now."""
        named = source_files(self._metadata)
        for path in sorted({*named, *self._source.list(SOURCE_FOLDER)}):
            if path not in named and not self._source.exists(path):
                continue  # The source has removed the file since.
            with NewFile(self._target, path) as file:
                offset = 0
                while data := self._source.read_range(path, offset, COPY_BYTES):
                    file.write(data)
                    offset += len(data)
            yield file.ref()


def _texts(part: Plain) -> list[str]:
    assert isinstance(part, list)
    return [str(one) for one in part]


def _restore_order(placed: tuple[EntryPosition, InflightEntry]) -> tuple[int, bool, tuple[int, int, int]]:
    position, entry = placed
    return entry.layer, entry.side != Side.CONSUMER.value, position
