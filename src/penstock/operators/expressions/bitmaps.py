"""Places in the bitmaps of ``bitmap_construct_agg``: buckets of 32,768 numbers, those above 0 counted from 1."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.operators.expressions.base import Mask
from penstock.operators.expressions.vectors import from_vector, to_vector

BITS = 32_768


def bucket_number(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Bucket 1 begins at 1; bucket 0 and those before hold what is not above 0."""
    values = to_vector(arrays[0])
    toward_zero = values // BITS + (values % BITS != 0)  # of what is not above 0
    return from_vector(np.where(values > 0, 1 + (values - 1) // BITS, toward_zero), data_type, rows)


def bit_position(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """The place within the bucket, from 0."""
    values = to_vector(arrays[0])
    return from_vector(np.where(values > 0, (values - 1) % BITS, -values % BITS), data_type, rows)


def bit_count(bitmap: bytes) -> int:
    return int.from_bytes(bitmap, "big").bit_count()
