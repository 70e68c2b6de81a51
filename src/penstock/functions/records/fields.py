"""Fields of CSV records, and what else stands for a value as a text in files, by the rules of Spark's parsers.

A converter raises ``ValueError`` or ``OverflowError`` for a text that is not a value of its type; the record is then
malformed. Timestamps and dates come as integers (microseconds, days), as ``pyarrow.array`` takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.functions.records.times import RecordTimes
from penstock.functions.records.values import (
    PLAIN_NAMES,
    FloatNames,
    parse_boolean,
    parse_decimal,
    parse_floating,
    parse_grouped_decimal,
    parse_integer,
)

Converter = Callable[[str], object]


@dataclass(frozen=True)
class TextRules:
    """How texts are read; ``grouped_decimals``: with commas in them."""

    times: RecordTimes
    float_names: FloatNames = PLAIN_NAMES
    grouped_decimals: bool = True


def text_converter(name: str, kind: pa.DataType, rules: TextRules) -> Converter:
    """Raises ConfigError for a type that a text cannot stand for."""
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
    """A date or timestamp of the type; see ``RecordTimes`` for the EvaluationError that this, too, may raise."""
    read = times.date if pa.types.is_date(kind) else times.wall_time if kind.tz is None else times.instant
    value = read(text)
    if value is None:
        raise ValueError(text)
    return value
