"""Dates and timestamps put together, compared and moved between zones; parts of day-time intervals."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, arrow_type, children, kind, option
from penstock.functions import Expression, Literal
from penstock.functions.casts.plan import named_zone, zone_of
from penstock.functions.core import failures
from penstock.functions.core.attempts import GenerationSlots
from penstock.functions.core.strict import Fallible
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.times import calendar_functions as functions
from penstock.functions.times import intervals, time_spans
from penstock.functions.times.zone_shifts import ShiftClock, ShiftNamedZone

AREA = "Calendar and time zones"


@catalyst("MakeDate", area=AREA, forms="`make_date`")
def make_date(tree: JavaTree, translation: Translation) -> Expression:
    return functions.MakeDate(translation.children(tree), bool(tree.failOnError()))


@catalyst("MakeTimestamp", area=AREA, forms="`make_timestamp`, `make_timestamp_ntz`, `try_make_timestamp`...",
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
    return functions.MakeTimestamp(operands, arrow_type(tree), zone, bool(tree.failOnError()))


@catalyst("NextDay", area=AREA, forms="`next_day`")
def next_day(tree: JavaTree, translation: Translation) -> Expression:
    start, name = translation.children(tree)
    error = failures.not_a_weekday if bool(tree.failOnError()) else None
    return functions.NextDay(start, Fallible(functions.weekday_of, name, pa.int32(), error))


@catalyst("MonthsBetween", area=AREA, forms="`months_between`", limits="`roundOff` is a constant")
def months_between(tree: JavaTree, translation: Translation) -> Expression:
    *moments, rounds = translation.children(tree)
    if not isinstance(rounds, Literal) or not rounds.scalar.is_valid:
        refuse(tree, "roundOff must be a constant")
    return functions.MonthsBetween(moments, bool(rounds.scalar.as_py()), zone_of(tree, translation))


@catalyst("DayName", "MonthName", area=AREA, forms="`dayname`, `monthname`")
def name_of(tree: JavaTree, translation: Translation) -> Expression:
    part = "weekday" if kind(tree) == "DayName" else "month"
    return functions.NameOf(part, translation(tree.child()), bool(tree.nullable()))


@catalyst("YearOfWeek", area=AREA, forms="`extract(yearofweek from ...)`")
def year_of_week(tree: JavaTree, translation: Translation) -> Expression:
    return functions.YearOfWeek(translation.children(tree), pa.int32(), bool(tree.nullable()))


@catalyst("SecondWithFraction", area=AREA, forms="`extract(second from ...)`", limits="of timestamps")
def second_with_fraction(tree: JavaTree, translation: Translation) -> Expression:
    return functions.SecondWithFraction(translation(tree.child()), zone_of(tree, translation), bool(tree.nullable()))


@catalyst("TimestampDiff", area=AREA, forms="`timestampdiff`, `datediff(unit, ...)`")
def timestamp_diff(tree: JavaTree, translation: Translation) -> Expression:
    unit = str(tree.unit()).upper()
    if unit not in time_spans.CLOCK_UNITS | time_spans.DAY_UNITS | time_spans.MONTH_UNITS or unit == "DAYOFYEAR":
        refuse(tree, f"there is no unit {unit}")
    start, end = translation.children(tree)
    return time_spans.TimestampDiff(unit, start, end, zone_of(tree, translation))


@catalyst("TimestampAdd", area=AREA, forms="`timestampadd`, `dateadd(unit, ...)`")
def timestamp_add(tree: JavaTree, translation: Translation) -> Expression:
    unit = str(tree.unit()).upper()
    count, start = translation.children(tree)
    if unit in time_spans.CLOCK_UNITS:
        return time_spans.Elapsed(time_spans.Scaled(count, time_spans.CLOCK_UNITS[unit], pa.int64()), start)
    zone = zone_of(tree, translation)
    if unit in time_spans.DAY_UNITS:
        return time_spans.AddLocalDays(time_spans.Scaled(count, time_spans.DAY_UNITS[unit], pa.int32()), start, zone)
    if unit in time_spans.MONTH_UNITS:
        months = time_spans.Scaled(count, time_spans.MONTH_UNITS[unit], pa.int32())
        return time_spans.AddLocalMonths(months, start, zone)
    return refuse(tree, f"there is no unit {unit}")


@catalyst("FromUTCTimestamp", "ToUTCTimestamp", area=AREA, forms="`from_utc_timestamp`, `to_utc_timestamp`")
def shift_utc(tree: JavaTree, translation: Translation) -> Expression:
    moment, zone = translation.children(tree)
    return ShiftNamedZone(moment, zone, to_utc=kind(tree) == "ToUTCTimestamp")


@catalyst("ConvertTimezone", area=AREA, forms="`convert_timezone`")
def convert_timezone(tree: JavaTree, translation: Translation) -> Expression:
    return ShiftClock(*translation.children(tree))


@catalyst("MakeDTInterval", area=AREA, forms="`make_dt_interval`")
def make_interval(tree: JavaTree, translation: Translation) -> Expression:
    return intervals.MakeInterval(translation.children(tree))


_PARTS = {f"ExtractANSIInterval{part.title()}": part for part in intervals.PARTS}


@catalyst(*_PARTS, area=AREA, forms="`extract(day from interval)` and finer parts")
def interval_part(tree: JavaTree, translation: Translation) -> Expression:
    part = _PARTS[kind(tree)]
    return intervals.IntervalPart(part, translation(children(tree)[0]), arrow_type(tree), bool(tree.nullable()))


@catalyst("TryEval", area="Logic and conditionals", forms="`try_...` of functions without a form of their own")
def attempt(tree: JavaTree, translation: Translation) -> Expression:
    return GenerationSlots(translation(tree.child()))


@catalyst("MultiplyDTInterval", "DivideDTInterval", area=AREA, forms="a day-time interval `*` or `/` a number",
          limits="an integer")  # fmt: skip
def scale_interval(tree: JavaTree, translation: Translation) -> Expression:
    operands = translation.children(tree)
    if not pa.types.is_integer(operands[1].data_type):
        refuse(tree, "only integers are supported")
    kernel = intervals.MultiplyInterval if kind(tree) == "MultiplyDTInterval" else intervals.DivideInterval
    return kernel(operands, pa.duration("us"))
