"""``listagg``, also called ``string_agg``: strings or binaries joined by a separator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.functions.core.ranks import ranks
from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.lists import by_group, flattened, sizes_of
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import validity
from penstock.state.vector import Rows, Vector


@dataclass(frozen=True)
class Direction:
    """Sort direction of one ordering expression."""

    ascending: bool
    nulls_first: bool


class ListAgg(Accumulator):
    """``listagg``. Buffers: the values in the order of arrival, and the struct by which each value is ordered.

    There is no second buffer if values are ordered by themselves or not ordered. ``parameters``: the separator, and the
    ``Direction`` of each ordering expression. The sort is stable.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._between, self._directions = call.parameters

    def initial_values(self) -> list[object]:
        return [None for _ in self.call.buffer_fields(0)]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known = validity(arguments[0])
        self._append(buffers, groups[known], [argument.filter(pa.array(known)) for argument in arguments])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self._append(buffers, *flattened(groups, partials))

    def _append(self, buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]) -> None:
        for buffer, column in zip(buffers, columns, strict=True):
            data, valid = buffer.write()
            for group, more in by_group(groups, column):
                data[group] = more if data[group] is None else data[group] + more
            valid[groups] = True

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        columns = [buffer.to_arrow(rows) for buffer in buffers]
        sizes = sizes_of(columns[0])
        owners, [values, *keys] = flattened(np.arange(len(rows)), columns)
        objects = values.take(pa.array(self._order(owners, keys[0].flatten() if keys else [values]))).to_pylist()
        ends = pairwise([0, *np.cumsum(sizes).tolist()])
        texts = [None if begin == end else self._between.join(objects[begin:end]) for begin, end in ends]
        return pa.array(texts, self.call.result_type)

    def _order(self, owners: Rows, keys: Sequence[pa.Array]) -> Rows:
        sorting = [owners]
        for key, direction in zip(keys, self._directions, strict=False):
            numbers = ranks(key)
            outside = -len(key) - 1 if direction.nulls_first else len(key) + 1
            sorting.append(np.where(numbers == 0, outside, numbers if direction.ascending else -numbers))
        order: Rows = np.lexsort(sorting[::-1])
        return order
