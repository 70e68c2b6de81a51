"""``bit_and``, ``bit_or`` and ``bit_xor``; ``bitmap_construct_agg``, ``bitmap_or_agg`` and ``bitmap_and_agg``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.operators.aggregate.accumulators.base import Accumulator, valid_values
from penstock.operators.aggregate.accumulators.lists import by_group
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import from_fixed, validity
from penstock.state.keys import group_rows
from penstock.state.vector import Rows, Vector, raw_values

_OPERATIONS = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}


class Bits(Accumulator):
    """``bit_and``, ``bit_or`` and ``bit_xor``. The result is null for a group without values."""

    def initial_values(self) -> list[object]:
        return [-1 if self.call.function == "bit_and" else 0]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        groups, raw = valid_values(groups, arguments[0])
        data, valid = buffers[0].write()
        _OPERATIONS[self.call.function].at(data, groups, raw)
        valid[groups] = True

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        return from_fixed(data[rows], valid[rows], self.call.result_type)


_BYTES = 4096
_BITS = 8 * _BYTES

Bytes = npt.NDArray[np.uint8]


class Bitmaps(Accumulator):
    """``bitmap_construct_agg``, ``bitmap_or_agg`` and ``bitmap_and_agg``: 32,768 bits, least significant bit first.

    One buffer: the group's bytes, or None if there was no value. As in Spark, the result of a group without values has
    no bit set, or all bits set for ``bitmap_and_agg``.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._all = call.function == "bitmap_and_agg"

    def initial_values(self) -> list[object]:
        return [None]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known = validity(arguments[0])
        groups, values = groups[known], arguments[0].filter(pa.array(known))
        if self.call.function == "bitmap_construct_agg":
            self._set(buffers[0], groups, raw_values(values).astype(np.int64))
        else:
            self._combine(buffers[0], groups, values)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        known = validity(partials[0])
        self._combine(buffers[0], groups[known], partials[0].filter(pa.array(known)))

    def _set(self, buffer: Vector, groups: Rows, positions: Rows) -> None:
        wrong = (positions < 0) | (positions >= _BITS)
        if wrong.any():
            raise EvaluationError(
                f"[INVALID_BITMAP_POSITION] The 0-indexed bitmap position {positions[wrong][0]} is out of bounds. The "
                f"bitmap has {_BITS} bits ({_BYTES} bytes). SQLSTATE: 22003"
            )
        for group, own in by_group(groups, pa.array(positions)):
            bits = np.zeros(_BITS, np.uint8)
            bits[own] = 1
            self._keep(buffer, group, np.packbits(bits, bitorder="little"))

    def _combine(self, buffer: Vector, groups: Rows, values: pa.Array) -> None:
        """Combine the buffers with values. Longer values are truncated; shorter values are padded with unset bits.

        Repeated values of a group are combined once, because repetition changes nothing.
        """
        _, first = group_rows([pa.array(groups), values], len(groups))
        for group, own in by_group(groups[first], values.take(pa.array(first))):
            for value in own:
                self._keep(buffer, group, np.frombuffer(value[:_BYTES].ljust(_BYTES, b"\0"), np.uint8))

    def _keep(self, buffer: Vector, group: int, more: Bytes) -> None:
        data, valid = buffer.write()
        if data[group] is not None:
            held = np.frombuffer(data[group], np.uint8)
            more = held & more if self._all else held | more
        data[group] = more.tobytes()
        valid[group] = True

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        nothing = (b"\xff" if self._all else b"\0") * _BYTES
        held = buffers[0].read()[0][rows].tolist()
        return pa.array([nothing if value is None else value for value in held], self.call.result_type)
