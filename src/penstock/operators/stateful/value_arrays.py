"""Value state of many keys at a time: columns are read from a keyed table and written to it in one step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError

from penstock.operators.python.declared_batches import as_declared
from penstock.operators.python.user_code import to_session_zone, with_zone
from penstock.operators.stateful.arrow_processor import ArrowValueState, Where
from penstock.operators.stateful.key_selection import selected_keys
from penstock.operators.stateful.variables import StateVariable
from penstock.state.table import KeyedTable
from penstock.state.vector import Mask, Rows, Vector, arrow_of


class ValueArrays(ArrowValueState):
    """Value state of the keys of a call. It can be used only between ``begin`` and ``flush``.

    Args:
        variable: the declared variable.
        table: its keyed table.
        time_zone: the session's time zone.
    """

    def __init__(self, variable: StateVariable, table: KeyedTable, time_zone: str) -> None:
        self.table = table
        self._name = variable.name
        self._declared = variable.value.columns
        self._session_schema = pa.schema(
            [field.with_type(with_zone(field.type, time_zone)) for field in self._declared]
        )
        self._time_zone = time_zone
        self._ttl_ms = variable.ttl_ms
        self._keys: Sequence[pa.Array] | None = None
        self._count = 0
        self._now_ms = 0
        self._read: tuple[pa.RecordBatch, Mask] | None = None

    def begin(self, keys: Sequence[pa.Array], count: int, now_ms: int) -> None:
        """Begin a call with these distinct grouping keys. ``now_ms``: its processing time, for the time to live."""
        self._keys, self._count, self._now_ms = keys, count, now_ms
        self._read = None

    def flush(self) -> None:
        """End the call. Its changes are already in the table."""
        self._keys, self._read = None, None

    def get(self) -> pa.RecordBatch:
        return self._found()[0]

    def exists(self) -> Mask:
        return self._found()[1].copy()

    def update(self, batch: pa.RecordBatch, where: Where = None) -> None:
        keys, selected = self._chosen(where)
        try:
            columns = as_declared(batch, self._declared, "it takes a", "given").columns
        except (TypeError, ValueError) as error:
            raise type(error)(f"state {self._name}: {error}") from None
        if batch.num_rows != len(selected):
            raise ValueError(f"state {self._name}: {batch.num_rows} rows are given for {len(selected)} named keys")
        if not len(selected):
            return
        if self._ttl_ms is not None:
            columns = [*columns, pa.array(np.full(len(selected), self._now_ms + self._ttl_ms))]
        with self.table.edit(keys, len(selected)) as found:
            for vector, column in zip(found.values, columns, strict=True):
                vector.set(found.rows, column)
        self._read = None

    def clear(self, where: Where = None) -> None:
        keys, selected = self._chosen(where)
        if len(selected):
            self.table.remove(keys, len(selected))
            self._read = None

    def _chosen(self, where: Where) -> tuple[list[pa.Array], Rows]:
        """Return the columns of the selected keys, and the key numbers."""
        keys = self._current()
        selected = selected_keys(where, self._count)
        if where is None:
            return list(keys), selected
        chosen = pa.array(selected)
        return [column.take(chosen) for column in keys], selected

    def _current(self) -> Sequence[pa.Array]:
        if self._keys is None:
            raise PySparkRuntimeError(
                f"state {self._name} is used where there are no keys; use it in handleInputBatch and "
                "handleExpiredTimers, and in what they yield from"
            )
        return self._keys

    def _found(self) -> tuple[pa.RecordBatch, Mask]:
        """Return the values, and a mask of the keys that have one. They are cached until the next write."""
        keys = self._current()
        if self._read is None:
            found = self.table.find(keys, self._count)
            present, values = found.rows >= 0, list(found.values)
            if self._ttl_ms is not None:
                present &= _unexpired(values.pop(), found.rows, present, self._now_ms)
            columns = [to_session_zone(_column(value, found.rows, present), self._time_zone) for value in values]
            self._read = pa.RecordBatch.from_arrays(columns, schema=self._session_schema), present
        return self._read


def _unexpired(expires: Vector, rows: Rows, present: Mask, now_ms: int) -> Mask:
    """Return a mask of the ``present`` keys whose values have not expired."""
    moments, known = expires.read()
    lives = np.zeros(len(rows), np.bool_)
    found = rows[present]
    lives[present] = ~known[found] | (moments[found] > now_ms)
    return lives


def _column(values: Vector, rows: Rows, present: Mask) -> pa.Array:
    """Copy the values to an array, with nulls for keys that are not ``present``."""
    if not present.any():
        return pa.nulls(len(rows), values.kind)
    data, valid = values.read()
    indices = np.where(present, rows, rows[np.argmax(present)])
    return arrow_of(data[indices], valid[indices] & present, values.kind)
