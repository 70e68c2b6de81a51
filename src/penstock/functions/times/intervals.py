"""Day-time intervals as durations, and year-month intervals as numbers of months.

Year-month intervals are not a column type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, from_vector, select, to_vector
from penstock.functions.numbers.arithmetic import add, multiply
from penstock.functions.numbers.fixed_point import from_unscaled, to_unscaled

_UNITS = (86_400_000_000, 3_600_000_000, 60_000_000)
PARTS = {"days": (_UNITS[0], None), "hours": (_UNITS[1], 24), "minutes": (_UNITS[2], 60), "seconds": (1, 60_000_000)}
"""Unit of each part in microseconds, and the number of units in the next larger part."""


def _require_exact(wrapped: Mask, rows: Mask | None) -> None:
    if select(rows, wrapped).any():
        raise failures.interval_overflow()


class MakeInterval(Strict):
    """``make_dt_interval`` of days, hours, minutes, and seconds with six decimal places."""

    def __init__(self, children: Sequence[Expression]) -> None:
        super().__init__(children, pa.duration("us"))

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        total = to_unscaled(arrays[3])
        with np.errstate(over="ignore"):
            for array, unit in zip(arrays, _UNITS, strict=False):
                count = to_vector(array).astype(np.int64)
                span, wrapped = multiply(count, np.full_like(count, unit))
                _require_exact(wrapped, rows)
                total, wrapped = add(total, span)
                _require_exact(wrapped, rows)
        return from_vector(total, self.data_type, rows)


class IntervalPart(Strict):
    """``extract(day ...)`` and finer parts of an interval. All parts have the sign of the interval."""

    def __init__(self, part: str, child: Expression, data_type: pa.DataType, nullable: bool) -> None:
        super().__init__((child,), data_type, nullable)
        self.part = part

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        unit, modulus = PARTS[self.part]
        micros = to_vector(arrays[0])
        whole: Vector = (micros - np.fmod(micros, unit)) // unit
        part = whole if modulus is None else np.fmod(whole, modulus)
        if pa.types.is_decimal(self.data_type):
            return from_unscaled(part, self.data_type, rows)
        return from_vector(part, self.data_type, rows)


class MultiplyInterval(Strict):
    """Interval multiplied by an integer."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros, factor = (to_vector(array).astype(np.int64) for array in arrays)
        with np.errstate(over="ignore"):
            product, wrapped = multiply(micros, factor)
        _require_exact(wrapped, rows)
        return from_vector(product, self.data_type, rows)


class DivideInterval(Strict):
    """Interval divided by an integer. Ties are rounded away from zero."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros, divisor = (to_vector(array).astype(np.int64) for array in arrays)
        if select(rows, divisor == 0).any():
            raise failures.interval_by_zero()
        divisor = np.where(divisor == 0, 1, divisor)
        _require_exact((micros == np.iinfo(np.int64).min) & (divisor == -1), rows)
        with np.errstate(over="ignore"):
            floor, rest = np.divmod(micros, divisor)
            # The rest is compared with its difference to the divisor: more than a half rounds up, a half rounds away
            # from zero.
            left = np.abs(divisor) - np.abs(rest)
            up = (np.abs(rest) > left) | ((np.abs(rest) == left) & ((micros < 0) == (divisor < 0)))
        return from_vector(floor + up, self.data_type, rows)


MONTHS = pa.int32()


def make_year_month_interval(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return year-month intervals from years and months."""
    years, months = (to_vector(array).astype(np.int64) for array in arrays)
    return _checked_months(years * 12 + months, rows, data_type)


def multiply_year_month_interval(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Multiply year-month intervals by integers."""
    months, factor = (to_vector(array).astype(np.int64) for array in arrays)
    # With a factor beyond 32 bits only an interval of 0 stays in the range of the type.
    bounded_factor = np.clip(factor, -(2**31), 2**31)
    return _checked_months(months * bounded_factor, rows, data_type)


def negate_year_month_interval(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    return _checked_months(-to_vector(arrays[0]).astype(np.int64), rows, data_type)


def years_of(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return the whole years, rounded toward zero."""
    months = to_vector(arrays[0]).astype(np.int64)
    return from_vector(np.sign(months) * (np.abs(months) // 12), data_type, rows)


def months_of_year(arrays: list[pa.Array], rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    """Return the months beyond whole years, with the sign of the interval."""
    months = to_vector(arrays[0]).astype(np.int64)
    return from_vector(np.sign(months) * (np.abs(months) % 12), data_type, rows)


def _checked_months(months: Vector, rows: Mask | None, data_type: pa.DataType) -> pa.Array:
    if select(rows, months != months.astype(np.int32)).any():
        raise failures.interval_overflow()
    return from_vector(months, data_type, rows)
