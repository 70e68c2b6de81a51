"""Rows of one state table of a snapshot, read a few key groups at a time from all subtasks.

Tables may be far larger than memory, so they are read in ranges of key groups with about ``RANGE_BYTES`` of stored
bytes. Rows are compared by codes: integers that are equal if the values are equal in Spark's sense (null and null, NaN
and NaN). This works for columns of any type.
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
from penstock.snapshots.format.table_entries import entries_of_groups, split_key_groups
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.state_index import BASE
from penstock.state.arrays import plain_objects
from penstock.state.stored_form import DELETED_COLUMN

RANGE_BYTES = 32 << 20
"""Stored bytes per range of key groups. Decoded rows with their codes take several times as much memory."""
NO_ROW = -1
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoredTable:
    """Stored rows in the order in which they apply.

    Columns of ``rows`` are named by position. ``deleted`` marks tombstones.
    """

    names: list[str]
    rows: pa.Table
    deleted: npt.NDArray[np.bool_]


class ColumnsDiffer(Exception):
    """Rows cannot be compared because they have different columns."""


def stored_rows(
    store: Store, sides: Sequence[Sequence[StateEntry]], first_added: int | None = None
) -> tuple[StoredTable, list[int]] | None:
    """Return the rows of several sides, one after the other, and the row count of each; None if there are none.

    A column whose type was widened has its widest type.

    Args:
        first_added: position of the first column that may be missing in some rows; it is null there.

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
    if first_added is not None:
        names = list(dict.fromkeys(name for batch in batches for name in batch.schema.names))
        batches = [_with_nulls(batch, names, first_added) for batch in batches]
    tables = [pa.Table.from_batches([_in_order(batch, names)]) for batch in batches]
    try:
        rows = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ColumnsDiffer(str(error)) from error
    return StoredTable(names, rows, np.concatenate(deleted)), counts


def _pieces(store: Store, entries: Sequence[StateEntry]) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[np.bool_]]]:
    """Yield batches without the tombstone column, and the tombstones.

    Batches are copied, because a slice would keep its whole section in memory.
    """
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


def _with_nulls(batch: pa.RecordBatch, names: Sequence[str], first_added: int) -> pa.RecordBatch:
    """Add the missing columns, with the null type."""
    if batch.schema.names[:first_added] != list(names[:first_added]):
        raise ColumnsDiffer(f"({', '.join(names[:first_added])}) and ({', '.join(batch.schema.names[:first_added])})")
    for name in names:
        if name not in batch.schema.names:
            batch = batch.append_column(name, pa.nulls(batch.num_rows))
    return batch


def _in_order(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Select columns by name, then name them by position, because names need not be unique."""
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
    """Return a number for each value. Two values have the same number if and only if they are equal."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # The column has too many bytes for one array, or is empty.
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_struct(column.type):
        parts = [column_codes(part) for part in column.flatten()]
        return combine_codes([column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64), *parts], len(column))
    try:
        encoded = pc.dictionary_encode(column, null_encoding="encode")
    except pa.ArrowNotImplementedError:  # lists and maps
        encoded = pc.dictionary_encode(pa.array([repr(value) for value in plain_objects(column)], pa.string()))
    codes: Codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes


def combine_codes(codes: Sequence[Codes], count: int) -> Codes:
    """Combine the codes of several columns into one code per row. The codes start at 0 and have no gaps."""
    rows = np.zeros(count, np.int64)
    for column in codes:
        pairs = rows * (int(column.max(initial=0)) + 1) + column
        rows = np.unique(pairs, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return rows


def last_rows(keys: Codes, distinct: int, first: int, count: int, deleted: npt.NDArray[np.bool_]) -> Codes:
    """Return the valid row of each key among rows ``[first, first + count)``; ``NO_ROW`` if the key has none."""
    last = np.full(distinct, NO_ROW, np.int64)
    span = np.arange(first, first + count)
    last[keys[span]] = span  # Of several rows with one key, the last one remains.
    known = last[last != NO_ROW]
    last[keys[known[deleted[known]]]] = NO_ROW
    return last


def live_rows_by_group(
    store: Store,
    entries: Sequence[StateEntry],
    max_parallelism: int,
    key_count: int | None,
    first_added: int | None = None,
) -> npt.NDArray[np.int64] | None:
    """Read the table and count the rows of each key group.

    Return None if the keys are unknown and the table has deltas, whose rows replace others.

    Raises:
        CorruptSnapshot, ColumnsDiffer: as ``stored_rows``.
    """
    if key_count is None and has_deltas(entries):
        return None
    counts = np.zeros(max_parallelism, np.int64)
    for groups in split_key_groups(entries, (0, max_parallelism - 1), RANGE_BYTES):
        found = stored_rows(store, [entries_of_groups(entries, groups)], first_added)
        if found is None:
            continue
        table, (count,) = found
        live = np.arange(count)
        if key_count is not None and has_deltas(entries):
            keys = combine_codes([column_codes(table.rows.column(1 + i)) for i in range(key_count)], count)
            last = last_rows(keys, int(keys.max(initial=-1)) + 1, 0, count, table.deleted)
            live = last[last != NO_ROW]
        counts += np.bincount(table.rows.column(0).to_numpy()[live], minlength=max_parallelism)[:max_parallelism]
    return counts
