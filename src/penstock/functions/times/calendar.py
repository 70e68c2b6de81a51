"""Proleptic Gregorian calendar on vectors of days since 1970, for any year, as in ``java.time``.

The conversions are Howard Hinnant's (https://howardhinnant.github.io/date_algorithms.html). They use eras of 400 years
that begin in March, so that the leap day is the last day of a year.
"""

from __future__ import annotations

import numpy as np

from penstock.functions.core.vectors import Vector

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY: int = 86_400 * MICROS_PER_SECOND
_DAYS_PER_ERA = 146_097
_MARCH_0000 = 719_468


def civil(days: Vector) -> tuple[Vector, Vector, Vector]:
    """Return year, month (1..12) and day (1..31)."""
    shifted = days.astype(np.int64) + _MARCH_0000
    era = shifted // _DAYS_PER_ERA
    day_of_era = shifted - era * _DAYS_PER_ERA
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = np.where(march_month < 10, march_month + 3, march_month - 9)
    return year_of_era + era * 400 + (month <= 2), month, day


def days_from_civil(year: Vector, month: Vector, day: Vector) -> Vector:
    """Return the days since 1970, the inverse of ``civil``. The day may exceed its month."""
    shifted = year - (month <= 2)
    era = shifted // 400
    year_of_era = shifted - era * 400
    day_of_year = (153 * np.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    days: Vector = era * _DAYS_PER_ERA + day_of_era - _MARCH_0000
    return days


def is_leap(year: Vector) -> Vector:
    leap: Vector = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return leap


_LENGTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def month_length(year: Vector, month: Vector) -> Vector:
    lengths: Vector = _LENGTHS[month] + ((month == 2) & is_leap(year))
    return lengths


def add_months(days: Vector, months: Vector) -> Vector:
    """Add months. The day of the month is kept, or becomes the last day if the month is too short."""
    year, month, day = civil(days)
    total = year * 12 + (month - 1) + months
    year, month = total // 12, total % 12 + 1
    return days_from_civil(year, month, np.minimum(day, month_length(year, month)))


def date_part(part: str, days: Vector) -> Vector:
    """Return one part of dates.

    ``part`` is ``year``, ``month``, ``day``, ``quarter``, ``dayofyear``, ``dayofweek`` (1 is Sunday), ``weekday`` (0 is
    Monday) or ``weekofyear`` (ISO 8601).
    """
    if part == "dayofweek":  # 1 is Sunday
        return (days.astype(np.int64) + 4) % 7 + 1
    if part == "weekday":  # 0 is Monday
        return (days.astype(np.int64) + 3) % 7
    if part == "weekofyear":  # ISO 8601: a week belongs to the year of its Thursday
        thursday = days.astype(np.int64) - (days.astype(np.int64) + 3) % 7 + 3
        return (date_part("dayofyear", thursday) - 1) // 7 + 1
    year, month, day = civil(days)
    if part == "dayofyear":
        return days - days_from_civil(year, np.ones_like(year), np.ones_like(year)) + 1
    return {"year": year, "month": month, "day": day, "quarter": (month - 1) // 3 + 1}[part]


def truncate_date(level: str, days: Vector) -> Vector:
    """Return the first day of the date's ``week`` (Monday), ``month``, ``quarter`` or ``year``."""
    if level == "week":
        return days.astype(np.int64) - (days.astype(np.int64) + 3) % 7
    year, month, _ = civil(days)
    one = np.ones_like(year)
    start = {"month": month, "quarter": (month - 1) // 3 * 3 + 1, "year": one}[level]
    return days_from_civil(year, start, one)


def last_day(days: Vector) -> Vector:
    year, month, _ = civil(days)
    return days_from_civil(year, month, month_length(year, month))


def next_weekday(days: Vector, weekday: Vector) -> Vector:
    """Return the first day after each date that is the given weekday (0 is Monday).

    The result wraps at 32 bits as in Java.
    """
    start = days.astype(np.int32)
    since_thursday = ((weekday + 4) % 7).astype(np.int32)
    ahead = np.fmod((since_thursday - np.int32(1) - start).astype(np.int32), 7)
    later: Vector = (start + np.int32(1) + (ahead + 7) % 7).astype(np.int32)
    return later
