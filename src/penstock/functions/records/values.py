"""Fields of CSV and JSON records as numbers and booleans, by the rules of Spark's parsers of records.

They are Java's, not those of casts: digits of any script, no blanks around integers, no ``t`` for true. A text that is
no value of its type raises ``ValueError``; the record is then malformed.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import NamedTuple

from penstock.functions.casts.text_numbers import parse_double, parse_float

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:\d++\.?(\d*+)|\.(\d++))(?:[eE]([+-]?\d++))?")
# Names of infinity and NaN that Spark's casts know and Java does not.
_NAMED = re.compile(r"\s*[+-]?(?!NaN|Infinity)(?i:inf|infinity|nan)\s*")
_UNLIMITED = Context(prec=1000, rounding=ROUND_HALF_UP)
_LAST_OF_ONE_UNIT = "\uffff"
"""Java looks at digits one UTF-16 unit at a time."""
_JAVA_INT = range(-(2**31), 2**31)


class FloatNames(NamedTuple):
    """The texts of what is no number."""

    nan: str = "NaN"
    positive_infinity: str = "Inf"
    negative_infinity: str = "-Inf"


PLAIN_NAMES = FloatNames()
"""Spark's, unless options say otherwise."""


def parse_integer(text: str, bits: int) -> int:
    """``Integer.parseInt`` and its kin: no blanks, no fraction."""
    if not _INTEGER.fullmatch(text) or max(text) > _LAST_OF_ONE_UNIT:
        raise ValueError(text)
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(text)
    return value


def parse_floating(text: str, names: FloatNames, bits: int) -> float:
    """The names of the options, else ``Double.parseDouble`` or ``Float.parseFloat``."""
    if text in names:
        return (float("nan"), float("inf"), float("-inf"))[names.index(text)]
    value = None if _NAMED.fullmatch(text) else (parse_double if bits == 64 else parse_float)(text)
    if value is None:
        raise ValueError(text)
    return value


def parse_boolean(text: str) -> bool:
    upper = text.upper()  # as Java compares them: a long s is an S
    if upper not in ("TRUE", "FALSE"):
        raise ValueError(text)
    return upper == "TRUE"


def parse_decimal(text: str, precision: int, scale: int) -> Decimal:
    """``new BigDecimal(text)``, rounded half up to the column's scale."""
    match = _DECIMAL.fullmatch(text)
    if match is None or max(text) > _LAST_OF_ONE_UNIT:
        raise ValueError(text)
    exponent = int(match[3] or 0)
    if exponent not in _JAVA_INT or len(match[1] or match[2] or "") - exponent not in _JAVA_INT:
        raise ValueError(text)
    return fit_decimal(Decimal(text), precision, scale)


def parse_grouped_decimal(text: str, precision: int, scale: int) -> Decimal:
    """Commas anywhere are passed over, as Spark's parsers of records do."""
    return parse_decimal(text.replace(",", ""), precision, scale)


def fit_decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """Rounded half up to the scale. Raises ValueError: it needs more digits than the type has."""
    if value and value.adjusted() > precision:
        raise ValueError(str(value))  # before quantize: it would write out every digit of 1e999999
    rounded = value.quantize(Decimal(1).scaleb(-scale), context=_UNLIMITED) if value else Decimal(0)
    if abs(rounded) >= Decimal(10) ** (precision - scale):
        raise ValueError(str(value))
    return rounded
