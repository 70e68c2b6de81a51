"""Functions of dates, timestamps and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pyarrow as pa
from pyspark import SparkContext

from penstock.catalyst.jvm import java_class, java_field
from penstock.catalyst.trees import JavaTree, arrow_type, children, data_type, kind, option
from penstock.errors import EvaluationError
from penstock.functions import Expression, Literal
from penstock.functions.casts.plan import named_zone, zone_of
from penstock.functions.core import failures
from penstock.functions.core.fast_path import column_fast_path
from penstock.functions.core.nested import Reinterpret
from penstock.functions.core.strict import ScalarFunction, VectorFunction
from penstock.functions.core.zones import Zone
from penstock.functions.logic.logic import CaseWhen, Coalesce
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.times import calendar_functions, intervals, patterns, temporal, timestamp_arithmetic
from penstock.functions.times.calendar import MICROS_PER_DAY
from penstock.functions.times.calendar_intervals import (
    CALENDAR_INTERVAL,
    AddCalendarInterval,
    MakeCalendarInterval,
    parse_calendar_interval,
)
from penstock.functions.times.fast_parsing import read_by_pattern
from penstock.functions.times.formatting import FormatTimestamp
from penstock.functions.times.parsing import parse_by_pattern
from penstock.functions.times.zone_shifts import ConvertTimezone, ShiftUtc

TIMES = "Dates and timestamps"

_DATE_PARTS = {
    "Year": "year", "Month": "month", "DayOfMonth": "day", "Quarter": "quarter", "DayOfYear": "dayofyear",
    "DayOfWeek": "dayofweek", "WeekDay": "weekday", "WeekOfYear": "weekofyear",
}  # fmt: skip


@catalyst(*_DATE_PARTS, area=TIMES, forms="`year`, `month`, `day`, `dayofweek`..., `extract`")
def date_part(tree: JavaTree, translation: Translation) -> Expression:
    return temporal.DatePart(_DATE_PARTS[kind(tree)], translation(tree.child()), bool(tree.nullable()))


@catalyst("Hour", "Minute", "Second", area=TIMES, forms="`hour`, `minute`, `second`", limits="of timestamps")
def time_part(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    return temporal.TimePart(kind(tree).lower(), child, zone_of(tree, translation), bool(tree.nullable()))


@catalyst("DateAdd", "DateSub", area=TIMES, forms="`date_add`, `date_sub`, date + interval of days")
def date_add(tree: JavaTree, translation: Translation) -> Expression:
    start, days = translation.children(tree)
    sign = 1 if kind(tree) == "DateAdd" else -1
    return temporal.AddDays(sign, start, days, pa.date32(), bool(tree.nullable()))


@catalyst("DateDiff", area=TIMES, forms="`datediff`")
def date_diff(tree: JavaTree, translation: Translation) -> Expression:
    end, start = translation.children(tree)
    return temporal.AddDays(-1, end, start, pa.int32(), bool(tree.nullable()))


@catalyst("AddMonths", area=TIMES, forms="`add_months`")
def add_months(tree: JavaTree, translation: Translation) -> Expression:
    start, months = translation.children(tree)
    return temporal.AddMonths(start, months, zone_of_date())


@catalyst("TimestampAddYMInterval", "DateAddYMInterval", area=TIMES, forms="date or timestamp +- a year-month interval",
          limits="the interval is a constant, `make_ym_interval`, a product with an integer, or a choice")  # fmt: skip
def add_year_month(tree: JavaTree, translation: Translation) -> Expression:
    start = translation(children(tree)[0])
    zone = zone_of(tree, translation) if pa.types.is_timestamp(start.data_type) else zone_of_date()
    return temporal.AddMonths(start, months_of(tree.interval(), translation), zone)


_YEAR_MONTH_PARTS = {
    "ExtractANSIIntervalYears": intervals.years_of,
    "ExtractANSIIntervalMonths": intervals.months_of_year,
}


@catalyst(*_YEAR_MONTH_PARTS, area=TIMES, forms="`extract(year ...)` and of months, of a year-month interval",
          limits="as to those that are added to a date")  # fmt: skip
def year_month_part(tree: JavaTree, translation: Translation) -> Expression:
    months = months_of(tree.child(), translation)
    return VectorFunction(_YEAR_MONTH_PARTS[kind(tree)], [months], arrow_type(tree), bool(tree.nullable()))


def zone_of_date() -> Zone:
    """Return UTC for kernels that also take timestamps: dates have no zone."""
    return Zone("UTC")


@catalyst("LastDay", area=TIMES, forms="`last_day`")
def last_day(tree: JavaTree, translation: Translation) -> Expression:
    return temporal.LastDay(translation.children(tree), pa.date32(), bool(tree.nullable()))


@catalyst("DateFromUnixDate", "UnixDate", "UnixMicros", "MicrosToTimestamp", area=TIMES,
          forms="`date_from_unix_date`, `unix_date`, `unix_micros`, `timestamp_micros`")  # fmt: skip
def reinterpret(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    target = arrow_type(tree)
    if child.data_type.bit_width != target.bit_width:
        refuse(tree, "cast its argument to bigint first")
    return Reinterpret((child,), target, bool(tree.nullable()))


@catalyst("UnixSeconds", "UnixMillis", area=TIMES, forms="`unix_seconds`, `unix_millis`")
def unix_time(tree: JavaTree, translation: Translation) -> Expression:
    unit = 1_000_000 if kind(tree) == "UnixSeconds" else 1_000
    return temporal.UnixTime(unit, translation(tree.child()), False, bool(tree.nullable()))


@catalyst("SecondsToTimestamp", "MillisToTimestamp", area=TIMES, forms="`timestamp_seconds`, `timestamp_millis`")
def from_unix_time(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.child())
    if pa.types.is_decimal(child.data_type):
        micros = ScalarFunction(temporal.exact_micros, (child,), pa.int64(), bool(tree.nullable()))
        return Reinterpret((micros,), arrow_type(tree), bool(tree.nullable()))
    return temporal.FromUnixTime(1_000_000 if kind(tree) == "SecondsToTimestamp" else 1_000, child)


@catalyst("TimestampAddInterval", area=TIMES, forms="timestamp + or - a day-time interval",
          limits="of calendar intervals constants, casts of texts, `make_interval`, choices among these")  # fmt: skip
def add_interval(tree: JavaTree, translation: Translation) -> Expression:
    if is_calendar_interval(children(tree)[1]):
        start = translation(children(tree)[0])
        return plus_interval(start, children(tree)[1], translation, zone_of(tree, translation))
    start, interval = translation.children(tree)
    if not pa.types.is_duration(interval.data_type) or not pa.types.is_timestamp(start.data_type):
        refuse(tree, "write the interval in days, hours, minutes and seconds")
    return temporal.AddDayTime(start, interval, zone_of(tree, translation))


@catalyst("SubtractTimestamps", "SubtractDates", area=TIMES, forms="timestamp - timestamp, date - date")
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
    """Compile a truncation by a constant unit or by a unit per row. An unknown unit gives null."""
    unit = translation(tree.format())
    if not isinstance(unit, Literal):
        return temporal.TruncateByUnit(unit, child, levels, zone, unit_first=kind(tree) == "TruncTimestamp")
    level = levels.get(str(unit.scalar.as_py()).upper())
    if level is None:
        return Literal(None, arrow_type(tree))
    if pa.types.is_date(child.data_type):
        return temporal.TruncateDate(level, child)
    return temporal.TruncateTimestamp(level, child, zone)


@catalyst("TruncTimestamp", area=TIMES, forms="`date_trunc`")
def truncate_timestamp(tree: JavaTree, translation: Translation) -> Expression:
    child = translation(tree.timestamp())
    return _truncated(tree, translation, _LEVELS | _FINE_LEVELS, child, zone_of(tree, translation))


@catalyst("TruncDate", area=TIMES, forms="`trunc`")
def truncate_date(tree: JavaTree, translation: Translation) -> Expression:
    return _truncated(tree, translation, _LEVELS, translation(tree.date()), zone_of_date())


CALENDAR = "Calendar and time zones"


@catalyst("MakeDate", area=CALENDAR, forms="`make_date`")
def make_date(tree: JavaTree, translation: Translation) -> Expression:
    return calendar_functions.MakeDate(translation.children(tree), bool(tree.failOnError()))


@catalyst("MakeTimestamp", area=CALENDAR, forms="`make_timestamp`, `make_timestamp_ntz`, `try_make_timestamp`...",
          limits="the time zone is a constant")  # fmt: skip
def make_timestamp(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    zone = zone_of(tree, translation)
    if option(tree.timezone()) is not None:
        given = operands.pop()
        if not isinstance(given, Literal):
            refuse(tree, "the time zone must be a constant")
        if not given.scalar.is_valid:
            return Literal(None, arrow_type(tree))
        zone = named_zone(str(given.scalar.as_py()))
    return calendar_functions.MakeTimestamp(operands, arrow_type(tree), zone, bool(tree.failOnError()))


@catalyst("NextDay", area=CALENDAR, forms="`next_day`")
def next_day(tree: JavaTree, translation: Translation) -> Expression:
    start, name = translation.children(tree)
    error = failures.not_a_weekday if bool(tree.failOnError()) else None
    return calendar_functions.NextDay(
        start, ScalarFunction(calendar_functions.weekday_of, (name,), pa.int32(), error=error)
    )


@catalyst("MonthsBetween", area=CALENDAR, forms="`months_between`", limits="`roundOff` is a constant")
def months_between(tree: JavaTree, translation: Translation) -> Expression:
    *moments, rounds = translation.children(tree)
    if not isinstance(rounds, Literal) or not rounds.scalar.is_valid:
        refuse(tree, "roundOff must be a constant")
    return calendar_functions.MonthsBetween(moments, bool(rounds.scalar.as_py()), zone_of(tree, translation))


@catalyst("DayName", "MonthName", area=CALENDAR, forms="`dayname`, `monthname`")
def name_of(tree: JavaTree, translation: Translation) -> Expression:
    part = "weekday" if kind(tree) == "DayName" else "month"
    return calendar_functions.CalendarName(part, translation(tree.child()), bool(tree.nullable()))


@catalyst("YearOfWeek", area=CALENDAR, forms="`extract(yearofweek from ...)`")
def year_of_week(tree: JavaTree, translation: Translation) -> Expression:
    return calendar_functions.YearOfWeek(translation.children(tree), pa.int32(), bool(tree.nullable()))


@catalyst("SecondWithFraction", area=CALENDAR, forms="`extract(second from ...)`", limits="of timestamps")
def second_with_fraction(tree: JavaTree, translation: Translation) -> Expression:
    return calendar_functions.SecondWithFraction(
        translation(tree.child()), zone_of(tree, translation), bool(tree.nullable())
    )


@catalyst("TimestampDiff", area=CALENDAR, forms="`timestampdiff`, `datediff(unit, ...)`")
def timestamp_diff(tree: JavaTree, translation: Translation) -> Expression:
    unit = str(tree.unit()).upper()
    if (
        unit not in timestamp_arithmetic.CLOCK_UNITS | timestamp_arithmetic.DAY_UNITS | timestamp_arithmetic.MONTH_UNITS
        or unit == "DAYOFYEAR"
    ):
        refuse(tree, f"there is no unit {unit}")
    start, end = translation.children(tree)
    return timestamp_arithmetic.TimestampDiff(unit, start, end, zone_of(tree, translation))


@catalyst("TimestampAdd", area=CALENDAR, forms="`timestampadd`, `dateadd(unit, ...)`")
def timestamp_add(tree: JavaTree, translation: Translation) -> Expression:
    unit = str(tree.unit()).upper()
    count, start = translation.children(tree)
    if unit in timestamp_arithmetic.CLOCK_UNITS:
        return timestamp_arithmetic.AddElapsed(
            timestamp_arithmetic.ScaleCount(count, timestamp_arithmetic.CLOCK_UNITS[unit], pa.int64()), start
        )
    zone = zone_of(tree, translation)
    if unit in timestamp_arithmetic.DAY_UNITS:
        return timestamp_arithmetic.AddLocalDays(
            timestamp_arithmetic.ScaleCount(count, timestamp_arithmetic.DAY_UNITS[unit], pa.int32()), start, zone
        )
    if unit in timestamp_arithmetic.MONTH_UNITS:
        months = timestamp_arithmetic.ScaleCount(count, timestamp_arithmetic.MONTH_UNITS[unit], pa.int32())
        return timestamp_arithmetic.AddLocalMonths(months, start, zone)
    return refuse(tree, f"there is no unit {unit}")


@catalyst("FromUTCTimestamp", "ToUTCTimestamp", area=CALENDAR, forms="`from_utc_timestamp`, `to_utc_timestamp`")
def shift_utc(tree: JavaTree, translation: Translation) -> Expression:
    moment, zone = translation.children(tree)
    return ShiftUtc(moment, zone, to_utc=kind(tree) == "ToUTCTimestamp")


@catalyst("ConvertTimezone", area=CALENDAR, forms="`convert_timezone`")
def convert_timezone(tree: JavaTree, translation: Translation) -> Expression:
    return ConvertTimezone(*translation.children(tree))


@catalyst("MakeDTInterval", area=CALENDAR, forms="`make_dt_interval`")
def make_interval(tree: JavaTree, translation: Translation) -> Expression:
    return intervals.MakeInterval(translation.children(tree))


_INTERVAL_PARTS = {f"ExtractANSIInterval{part.title()}": part for part in intervals.PARTS}


@catalyst(*_INTERVAL_PARTS, area=CALENDAR, forms="`extract(day from interval)` and finer parts")
def interval_part(tree: JavaTree, translation: Translation) -> Expression:
    part = _INTERVAL_PARTS[kind(tree)]
    return intervals.IntervalPart(part, translation(children(tree)[0]), arrow_type(tree), bool(tree.nullable()))


@catalyst("MultiplyDTInterval", "DivideDTInterval", area=CALENDAR, forms="a day-time interval `*` or `/` a number",
          limits="an integer")  # fmt: skip
def scale_interval(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    if not pa.types.is_integer(operands[1].data_type):
        refuse(tree, "only integers are supported")
    kernel = intervals.MultiplyInterval if kind(tree) == "MultiplyDTInterval" else intervals.DivideInterval
    return kernel(operands, pa.duration("us"))


BY_PATTERN = "Dates and times by pattern"
_WRITTEN = "a constant pattern of the letters `GyMLdDQqEahHkKmsSXxZOVV`, quoted texts and `[]`"
_READ = "a constant pattern of the letters `GyMLdDahHkKmsSXxZ`, quoted texts and `[]`"
_INSTANT = pa.timestamp("us", tz="UTC")


def _pattern(tree: JavaTree, expression: JavaTree, translation: Translation, parsing: bool) -> str | None:
    """Return a constant pattern; None for null.

    Raises:
        NotSupported: the pattern is not constant or not supported, or the session uses the legacy parser.
    """
    pattern = translation(expression)
    if not isinstance(pattern, Literal):
        refuse(tree, "the pattern must be a constant")
    if translation.conf.time_parser_policy != "CORRECTED":
        refuse(tree, "set spark.sql.legacy.timeParserPolicy to CORRECTED; the older parser is not there")
    if not pattern.scalar.is_valid:
        return None
    text = str(pattern.scalar.as_py())
    try:
        patterns.parts_of(text, parsing)
    except patterns.UnknownPattern as error:
        refuse(tree, f"the pattern {text!r}: {error}")
    return text


def java_zone_id(zone: Zone) -> str:
    """Return Java's ID of the zone."""
    context = SparkContext._active_spark_context
    assert context is not None
    return str(java_class(context, "org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(zone.name).getId())


def _formatted(tree: JavaTree, child: Expression, pattern: str | None, zone: Zone) -> Expression:
    if pattern is None:
        return Literal(None, pa.string())
    return FormatTimestamp(pattern, child, zone, java_zone_id(zone), bool(tree.nullable()))


@catalyst("DateFormatClass", area=BY_PATTERN, forms="`date_format`, `to_char`", limits=_WRITTEN)
def date_format(tree: JavaTree, translation: Translation) -> Expression:
    pattern = _pattern(tree, tree.right(), translation, parsing=False)
    return _formatted(tree, translation(tree.left()), pattern, zone_of(tree, translation))


@catalyst("FromUnixTime", area=BY_PATTERN, forms="`from_unixtime`", limits=_WRITTEN)
def from_unixtime(tree: JavaTree, translation: Translation) -> Expression:
    pattern = _pattern(tree, tree.format(), translation, parsing=False)
    seconds = temporal.FromUnixTime(1_000_000, translation(tree.sec()), wraps=True)
    return _formatted(tree, seconds, pattern, zone_of(tree, translation))


@catalyst(
    "GetTimestamp", area=BY_PATTERN, forms="`to_timestamp`, `to_date`, `try_to_timestamp`, with a pattern", limits=_READ
)
def get_timestamp(tree: JavaTree, translation: Translation) -> Expression:
    target = arrow_type(tree)
    child = translation(tree.left())
    zone = zone_of(tree, translation)
    if pa.types.is_date(child.data_type):
        return temporal.DateToTimestamp(child, target, zone)
    if pa.types.is_timestamp(child.data_type):
        return child if child.data_type == target else temporal.ShiftZone(child, target, zone)
    pattern = _pattern(tree, tree.right(), translation, parsing=True)
    return _parsed(tree, child, pattern, zone if target.tz else None, target)


def _parsed(
    tree: JavaTree, child: Expression, pattern: str | None, zone: Zone | None, target: pa.DataType
) -> Expression:
    if pattern is None:
        return Literal(None, target)
    error = partial(_unreadable, pattern) if bool(tree.failOnError()) else None
    fast_path = column_fast_path(read_by_pattern, pattern, zone)
    parse = partial(parse_by_pattern, pattern, zone)
    return Reinterpret((ScalarFunction(parse, (child,), pa.int64(), fast_path=fast_path, error=error),), target)


def _unreadable(pattern: str, text: object) -> EvaluationError:
    return failures.unreadable_time(text, pattern)


@catalyst("UnixTimestamp", "ToUnixTimestamp", area=BY_PATTERN,
          forms="`unix_timestamp`, `to_unix_timestamp`", limits=_READ)  # fmt: skip
def to_unix_timestamp(tree: JavaTree, translation: Translation) -> Expression:
    child, zone = translation(tree.timeExp()), zone_of(tree, translation)
    if pa.types.is_string(child.data_type):
        pattern = _pattern(tree, tree.format(), translation, parsing=True)
        child = _parsed(tree, child, pattern, zone, _INSTANT)
    elif pa.types.is_date(child.data_type):
        child = temporal.DateToTimestamp(child, _INSTANT, zone)
    return temporal.UnixTime(1_000_000, child, True, bool(tree.nullable()))


_DURATION = pa.duration("us")


def is_calendar_interval(tree: JavaTree) -> bool:
    """Return True if the expression has Spark's calendar interval type (months, days and microseconds)."""
    return str(data_type(tree).catalogString()) == "interval"


def plus_interval(start: Expression, interval: JavaTree, translation: Translation, zone: Zone) -> Expression:
    """Compile ``start`` plus an interval: months and days on the local calendar, the rest as elapsed time.

    Raises:
        NotSupported: the interval is not a constant, a cast of a text, ``make_interval`` or a choice of these.
    """
    name = kind(interval)
    if name == "Literal":
        return _plus_constant(start, interval.value(), zone)
    if name == "Cast":
        return AddCalendarInterval(
            start, ScalarFunction(parse_calendar_interval, (translation(interval.child()),), CALENDAR_INTERVAL), zone
        )
    if name == "MakeInterval":
        return AddCalendarInterval(
            start, MakeCalendarInterval(translation.children(interval), bool(interval.failOnError())), zone
        )
    if name == "Coalesce":
        return Coalesce(
            [plus_interval(start, child, translation, zone) for child in children(interval)], start.data_type
        )
    if name not in ("CaseWhen", "If"):
        refuse(interval, "write it as a text, as concat(n, ' seconds'), as make_interval(...), or as a choice of these")
    *pairs, last = children(interval)
    if name == "CaseWhen" and len(pairs) % 2:
        pairs, last = [*pairs, last], None
    branches = [
        (translation(condition), plus_interval(start, value, translation, zone))
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    otherwise = None if last is None else plus_interval(start, last, translation, zone)
    return CaseWhen(branches, otherwise, start.data_type)


def _plus_constant(start: Expression, interval: JavaTree, zone: Zone) -> Expression:
    if interval is None:
        return Literal(None, start.data_type)
    months, days, micros = (int(java_field(interval, name)) for name in ("months", "days", "microseconds"))
    if months:
        start = temporal.AddMonths(start, Literal(months, pa.int32()), zone)
    if days:
        start = temporal.AddDayTime(start, Literal(days * MICROS_PER_DAY, _DURATION), zone)
    if micros:
        start = temporal.AddDayTime(start, Literal(micros, _DURATION), Zone("UTC"))
    return start


MONTHS = intervals.MONTHS
WAYS = "of year-month intervals only make_ym_interval(), constants, products with integers and choices of these are"


def months_of(interval: JavaTree, translation: Translation) -> Expression:
    """Compile a year-month interval to its number of months.

    Raises:
        NotSupported: the interval is not a constant, ``make_ym_interval``, a product with an integer or a choice of
            these.
    """
    name = kind(interval)
    if name == "Literal":
        value = interval.value()
        return Literal(None if value is None else int(value), MONTHS)
    if name in ("If", "CaseWhen"):
        return _months_of_choice(interval, translation)
    if name == "Coalesce":
        return Coalesce([months_of(child, translation) for child in children(interval)])
    if name == "UnaryMinus":
        return VectorFunction(intervals.negate_year_month_interval, [months_of(interval.child(), translation)], MONTHS)
    if name == "MultiplyYMInterval":
        return _months_of_product(interval, translation)
    if name != "MakeYMInterval":
        refuse(interval, WAYS)
    return VectorFunction(
        intervals.make_year_month_interval, translation.children(interval), MONTHS, bool(interval.nullable())
    )


def _months_of_product(interval: JavaTree, translation: Translation) -> Expression:
    months, factor = children(interval)
    operands = [months_of(months, translation), translation(factor)]
    if not pa.types.is_integer(operands[1].data_type):
        refuse(interval, WAYS)
    return VectorFunction(intervals.multiply_year_month_interval, operands, MONTHS)


def _months_of_choice(interval: JavaTree, translation: Translation) -> Expression:
    *pairs, last = children(interval)
    if kind(interval) == "CaseWhen" and len(pairs) % 2:
        pairs, last = [*pairs, last], None
    branches = [
        (translation(condition), months_of(value, translation))
        for condition, value in zip(pairs[::2], pairs[1::2], strict=True)
    ]
    return CaseWhen(branches, None if last is None else months_of(last, translation), MONTHS)
