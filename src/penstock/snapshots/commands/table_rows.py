"""The rows of one state table of a snapshot, a few key groups at a time, from whatever subtasks they were at.

A snapshot's tables may be far larger than memory, so they are read in ranges of key groups of which about
``RANGE_BYTES`` are stored. Rows are compared by codes: whole numbers, equal where values are equal in Spark's sense
(null and null, NaN and NaN), which works for columns of any type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptSnapshot
from penstock.model.manifest import StateEntry, SubtaskManifest
from penstock.snapshots.format.sections import check_reference
from penstock.snapshots.format.table_entries import of_groups, pieces
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.state_index import BASE
from penstock.state.arrays import plain_objects
from penstock.state.stored_form import DELETED_COLUMN

RANGE_BYTES = 32 << 20
"""Stored bytes that are in memory at a time, decoded and with codes several times as much; at least one key group."""
NO_ROW = -1
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoredTable:
    """Stored rows in the order in which they apply. ``rows`` has the columns of the table, named by position, and
    ``deleted`` says which rows are tombstones."""

    names: list[str]
    rows: pa.Table
    deleted: npt.NDArray[np.bool_]


class ColumnsDiffer(Exception):
    """Rows that have other columns cannot be compared."""


def stored_rows(
    store: Store, sides: Sequence[Sequence[StateEntry]], younger: int | None = None
) -> tuple[StoredTable, list[int]] | None:
    """The rows of several sides, one after the other, and how many each has; None if there are none at all.

    A column that became wider meanwhile is as wide as the widest.

    Args:
        younger: columns from this one on may be missing in some rows, and are null there.

    Raises:
        CorruptSnapshot: a section is missing or changed.
        ColumnsDiffer: sections of the table have different columns.
    """
    batches: list[pa.RecordBatch] = []
    deleted: list[npt.NDArray[np.bool_]] = []
    counts = []
    for entries in sides:
        before = sum(map(len, deleted))
        for batch, tombstones in _pieces(store, entries):
            batches.append(batch)
            deleted.append(tombstones)
        counts.append(sum(map(len, deleted)) - before)
    if not batches:
        return None
    names: list[str] = batches[0].schema.names
    if younger is not None:
        names = list(dict.fromkeys(name for batch in batches for name in batch.schema.names))
        batches = [_with_nulls(batch, names, younger) for batch in batches]
    tables = [pa.Table.from_batches([_in_order(batch, names)]) for batch in batches]
    try:
        rows = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ColumnsDiffer(str(error)) from error
    return StoredTable(names, rows, np.concatenate(deleted)), counts


def _pieces(store: Store, entries: Sequence[StateEntry]) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
    """Each without the column of tombstones, and copied: a slice would keep its whole section in memory."""
    if not entries:
        return
    for entry in entries:
        check_reference(store, entry.section)
    operator_id, table = entries[0].operator_id, entries[0].table
    restored = load_restore(SubtaskManifest(0, 0, states=list(entries)), store)
    for piece in restored.operators[operator_id].tables[table]:
        batch = piece.batch.take(pa.array(np.arange(piece.batch.num_rows)))
        if not piece.is_delta:
            yield batch, np.zeros(batch.num_rows, np.bool_)
            continue
        if batch.schema.names[-1] != DELETED_COLUMN:
            raise CorruptSnapshot(f"a delta of {operator_id}/{table} does not end with {DELETED_COLUMN}")
        tombstones = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False).astype(np.bool_)
        yield batch.select(range(batch.num_columns - 1)), tombstones


def _with_nulls(batch: pa.RecordBatch, names: Sequence[str], younger: int) -> pa.RecordBatch:
    """With all of these columns; those without a value have no type either."""
    if batch.schema.names[:younger] != list(names[:younger]):
        raise ColumnsDiffer(f"({', '.join(names[:younger])}) and ({', '.join(batch.schema.names[:younger])})")
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows))
    return batch


def _in_order(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Columns found by name, then named by position: names need not be unique."""
    found = batch.schema.names
    if found != list(names):
        if sorted(found) != sorted(names) or len(set(names)) < len(names):
            raise ColumnsDiffer(f"({', '.join(names)}) and ({', '.join(found)})")
        batch = batch.select(list(names))
    return batch.rename_columns([str(position) for position in range(batch.num_columns)])


def has_deltas(entries: Iterable[StateEntry]) -> bool:
    return any(entry.kind != BASE for entry in entries)


# -- codes ------------------------------------------------------------------------------------------------------------


def column_codes(column: pa.Array | pa.ChunkedArray) -> Codes:
    """For each value a number; the same for the same value, and for no other."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # of too many bytes for one, or empty
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_struct(column.type):
        parts = [column_codes(part) for part in column.flatten()]
        return combined([column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64), *parts], len(column))
    try:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
    except pa.ArrowNotImplementedError:  # lists and maps
        encoded = pc.dictionary_encode(pa.array([repr(value) for value in plain_objects(column)], pa.string()))
    codes: Codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def combined(codes: Sequence[Codes], count: int) -> Codes:
    """For each row a number by all of these columns, from 0 without gaps."""
    rows = np.zeros(count, np.int64)
    for column in codes:
        pairs = rows * (int(column.max(initial=0)) + 1) + column
        rows = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return rows


def last_rows(keys: Codes, distinct: int, first: int, count: int, deleted: npt.NDArray[np.bool_]) -> Codes:
    """By key, the row that holds among rows ``[first, first + count)``; ``NO_ROW`` where there is none any more."""
    last = np.full(distinct, NO_ROW, np.int64)
    span = np.arange(first, first + count)
    last[keys[span]] = span  # of several rows the last one stays
    known = last[last != NO_ROW]
    last[keys[known[deleted[known]]]] = NO_ROW
    return last


def live_rows_by_group(
    store: Store,
    entries: Sequence[StateEntry],
    max_parallelism: int,
    key_count: int | None,
    younger: int | None = None,
) -> npt.NDArray[np.int64] | None:
    """How many rows each key group has; reads the table. None: its keys are not known, and some rows replace others.

    Raises:
        CorruptSnapshot, ColumnsDiffer: as ``stored_rows``.
    """
    if key_count is None and has_deltas(entries):
        return None
    counts = np.zeros(max_parallelism, np.int64)
    for groups in pieces(entries, (0, max_parallelism - 1), RANGE_BYTES):
        found = stored_rows(store, [of_groups(entries, groups)], younger)
        if found is None:
            continue
        table, (count,) = found
        live = np.arange(count)
        if key_count is not None and has_deltas(entries):
            keys = combined([column_codes(table.rows.column(1 + i)) for i in range(key_count)], count)
            last = last_rows(keys, int(keys.max(initial=-1)) + 1, 0, count, table.deleted)
            live = last[last != NO_ROW]
        counts += np.bincount(table.rows.column(0).to_numpy()[live], minlength=max_parallelism)[:max_parallelism]
    return counts
