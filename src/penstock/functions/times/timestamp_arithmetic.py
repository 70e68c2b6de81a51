"""``timestampadd`` and ``timestampdiff``: differences in a unit, on the local calendar and clock."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, first, from_vector, select, to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.numbers.arithmetic import add, multiply
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_DAY
from penstock.functions.times.temporal import AddMonths, check_local_range, checked, zone_of_type

CLOCK_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
}
"""Length of each unit in microseconds."""

DAY_UNITS = {"DAY": 1, "DAYOFYEAR": 1, "WEEK": 7}
MONTH_UNITS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


class TimestampDiff(Strict):
    """``timestampdiff``: whole units from the first to the second timestamp, rounded toward zero."""

    def __init__(self, unit: str, start: Expression, end: Expression, zone: Zone) -> None:
        super().__init__((start, end), pa.int64())
        self.unit = unit
        self.zone = zone_of_type(start, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        start, end = (self.zone.to_local(check_local_range(self.zone, to_vector(array), rows)) for array in arrays)
        days = end // MICROS_PER_DAY - start // MICROS_PER_DAY
        rest = end % MICROS_PER_DAY - start % MICROS_PER_DAY
        # The days and the rest must have the same sign.
        days, rest = _carried(days, rest)
        return from_vector(self._units(start, end, days, rest, rows), self.data_type, rows)

    def _units(self, start: Vector, end: Vector, days: Vector, rest: Vector, rows: Mask | None) -> Vector:
        if self.unit in CLOCK_UNITS:
            micros = CLOCK_UNITS[self.unit]
            per_day = np.full_like(days, MICROS_PER_DAY // micros)
            return checked(add, checked(multiply, days, per_day, rows, "timestampdiff"), _quotient(rest, micros), rows,
                           "timestampdiff")  # fmt: skip
        if self.unit in DAY_UNITS:
            return _quotient(days, DAY_UNITS[self.unit])
        first_day = start // MICROS_PER_DAY
        return _quotient(_months(first_day, first_day + days), MONTH_UNITS[self.unit])


def _carried(days: Vector, rest: Vector) -> tuple[Vector, Vector]:
    over = (days > 0) & (rest < 0)
    under = (days < 0) & (rest > 0)
    return days - over + under, rest + MICROS_PER_DAY * over.astype(np.int64) - MICROS_PER_DAY * under.astype(np.int64)


def _quotient(values: Vector, divisor: int) -> Vector:
    """Divide and round toward zero."""
    quotient: Vector = (values - np.fmod(values, divisor)) // divisor
    return quotient


def _months(start: Vector, end: Vector) -> Vector:
    """Return whole months between days, like Java's ``LocalDate.until``."""
    packed = [(year * 12 + month) * 32 + day for year, month, day in (calendar.civil(start), calendar.civil(end))]
    return _quotient(packed[1] - packed[0], 32)


class ScaleCount(Strict):
    """Count multiplied by a constant, as an integer. A result out of range raises."""

    def __init__(self, count: Expression, factor: int, data_type: pa.DataType) -> None:
        super().__init__((count,), data_type)
        self.factor = factor

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        count = to_vector(arrays[0]).astype(np.int64)
        scaled = checked(multiply, count, np.full_like(count, self.factor), rows, "timestampadd")
        if pa.types.is_int32(self.data_type):
            beyond = select(rows, scaled != scaled.astype(np.int32))
            if beyond.any():
                raise failures.time_overflow("timestampadd", count[first(beyond)])
        return from_vector(scaled, self.data_type, rows)


class AddElapsed(Strict):
    """Timestamp plus microseconds."""

    def __init__(self, micros: Expression, start: Expression) -> None:
        super().__init__((micros, start), start.data_type)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros, start = map(to_vector, arrays)
        return from_vector(checked(add, start, micros, rows, "timestampadd"), self.data_type, rows)


class AddLocalDays(Strict):
    """Timestamp plus days on the local calendar."""

    def __init__(self, days: Expression, start: Expression, zone: Zone) -> None:
        super().__init__((days, start), start.data_type)
        self.zone = zone_of_type(start, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        days, start = (to_vector(array).astype(np.int64) for array in arrays)
        offsets = self.zone.offsets(check_local_range(self.zone, start, rows))
        span = checked(multiply, days, np.full_like(days, MICROS_PER_DAY), rows, "timestampadd")
        moved = check_local_range(self.zone, checked(add, start + offsets, span, rows, "timestampadd"), rows)
        return from_vector(self.zone.resolve(moved, offsets), self.data_type, rows)


class AddLocalMonths(AddMonths):
    """Timestamp plus months, where the months are evaluated first."""

    def __init__(self, months: Expression, start: Expression, zone: Zone) -> None:
        super().__init__(start, months, zone)
        self.children = (months, start)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return super().compute(arrays[::-1], rows)
