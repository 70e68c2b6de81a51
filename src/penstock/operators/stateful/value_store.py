"""Value state: at most one table row per grouping key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.stateful.codec import StoredTuple, TupleCodec, stored_tuples_at
from penstock.operators.stateful.variables import StateVariable
from penstock.state.table import KeyedTable


class ValueStore:
    """Values of the keys of a unit. They are read in one step at the first access, and written in one by ``flush``.

    Keys are numbered in the order of ``begin``.
    """

    def __init__(self, variable: StateVariable, table: KeyedTable) -> None:
        self.table = table
        self.codec = TupleCodec(variable.value)
        self._ttl_ms = variable.ttl_ms
        self._keys: Sequence[pa.Array] = ()
        self._count = 0
        self._now_ms = 0
        self._rows: list[StoredTuple | None] | None = None
        self._written: dict[int, None] = {}

    def begin(self, keys: Sequence[pa.Array], count: int, now_ms: int) -> None:
        """Begin a unit of these distinct grouping keys. ``now_ms``: its processing time, for the time to live."""
        assert not self._written
        self._keys, self._count, self._now_ms = keys, count, now_ms
        self._rows = None

    def get(self, key: int) -> StoredTuple | None:
        """Return the value; None if there is none or it has expired."""
        return self._loaded()[key]

    def put(self, key: int, value: StoredTuple | None) -> None:
        """Set the value; ``None`` removes it."""
        self._loaded()[key] = value
        self._written[key] = None

    def flush(self) -> None:
        """Write changed values to the table. All values stay readable."""
        if not self._written:
            return
        rows = self._loaded()
        written = [key for key in self._written if rows[key] is not None]
        removed = [key for key in self._written if rows[key] is None]
        self._written = {}
        if removed:
            self.table.remove(self._chosen(removed), len(removed))
        if written:
            columns = self.codec.to_columns([row for key in written if (row := rows[key]) is not None])
            if self._ttl_ms is not None:
                columns.append(pa.array([self._now_ms + self._ttl_ms] * len(written), pa.int64()))
            with self.table.edit(self._chosen(written), len(written)) as found:
                for vector, column in zip(found.values, columns, strict=True):
                    vector.set(found.rows, column)

    def _chosen(self, keys: list[int]) -> list[pa.Array]:
        if len(keys) == self._count and keys == list(range(self._count)):
            return list(self._keys)
        chosen = pa.array(keys, pa.int64())
        return [column.take(chosen) for column in self._keys]

    def _loaded(self) -> list[StoredTuple | None]:
        if self._rows is None:
            self._rows = [None] * self._count
            found = self.table.find(self._keys, self._count)
            present = np.flatnonzero(found.rows >= 0)
            for key, row in zip(present.tolist(), stored_tuples_at(found.values, found.rows[present]), strict=True):
                if self._ttl_ms is None:
                    self._rows[key] = row
                elif row[-1] is None or row[-1] > self._now_ms:
                    self._rows[key] = row[:-1]
        return self._rows
