"""Writer of a new location with one snapshot, from a draft and DataFrames.

Steps: check the DataFrames; copy and verify the data of the original snapshot; write the tables by Spark jobs; write
the metadata and then the log. The location does not exist before the log entry. A failure removes all written files,
and the next attempt removes files of an interrupted one (``snapshots/bootstrap.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import DataType, StructType

from penstock.errors import CheckpointFailed, ConfigError, CorruptSnapshot, LocationError, NotSupported
from penstock.interop.spark_data.columns import spark_schema
from penstock.interop.spark_data.draft import Draft, Origin
from penstock.interop.spark_data.state_reader import shown_schema
from penstock.interop.spark_data.table_job import Entries, TableTarget, write_empty, write_table
from penstock.model.manifest import CaptureMetrics, SlotManifest, SnapshotMetadata, StateEntry
from penstock.snapshots.bootstrap import (
    FILE_NUMBERS_PER_ATTEMPT,
    LocationBootstrap,
    bootstrap_location,
    location_in_use_error,
    with_renamed_files,
)
from penstock.snapshots.catalog import Catalog, sections_of
from penstock.snapshots.format.blobs import BlobStore
from penstock.snapshots.format.sections import data_path
from penstock.snapshots.restoring.state_tables import KEY_GROUP, StateTable
from penstock.snapshots.writing.state_index import stored_bytes

COPIED_FROM = FILE_NUMBERS_PER_ATTEMPT // 2
"""First number of the copied data files of an attempt. Files of tasks have lower numbers."""
_Written = Mapping[tuple[str, str], Entries]
"""Entries by operator and table."""


def writable_schema(table: StateTable) -> StructType:
    """Return the columns that a DataFrame for the table must have, without the engine's own columns."""
    schema = shown_schema(table)
    hidden = {0, *table.internal_columns}
    fields = [field for position, field in enumerate(schema) if position not in hidden]
    return spark_schema(pa.schema(fields), f"state table {table.name}")


def write_snapshot(
    draft: Draft, frames: Mapping[str, DataFrame | None], location: str, label: str, note: str
) -> SnapshotMetadata:
    """Write the location. Blocks until it is complete.

    Args:
        draft: the draft.
        frames: by table its new rows; None: no rows. Other tables do not change.
        location: a new or empty location.
        label, note: label and note of the snapshot; empty: those of the draft.

    Raises:
        ConfigError: a DataFrame has other columns than the table.
        NotSupported: the snapshot does not have the key of a table.
        DataError: the rows cannot be stored in the table.
        LocationError: the location is in use or cannot be written, or the original snapshot was deleted.
        CorruptSnapshot: the original snapshot is damaged.
    """
    if draft.origin is None:
        frames = dict.fromkeys(draft.tables) | dict(frames)
    checked = {name: _checked_frame(draft.table(name), df) for name, df in frames.items()}
    metadata = _without_tables(draft, [draft.table(name) for name in frames], label, note)
    try:
        with bootstrap_location(location) as bootstrap:
            if bootstrap.found is not None:
                raise location_in_use_error(bootstrap.store)
            return _write_location(draft, frames, checked, metadata, bootstrap)
    except (CheckpointFailed, OSError) as error:
        raise LocationError(f"the location {location} cannot be written: {error}") from error


def _write_location(
    draft: Draft,
    frames: Mapping[str, DataFrame | None],
    checked: Mapping[str, DataFrame | None],
    metadata: SnapshotMetadata,
    bootstrap: LocationBootstrap,
) -> SnapshotMetadata:
    metadata = bootstrap.with_free_number(metadata)
    if draft.origin is not None:
        metadata = _copy_data_files(draft.origin, metadata, bootstrap)
    tables = {name: draft.table(name) for name in frames}
    written = {
        (table.operator_id, table.table): _write_entries(metadata, draft, table, checked[name], bootstrap, number)
        for number, (name, table) in enumerate(tables.items())
    }
    whole = _with_entries(metadata, draft, written)
    if draft.origin is None:  # the blobs of an original snapshot are stored already and were copied
        whole = BlobStore(bootstrap.store, bootstrap.first_file).write_blobs(whole)
    used = {ref.path for ref in sections_of(whole)}
    bootstrap.store.delete_all(
        [path for path in bootstrap.attempt_files() if path not in used]
    )  # remove the files of tasks that ran twice
    if draft.origin is not None:
        _copy_source_files(draft.origin, bootstrap)
    return bootstrap.complete(whole, continues=draft.origin is None)


# -- checks -----------------------------------------------------------------------------------------------------------


def _checked_frame(table: StateTable, df: DataFrame | None) -> DataFrame | None:
    """Check a DataFrame, and return it with the table's columns in order, without the key group."""
    if table.key_count is None or table.hash_key_count is None:
        raise NotSupported(f"the snapshot does not tell the key of state table {table.name}: it cannot be written")
    if df is None:
        return None
    if df.isStreaming:
        raise ConfigError(f"state table {table.name} needs a DataFrame that ends, not a streaming one")
    given = {name.lower(): field for name, field in zip(df.columns, df.schema, strict=True)}
    if len(given) < len(df.columns):
        raise ConfigError(f"the DataFrame for state table {table.name} has two columns of one name: {df.columns}")
    names = table.display_names
    expected = spark_schema(shown_schema(table), f"state table {table.name}")
    own = {names[position] for position in table.internal_columns}
    known = {name.lower() for name in names}
    columns, wrong = [], [f"{name} is no column of it" for name in df.columns if name.lower() not in known]
    for field in expected.fields[1:]:
        found = given.get(field.name.lower())
        if found is None and field.name in own:
            columns.append(F.lit(False).alias(field.name))
        elif found is None:
            wrong.append(f"{field.name} {field.dataType.simpleString()} is missing")
        elif _without_nullability(found.dataType) != _without_nullability(field.dataType):
            wrong.append(f"{field.name} is {found.dataType.simpleString()} instead of {field.dataType.simpleString()}")
        else:
            columns.append(F.col("`" + found.name.replace("`", "``") + "`"))
    if wrong:
        needed = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in writable_schema(table))
        raise ConfigError(
            f"the DataFrame does not fit state table {table.name}: {'; '.join(wrong)}. It needs: {needed}; "
            f"{KEY_GROUP} may be there and is computed anew"
        )
    return df.select(*columns)


def _without_nullability(kind: DataType) -> Any:
    """Return the type as plain data without nullability, which is checked when rows are written."""

    def without_nullability(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_nullability(item) for key, item in value.items() if key not in _NULLABLE}
        return [without_nullability(item) for item in value] if isinstance(value, list) else value

    return without_nullability(kind.jsonValue())


_NULLABLE = ("nullable", "containsNull", "valueContainsNull", "metadata")


# -- the pieces -------------------------------------------------------------------------------------------------------


def _copy_data_files(origin: Origin, metadata: SnapshotMetadata, bootstrap: LocationBootstrap) -> SnapshotMetadata:
    """Copy the data files that the metadata refers to, and return it with their new names. Verifies all checksums."""
    source, store = origin.opened.store, bootstrap.store
    files = dict.fromkeys(ref.path for ref in sections_of(metadata))
    first = bootstrap.first_file + COPIED_FROM
    names = {
        path: data_path(metadata.generation, metadata.checkpoint, first + number) for number, path in enumerate(files)
    }

    def copy_files() -> SnapshotMetadata:
        for path, name in names.items():
            try:
                store.copy_from(path, source, name)
            except FileNotFoundError:
                raise CorruptSnapshot(f"{path} is missing") from None
        moved = with_renamed_files(metadata, names)
        Catalog(store).check(moved, checksums=True)
        return moved

    return origin.opened.unless_deleted([origin.checkpoint], copy_files)


def _copy_source_files(origin: Origin, bootstrap: LocationBootstrap) -> None:
    """Copy the files of sources. They keep their names and are never removed: other attempts may copy them, too."""
    source = origin.opened.store

    def copy_files() -> None:
        for path in dict.fromkeys([*sorted(origin.source_files), *origin.stored_source_files]):
            try:
                bootstrap.store.copy_from(path, source)
            except FileNotFoundError:
                if path in origin.source_files:
                    raise CorruptSnapshot(f"{path} is missing") from None

    origin.opened.unless_deleted([origin.checkpoint], copy_files)


def _write_entries(
    metadata: SnapshotMetadata,
    draft: Draft,
    table: StateTable,
    df: DataFrame | None,
    bootstrap: LocationBootstrap,
    number: int,
) -> Entries:
    target = TableTarget(
        bootstrap.store.root,
        bootstrap.first_file,
        metadata.generation,
        metadata.checkpoint,
        metadata.parallelism,
        draft.vertex(table.operator_id),
    )
    found = {} if df is None else write_table(df, table, target)
    empty = [subtask for subtask in range(metadata.parallelism) if subtask not in found]
    return found | (write_empty(table, target, bootstrap.store, target.path(number), empty) if empty else {})


# -- metadata ---------------------------------------------------------------------------------------------------------


def _without_tables(draft: Draft, tables: Sequence[StateTable], label: str, note: str) -> SnapshotMetadata:
    """Return the draft's metadata without the entries of these tables."""
    removed = {(table.operator_id, table.table) for table in tables}
    slots = [
        msgspec.structs.replace(
            slot,
            subtasks=[
                msgspec.structs.replace(
                    subtask,
                    states=[entry for entry in subtask.states if (entry.operator_id, entry.table) not in removed],
                )
                for subtask in slot.subtasks
            ],
        )
        for slot in draft.metadata.slots
    ]
    return msgspec.structs.replace(
        draft.metadata, slots=slots, label=label or draft.metadata.label, note=note or draft.metadata.note
    )


def _with_entries(metadata: SnapshotMetadata, draft: Draft, written: _Written) -> SnapshotMetadata:
    """Add the written entries to the subtasks' manifests, and update the metrics."""
    slots = []
    for slot in metadata.slots:
        added: dict[int, list[StateEntry]] = {}
        for (operator_id, _), entries in written.items():
            added.setdefault(draft.vertex(operator_id), []).extend(entries[slot.slot])
        subtasks = [
            msgspec.structs.replace(subtask, states=[*subtask.states, *added.get(subtask.vertex, [])])
            for subtask in slot.subtasks
        ]
        changed = msgspec.structs.replace(slot, subtasks=subtasks)
        slots.append(msgspec.structs.replace(changed, metrics=_metrics(changed, draft, written)))
    return msgspec.structs.replace(metadata, slots=slots)


def _metrics(slot: SlotManifest, draft: Draft, written: _Written) -> list[CaptureMetrics]:
    states = {subtask.vertex: subtask.states for subtask in slot.subtasks}
    found = []
    for metric in slot.metrics:
        rows = dict(metric.state_rows)
        for operator_id in {operator_id for operator_id, _ in written if draft.vertex(operator_id) == metric.vertex}:
            tables = {entry.table for entry in states[metric.vertex] if entry.operator_id == operator_id}
            rows.pop(operator_id, None)
            if all((operator_id, table) in written for table in tables):  # the rows of other tables are unknown
                rows[operator_id] = sum(
                    entry.rows for table in tables for entry in written[operator_id, table][slot.slot]
                )
        total = stored_bytes(states.get(metric.vertex, []))
        found.append(msgspec.structs.replace(metric, state_rows=rows, state_total_bytes=total))
    return found
