"""``diff`` command: differences between two snapshots of any parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from penstock.model.manifest import PlanManifest, StateEntry
from penstock.model.plain import Plain
from penstock.snapshots.commands.narrowed_rows import count_narrowed_rows
from penstock.snapshots.commands.opened_location import OpenedLocation, plan_of_snapshot
from penstock.snapshots.commands.plain_values import plain_value
from penstock.snapshots.commands.plan_names import PlanNames
from penstock.snapshots.commands.positions import EdgeChange, SourceChange, edge_changes, source_changes
from penstock.snapshots.commands.table_rows import (
    NO_ROW,
    RANGE_BYTES,
    Codes,
    ColumnsDiffer,
    StoredTable,
    column_codes,
    combine_codes,
    has_deltas,
    last_rows,
    stored_rows,
)
from penstock.snapshots.format.plan import first_optional_column, key_column_count
from penstock.snapshots.format.table_entries import entries_of_groups, split_key_groups, table_entries
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.store.store import Store
from penstock.state.arrays import readable_objects

Progress = Callable[[int, int], None]
"""Callback with the work done and the total work, in the same unit."""


_Sides = tuple[list[StateEntry], list[StateEntry]]


class RowChange(msgspec.Struct, frozen=True):
    """Example of a changed row.

    ``before`` and ``after`` hold the values by column; None if the row does not exist there.
    """

    change: str
    key: dict[str, Plain]
    before: dict[str, Plain] | None
    after: dict[str, Plain] | None


class TableChange(msgspec.Struct, frozen=True):
    """Differences of one state table.

    Attributes:
        keys: the key columns; None if the plan does not name them. Then whole rows are compared, and none counts as
            ``changed``.
        problem: the reason why rows could not be compared; otherwise empty.
    """

    operator_id: str
    operator: str
    table: str
    keys: list[str] | None
    added: int
    changed: int
    removed: int
    examples: list[RowChange]
    problem: str = ""


class SnapshotDiff(msgspec.Struct, frozen=True):
    """Differences from snapshot ``before`` to ``after``. Tables that neither snapshot has are not listed."""

    location: str
    before: str
    after: str
    parallelism_before: int
    parallelism_after: int
    tables: list[TableChange]
    sources: list[SourceChange]
    edges: list[EdgeChange]


@dataclass
class _TableDifferences:
    """Differences found so far in one table. ``max_examples`` is the number of examples per kind of change."""

    max_examples: int
    names: list[str] = field(default_factory=list)
    added: int = 0
    changed: int = 0
    removed: int = 0
    examples: list[RowChange] = field(default_factory=list)


def compare_snapshots(
    opened: OpenedLocation,
    before: SnapshotRecord,
    after: SnapshotRecord,
    examples: int = 0,
    progress: Progress | None = None,
) -> SnapshotDiff:
    """Compare two snapshots. Key groups that were not written between the snapshots are not read.

    Args:
        examples: number of example rows per table and kind of change.

    Raises:
        CorruptSnapshot: metadata or a section is damaged.
        LocationError: a snapshot was deleted meanwhile.
    """
    old_metadata, new_metadata = opened.metadata(before), opened.metadata(after)
    old_plan, new_plan = (
        plan_of_snapshot(old_metadata, opened.identity),
        plan_of_snapshot(new_metadata, opened.identity),
    )
    old_tables, new_tables = table_entries(old_metadata), table_entries(new_metadata)
    names = dict.fromkeys([*old_tables, *new_tables])
    tables = []
    for done, name in enumerate(names):
        sides = old_tables.get(name, []), new_tables.get(name, [])
        plan = new_plan if name in new_tables else old_plan
        groups = max(old_metadata.max_parallelism, new_metadata.max_parallelism)

        def report(part: float, done: int = done) -> None:
            if progress is not None:
                progress(int((done + part) * 1000), len(names) * 1000)

        def compare(
            plan: PlanManifest = plan, name: tuple[str, str] = name, sides: _Sides = sides, groups: int = groups
        ) -> TableChange:
            return _compare_table(opened.store, plan, name, sides, groups, examples, report)

        tables.append(opened.unless_deleted([before.checkpoint, after.checkpoint], compare))
    return SnapshotDiff(
        opened.path,
        old_metadata.id,
        new_metadata.id,
        old_metadata.parallelism,
        new_metadata.parallelism,
        tables,
        source_changes(old_metadata, new_metadata, new_plan),
        opened.unless_deleted(
            [before.checkpoint, after.checkpoint],
            lambda: edge_changes(
                (count_narrowed_rows(opened.store, old_metadata, old_plan), old_plan),
                (count_narrowed_rows(opened.store, new_metadata, new_plan), new_plan),
            ),
        ),
    )


def _compare_table(
    store: Store,
    plan: PlanManifest,
    name: tuple[str, str],
    sides: _Sides,
    max_parallelism: int,
    examples: int,
    report: Callable[[float], None],
) -> TableChange:
    key_count = key_column_count(plan, *name)
    added_columns = first_optional_column(plan, *name)
    found = _TableDifferences(examples)
    problem = ""
    if key_count is None and any(map(has_deltas, sides)):
        problem = "the snapshot does not tell which columns are the key"
    else:
        try:
            for groups in split_key_groups([*sides[0], *sides[1]], (0, max_parallelism - 1), RANGE_BYTES):
                old, new = (entries_of_groups(side, groups) for side in sides)
                if old != new:  # Otherwise both refer to the same rows.
                    _compare_rows(store, (old, new), key_count, added_columns, found)
                report((groups[1] + 1) / max_parallelism)
        except ColumnsDiffer as error:
            problem = f"its columns have changed: {error}"
    keys = None if key_count is None else found.names[1 : 1 + key_count]
    title = PlanNames(plan).operator(name[0])
    counts = (0, 0, 0) if problem else (found.added, found.changed, found.removed)
    return TableChange(name[0], title, name[1], keys, *counts, [] if problem else found.examples, problem)


def _compare_rows(
    store: Store, sides: _Sides, key_count: int | None, added_columns: int | None, found: _TableDifferences
) -> None:
    read = stored_rows(store, sides, added_columns)
    if read is None:
        return
    table, (old_count, new_count) = read
    count = old_count + new_count
    found.names = table.names
    columns = table.rows.num_columns
    keyed = range(1, columns if key_count is None else 1 + key_count)
    keys = combine_codes([column_codes(table.rows.column(position)) for position in keyed], count)
    distinct = int(keys.max(initial=-1)) + 1
    old = last_rows(keys, distinct, 0, old_count, table.deleted)
    new = last_rows(keys, distinct, old_count, new_count, table.deleted)
    both = (old != NO_ROW) & (new != NO_ROW)
    changed = _changed(table, old[both], new[both], range(keyed.stop, columns))
    pairs = {
        "added": (old[(old == NO_ROW) & (new != NO_ROW)], new[(old == NO_ROW) & (new != NO_ROW)]),
        "changed": (old[both][changed], new[both][changed]),
        "removed": (old[(old != NO_ROW) & (new == NO_ROW)], new[(old != NO_ROW) & (new == NO_ROW)]),
    }
    for change, (before, after) in pairs.items():
        setattr(found, change, getattr(found, change) + len(before))
        room = max(0, found.max_examples - sum(example.change == change for example in found.examples))
        for left, right in zip(before[:room], after[:room], strict=True):
            found.examples.append(_example(change, table, keyed.stop, int(left), int(right)))


def _changed(
    table: StoredTable, old: Codes, new: Codes, positions: range
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    changed = np.zeros(len(old), np.bool_)
    for position in positions:
        codes = column_codes(table.rows.column(position))
        changed |= codes[old] != codes[new]
    return changed


def _example(change: str, table: StoredTable, values_from: int, old: int, new: int) -> RowChange:
    def values_at(row: int, positions: range) -> dict[str, Plain] | None:
        if row == NO_ROW:
            return None
        return {table.names[i]: plain_value(readable_objects(table.rows.column(i).slice(row, 1))[0]) for i in positions}

    values = range(values_from, table.rows.num_columns)
    key = values_at(new if old == NO_ROW else old, range(1, values_from))
    return RowChange(change, key or {}, values_at(old, values), values_at(new, values))
