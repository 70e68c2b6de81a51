"""Functions that build or compare dates and timestamps: ``make_date``, ``next_day``, ``months_between`` and others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.functions.core import failures
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import Vector, first, from_vector, intersect_masks, select, to_vector
from penstock.functions.core.zones import Zone
from penstock.functions.numbers.fixed_point import from_unscaled, to_unscaled
from penstock.functions.times import calendar
from penstock.functions.times.calendar import MICROS_PER_DAY, MICROS_PER_SECOND
from penstock.functions.times.clock_fields import MONTHS, WEEKDAYS
from penstock.functions.times.temporal import check_local_range, zone_of_type

_MINUTE = 60 * MICROS_PER_SECOND
_FURTHEST_YEAR = 999_999_999
_SECONDS_PER_MONTH = 31 * 86_400.0
_ROUNDED = 1e8
_THURSDAY = 3
_WEEKDAYS = {name: i for i, day in enumerate(WEEKDAYS) for name in (day.upper(), day[:3].upper(), day[:2].upper())}


def _is_date(year: Vector, month: Vector, day: Vector) -> Mask:
    known = (month >= 1) & (month <= 12) & (np.abs(year) <= _FURTHEST_YEAR)
    length = calendar.month_length(year, np.where(known, month, 1))
    fits: Mask = known & (day >= 1) & (day <= length)
    return fits


class MakeDate(Strict):
    """``make_date``. A date that does not exist raises in ANSI mode and is null otherwise."""

    def __init__(self, children: Sequence[Expression], ansi: bool) -> None:
        super().__init__(children, pa.date32())
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        year, month, day = (to_vector(array).astype(np.int64) for array in arrays)
        fits = _is_date(year, month, day)
        if self.ansi and (wrong := select(rows, ~fits)).any():
            row = first(wrong)
            raise failures.no_such_time(year[row], month[row], day[row])
        rows = select(rows, fits)
        days = calendar.days_from_civil(year, np.where(fits, month, 1), day)
        if (rows & (days != days.astype(np.int32))).any():
            raise failures.days_overflow()
        return from_vector(days, self.data_type, rows)


class MakeTimestamp(Strict):
    """``make_timestamp`` of year, month, day, hour, minute, and seconds with six decimal places.

    A value of 60 seconds means the next minute.
    """

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType, zone: Zone, ansi: bool) -> None:
        super().__init__(children, data_type)
        self.zone = zone if data_type.tz is not None else Zone("UTC")
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        year, month, day, hour, minute = (to_vector(array).astype(np.int64) for array in arrays[:5])
        micros = to_unscaled(arrays[5])
        fits = _is_date(year, month, day) & (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60)
        fits &= (micros >= 0) & (micros <= _MINUTE)
        if self.ansi and (wrong := select(rows, ~fits)).any():
            row = first(wrong)
            if _MINUTE < micros[row] < _MINUTE + MICROS_PER_SECOND:
                raise failures.fraction_of_minute(micros[row] / MICROS_PER_SECOND)
            raise failures.no_such_time(year[row], month[row], day[row])
        rows = select(rows, fits)
        days = calendar.days_from_civil(year, np.where(fits, month, 1), day)
        limit = 2**63 // MICROS_PER_DAY - (0 if self.zone.is_utc else 2)
        if (beyond := rows & (np.abs(days) > limit)).any():
            raise failures.time_overflow("make_timestamp", year[first(beyond)])
        with np.errstate(over="ignore"):
            local = days * MICROS_PER_DAY + (hour * 60 + minute) * _MINUTE + micros
        if (wrapped := rows & (np.abs(days) == limit) & ((days < 0) != (local < 0))).any():
            raise failures.time_overflow("make_timestamp", year[first(wrapped)])
        return from_vector(self.zone.to_instants(local), self.data_type, rows)


def weekday_of(name: str) -> int | None:
    """Return the number of a weekday (0 is Monday); None if the name is unknown."""
    return _WEEKDAYS.get(name.upper())


class NextDay(Strict):
    """``next_day``: the first such weekday after the date.

    ``weekday`` is 0 for Monday, and null for an unknown name.
    """

    def __init__(self, date: Expression, weekday: Expression) -> None:
        super().__init__((date, weekday), pa.date32())

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return from_vector(calendar.next_weekday(*map(to_vector, arrays)), self.data_type, rows)


class MonthsBetween(Strict):
    """``months_between``. The result is a whole number between equal days of a month or between two last days.

    Otherwise each day counts as 1/31 month.
    """

    def __init__(self, children: Sequence[Expression], rounds: bool, zone: Zone) -> None:
        super().__init__(children, pa.float64())
        self.rounds = rounds
        self.zone = zone_of_type(children[0], zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        months, days, from_end, seconds = zip(*(self._parts(to_vector(array), rows) for array in arrays), strict=True)
        whole = (months[0] - months[1]).astype(np.float64)
        rest = (days[0] - days[1]) * 86_400 + seconds[0] - seconds[1]
        exact = whole + rest / _SECONDS_PER_MONTH
        if self.rounds:
            scaled = exact * _ROUNDED
            floor = np.floor(scaled)
            exact = (floor + (scaled - floor >= 0.5)) / _ROUNDED
        alike = (days[0] == days[1]) | ((from_end[0] == 0) & (from_end[1] == 0))
        return from_vector(np.where(alike, whole, exact), self.data_type, rows)

    def _parts(self, micros: Vector, rows: Mask | None) -> tuple[Vector, Vector, Vector, Vector]:
        """Return the months since year 0, the day, the number of days left in its month, and the seconds of the day."""
        date = self.zone.to_local(check_local_range(self.zone, micros, rows)) // MICROS_PER_DAY
        year, month, day = calendar.civil(date)
        seconds = np.fix((micros - self.zone.starts_of_days(date)) / MICROS_PER_SECOND).astype(np.int64)
        return year * 12 + month, day, calendar.month_length(year, month) - day, seconds


class CalendarName(Strict):
    """``dayname`` and ``monthname`` of a date, as three letters."""

    def __init__(self, part: str, child: Expression, nullable: bool) -> None:
        super().__init__((child,), pa.string(), nullable)
        self.part = part

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = calendar.date_part(self.part, to_vector(arrays[0]))
        names = pa.array([name[:3] for name in (WEEKDAYS if self.part == "weekday" else MONTHS)])
        indices = from_vector(values - (self.part == "month"), pa.int64(), intersect_masks(rows, None))
        return names.take(indices)


class YearOfWeek(Strict):
    """``extract(yearofweek ...)``: the year of the week's Thursday."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        days = to_vector(arrays[0]).astype(np.int64)
        thursday = days - (days + _THURSDAY) % 7 + _THURSDAY
        return from_vector(calendar.date_part("year", thursday), self.data_type, rows)


class SecondWithFraction(Strict):
    """``extract(second ...)`` of a timestamp, with six decimal places."""

    def __init__(self, child: Expression, zone: Zone, nullable: bool) -> None:
        super().__init__((child,), pa.decimal128(8, 6), nullable)
        self.zone = zone_of_type(child, zone)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        local = self.zone.to_local(check_local_range(self.zone, to_vector(arrays[0]), rows))
        return from_unscaled(local % _MINUTE, self.data_type, rows)
