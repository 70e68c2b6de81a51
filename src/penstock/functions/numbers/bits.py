"""Shifts and single bits of integers as on the JVM, where a shift counts modulo the width; bitmaps of 32,768 bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.base import Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, first, from_vector, select, to_vector


def _unsigned(values: Vector) -> Vector:
    return values.view(f"u{values.dtype.itemsize}")


def shift(symbol: str, arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return ``<<``, ``>>`` or ``>>>`` of an int or long."""
    values = np.ascontiguousarray(to_vector(arrays[0]))
    distance = (to_vector(arrays[1]) & (values.dtype.itemsize * 8 - 1)).astype(values.dtype)
    if symbol == "<<":
        return from_vector(values << distance, data_type, rows)
    if symbol == ">>":
        return from_vector(values >> distance, data_type, rows)
    return from_vector((_unsigned(values) >> _unsigned(distance)).view(values.dtype), data_type, rows)


class BitCount(Strict):
    """``bit_count`` of the value as a long, so that a negative int has 32 more bits set."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        longs = np.ascontiguousarray(to_vector(arrays[0]).astype(np.int64))
        return from_vector(np.bitwise_count(_unsigned(longs)).astype(np.int32), self.data_type, rows)


class BitGet(Strict):
    """``bit_get``: the bit at a position, which must be inside the value."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values, position = to_vector(arrays[0]), to_vector(arrays[1])
        width = values.dtype.itemsize * 8
        outside = select(rows, (position < 0) | (position >= width))
        if outside.any():
            raise EvaluationError(
                "[INVALID_PARAMETER_VALUE.BIT_POSITION_RANGE] The value of parameter(s) `pos` in `bit_get` is invalid: "
                f"expects an integer value in [0, {width}), but got {position[first(outside)]}."
            )
        bit = (values.astype(np.int64) >> np.clip(position, 0, width - 1)) & 1
        return from_vector(bit.astype(np.int8), self.data_type, rows)


_BITMAP_BITS = 32_768
_SET_BITS = np.array([number.bit_count() for number in range(256)], np.int64)


class BitmapBucket(Strict):
    """``bitmap_bucket_number``.

    Numbers above zero are in buckets from 1 upward, the others in buckets from 0 downward.
    """

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        numbers = to_vector(arrays[0])
        buckets = np.where(numbers > 0, 1 + (numbers - 1) // _BITMAP_BITS, (numbers + _BITMAP_BITS - 1) // _BITMAP_BITS)
        return from_vector(buckets, self.data_type, rows)


class BitmapPosition(Strict):
    """``bitmap_bit_position``: the position of a number's bit in its bucket."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        numbers = to_vector(arrays[0])
        positions = np.fmod(np.where(numbers > 0, numbers - 1, -numbers), _BITMAP_BITS)
        return from_vector(positions, self.data_type, rows)


class BitmapCount(Strict):
    """``bitmap_count``: the number of bits that are set."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        [bits] = arrays
        _, offsets, data = bits.buffers()
        ends = np.frombuffer(offsets, np.int32, count=len(bits) + 1, offset=4 * bits.offset) if len(bits) else [0]
        held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        until = np.concatenate([[0], np.cumsum(_SET_BITS[held])])[ends]
        return from_vector(np.diff(until), self.data_type, rows)
