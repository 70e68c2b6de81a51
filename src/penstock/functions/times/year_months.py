"""Year-month intervals as numbers of months, which is what they are. They have no column format here."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.functions.core import failures
from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import Vector, from_vector, select, to_vector

MONTHS = pa.int32()


def made(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Of years and months."""
    years, months = (to_vector(array).astype(np.int64) for array in arrays)
    return _checked(years * 12 + months, rows, data_type)


def multiplied(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """By an integer."""
    months, factor = (to_vector(array).astype(np.int64) for array in arrays)
    # Beyond 32 bits a factor leaves nothing but 0 within the type.
    near = np.clip(factor, -(2**31), 2**31)
    return _checked(months * near, rows, data_type)


def negated(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    return _checked(-to_vector(arrays[0]).astype(np.int64), rows, data_type)


def years_of(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Whole years, towards zero."""
    months = to_vector(arrays[0]).astype(np.int64)
    return from_vector(np.sign(months) * (np.abs(months) // 12), data_type, rows)


def months_of_year(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """What is left of whole years, with the sign of the interval."""
    months = to_vector(arrays[0]).astype(np.int64)
    return from_vector(np.sign(months) * (np.abs(months) % 12), data_type, rows)


def _checked(months: Vector, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    if select(rows, months != months.astype(np.int32)).any():
        raise failures.interval_overflow()
    return from_vector(months, data_type, rows)
