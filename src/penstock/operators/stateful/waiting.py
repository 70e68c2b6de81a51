"""Rows of a slice whose keys have not had their turn: a snapshot in the middle of a slice keeps them as state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.state.table import KeyedTable

_AT_ONCE = 8192


class WaitingInput:
    """The table is empty but for the moment of a snapshot, and after a restore.

    Args:
        keys: positions of the grouping key in the input.
    """

    def __init__(self, table: KeyedTable, keys: Sequence[int], schema: pa.Schema) -> None:
        self.table = table
        self._keys = list(keys)
        self._schema = schema

    @contextmanager
    def stored(self, rows: pa.RecordBatch | None) -> Iterator[None]:
        """These input rows are in the table, in their order."""
        if rows is None:
            yield
            return
        count = rows.num_rows
        keys = [*[rows.column(position) for position in self._keys], pa.array(np.arange(count))]
        with self.table.edit(keys, count) as found:
            for vector, column in zip(found.values, rows.columns, strict=True):
                vector.set(found.rows, column)
        yield
        self.table.remove(keys, count)

    def take(self) -> pa.RecordBatch | None:
        """The rows of a snapshot, in their order but for those of different subtasks; they leave the table."""
        batches, positions, gone = [], [], []
        for rows in self.table.scan(_AT_ONCE):
            columns = [vector.to_arrow(rows.rows) for vector in rows.values]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            positions.append(rows.keys[-1].to_numpy())
            gone.append(list(rows.keys))
        if not batches:
            return None
        for keys in gone:
            self.table.remove(keys, len(keys[0]))
        [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
        return whole.take(pa.array(np.argsort(np.concatenate(positions), kind="stable")))
