"""DISTINCT functions over session windows: each group keeps the different values itself.

Two sessions may become one, and what is distinct then is known only from both of their values. So these are part of the
session's row, and the function is computed from them when the session is yielded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.value_lists import hold, unrolled, with_held
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.vector import Rows, Vector


class DistinctValues(Accumulator):
    """Buffers: a list per argument; those at one place of them are one row's."""

    def __init__(self, call: AggregateCall, function: Accumulator) -> None:
        super().__init__(call)
        self._function = function

    def fills(self) -> list[object]:
        return [None for _ in self.call.buffer_fields(0)]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        owners, columns = with_held(buffers, groups, [normalize_floats(argument) for argument in arguments])
        _, first = group_rows([pa.array(owners), *columns], len(owners))
        first = np.sort(first)
        first = first[np.argsort(owners[first], kind="stable")]
        hold(buffers, owners[first], [column.take(pa.array(first)) for column in columns])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, *unrolled(groups, partials))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        owners, columns = unrolled(np.arange(len(rows)), [buffer.to_arrow(rows) for buffer in buffers])
        fields, fills = self._function.call.buffer_fields(0), self._function.fills()
        fresh = [Vector(field.type, fill) for field, fill in zip(fields, fills, strict=True)]
        for vector in fresh:
            vector.extend(len(rows))
        self._function.begin(fresh, np.arange(len(rows)))
        self._function.add(fresh, owners, columns)
        return self._function.result(fresh, np.arange(len(rows)))
