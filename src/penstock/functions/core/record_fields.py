"""Conversion of the fields of CSV and JSON records, by the rules of Spark's record parsers.

These rules are Java's and differ from those of casts: digits of any script, no blanks around integers, no ``t`` for
true. A converter raises ``ValueError`` or ``OverflowError`` for a text that is not a value of its type; the record is
then malformed. Timestamps and dates are integers (microseconds, days), as ``pyarrow.array`` accepts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import ConfigError, EvaluationError
from penstock.functions.casts.text_numbers import parse_double, parse_float
from penstock.functions.casts.text_times import parse_date, parse_timestamp
from penstock.functions.core.zones import Zone
from penstock.functions.times.calendar import MICROS_PER_DAY
from penstock.functions.times.parsing import parse_by_pattern

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:\d++\.?(\d*+)|\.(\d++))(?:[eE]([+-]?\d++))?")
# Names of infinity and NaN that Spark's casts accept and Java does not.
_NAMED = re.compile(r"\s*[+-]?(?!NaN|Infinity)(?i:inf|infinity|nan)\s*")
_UNLIMITED = Context(prec=1000, rounding=ROUND_HALF_UP)
_LAST_OF_ONE_UNIT = "\uffff"
"""Java checks digits one UTF-16 unit at a time, so that it rejects digits above this character."""
_JAVA_INT = range(-(2**31), 2**31)


class FloatNames(NamedTuple):
    """Names of NaN and the infinities in texts."""

    nan: str = "NaN"
    positive_infinity: str = "Inf"
    negative_infinity: str = "-Inf"


PLAIN_NAMES = FloatNames()
"""Spark's default names."""


def parse_integer(text: str, bits: int) -> int:
    """Parse an integer like ``Integer.parseInt`` and ``Long.parseLong``: no blanks, no fraction.

    Raises:
        ValueError: the text is not an integer of so many bits.
    """
    if not _INTEGER.fullmatch(text) or max(text) > _LAST_OF_ONE_UNIT:
        raise ValueError(text)
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(text)
    return value


def parse_floating(text: str, names: FloatNames, bits: int) -> float:
    """Parse a name from ``names``, or else a number like ``Double.parseDouble`` or ``Float.parseFloat``.

    Raises:
        ValueError: the text is neither.
    """
    if text in names:
        return (float("nan"), float("inf"), float("-inf"))[names.index(text)]
    value = None if _NAMED.fullmatch(text) else (parse_double if bits == 64 else parse_float)(text)
    if value is None:
        raise ValueError(text)
    return value


def parse_boolean(text: str) -> bool:
    upper = text.upper()  # Java compares in upper case too: a long s (U+017F) becomes S
    if upper not in ("TRUE", "FALSE"):
        raise ValueError(text)
    return upper == "TRUE"


def parse_decimal(text: str, precision: int, scale: int) -> Decimal:
    """Parse like ``new BigDecimal(text)`` and round half up to the column's scale.

    Raises:
        ValueError: the text is not a number, or it has too many digits for the type.
    """
    match = _DECIMAL.fullmatch(text)
    if match is None or max(text) > _LAST_OF_ONE_UNIT:
        raise ValueError(text)
    exponent = int(match[3] or 0)
    if exponent not in _JAVA_INT or len(match[1] or match[2] or "") - exponent not in _JAVA_INT:
        raise ValueError(text)
    return fit_decimal(Decimal(text), precision, scale)


def parse_grouped_decimal(text: str, precision: int, scale: int) -> Decimal:
    """Parse a decimal and ignore commas at any position, as Spark's record parsers do."""
    return parse_decimal(text.replace(",", ""), precision, scale)


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Round half up to the scale.

    Raises:
        ValueError: the value needs more digits than the type has.
    """
    if value and value.adjusted() > precision:
        raise ValueError(str(value))  # must precede quantize, which writes out every digit of 1e999999
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_UNLIMITED) if value else Decimal(0)
    if abs(rounded) >= Decimal(10) ** (precision - scale):
        raise ValueError(str(value))
    return rounded


_FAR_EAST, _FAR_WEST = Zone("+18:00"), Zone("-18:00")


@dataclass(frozen=True)
class RecordTimes:
    """Formats of times in records. The methods return None for a text that is not a time.

    They raise EvaluationError for a time of day without a date. Spark would add the current date, so that the result
    would change after a restart.

    Attributes:
        zone: zone of timestamps without a zone of their own.
        timestamp_format: Java pattern of timestamps; None: ISO 8601 and Spark's older forms.
        ntz_format: Java pattern of timestamps without time zone; None as above.
        date_format: Java pattern of dates; None as above.
        passes_over_gmt: if a text is not a time, parse it again without ``GMT``. Casts do not do this.
    """

    zone: Zone
    timestamp_format: str | None = None
    ntz_format: str | None = None
    date_format: str | None = None
    passes_over_gmt: bool = True

    def instant(self, text: str) -> int | None:
        """Return microseconds since 1970 in UTC."""
        if self.timestamp_format is not None:
            return _by_pattern(self.timestamp_format, self.zone, text)
        return self._with_or_without_gmt(partial(parse_timestamp, self.zone), text)

    def wall_time(self, text: str) -> int | None:
        """Return wall-clock microseconds since 1970."""
        if self.ntz_format is not None:
            return _by_pattern(self.ntz_format, None, text)
        time = parse_timestamp(None, text)
        # Spark rejects a text with a zone here, because the result would depend on the zone of the cast.
        if time is None or parse_timestamp(_FAR_EAST, text) == parse_timestamp(_FAR_WEST, text):
            return None
        return time

    def date(self, text: str) -> int | None:
        """Return days since 1970."""
        if self.date_format is not None:
            micros = _by_pattern(self.date_format, None, text)
            return None if micros is None else micros // MICROS_PER_DAY
        return self._with_or_without_gmt(parse_date, text)

    def _with_or_without_gmt(self, parse: Callable[[str], int | None], text: str) -> int | None:
        found = parse(text)
        return parse(text.replace("GMT", "")) if found is None and self.passes_over_gmt else found


def _by_pattern(pattern: str, zone: Zone | None, text: str) -> int | None:
    try:
        return parse_by_pattern(pattern, zone, text)
    except EvaluationError:
        return None


Converter = Callable[[str], object]


@dataclass(frozen=True)
class TextRules:
    """Rules for reading texts.

    Attributes:
        times: formats of times.
        float_names: names of NaN and the infinities.
        grouped_decimals: decimals may contain commas.
    """

    times: RecordTimes
    float_names: FloatNames = PLAIN_NAMES
    grouped_decimals: bool = True


def text_converter(name: str, kind: pa.DataType, rules: TextRules) -> Converter:
    """Return the converter from texts to a type.

    Args:
        name: the column, for the error.
        kind: the type.
        rules: the rules of the parser.

    Raises:
        ConfigError: texts cannot be converted to the type.
    """
    types = pa.types
    if types.is_string(kind):
        return str
    if types.is_integer(kind):
        return partial(parse_integer, bits=kind.bit_width)
    if types.is_floating(kind):
        return partial(parse_floating, names=rules.float_names, bits=kind.bit_width)
    if types.is_boolean(kind):
        return parse_boolean
    if types.is_decimal(kind):
        parse = parse_grouped_decimal if rules.grouped_decimals else parse_decimal
        return partial(parse, precision=kind.precision, scale=kind.scale)
    if types.is_timestamp(kind) or types.is_date(kind):
        return partial(parse_time, kind, rules.times)
    if types.is_binary(kind):
        return str.encode
    raise ConfigError(f"column {name}: type {kind} cannot be read from texts")


def parse_time(kind: pa.DataType, times: RecordTimes, text: str) -> int:
    """Parse a date or timestamp of type ``kind``.

    Raises:
        ValueError: the text is not a time.
        EvaluationError: it is a time of day without a date; see ``RecordTimes``.
    """
    read = times.date if pa.types.is_date(kind) else times.wall_time if kind.tz is None else times.instant
    value = read(text)
    if value is None:
        raise ValueError(text)
    return value
