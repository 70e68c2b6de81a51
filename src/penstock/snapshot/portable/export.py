"""From a snapshot at a checkpoint location to a portable one. The location is only read; its owner may be running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import CorruptSnapshot, LocationError, NotSupported
from penstock.protocol.elements import Side
from penstock.snapshot.bringing import kept_files
from penstock.snapshot.catalog import Catalog, snapshot_id
from penstock.snapshot.checkpoint_writer import BUFFER_ID, BUFFER_OFFSET
from penstock.snapshot.fork import is_called
from penstock.snapshot.kept_tables import entries_by_table
from penstock.snapshot.location import KEPT_FOLDER, existing_location, read_identity
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.log_entries import LogView, SnapshotRecord
from penstock.snapshot.model import InflightEntry, PlanManifest, SnapshotMetadata, StateEntry
from penstock.snapshot.plan import key_columns
from penstock.snapshot.portable.columns import declared_schema, parquet_schema, portable_columns
from penstock.snapshot.portable.files import AT_ONCE, NewFile, new_directory
from penstock.snapshot.portable.layout import (
    BLOB_FOLDER,
    FORMAT,
    FORMAT_VERSION,
    INFLIGHT_FOLDER,
    MANIFEST,
    PLACE,
    STATE_FOLDER,
    Blobs,
    FileRef,
    Manifest,
    Stream,
    Table,
    TablePart,
    file_name,
    sealed,
)
from penstock.snapshot.portable.tables import RANGE_BYTES, merged_rows, written_schema
from penstock.snapshot.sections import Metadata, SectionContent, read_content, read_verified
from penstock.snapshot.store import Store
from penstock.snapshot.widening import as_schema

ROW_GROUP_BYTES = 16 << 20
ROW_GROUP_ROWS = 1 << 18
"""A row group has no more rows, nor has a batch in flight, and about so many bytes: what a reader of few key groups
reads at least."""

_Placed = tuple[tuple[int, int, int], InflightEntry]
"""An in-flight entry and where it is listed; see ``PLACE``."""


def export_snapshot(location: str, snapshot: str, directory: Path, range_bytes: int = RANGE_BYTES) -> Manifest:
    """Write one snapshot as a portable one; returns what its manifest says.

    Args:
        location: a checkpoint location.
        snapshot: an id (``chk-7``) or a label.
        directory: a new one, or an empty one. It is there as a whole or not at all.
        range_bytes: about what is held in memory of a table.

    Raises:
        LocationError: there is no such snapshot, it is damaged or goes meanwhile, or the directory cannot be written.
        NotSupported: a table cannot be written as Parquet.
    """
    store = existing_location("the location", location)
    log, catalog = SnapshotLog(store), Catalog(store)
    record = _chosen(log.refresh(), location, snapshot)
    try:
        with new_directory(directory, "the directory") as folder:
            metadata = catalog.read(record)
            plan = metadata.plan or read_identity(store)
            manifest = _Export(store, metadata, plan, folder, range_bytes).written()
            with NewFile(folder, MANIFEST) as file:  # last: without it the directory means nothing
                file.write(sealed(manifest))
            return manifest
    except (CorruptSnapshot, FileNotFoundError) as error:
        name = snapshot_id(record.checkpoint)
        if log.refresh().snapshot(record.checkpoint) is None:
            raise LocationError(
                f"{name} was deleted while it was exported; take one with query.snapshot(), which is kept"
            ) from error
        raise CorruptSnapshot(f"{location}: {name} is not whole: {error}") from error


def _chosen(view: LogView, location: str, snapshot: str) -> SnapshotRecord:
    named = [record for record in view.snapshots if is_called(record, snapshot)]
    if len(named) == 1:
        return named[0]
    known = ", ".join(snapshot_id(record.checkpoint) for record in reversed(view.snapshots)) or "none"
    what = f"several snapshots have the label {snapshot!r}" if named else f"there is no snapshot {snapshot!r}"
    raise LocationError(f"{location}: {what}; the query there has: {known}")


class _Export:
    """Of one snapshot into one folder. Nothing larger than a section, or a range of key groups, is in memory."""

    def __init__(
        self, store: Store, metadata: SnapshotMetadata, plan: PlanManifest, folder: Path, range_bytes: int
    ) -> None:
        self._store = store
        self._metadata = msgspec.structs.replace(metadata, plan=PlanManifest(plan.operators, plan.edges))
        self._plan = plan
        self._folder = folder
        self._range_bytes = range_bytes

    def written(self) -> Manifest:
        tables = list(self._tables())
        streams = list(self._streams())
        blobs = [self._blobs(source.operator_id) for source in self._metadata.sources if source.sections]
        return Manifest(FORMAT, FORMAT_VERSION, self._bare(), tables, streams, blobs, list(self._lane()))

    def _bare(self) -> SnapshotMetadata:
        """The metadata without references to data of the location."""
        slots = [
            msgspec.structs.replace(
                slot, subtasks=[msgspec.structs.replace(one, states=[], inflight=[]) for one in slot.subtasks]
            )
            for slot in self._metadata.slots
        ]
        sources = [msgspec.structs.replace(source, sections=[]) for source in self._metadata.sources]
        return msgspec.structs.replace(self._metadata, slots=slots, sources=sources)

    # -- state --------------------------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[Table]:
        subtasks = [subtask for slot in self._metadata.slots for subtask in slot.subtasks]
        by_table: dict[tuple[str, str], list[tuple[int, Sequence[StateEntry]]]] = {}
        for table, entries in entries_by_table(subtasks).items():
            by_table.setdefault((table.operator_id, table.table), []).append((table.subtask.index, entries))
        for (operator_id, name), parts in by_table.items():
            yield self._table(operator_id, name, sorted(parts, key=lambda part: part[0]))

    def _table(self, operator_id: str, name: str, parts: Sequence[tuple[int, Sequence[StateEntry]]]) -> Table:
        what = f"table {name!r} of {operator_id}"
        states = self._plan.operators.get(operator_id, {}).get("states")
        if not isinstance(states, dict) or name not in states:
            raise CorruptSnapshot(f"{what} is not in the snapshot's plan")
        columns = states[name]
        assert isinstance(columns, list)
        schema = declared_schema([str(one) for one in columns], written_schema(self._store, parts[0][1]), what)
        keys = key_columns(self._plan, operator_id, name)
        folder = f"{STATE_FOLDER}/{file_name(operator_id)}/{file_name(name)}"
        stored = [self._part(folder, index, entries, schema, keys) for index, entries in parts]
        return Table(operator_id, name, keys, portable_columns(schema), stored)

    def _part(
        self, folder: str, subtask: int, entries: Sequence[StateEntry], schema: pa.Schema, keys: int | None
    ) -> TablePart:
        as_parquet = parquet_schema(schema, portable_columns(schema))
        rows = 0
        with NewFile(self._folder, f"{folder}/part-{subtask:05d}.parquet") as file:
            try:
                with pq.ParquetWriter(
                    pa.PythonFile(file, mode="w"),
                    as_parquet,
                    compression="none",
                    use_dictionary=False,
                    use_compliant_nested_type=False,  # which would rename the elements of lists
                ) as writer:
                    for table in merged_rows(self._store, entries, schema, keys, self._range_bytes):
                        at_once = min(ROW_GROUP_ROWS, max(1, ROW_GROUP_BYTES * table.num_rows // (table.nbytes + 1)))
                        writer.write_table(table.rename_columns(as_parquet.names), row_group_size=at_once)
                        rows += table.num_rows
            except pa.ArrowNotImplementedError as error:
                raise NotSupported(f"a table with these columns cannot be written as Parquet: {error}") from error
        return TablePart(subtask, rows, file.ref())

    # -- rows in flight -----------------------------------------------------------------------------------------------

    def _streams(self) -> Iterator[Stream]:
        identities = {edge["id"]: identity for identity, edge in self._plan.edges.items()}
        found: dict[tuple[str, int], list[_Placed]] = {}
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
            yield self._stream(exchange, consumer, sorted(entries, key=_restore_order))

    def _stream(self, exchange: str, consumer: int, entries: Sequence[_Placed]) -> Stream:
        columns = self._plan.edges[exchange]["schema"]
        assert isinstance(columns, list)
        schema: pa.Schema | None = None
        rows = 0
        path = f"{INFLIGHT_FOLDER}/{file_name(exchange)}/consumer-{consumer:05d}.arrows"
        with NewFile(self._folder, path) as file:
            writer: pa.RecordBatchStreamWriter | None = None
            for place, entry in entries:
                content = read_content(self._store, entry.section)
                if writer is None:
                    schema = declared_schema([str(one) for one in columns], content.schema, f"exchange {exchange}")
                    writer = pa.ipc.new_stream(pa.PythonFile(file, mode="w"), schema)
                for batch, metadata in _rows_of(content, entry):
                    described = {**metadata, **_described(place, entry)}
                    writer.write_batch(as_schema(batch, schema), custom_metadata=described)
                rows += entry.rows
            assert writer is not None
            writer.close()
        return Stream(exchange, consumer, rows, file.ref())

    # -- sources ------------------------------------------------------------------------------------------------------

    def _blobs(self, operator_id: str) -> Blobs:
        (source,) = [source for source in self._metadata.sources if source.operator_id == operator_id]
        files = []
        for number, ref in enumerate(source.sections):
            with NewFile(self._folder, f"{BLOB_FOLDER}/{file_name(operator_id)}/blob-{number:05d}.arrows") as file:
                file.write(read_verified(self._store, ref))
            files.append(file.ref())
        return Blobs(operator_id, files)

    def _lane(self) -> Iterator[FileRef]:
        """What splits name, which has to be there, and whatever else sources remember there now."""
        named = kept_files(self._metadata)
        for path in sorted({*named, *self._store.list(KEPT_FOLDER)}):
            if path not in named and not self._store.exists(path):
                continue  # it went meanwhile
            with NewFile(self._folder, path) as file:
                offset = 0
                while data := self._store.read_range(path, offset, AT_ONCE):
                    file.write(data)
                    offset += len(data)
            yield file.ref()


def _restore_order(placed: _Placed) -> tuple[int, bool, tuple[int, int, int]]:
    place, entry = placed
    return entry.layer, entry.side != Side.CONSUMER.value, place


def _described(place: tuple[int, int, int], entry: InflightEntry) -> dict[str, str]:
    return {
        PLACE: ":".join(map(str, place)),
        "producer": str(entry.producer),
        "consumer": str(entry.consumer),
        "layer": str(entry.layer),
        "side": entry.side,
        "key_group_first": str(entry.key_group_first),
        "key_group_last": str(entry.key_group_last),
        "narrowed": "true" if entry.narrowed else "false",
    }


def _rows_of(content: SectionContent, entry: InflightEntry) -> Iterator[tuple[pa.RecordBatch, Metadata]]:
    """The rows of an entry, with the buffers that they were cut from."""
    position, end = 0, entry.row_start + entry.rows
    for batch, custom in zip(content.batches, content.metadata, strict=True):
        buffer, offset = custom.get(BUFFER_ID, ""), int(custom.get(BUFFER_OFFSET, "0"))
        last = min(end - position, batch.num_rows)
        for first in range(max(entry.row_start - position, 0), last, ROW_GROUP_ROWS):
            rows = min(ROW_GROUP_ROWS, last - first)
            yield batch.slice(first, rows), {BUFFER_ID: buffer, BUFFER_OFFSET: str(offset + first)}
        position += batch.num_rows
    if position < end:
        raise CorruptSnapshot(f"section {entry.section.identity!r} has {position} rows; {end} are referred to")
