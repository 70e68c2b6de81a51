"""``min`` and ``max``, which ``bool_and``, ``bool_or``, ``every``, ``some`` and ``any`` are, too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator, known_values
from penstock.operators.aggregate.accumulators.chosen import keep_best
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.vector import Rows, Vector, arrow_of, raw_dtype


class Extreme(Accumulator):
    """``min`` and ``max``."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._max = call.function == "max"

    def fills(self) -> list[object]:
        dtype = raw_dtype(self.call.input_type)
        if dtype.kind == "O":
            return [None]
        if dtype.kind == "f":  # fmin ignores NaN and so keeps it only where there is nothing else: NaN is the largest
            return [-np.inf if self._max else np.nan]
        return [np.iinfo(dtype).min if self._max else np.iinfo(dtype).max]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        [values] = arguments
        if raw_dtype(self.call.input_type).kind == "O":
            keep_best(buffers, groups, [values], self._max)
            return
        groups, raw = known_values(groups, values)
        data, valid = buffers[0].write()
        smaller = np.fmin if data.dtype.kind == "f" else np.minimum
        with np.errstate(invalid="ignore"):  # NaN is a value like others
            (np.maximum if self._max else smaller).at(data, groups, raw)
        valid[groups] = True

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        return arrow_of(data[rows], valid[rows], self.call.result_type)
