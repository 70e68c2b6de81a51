"""What belongs to bitmaps of 32,768 numbers each: where a number's bit is, and how many bits are set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import from_vector, to_vector

_BITS = 32_768
_SET = np.array([number.bit_count() for number in range(256)], np.int64)


class BitmapBucket(Strict):
    """``bitmap_bucket_number``: numbers above zero from bucket 1 on, the others from 0 downwards."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        numbers = to_vector(arrays[0])
        buckets = np.where(numbers > 0, 1 + (numbers - 1) // _BITS, (numbers + _BITS - 1) // _BITS)
        return from_vector(buckets, self.data_type, rows)


class BitmapPosition(Strict):
    """``bitmap_bit_position``: the place of a number's bit in its bucket."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        numbers = to_vector(arrays[0])
        places = np.fmod(np.where(numbers > 0, numbers - 1, -numbers), _BITS)
        return from_vector(places, self.data_type, rows)


class BitmapCount(Strict):
    """``bitmap_count``: how many bits are set."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        [bits] = arrays
        _, offsets, data = bits.buffers()
        ends = np.frombuffer(offsets, np.int32, count=len(bits) + 1, offset=4 * bits.offset) if len(bits) else [0]
        held = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        until = np.concatenate([[0], np.cumsum(_SET[held])])[ends]
        return from_vector(np.diff(until), self.data_type, rows)
