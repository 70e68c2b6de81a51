"""Errors that Spark raises under ANSI mode, with the same error conditions and the same values in the message."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from penstock.errors import EvaluationError

_SQL_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}
_SUFFIXES = {pa.int8(): "Y", pa.int16(): "S", pa.int64(): "L", pa.float64(): "D"}


def sql_name(data_type: pa.DataType) -> str:
    """Return the name of a type as in Spark's messages."""
    if pa.types.is_decimal(data_type):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    return _SQL_NAMES.get(data_type, str(data_type).upper())


def divide_by_zero() -> EvaluationError:
    return EvaluationError(
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    )


def remainder_by_zero() -> EvaluationError:
    return EvaluationError(
        "[REMAINDER_BY_ZERO] Remainder by zero. Use `try_mod` to tolerate divisor being 0 and return NULL instead."
    )


def overflow(data_type: pa.DataType, operation: str, left: object, right: object) -> EvaluationError:
    """Return the error for an integer operation whose result is outside the type's range."""
    if pa.types.is_int8(data_type) or pa.types.is_int16(data_type):
        suffix = _SUFFIXES[data_type]
        return EvaluationError(
            f"[BINARY_ARITHMETIC_OVERFLOW] {left}{suffix} {operation} {right}{suffix} caused overflow."
        )
    name = "long" if pa.types.is_int64(data_type) else "integer"
    return EvaluationError(f"[ARITHMETIC_OVERFLOW] {name} overflow: {left} {operation} {right}.")


def unary_overflow(operation: str, value: object, data_type: pa.DataType) -> EvaluationError:
    return EvaluationError(
        f"[ARITHMETIC_OVERFLOW] {operation} caused overflow: {value}{_SUFFIXES.get(data_type, '')} has no counterpart."
    )


def time_overflow(operation: str, value: object) -> EvaluationError:
    """Return the error for a date or timestamp outside the supported range.

    Spark raises it with and without ANSI mode.
    """
    return EvaluationError(f"[DATETIME_OVERFLOW] Datetime operation overflow: {operation} of {value}.")


def malformed(value: object, source: pa.DataType, target: pa.DataType) -> EvaluationError:
    """Return the error for a cast of a value that has no valid form of the target type."""
    text = f"'{value}'" if pa.types.is_string(source) else f"{value}{_SUFFIXES.get(source, '')}"
    return EvaluationError(
        f'[CAST_INVALID_INPUT] The value {text} of the type "{sql_name(source)}" cannot be cast to '
        f'"{sql_name(target)}" because it is malformed. Correct the value as per the syntax, or change its target '
        "type. Use `try_cast` to tolerate malformed input and return NULL instead."
    )


def cast_overflow(value: object, source: pa.DataType, target: pa.DataType) -> EvaluationError:
    """Return the error for a cast of a number outside the target type's range."""
    return EvaluationError(
        f'[CAST_OVERFLOW] The value {value}{_SUFFIXES.get(source, "")} of the type "{sql_name(source)}" cannot be '
        f'cast to "{sql_name(target)}" due to an overflow. Use `try_cast` to tolerate overflow and return NULL instead.'
    )


def decimal_out_of_range(value: Decimal, target: pa.DataType) -> EvaluationError:
    """Return the error for a decimal with more digits than its type has."""
    return EvaluationError(
        f"[NUMERIC_VALUE_OUT_OF_RANGE] {value:f} cannot be represented as "
        f"Decimal({target.precision}, {target.scale}). "
        'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error, and return NULL instead.'
    )


def decimal_unsupported(text: str) -> EvaluationError:
    """Return the error for a text whose number has more digits before the point than any decimal type."""
    return EvaluationError(
        f"[NUMERIC_OUT_OF_SUPPORTED_RANGE] The value {text} cannot be interpreted as a numeric since it has more than "
        "38 digits."
    )


def array_index(index: object, size: object) -> EvaluationError:
    return EvaluationError(
        f"[INVALID_ARRAY_INDEX] The index {index} is out of bounds. The array has {size} elements. "
        "Use the SQL function `get()` to tolerate accessing element at invalid index and return NULL instead."
    )


def unreadable_time(text: object, pattern: str) -> EvaluationError:
    """Return the error for a text that does not match the pattern of its format."""
    return EvaluationError(
        f"[CANNOT_PARSE_TIMESTAMP] The timestamp {text!r} is not of the pattern {pattern!r}. "
        "Use `try_to_timestamp` to tolerate invalid input string and return NULL instead."
    )


def no_such_time(year: object, month: object, day: object) -> EvaluationError:
    """Return the error for fields that do not form a date or timestamp."""
    return EvaluationError(
        f"[DATETIME_FIELD_OUT_OF_BOUNDS] There is no date or time of the year {year}, the month {month}, the day {day} "
        "and the given time. Use the function with `try_` to tolerate this and return NULL instead."
    )


def fraction_of_minute(seconds: object) -> EvaluationError:
    return EvaluationError(
        f"[INVALID_FRACTION_OF_SECOND] Valid range for seconds is [0, 60] (inclusive), but the provided value is "
        f"{seconds}. To avoid this error, use `try_make_timestamp`, which returns NULL on error."
    )


def unknown_zone(name: str) -> EvaluationError:
    return EvaluationError(
        f"[INVALID_TIMEZONE] The timezone: {name} is invalid. The timezone must be either a region-based zone ID or a "
        "zone offset, such as 'America/Los_Angeles' or 'UTC+01:00'."
    )


def not_a_weekday(name: object) -> EvaluationError:
    return EvaluationError(f"[ILLEGAL_DAY_OF_WEEK] Illegal input for day of week: {name}.")


def interval_overflow() -> EvaluationError:
    return EvaluationError("[INTERVAL_ARITHMETIC_OVERFLOW] Integer overflow while operating with intervals.")


def calendar_interval_overflow() -> EvaluationError:
    return EvaluationError(
        "[ARITHMETIC_OVERFLOW] integer overflow. Use 'try_make_interval' to tolerate overflow and return NULL instead."
    )


def days_overflow() -> EvaluationError:
    """Return the error for a date beyond 32 bits of days.

    Spark raises it with and without ANSI mode.
    """
    return EvaluationError("[ARITHMETIC_OVERFLOW] integer overflow: the date is too far away.")


def not_hexadecimal(text: object) -> EvaluationError:
    return EvaluationError(
        f"[CONVERSION_INVALID_INPUT] The value '{text}' cannot be converted to \"BINARY\" because it is malformed. "
        "Use `try_to_binary` to tolerate malformed input and return NULL instead."
    )


def not_a_url(text: object) -> EvaluationError:
    return EvaluationError(
        f"[CANNOT_DECODE_URL] The provided URL cannot be decoded: {text}. Please ensure that the URL is properly "
        "formatted and try again."
    )


def invalid_url(text: object) -> EvaluationError:
    return EvaluationError(
        f"[INVALID_URL] The url is invalid: {text}. Use `try_parse_url` to tolerate it and return NULL."
    )


def zero_index() -> EvaluationError:
    return EvaluationError(
        "[INVALID_INDEX_OF_ZERO] The index 0 is invalid. An index shall be either < 0 or > 0 (the first element has "
        "index 1)."
    )


def interval_by_zero() -> EvaluationError:
    return EvaluationError(
        "[INTERVAL_DIVIDED_BY_ZERO] Division by zero. Use `try_divide` to tolerate this and return NULL."
    )
