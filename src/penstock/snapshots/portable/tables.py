"""Current rows of a stored table: one row per key, by key group. One range of key groups is in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import CorruptSnapshot, NotSupported
from penstock.model.manifest import StateEntry, SubtaskManifest
from penstock.snapshots.format.sections import read_content
from penstock.snapshots.format.table_entries import entries_of_groups, split_key_groups
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.restoring.widening import as_schema
from penstock.snapshots.store.store import Store
from penstock.snapshots.writing.state_index import DELTA, KeyGroups
from penstock.state.stored_form import delta_schema
from penstock.state.table import StoredRows

RANGE_BYTES = 64 << 20
"""Stored size in bytes up to which key groups are merged together. A single key group may be larger."""


def written_schema(store: Store, entries: Sequence[StateEntry]) -> pa.Schema:
    """Return the schema of a table's rows as written in one of its sections, without the tombstone column of deltas."""
    schema = read_content(store, entries[-1].section).schema
    return schema.remove(len(schema) - 1) if entries[-1].kind == DELTA else schema


def merged_rows(
    store: Store, entries: Sequence[StateEntry], schema: pa.Schema, keys: int | None, range_bytes: int = RANGE_BYTES
) -> Iterator[pa.Table]:
    """Yield the current rows of one table of one subtask, by ascending key group.

    Args:
        schema: schema of the rows, ``__key_group`` first.
        keys: number of key columns, which follow ``__key_group``. If it is None, only a table without deltas can be
            read.

    Raises:
        CorruptSnapshot: a section is missing or changed, or base rows have the same key.
        NotSupported: the table has deltas, and its key is unknown.
    """
    highest = max((entry.key_group_last for entry in entries), default=-1)
    for groups in split_key_groups(entries, (0, highest), range_bytes):
        stored = list(_stored(store, entries, schema, groups))
        if stored:
            yield _merged(stored, schema, keys, f"table {entries[0].table!r} of {entries[0].operator_id}")


def _stored(store: Store, entries: Sequence[StateEntry], schema: pa.Schema, groups: KeyGroups) -> Iterator[StoredRows]:
    parts = entries_of_groups(entries, groups)
    operators = load_restore(SubtaskManifest(0, 0, states=parts), store).operators
    for piece in (piece for state in operators.values() for rows in state.tables.values() for piece in rows):
        batch = as_schema(piece.batch, delta_schema(schema) if piece.is_delta else schema)
        # Copy the rows, because a slice would keep the whole section in memory.
        yield StoredRows(batch.take(pa.array(np.arange(batch.num_rows))), piece.is_delta)


def _merged(pieces: Sequence[StoredRows], schema: pa.Schema, keys: int | None, what: str) -> pa.Table:
    """Return the newest row of each key, without tombstones; by key group, then in the order of their last change."""
    width = len(schema)
    table = pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(piece.batch.columns[:width], schema=schema) for piece in pieces], schema
    ).combine_chunks()
    rows = np.arange(table.num_rows)
    if any(piece.is_delta for piece in pieces):
        if keys is None:
            raise NotSupported(f"{what} has changes, and the snapshot does not tell which columns are its key")
        is_deleted = np.concatenate(
            [
                piece.batch.column(width).to_numpy(zero_copy_only=False)
                if piece.is_delta
                else np.zeros(piece.batch.num_rows, bool)
                for piece in pieces
            ]
        )
        base = sum(piece.batch.num_rows for piece in pieces if not piece.is_delta)  # Bases come first.
        rows = _newest_rows(table.columns[1 : 1 + keys], table.num_rows, base, what)
        rows = rows[~is_deleted[rows]]
    groups = table.column(0).to_numpy()[rows]
    return table.take(pa.array(rows[np.argsort(groups, kind="stable")]))


def _newest_rows(keys: Sequence[pa.ChunkedArray], count: int, base: int, what: str) -> npt.NDArray[np.int64]:
    """Return the positions of the last row of each key, ascending."""
    leaves = [leaf for key in keys for leaf in _leaves(key.combine_chunks())]
    names = [str(number) for number in range(len(leaves))]
    order = pa.array(np.arange(count))
    is_base = pa.array((np.arange(count) < base).astype(np.int64))
    table = pa.table([*leaves, order, is_base], names=[*names, "row", "base"])
    found = table.group_by(names, use_threads=False).aggregate([("row", "max"), ("base", "sum")])
    if base and found.column("base_sum").to_numpy().max() > 1:
        raise CorruptSnapshot(f"{what} has base rows with the same key")
    return np.sort(found.column("row_max").to_numpy())


def _leaves(column: pa.Array) -> list[pa.Array]:
    """Return columns that are equal if the keys are: without structs, and with floats as their normalized bits."""
    kind = column.type
    if pa.types.is_null(kind):
        return []
    if pa.types.is_struct(kind):
        return [column.is_valid(), *(leaf for child in column.flatten() for leaf in _leaves(child))]
    if pa.types.is_float32(kind):
        return [column.view(pa.int32())]
    if pa.types.is_float64(kind) or pa.types.is_duration(kind):
        return [column.view(pa.int64())]
    return [column]
