"""Decimals by their unscaled values: short ones as vectors."""

from __future__ import annotations

from decimal import Context

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import Vector

WIDE = Context(prec=76)
"""Context in which a decimal of Spark's loses no digit, whatever its scale becomes."""
_WORDS = 2
"""Words of 64 bits per decimal, the lower one first."""


def to_unscaled(array: pa.Array) -> Vector:
    """The unscaled values of decimals of at most 18 digits."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), np.int64)
    words = np.frombuffer(data, np.int64, count=_WORDS * (len(array) + array.offset))
    return words[_WORDS * array.offset :: _WORDS]


def to_short(array: pa.Array) -> tuple[Vector, Mask]:
    """The unscaled values of decimals of any length, and where they are longer than that."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    words = np.frombuffer(data, np.int64, count=_WORDS * (len(array) + array.offset)).reshape(-1, _WORDS)
    low, high = words[array.offset :, 0], words[array.offset :, 1]
    return low, high != low >> 63


def from_unscaled(values: Vector, data_type: pa.DataType, rows: Mask | None) -> pa.Array:
    """Decimals with these unscaled values, null outside ``rows``."""
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    words = np.stack([values, values >> 63], axis=1)
    return pa.Array.from_buffers(data_type, len(values), [validity, pa.py_buffer(np.ascontiguousarray(words))])
