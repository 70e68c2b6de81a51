"""Casts: selection of the kernel by source type, target type and mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
from pyspark import SparkContext

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import JavaTree, arrow_type, option
from penstock.errors import EvaluationError, NotSupported
from penstock.functions import BoundReference, Expression
from penstock.functions.casts import fast_digits, fast_numbers, java_digits
from penstock.functions.casts import text_numbers as texts
from penstock.functions.casts.cast_numbers import NumberToTimestamp, NumericCast, TimestampToNumber
from penstock.functions.casts.nested_casts import CastParts, NestedText
from penstock.functions.casts.text_times import parse_date, parse_timestamp
from penstock.functions.casts.to_text import BinaryToText, DateText, TimestampText
from penstock.functions.core import failures
from penstock.functions.core.fast_path import FastPath, column_fast_path
from penstock.functions.core.nested import Reinterpret, Retyped
from penstock.functions.core.strict import ScalarFunction
from penstock.functions.core.zones import Zone
from penstock.functions.numbers import decimals, fast_decimals
from penstock.functions.numbers.arithmetic import EvalMode
from penstock.functions.plan_registry import Translation, catalyst, eval_mode, refuse
from penstock.functions.times.fast_parsing import read_dates, read_timestamps
from penstock.functions.times.temporal import DateToTimestamp, ShiftZone, TimestampToDate

Types = pa.types
LAST_COMPARED_JAVA = 18


def zone_of(tree: JavaTree, translation: Translation) -> Zone:
    """Return the time zone of an expression, or the session's if it has none.

    Raises:
        NotSupported: Penstock does not know the name of the zone.
    """
    given = option(tree.timeZoneId())
    return named_zone(translation.conf.time_zone if given is None else str(given))


def named_zone(name: str) -> Zone:
    """Return the zone with a Java name.

    Raises:
        NotSupported: Penstock does not know the name.
    """
    try:
        return Zone(name)
    except ValueError:
        raise NotSupported(f"time zone {name} is not known; set spark.sql.session.timeZone to a region id") from None


@catalyst(
    "Cast", area="Casts", forms="`cast`, `try_cast`, `to_date`, `to_timestamp`",
    limits="between booleans, integers, floats, decimals, strings, dates and timestamps; arrays, maps and structs by "
    "their parts, or to string; binary to string where it is UTF-8; float or double to string or decimal on Java 17 "
    "and 18 only, whose digits later versions change",
)  # fmt: skip
def cast(tree: JavaTree, translation: Translation) -> Expression:
    return cast_to(tree, translation(tree.child()), arrow_type(tree), translation)


def cast_to(tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation) -> Expression:
    """Return the kernel of a cast. ``tree`` is the cast itself or the cast of a value that contains this one."""
    if child.data_type == target:
        return child
    for build in (_nested, _to_temporal, _from_temporal, _decimal, _number, _text):
        kernel = build(tree, child, target, translation)
        if kernel is not None:
            return kernel
    return refuse(tree, f"there is no cast from {child.data_type} to {target} here")


def _nested(tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation) -> Expression | None:
    """Return the kernel of a cast of a nested or null type; None for other types."""
    source, nullable = child.data_type, bool(tree.nullable())
    if Types.is_null(source):
        return Retyped((child,), target)
    if not Types.is_nested(source):
        return None
    parts = [source.field(i).type for i in range(source.num_fields)]
    if Types.is_string(target):
        if Types.is_map(source):
            parts = [source.key_type, source.item_type]
        return NestedText(
            child, [cast_to(tree, BoundReference(0, part), target, translation) for part in parts], nullable
        )
    kernels = [
        cast_to(tree, BoundReference(0, part), target.field(i).type, translation) for i, part in enumerate(parts)
    ]
    return CastParts(child, kernels, target, nullable)


def require_known_digits(tree: JavaTree) -> None:
    """Refuse to write the digits of a float if the JVM is newer than the versions that were compared."""
    context = SparkContext._active_spark_context
    assert context is not None
    version = str(java_class(context, "java.lang.System").getProperty("java.specification.version"))
    if int(version) > LAST_COMPARED_JAVA:
        refuse(tree, f"Java {version} writes other digits than Java 17; round it and cast it to decimal in the source")


def _is_plain(data_type: pa.DataType) -> bool:
    return bool(Types.is_boolean(data_type) or Types.is_integer(data_type) or Types.is_floating(data_type))


def _is_temporal(data_type: pa.DataType) -> bool:
    return bool(Types.is_date(data_type) or Types.is_timestamp(data_type))


Failure = Callable[[object], EvaluationError]


def _malformed(mode: EvalMode, source: pa.DataType, target: pa.DataType) -> Failure | None:
    return partial(_failure, failures.malformed, source, target) if mode is EvalMode.ANSI else None


def _overflow(mode: EvalMode, source: pa.DataType, target: pa.DataType) -> Failure | None:
    return partial(_failure, failures.cast_overflow, source, target) if mode is EvalMode.ANSI else None


def _failure(
    make: Callable[[object, pa.DataType, pa.DataType], EvaluationError],
    source: pa.DataType,
    target: pa.DataType,
    value: object,
) -> EvaluationError:
    return make(value, source, target)


def _to_temporal(tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation) -> Expression | None:
    if not _is_temporal(target):
        return None
    source, mode = child.data_type, eval_mode(tree)
    zone = zone_of(tree, translation)
    if Types.is_string(source):
        if Types.is_date(target):
            error = _malformed(mode, source, target)
            days = ScalarFunction(parse_date, (child,), pa.int32(), fast_path=column_fast_path(read_dates), error=error)
            return Reinterpret((days,), target)
        text_zone = zone if target.tz else None
        parse, fast_path = partial(parse_timestamp, text_zone), column_fast_path(read_timestamps, text_zone)
        error = _malformed(mode, source, target)
        return Reinterpret((ScalarFunction(parse, (child,), pa.int64(), fast_path=fast_path, error=error),), target)
    if Types.is_date(target):
        return TimestampToDate(child, zone, bool(tree.nullable())) if Types.is_timestamp(source) else None
    if Types.is_date(source):
        return DateToTimestamp(child, target, zone)
    if Types.is_timestamp(source):
        return ShiftZone(child, target, zone)
    if target.tz and (Types.is_integer(source) or Types.is_floating(source)):
        return NumberToTimestamp(child, target, mode)
    return None


def _from_temporal(
    tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation
) -> Expression | None:
    source = child.data_type
    if not _is_temporal(source):
        return None
    if Types.is_string(target):
        if Types.is_date(source):
            return DateText((child,), target, bool(tree.nullable()))
        return TimestampText(child, zone_of(tree, translation), bool(tree.nullable()))
    if Types.is_timestamp(source) and source.tz and (Types.is_integer(target) or Types.is_floating(target)):
        return TimestampToNumber(child, target, eval_mode(tree))
    return None


def _decimal(tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation) -> Expression | None:
    source, mode = child.data_type, eval_mode(tree)
    if Types.is_decimal(target):
        if Types.is_string(source):
            return _text_to_decimal(child, target, mode)
        if Types.is_floating(source):
            require_known_digits(tree)
            convert = partial(decimals.float_to_decimal, target, mode is EvalMode.ANSI)
            return ScalarFunction(convert, (child,), target, fast_path=fast_decimals.from_float)
        if not (Types.is_decimal(source) or Types.is_integer(source) or Types.is_boolean(source)):
            return None
        if decimals.widens(source, target):
            return decimals.WidenToDecimal((child,), target, bool(tree.nullable()))
        convert = partial(decimals.number_to_decimal, target.precision, target.scale)
        error = partial(decimals.out_of_range, target) if mode is EvalMode.ANSI else None
        return ScalarFunction(convert, (child,), target, fast_path=fast_decimals.rescale, error=error)
    if not Types.is_decimal(source):
        return None
    if Types.is_float32(target):
        return ScalarFunction(texts.decimal_to_float, (child,), target, bool(tree.nullable()))
    if Types.is_float64(target) or Types.is_string(target) or Types.is_boolean(target) or Types.is_integer(target):
        convert_from = decimals.decimal_converter(target, source, mode is not EvalMode.LEGACY)
        fast_path = fast_decimals.to_text if Types.is_string(target) else fast_decimals.to_number
        return ScalarFunction(
            convert_from, (child,), target, fast_path=fast_path, error=_overflow(mode, source, target)
        )
    return None


def _text_to_decimal(child: Expression, target: pa.DataType, mode: EvalMode) -> Expression:
    parsed = partial(decimals.text_to_decimal, target, mode is EvalMode.ANSI)
    return ScalarFunction(parsed, (child,), target, error=_malformed(mode, child.data_type, target))


def _number(tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation) -> Expression | None:
    if _is_plain(child.data_type) and _is_plain(target):
        return NumericCast(child, target, eval_mode(tree), bool(tree.nullable()))
    return None


def _text(tree: JavaTree, child: Expression, target: pa.DataType, translation: Translation) -> Expression | None:
    source, mode = child.data_type, eval_mode(tree)
    if Types.is_string(target):
        if Types.is_binary(source):
            return BinaryToText((child,), target, bool(tree.nullable()))
        if Types.is_boolean(source):
            return ScalarFunction(texts.boolean_text, (child,), target, bool(tree.nullable()))
        if Types.is_floating(source):
            require_known_digits(tree)
            if Types.is_float32(source):
                return ScalarFunction(java_digits.float_text, (child,), target, bool(tree.nullable()))
            return ScalarFunction(
                java_digits.double_text, (child,), target, bool(tree.nullable()), fast_digits.double_texts
            )
        if Types.is_integer(source):
            return ScalarFunction(
                str, (child,), target, bool(tree.nullable()), column_fast_path(fast_numbers.write_integers)
            )
        return None
    if not Types.is_string(source):
        return None
    if Types.is_binary(target):
        return Reinterpret((child,), target, bool(tree.nullable()))
    parse: Callable[..., object]
    fast_path: FastPath | None = None
    if Types.is_integer(target):
        parse = partial(texts.parse_integer, target.bit_width, mode is not EvalMode.LEGACY)
        fast_path = column_fast_path(fast_numbers.read_integers, target)
    elif Types.is_boolean(target):
        parse = texts.parse_boolean
    elif Types.is_floating(target):
        parse = texts.parse_double if Types.is_float64(target) else texts.parse_float
        fast_path = column_fast_path(fast_numbers.read_floats, target)
    else:
        return None
    return ScalarFunction(parse, (child,), target, fast_path=fast_path, error=_malformed(mode, source, target))
