"""``count``: of rows, or of rows where a value is not null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.state.arrays import from_fixed, validity
from penstock.state.vector import Rows, Vector, raw_values


class Count(Accumulator):
    """``count(x)``: rows where x is not null; ``count(*)``: all rows."""

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        buffers[0].write()[1][groups] = True

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        unknown = arguments[0].null_count if arguments else 0
        count(buffers[0], groups, validity(arguments[0]).astype(np.int64) if unknown else 1)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        count(buffers[0], groups, raw_values(partials[0]))

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return from_fixed(buffers[0].read()[0][rows], None, self.call.result_type)


def count(counts: Vector, groups: Rows, amounts: npt.NDArray[Any] | int) -> None:
    """Add to the counts of these groups, repeated at will."""
    data, valid = counts.write()
    if len(data) == 1:
        data += amounts * len(groups) if isinstance(amounts, int) else amounts.sum()
    else:
        np.add.at(data, groups, amounts)
    valid[groups] = True  # a count is never null: 0 is known as well
