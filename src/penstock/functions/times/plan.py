"""Dates and timestamps."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, kind
from penstock.functions import Expression, Literal
from penstock.functions.casts.plan import zone_of
from penstock.functions.core.nested import Reinterpret
from penstock.functions.core.strict import Mapped, Vectorised
from penstock.functions.core.zones import Zone
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.times import temporal, year_months
from penstock.functions.times.plan_calendar_intervals import is_calendar_interval, plus_interval
from penstock.functions.times.plan_year_month_intervals import months_of

AREA = "Dates and timestamps"

_DATE_PARTS = {
    "Year": "year", "Month": "month", "DayOfMonth": "day", "Quarter": "quarter", "DayOfYear": "dayofyear",
    "DayOfWeek": "dayofweek", "WeekDay": "weekday", "WeekOfYear": "weekofyear",
}  # fmt: skip


@catalyst(*_DATE_PARTS, area=AREA, forms="`year`, `month`, `day`, `dayofweek`..., `extract`")
def date_part(tree: JavaTree, translation: Translation) -> Expression:
    return temporal.DatePart(_DATE_PARTS[kind(tree)], translation(tree.child()), bool(tree.nullable()))


@catalyst("Hour", "Minute", "Second", area=AREA, forms="`hour`, `minute`, `second`", limits="of timestamps")
def time_part(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    return temporal.TimePart(kind(tree).lower(), child, zone_of(tree, translation), bool(tree.nullable()))


@catalyst("DateAdd", "DateSub", area=AREA, forms="`date_add`, `date_sub`, date + interval of days")
def date_add(tree: JavaTree, translation: Translation) -> Expression:
    start, days = translation.children(tree)
    sign = 1 if kind(tree) == "DateAdd" else -1
    return temporal.AddDays(sign, start, days, pa.date32(), bool(tree.nullable()))


@catalyst("DateDiff", area=AREA, forms="`datediff`")
def date_diff(tree: JavaTree, translation: Translation) -> Expression:
    end, start = translation.children(tree)
    return temporal.AddDays(-1, end, start, pa.int32(), bool(tree.nullable()))


@catalyst("AddMonths", area=AREA, forms="`add_months`")
def add_months(tree: JavaTree, translation: Translation) -> Expression:
    start, months = translation.children(tree)
    return temporal.AddMonths(start, months, zone_of_date())


@catalyst("TimestampAddYMInterval", "DateAddYMInterval", area=AREA, forms="date or timestamp +- a year-month interval",
          limits="the interval is a constant, `make_ym_interval`, a product with an integer, or a choice")  # fmt: skip
def add_year_month(tree: JavaTree, translation: Translation) -> Expression:
    start = translation(children(tree)[0])
    zone = zone_of(tree, translation) if pa.types.is_timestamp(start.data_type) else zone_of_date()
    return temporal.AddMonths(start, months_of(tree.interval(), translation), zone)


_YEAR_MONTH_PARTS = {
    "ExtractANSIIntervalYears": year_months.years_of,
    "ExtractANSIIntervalMonths": year_months.months_of_year,
}


@catalyst(*_YEAR_MONTH_PARTS, area=AREA, forms="`extract(year ...)` and of months, of a year-month interval",
          limits="as to those that are added to a date")  # fmt: skip
def year_month_part(tree: JavaTree, translation: Translation) -> Expression:
    months = months_of(tree.child(), translation)
    return Vectorised(_YEAR_MONTH_PARTS[kind(tree)], [months], arrow_type(tree), bool(tree.nullable()))


def zone_of_date() -> Zone:
    """Dates have no zone; kernels that also take timestamps are given UTC."""
    return Zone("UTC")


@catalyst("LastDay", area=AREA, forms="`last_day`")
def last_day(tree: JavaTree, translation: Translation) -> Expression:
    return temporal.LastDay(translation.children(tree), pa.date32(), bool(tree.nullable()))


@catalyst("DateFromUnixDate", "UnixDate", "UnixMicros", "MicrosToTimestamp", area=AREA,
          forms="`date_from_unix_date`, `unix_date`, `unix_micros`, `timestamp_micros`")  # fmt: skip
def reinterpret(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    target = arrow_type(tree)
    if child.data_type.bit_width != target.bit_width:
        refuse(tree, "cast its argument to bigint first")
    return Reinterpret((child,), target, bool(tree.nullable()))


@catalyst("UnixSeconds", "UnixMillis", area=AREA, forms="`unix_seconds`, `unix_millis`")
def unix_time(tree: JavaTree, translation: Translation) -> Expression:
    unit = 1_000_000 if kind(tree) == "UnixSeconds" else 1_000
    return temporal.UnixTime(unit, translation(tree.child()), False, bool(tree.nullable()))


@catalyst("SecondsToTimestamp", "MillisToTimestamp", area=AREA, forms="`timestamp_seconds`, `timestamp_millis`")
def from_unix_time(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        micros = Mapped(temporal.exact_micros, (child,), pa.int64(), bool(tree.nullable()))
        return Reinterpret((micros,), arrow_type(tree), bool(tree.nullable()))
    return temporal.FromUnixTime(1_000_000 if kind(tree) == "SecondsToTimestamp" else 1_000, child)


@catalyst("TimestampAddInterval", area=AREA, forms="timestamp + or - a day-time interval",
          limits="of calendar intervals constants, casts of texts, `make_interval`, choices among these")  # fmt: skip
def add_interval(tree: JavaTree, translation: Translation) -> Expression:
    if is_calendar_interval(children(tree)[1]):
        start = translation(children(tree)[0])
        return plus_interval(start, children(tree)[1], translation, zone_of(tree, translation))
    start, interval = translation.children(tree)
    if not pa.types.is_duration(interval.data_type) or not pa.types.is_timestamp(start.data_type):
        refuse(tree, "write the interval in days, hours, minutes and seconds")
    return temporal.AddDayTime(start, interval, zone_of(tree, translation))


@catalyst("SubtractTimestamps", "SubtractDates", area=AREA, forms="timestamp - timestamp, date - date")
def subtract(tree: JavaTree, translation: Translation) -> Expression:
    left, right = translation.children(tree)
    if not pa.types.is_duration(arrow_type(tree)):
        refuse(tree, "calendar intervals are not supported; unset spark.sql.legacy.interval.enabled")
    zone = zone_of(tree, translation) if kind(tree) == "SubtractTimestamps" else zone_of_date()
    return temporal.SubtractTimes(left, right, zone)


_LEVELS = {
    "WEEK": "week", "MON": "month", "MONTH": "month", "MM": "month", "QUARTER": "quarter", "YEAR": "year",
    "YYYY": "year", "YY": "year",
}  # fmt: skip
_FINE_LEVELS = {
    "MICROSECOND": "microsecond", "MILLISECOND": "millisecond", "SECOND": "second", "MINUTE": "minute",
    "HOUR": "hour", "DAY": "day", "DD": "day",
}  # fmt: skip


def _truncated(
    tree: JavaTree, translation: Translation, levels: Mapping[str, str], child: Expression, zone: Zone
) -> Expression:
    """A constant unit is known now; others are told apart row by row. What is no unit gives null."""
    unit = translation(tree.format())
    if not isinstance(unit, Literal):
        return temporal.TruncateByUnit(unit, child, levels, zone, unit_first=kind(tree) == "TruncTimestamp")
    level = levels.get(str(unit.scalar.as_py()).upper())
    if level is None:
        return Literal(None, arrow_type(tree))
    if pa.types.is_date(child.data_type):
        return temporal.TruncateDate(level, child)
    return temporal.TruncateTimestamp(level, child, zone)


@catalyst("TruncTimestamp", area=AREA, forms="`date_trunc`")
def truncate_timestamp(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.timestamp())
    return _truncated(tree, translation, _LEVELS | _FINE_LEVELS, child, zone_of(tree, translation))


@catalyst("TruncDate", area=AREA, forms="`trunc`")
def truncate_date(tree: JavaTree, translation: Translation) -> Expression:
    return _truncated(tree, translation, _LEVELS, translation(tree.date()), zone_of_date())
