"""Dates and timestamps: parts, truncation, arithmetic, and casts among them, in a session time zone with DST.

Timestamps without time zone (``timestamp[us]``) are wall times already. Their zone is UTC here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.functions.casts.cast_numbers import jvm_truncate
from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import (
    Vector,
    by_distinct_key,
    first,
    from_vector,
    map_distinct,
    select,
    to_vector,
)
from penstock.functions.core.zones import Zone
from penstock.functions.numbers.arithmetic import add, multiply, subtract
from penstock.functions.numbers.fixed_point import WIDE
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_DAY, MICROS_PER_SECOND

_UNITS = {
    "millisecond": 1_000,
    "second": MICROS_PER_SECOND,
    "minute": 60 * MICROS_PER_SECOND,
    "hour": 3600 * MICROS_PER_SECOND,
    "day": MICROS_PER_DAY,
}
_MAX_DAYS = 2**63 // MICROS_PER_DAY
_FAR = 2**63 - 2 * MICROS_PER_DAY
_PARTS = {
    "hour": (3600 * MICROS_PER_SECOND, 24),
    "minute": (60 * MICROS_PER_SECOND, 60),
    "second": (MICROS_PER_SECOND, 60),
}


def checked(
    operation: Callable[[Vector, Vector], tuple[Vector, Mask]], a: Vector, b: Vector, rows: Mask | None, name: str
) -> Vector:
    """Return the result of an operation like Java's ``Math.addExact``, checked on the selected rows.

    Raises:
        EvaluationError: a selected row overflows. Spark raises it with and without ANSI mode.
    """
    with np.errstate(over="ignore"):
        result, wrapped = operation(a, b)
    wrapped = select(rows, wrapped)
    if wrapped.any():
        raise failures.time_overflow(name, a[first(wrapped)])
    return result


def zone_of_type(child: Expression, zone: Zone) -> Zone:
    """Return the zone of a timestamp expression: ``zone``, or UTC for a timestamp without time zone."""
    return zone if child.data_type.tz is not None else Zone("UTC")


def check_local_range(zone: Zone, micros: Vector, rows: Mask | None) -> Vector:
    """Return ``micros`` if adding an offset cannot exceed 64 bits.

    The limit is two days before the ends of Spark's range.

    Raises:
        EvaluationError: a selected value is closer to the ends.
    """
    if not zone.is_utc:
        far = select(rows, (micros > _FAR) | (micros < -_FAR))
        if far.any():
            raise failures.time_overflow(f"local time in {zone.name}", micros[first(far)])
    return micros


def starts_of_days(zone: Zone, days: Vector, rows: Mask | None) -> Vector:
    """Return the first instants of local days.

    Raises:
        EvaluationError: a selected day is too far away for a timestamp.
    """
    limit = _MAX_DAYS if zone.is_utc else _MAX_DAYS - 2
    beyond = select(rows, np.abs(days.astype(np.int64)) > limit)
    if beyond.any():
        raise failures.time_overflow("start of day", days[first(beyond)])
    return zone.starts_of_days(np.clip(days.astype(np.int64), -limit, limit))


class DatePart(Strict):
    """``year``, ``month``, ``dayofmonth`` and other parts of a date."""

    def __init__(self, part: str, child: Expression, nullable: bool = True) -> None:
        super().__init__((child,), pa.int32(), nullable)
        self.part = part

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return from_vector(calendar.date_part(self.part, to_vector(arrays[0])), self.data_type, rows)


class TimePart(Strict):
    """``hour``, ``minute`` and ``second`` of a timestamp."""

    def __init__(self, part: str, child: Expression, zone: Zone, nullable: bool = True) -> None:
        super().__init__((child,), pa.int32(), nullable)
        self.part = part
        self.zone = zone_of_type(child, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        unit, modulus = _PARTS[self.part]
        local = self.zone.to_local(check_local_range(self.zone, to_vector(arrays[0]), rows))
        return from_vector(local // unit % modulus, self.data_type, rows)


class TimestampToDate(Strict):
    """Local day of a timestamp."""

    def __init__(self, child: Expression, zone: Zone, nullable: bool = True) -> None:
        super().__init__((child,), pa.date32(), nullable)
        self.zone = zone_of_type(child, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros = check_local_range(self.zone, to_vector(arrays[0]), rows)
        return from_vector(self.zone.to_local(micros) // MICROS_PER_DAY, self.data_type, rows)


class DateToTimestamp(Strict):
    """First instant of a local day, or midnight as a wall time."""

    def __init__(self, child: Expression, data_type: pa.DataType, zone: Zone) -> None:
        super().__init__((child,), data_type)
        self.zone = zone if data_type.tz is not None else Zone("UTC")

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return from_vector(starts_of_days(self.zone, to_vector(arrays[0]), rows), self.data_type, rows)


class ShiftZone(Strict):
    """Conversion between instants and wall times."""

    def __init__(self, child: Expression, data_type: pa.DataType, zone: Zone) -> None:
        super().__init__((child,), data_type)
        self.zone = zone

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        shift = self.zone.to_local if self.data_type.tz is None else self.zone.to_instants
        return from_vector(shift(check_local_range(self.zone, to_vector(arrays[0]), rows)), self.data_type, rows)


class AddDays(Strict):
    """``date_add`` (sign 1), ``date_sub`` (-1) and ``datediff`` (of two dates). Results wrap at 32 bits as in Spark."""

    def __init__(self, sign: int, left: Expression, right: Expression, data_type: pa.DataType, nullable: bool) -> None:
        super().__init__((left, right), data_type, nullable)
        self.sign = np.int64(sign)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        left, right = (to_vector(array).astype(np.int64) for array in arrays)
        return from_vector((left + self.sign * right).astype(np.int32), self.data_type, rows)


class AddMonths(Strict):
    """``add_months``, and a date or timestamp plus a year-month interval (months as an int)."""

    def __init__(self, start: Expression, months: Expression, zone: Zone) -> None:
        super().__init__((start, months), start.data_type)
        self.zone = Zone("UTC") if pa.types.is_date(start.data_type) else zone_of_type(start, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        start, months = to_vector(arrays[0]), to_vector(arrays[1]).astype(np.int64)
        if pa.types.is_date(self.data_type):
            days = calendar.add_months(start, months)
            out_of_range = select(rows, days != days.astype(np.int32))
            if out_of_range.any():
                row = first(out_of_range)
                raise failures.overflow(pa.int32(), "+ months", start[row], months[row])
            return from_vector(days, self.data_type, rows)
        offsets = self.zone.offsets(check_local_range(self.zone, start, rows))
        local = start + offsets
        day, time = local // MICROS_PER_DAY, local % MICROS_PER_DAY
        days = calendar.add_months(day, months)
        moved = checked(multiply, days, np.full_like(days, MICROS_PER_DAY), rows, "add months") + time
        return from_vector(self.zone.resolve(check_local_range(self.zone, moved, rows), offsets), self.data_type, rows)


class AddDayTime(Strict):
    """Timestamp plus a day-time interval: its days on the local calendar, the rest as elapsed time."""

    def __init__(self, start: Expression, interval: Expression, zone: Zone) -> None:
        super().__init__((start, interval), start.data_type)
        self.zone = zone_of_type(start, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        start, interval = map(to_vector, arrays)
        if self.zone.is_utc:
            return from_vector(checked(add, start, interval, rows, "add interval"), self.data_type, rows)
        rest = np.fmod(interval, MICROS_PER_DAY)
        offsets = self.zone.offsets(check_local_range(self.zone, start, rows))
        moved = check_local_range(self.zone, checked(add, start + offsets, interval - rest, rows, "add interval"), rows)
        result = checked(add, self.zone.resolve(moved, offsets), rest, rows, "add interval")
        return from_vector(result, self.data_type, rows)


class SubtractTimes(Strict):
    """Day-time interval between two timestamps (between their wall times, as in Spark) or two dates."""

    def __init__(self, left: Expression, right: Expression, zone: Zone) -> None:
        super().__init__((left, right), pa.duration("us"))
        self.zone = Zone("UTC") if pa.types.is_date(left.data_type) else zone_of_type(left, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        left, right = (to_vector(array).astype(np.int64) for array in arrays)
        left, right = (self.zone.to_local(check_local_range(self.zone, side, rows)) for side in (left, right))
        difference = checked(subtract, left, right, rows, "difference")
        if pa.types.is_date(arrays[0].type):
            difference = checked(multiply, difference, np.full_like(difference, MICROS_PER_DAY), rows, "difference")
        return from_vector(difference, self.data_type, rows)


class TruncateDate(Strict):
    """``trunc``: the first day of the date's week, month, quarter or year."""

    def __init__(self, level: str, child: Expression) -> None:
        super().__init__((child,), pa.date32())
        self.level = level

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        days = to_vector(arrays[0])
        # Spark computes it as the first Monday after the day one week earlier.
        if self.level == "week":
            a_week_before = days - np.int32(7)
            return from_vector(calendar.next_weekday(a_week_before, np.zeros_like(days)), self.data_type, rows)
        start = calendar.truncate_date(self.level, days)
        if select(rows, start != start.astype(np.int32)).any():
            raise failures.days_overflow()
        return from_vector(start, self.data_type, rows)


class TruncateTimestamp(Strict):
    """``date_trunc``, on the local calendar and clock."""

    def __init__(self, level: str, child: Expression, zone: Zone) -> None:
        super().__init__((child,), child.data_type)
        self.level = level
        self.zone = zone_of_type(child, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros = to_vector(arrays[0])
        return from_vector(self._truncate(micros, rows), self.data_type, rows)

    def _truncate(self, micros: Vector, rows: Mask | None) -> Vector:
        if self.level == "microsecond":
            return micros
        if self.level in ("millisecond", "second"):
            floored: Vector = micros - micros % _UNITS[self.level]
            return floored
        offsets = self.zone.offsets(check_local_range(self.zone, micros, rows))
        local = micros + offsets
        if self.level in _UNITS:
            return self.zone.resolve(local - local % _UNITS[self.level], offsets)
        return starts_of_days(self.zone, calendar.truncate_date(self.level, local // MICROS_PER_DAY), rows)


class TruncateByUnit(Strict):
    """``date_trunc`` and ``trunc`` with a unit per row. An unknown unit gives null.

    Args:
        unit: the unit.
        child: the date or timestamp.
        levels: the level of each unit in upper case.
        zone: the session's zone.
        unit_first: evaluate the unit before the date or timestamp.
    """

    def __init__(
        self, unit: Expression, child: Expression, levels: Mapping[str, str], zone: Zone, unit_first: bool
    ) -> None:
        super().__init__((unit, child) if unit_first else (child, unit), child.data_type)
        self.child = child
        self.levels = dict(levels)
        self.zone = zone
        self.unit_first = unit_first

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        units, moments = arrays if self.unit_first else arrays[::-1]
        levels = map_distinct(self._level, [units], pa.string(), rows)
        return by_distinct_key(
            levels, rows, lambda level, selected: self._truncated(str(level), moments, selected), self.data_type
        )

    def _level(self, unit: object) -> str | None:
        return self.levels.get(str(unit).upper())

    def _truncated(self, level: str, moments: pa.Array, rows: Mask) -> pa.Array:
        if pa.types.is_date(self.data_type):
            return TruncateDate(level, self.child).compute([moments], rows)
        return TruncateTimestamp(level, self.child, self.zone).compute([moments], rows)


class LastDay(Strict):
    """``last_day`` of a date's month."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return from_vector(calendar.last_day(to_vector(arrays[0])), self.data_type, rows)


class UnixTime(Strict):
    """``unix_seconds`` and ``unix_millis`` of a timestamp, rounded down; ``unix_timestamp``, rounded toward zero."""

    def __init__(self, micros_per_unit: int, child: Expression, truncated: bool, nullable: bool = True) -> None:
        super().__init__((child,), pa.int64(), nullable)
        self.micros_per_unit = micros_per_unit
        self.truncated = truncated

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        micros = to_vector(arrays[0])
        if self.truncated:
            micros = micros - np.fmod(micros, self.micros_per_unit)
        return from_vector(micros // self.micros_per_unit, self.data_type, rows)


class FromUnixTime(Strict):
    """``timestamp_seconds`` and ``timestamp_millis``.

    Integers that overflow raise, or wrap if ``wraps`` is set (``from_unixtime``). Floats saturate; NaN and infinities
    give null.
    """

    def __init__(self, micros_per_unit: int, child: Expression, wraps: bool = False) -> None:
        super().__init__((child,), pa.timestamp("us", tz="UTC"))
        self.micros_per_unit = micros_per_unit
        self.wraps = wraps

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        if values.dtype.kind == "f":
            wide = values.astype(np.float64)
            with np.errstate(all="ignore"):
                micros = jvm_truncate(wide * self.micros_per_unit, np.dtype(np.int64))
            return from_vector(micros, self.data_type, select(rows, np.isfinite(wide)))
        wide = values.astype(np.int64)
        if self.wraps:
            return from_vector(wide * np.int64(self.micros_per_unit), self.data_type, rows)
        micros = checked(multiply, wide, np.full_like(wide, self.micros_per_unit), rows, "from unix time")
        return from_vector(micros, self.data_type, rows)


def exact_micros(seconds: Decimal) -> int:
    """Convert seconds to microseconds.

    Raises:
        EvaluationError: the value has a finer fraction or is out of range. Spark raises it with and without ANSI mode.
    """
    micros = seconds.scaleb(6, context=WIDE)
    if micros != int(micros) or not -(2**63) <= micros < 2**63:
        raise failures.time_overflow("timestamp_seconds", seconds)
    return int(micros)
