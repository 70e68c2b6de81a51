"""Unscaled values of decimals as vectors."""

from __future__ import annotations

from decimal import Context

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import Vector

WIDE = Context(prec=76)
"""Context in which a Spark decimal loses no digit for any scale."""
_WORDS = 2
"""Number of 64-bit words per decimal, the lower one first."""


def to_unscaled(array: pa.Array) -> Vector:
    """Return the unscaled values of decimals of at most 18 digits."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), np.int64)
    words = np.frombuffer(data, np.int64, count=_WORDS * (len(array) + array.offset))
    return words[_WORDS * array.offset :: _WORDS]


def to_short(array: pa.Array) -> tuple[Vector, Mask]:
    """Return the low 64 bits of the unscaled values, and a mask of the values that do not fit a long."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    words = np.frombuffer(data, np.int64, count=_WORDS * (len(array) + array.offset)).reshape(-1, _WORDS)
    low, high = words[array.offset :, 0], words[array.offset :, 1]
    return low, high != low >> 63


def from_unscaled(values: Vector, data_type: pa.DataType, rows: Mask | None) -> pa.Array:
    """Return decimals with these unscaled values, null outside ``rows``."""
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    words = np.stack([values, values >> 63], axis=1)
    return pa.Array.from_buffers(data_type, len(values), [validity, pa.py_buffer(np.ascontiguousarray(words))])
