"""State tables of a snapshot, over all subtasks: columns, keys, and rows by ranges of key groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.manifest import PlanManifest, SnapshotMetadata, StateEntry, SubtaskManifest
from penstock.snapshots.format.plan import CHANGED_COLUMN, first_optional_column, hashed_column_count, key_column_count
from penstock.snapshots.format.table_entries import table_entries
from penstock.snapshots.portable.columns import declared_schema
from penstock.snapshots.portable.layout import unique_column_names
from penstock.snapshots.portable.tables import merged_rows, written_schema
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.restoring.widening import as_schema
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.state_index import BASE
from penstock.state.stored_form import KEY_GROUP_COLUMN

KEY_GROUP = "key_group"
"""Name of the column ``__key_group`` for users."""


@dataclass(frozen=True)
class StateTable:
    """Description of a snapshot's state table.

    Attributes:
        schema: schema of its rows, ``__key_group`` first.
        key_count: number of key columns, which follow ``__key_group``; None if the snapshot does not record it.
        hash_key_count: number of leading key columns that determine the key group; None if the snapshot does not record
            it.
        entries: entries of all subtasks.
    """

    operator_id: str
    table: str
    schema: pa.Schema
    key_count: int | None
    hash_key_count: int | None
    max_parallelism: int
    entries: tuple[StateEntry, ...] = ()

    @property
    def name(self) -> str:
        """Name of the table, as ``show`` prints it and users write it."""
        return table_name(self.operator_id, self.table)

    @property
    def display_names(self) -> list[str]:
        """Column names for users, by position: ``key_group`` first, without duplicates."""
        return unique_column_names([KEY_GROUP, *self.schema.names[1:]])

    @property
    def internal_columns(self) -> frozenset[int]:
        """Positions of the engine's own columns."""
        position = -1 if self.key_count is None else 1 + self.key_count
        return frozenset({position} if self.schema.names[position : position + 1] == [CHANGED_COLUMN] else ())


def table_name(operator_id: str, table: str) -> str:
    return f"{operator_id}/{table}"


def find_table(store: Store, metadata: SnapshotMetadata, plan: PlanManifest, name: str) -> StateTable:
    """Return the table named ``<operator id>/<table>``. Reads one section.

    Raises:
        LocationError: there is no such table. The message lists the existing ones.
        CorruptSnapshot: the section is missing or changed, or its columns differ from the plan.
    """
    tables = table_entries(metadata)
    for (operator_id, table), entries in tables.items():
        if table_name(operator_id, table) == name:
            columns = _declared_columns(plan, operator_id, table)
            smallest = min(entries, key=lambda entry: entry.section.length)
            first_optional = first_optional_column(plan, operator_id, table)
            schema = declared_schema(columns, written_schema(store, [smallest]), f"state table {name}", first_optional)
            return StateTable(
                operator_id,
                table,
                schema,
                key_column_count(plan, operator_id, table),
                hashed_column_count(plan, operator_id),
                metadata.max_parallelism,
                tuple(entries),
            )
    known = ", ".join(table_name(*one) for one in tables) or "none"
    raise LocationError(f"{metadata.id} has no state table {name!r}; it has: {known}")


def _declared_columns(plan: PlanManifest, operator_id: str, table: str) -> list[str]:
    states = plan.operators.get(operator_id, {}).get("states")
    columns = states.get(table) if isinstance(states, dict) else None
    if not isinstance(columns, list) or str(columns[:1]) != str([f"{KEY_GROUP_COLUMN} int16"]):
        raise CorruptSnapshot(f"the snapshot's plan does not tell the columns of {table_name(operator_id, table)}")
    return [str(column) for column in columns]


def entries_with_groups(entries: Iterable[StateEntry], groups: npt.NDArray[np.bool_]) -> list[StateEntry]:
    """Return the entries that contain any of the marked key groups."""
    before = np.concatenate([[0], np.cumsum(groups)])
    top = len(groups)
    return [
        entry
        for entry in entries
        if before[min(entry.key_group_last + 1, top)] > before[max(0, min(entry.key_group_first, top))]
    ]


def read_rows(
    store: Store, entries: Sequence[StateEntry], schema: pa.Schema, key_count: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the current rows of one table: one row per key, no tombstones, no empty batches.

    If there are no deltas, one section is in memory at a time, and rows are not copied.

    Raises:
        CorruptSnapshot: a section is missing or changed.
        NotSupported: the table has deltas, and its key is unknown.
    """
    if all(entry.kind == BASE for entry in entries):
        restored = load_restore(SubtaskManifest(0, 0, states=list(entries)), store)
        for state in restored.operators.values():
            for pieces_of_table in state.tables.values():
                for piece in pieces_of_table:
                    yield as_schema(piece.batch, schema)
        return
    for table in merged_rows(store, entries, schema, key_count):
        for batch in table.to_batches():
            if batch.num_rows:
                yield batch
