"""``bit_and``, ``bit_or`` and ``bit_xor``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator, known_values
from penstock.state.arrays import from_fixed
from penstock.state.vector import Rows, Vector

_OPERATIONS = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}


class Bits(Accumulator):
    """Null where there was no value."""

    def fills(self) -> list[object]:
        return [-1 if self.call.function == "bit_and" else 0]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        groups, raw = known_values(groups, arguments[0])
        data, valid = buffers[0].write()
        _OPERATIONS[self.call.function].at(data, groups, raw)
        valid[groups] = True

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        return from_fixed(data[rows], valid[rows], self.call.result_type)
