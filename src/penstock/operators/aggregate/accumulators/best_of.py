"""``max_by(x, y, k)`` and ``min_by(x, y, k)``: the values of the k best rows, the best first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.order import ranks
from penstock.operators.aggregate.accumulators.value_lists import hold, unrolled, with_held
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import validity
from penstock.state.vector import Rows, Vector


class BestOf(Accumulator):
    """Buffers: the values, and what each is judged by, the best first; of equally good ones those that came first.

    ``parameters``: how many rows are kept.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._most] = call.parameters

    def fills(self) -> list[object]:
        return [None, None]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known = validity(arguments[1])
        self._keep(buffers, groups[known], [argument.filter(pa.array(known)) for argument in arguments])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self._keep(buffers, *unrolled(groups, partials))

    def _keep(self, buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]) -> None:
        owners, columns = with_held(buffers, groups, columns)
        order = ranks(columns[1])
        sorting = np.lexsort((-order if self.call.function == "max_by_k" else order, owners))
        owners = owners[sorting]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        places = np.arange(len(owners)) - np.repeat(begins, np.diff(begins, append=len(owners)))
        kept = places < self._most
        chosen = pa.array(sorting[kept])
        hold(buffers, owners[kept], [column.take(chosen) for column in columns])

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)
