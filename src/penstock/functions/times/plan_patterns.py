"""Dates and times written and read by Java patterns."""

from __future__ import annotations

from functools import partial

import pyarrow as pa
from pyspark import SparkContext

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import JavaTree, arrow_type
from penstock.errors import EvaluationError
from penstock.functions import Expression, Literal
from penstock.functions.casts.plan import zone_of
from penstock.functions.core import failures
from penstock.functions.core.fast_path import by_column
from penstock.functions.core.nested import Reinterpret
from penstock.functions.core.strict import Fallible
from penstock.functions.core.zones import Zone
from penstock.functions.plan_registry import Translation, catalyst, refuse
from penstock.functions.times import patterns as time_patterns
from penstock.functions.times import temporal
from penstock.functions.times.fixed_width_times import read_by_pattern
from penstock.functions.times.formatting import FormatTimestamp
from penstock.functions.times.parsing import parse_by_pattern

AREA = "Dates and times by pattern"
_WRITTEN = "a constant pattern of the letters `GyMLdDQqEahHkKmsSXxZOVV`, quoted texts and `[]`"
_READ = "a constant pattern of the letters `GyMLdDahHkKmsSXxZ`, quoted texts and `[]`"
_INSTANT = pa.timestamp("us", tz="UTC")


def _pattern(tree: JavaTree, expression: JavaTree, translation: Translation, parsing: bool) -> str | None:
    """A constant pattern; None for null.

    Raises:
        NotSupported: it is not constant, has something that is not supported, or the session reads by older rules.
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
        time_patterns.parts_of(text, parsing)
    except time_patterns.UnknownPattern as error:
        refuse(tree, f"the pattern {text!r}: {error}")
    return text


def java_zone_id(zone: Zone) -> str:
    """What Java calls the zone."""
    context = SparkContext._active_spark_context
    assert context is not None
    return str(java_class(context, "org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(zone.name).getId())


def _formatted(tree: JavaTree, child: Expression, pattern: str | None, zone: Zone) -> Expression:
    if pattern is None:
        return Literal(None, pa.string())
    return FormatTimestamp(pattern, child, zone, java_zone_id(zone), bool(tree.nullable()))


@catalyst("DateFormatClass", area=AREA, forms="`date_format`, `to_char`", limits=_WRITTEN)
def date_format(tree: JavaTree, translation: Translation) -> Expression:
    pattern = _pattern(tree, tree.right(), translation, parsing=False)
    return _formatted(tree, translation(tree.left()), pattern, zone_of(tree, translation))


@catalyst("FromUnixTime", area=AREA, forms="`from_unixtime`", limits=_WRITTEN)
def from_unixtime(tree: JavaTree, translation: Translation) -> Expression:
    pattern = _pattern(tree, tree.format(), translation, parsing=False)
    seconds = temporal.FromUnixTime(1_000_000, translation(tree.sec()), wraps=True)
    return _formatted(tree, seconds, pattern, zone_of(tree, translation))


@catalyst(
    "GetTimestamp", area=AREA, forms="`to_timestamp`, `to_date`, `try_to_timestamp`, with a pattern", limits=_READ
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
    quick = by_column(read_by_pattern, pattern, zone)
    return Reinterpret((Fallible(partial(parse_by_pattern, pattern, zone), child, pa.int64(), error, quick),), target)


def _unreadable(pattern: str, text: object) -> EvaluationError:
    return failures.unreadable_time(text, pattern)


@catalyst("UnixTimestamp", "ToUnixTimestamp", area=AREA, forms="`unix_timestamp`, `to_unix_timestamp`", limits=_READ)
def to_unix_timestamp(tree: JavaTree, translation: Translation) -> Expression:
    child, zone = translation(tree.timeExp()), zone_of(tree, translation)
    if pa.types.is_string(child.data_type):
        pattern = _pattern(tree, tree.format(), translation, parsing=True)
        child = _parsed(tree, child, pattern, zone, _INSTANT)
    elif pa.types.is_date(child.data_type):
        child = temporal.DateToTimestamp(child, _INSTANT, zone)
    return temporal.UnixTime(1_000_000, child, True, bool(tree.nullable()))
