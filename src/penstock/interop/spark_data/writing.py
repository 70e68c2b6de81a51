"""From a draft and DataFrames to a location that begins with this one snapshot.

Order: what can be told beforehand is refused; what the snapshot keeps of another is brought and verified; Spark jobs
write the tables; metadata, and last the log. Until the log's entry is there, there is no location; a failure takes back
what was written, and what an interruption leaves the next attempt removes (``snapshots/bootstrap.py``).
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
from penstock.interop.spark_data.table_job import Entries, Target, write_empty, write_table
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

BROUGHT_FROM = FILE_NUMBERS_PER_ATTEMPT // 2
"""Numbers of an attempt's data files that are brought; tasks have lower ones."""
_Written = Mapping[tuple[str, str], Entries]
"""By operator and table."""


def writable_schema(table: StateTable) -> StructType:
    """The columns that a DataFrame for the table has to have, the engine's own left out."""
    schema = shown_schema(table)
    hidden = {0, *table.internal_columns}
    wanted = [field for position, field in enumerate(schema) if position not in hidden]
    return spark_schema(pa.schema(wanted), f"state table {table.name}")


def write_snapshot(
    draft: Draft, frames: Mapping[str, DataFrame | None], location: str, label: str, note: str
) -> SnapshotMetadata:
    """Make the location; blocks until it is whole.

    Args:
        frames: by table, what it is to hold; None: nothing. Other tables stay as they are.

    Raises:
        ConfigError: a DataFrame has other columns than the table.
        NotSupported: the snapshot does not tell what a table's key is.
        DataError: rows cannot be a table.
        LocationError: the location is in use or cannot be written, or the snapshot that the draft began with is gone.
        CorruptSnapshot: that one is damaged.
    """
    if draft.origin is None:
        frames = dict.fromkeys(draft.tables) | dict(frames)
    prepared = {name: _prepared(draft.table(name), df) for name, df in frames.items()}
    metadata = _without(draft, [draft.table(name) for name in frames], label, note)
    try:
        with bootstrap_location(location) as made:
            if made.found is not None:
                raise location_in_use_error(made.store)
            return _founded(draft, frames, prepared, metadata, made)
    except (CheckpointFailed, OSError) as error:
        raise LocationError(f"the location {location} cannot be written: {error}") from error


def _founded(
    draft: Draft,
    frames: Mapping[str, DataFrame | None],
    prepared: Mapping[str, DataFrame | None],
    metadata: SnapshotMetadata,
    made: LocationBootstrap,
) -> SnapshotMetadata:
    metadata = made.with_free_number(metadata)
    if draft.origin is not None:
        metadata = _brought(draft.origin, metadata, made)
    tables = {name: draft.table(name) for name in frames}
    written = {
        (table.operator_id, table.table): _write(metadata, draft, table, prepared[name], made, number)
        for number, (name, table) in enumerate(tables.items())
    }
    whole = _with(metadata, draft, written)
    if draft.origin is None:  # else its blobs are stored, and have been brought
        whole = BlobStore(made.store, made.first_file).write_blobs(whole)
    used = {ref.path for ref in sections_of(whole)}
    made.store.delete_all([path for path in made.attempt_files() if path not in used])  # of tasks that ran twice
    if draft.origin is not None:
        _bring_kept(draft.origin, made)
    return made.complete(whole, continues=draft.origin is None)


# -- beforehand -------------------------------------------------------------------------------------------------------


def _prepared(table: StateTable, df: DataFrame | None) -> DataFrame | None:
    """The table's columns but for the key group, in order."""
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
    wanted = spark_schema(shown_schema(table), f"state table {table.name}")
    own = {names[position] for position in table.internal_columns}
    known = {name.lower() for name in names}
    columns, wrong = [], [f"{name} is no column of it" for name in df.columns if name.lower() not in known]
    for field in wanted.fields[1:]:
        found = given.get(field.name.lower())
        if found is None and field.name in own:
            columns.append(F.lit(False).alias(field.name))
        elif found is None:
            wrong.append(f"{field.name} {field.dataType.simpleString()} is missing")
        elif _bare(found.dataType) != _bare(field.dataType):
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


def _bare(kind: DataType) -> Any:
    """The type without whether it may be null, which is found out when rows are written."""

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(item) for key, item in value.items() if key not in _NULLABLE}
        return [bare(item) for item in value] if isinstance(value, list) else value

    return bare(kind.jsonValue())


_NULLABLE = ("nullable", "containsNull", "valueContainsNull", "metadata")


# -- the pieces -------------------------------------------------------------------------------------------------------


def _brought(origin: Origin, metadata: SnapshotMetadata, made: LocationBootstrap) -> SnapshotMetadata:
    """The metadata with what it goes on to refer to in data files of this attempt, verified."""
    there, store = origin.opened.store, made.store
    files = dict.fromkeys(ref.path for ref in sections_of(metadata))
    first = made.first_file + BROUGHT_FROM
    names = {
        path: data_path(metadata.generation, metadata.checkpoint, first + number) for number, path in enumerate(files)
    }

    def copy_files() -> SnapshotMetadata:
        for path, name in names.items():
            try:
                store.copy_from(path, there, name)
            except FileNotFoundError:
                raise CorruptSnapshot(f"{path} is missing") from None
        moved = with_renamed_files(metadata, names)
        Catalog(store).check(moved, checksums=True)
        return moved

    return origin.opened.unless_deleted([origin.checkpoint], copy_files)


def _bring_kept(origin: Origin, made: LocationBootstrap) -> None:
    """Sources' own files, which keep their names: others may bring the same, so nobody takes them back."""
    there = origin.opened.store

    def copy_files() -> None:
        for path in dict.fromkeys([*sorted(origin.kept), *origin.remembered]):
            try:
                made.store.copy_from(path, there)
            except FileNotFoundError:
                if path in origin.kept:
                    raise CorruptSnapshot(f"{path} is missing") from None

    origin.opened.unless_deleted([origin.checkpoint], copy_files)


def _write(
    metadata: SnapshotMetadata,
    draft: Draft,
    table: StateTable,
    df: DataFrame | None,
    made: LocationBootstrap,
    number: int,
) -> Entries:
    target = Target(
        made.store.root,
        made.first_file,
        metadata.generation,
        metadata.checkpoint,
        metadata.parallelism,
        draft.vertex(table.operator_id),
    )
    found = {} if df is None else write_table(df, table, target)
    empty = [subtask for subtask in range(metadata.parallelism) if subtask not in found]
    return found | (write_empty(table, target, made.store, target.path(number), empty) if empty else {})


# -- metadata ---------------------------------------------------------------------------------------------------------


def _without(draft: Draft, tables: Sequence[StateTable], label: str, note: str) -> SnapshotMetadata:
    """The draft's metadata without the content of these tables."""
    gone = {(table.operator_id, table.table) for table in tables}
    slots = [
        msgspec.structs.replace(
            slot,
            subtasks=[
                msgspec.structs.replace(
                    subtask,
                    states=[entry for entry in subtask.states if (entry.operator_id, entry.table) not in gone],
                )
                for subtask in slot.subtasks
            ],
        )
        for slot in draft.metadata.slots
    ]
    return msgspec.structs.replace(
        draft.metadata, slots=slots, label=label or draft.metadata.label, note=note or draft.metadata.note
    )


def _with(metadata: SnapshotMetadata, draft: Draft, written: _Written) -> SnapshotMetadata:
    """The tables' content where it belongs, and the figures that go with it."""
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
            if all((operator_id, table) in written for table in tables):  # else nobody knows how many the others have
                rows[operator_id] = sum(
                    entry.rows for table in tables for entry in written[operator_id, table][slot.slot]
                )
        total = stored_bytes(states.get(metric.vertex, []))
        found.append(msgspec.structs.replace(metric, state_rows=rows, state_total_bytes=total))
    return found
