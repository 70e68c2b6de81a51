"""JSON values as values of Arrow types, by the rules of Spark's ``JacksonParser``.

What does not fit is null and makes the record malformed; what surrounds it is kept. A struct keeps its other fields;
an array or map with a scalar that does not fit is null as a whole.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TypeVar

import pyarrow as pa

from penstock.connectors.json_text import JsonArray, JsonNumber, JsonObject, JsonValue
from penstock.connectors.text_values import MALFORMED
from penstock.errors import ConfigError
from penstock.operators.expressions.record_fields import TextRules, parse_time
from penstock.operators.expressions.record_times import RecordTimes
from penstock.operators.expressions.record_values import fit_decimal, parse_grouped_decimal
from penstock.operators.expressions.text_numbers import parse_float

_SPECIAL_DOUBLES = {
    "NaN": float("nan"), "Infinity": float("inf"), "+INF": float("inf"), "INF": float("inf"),
    "+Infinity": float("inf"), "-INF": float("-inf"), "-Infinity": float("-inf"),
}  # fmt: skip

T = TypeVar("T")
Reader = Callable[[JsonValue], object]


class Partial(Exception):
    """A value of which a part did not fit: what could be read of it."""

    def __init__(self, value: object, problem: str) -> None:
        super().__init__(value, problem)
        self.value = value
        self.problem = problem


class Misfit(ValueError):
    """A value that is not of the type at all."""


def json_reader(name: str, kind: pa.DataType, rules: TextRules) -> Reader:
    """A function from a JSON value to what ``pyarrow.array`` takes for ``kind``; null stays null.

    The function raises ``Misfit`` or ``Partial``.

    Raises:
        ConfigError: a type that JSON files cannot hold.
    """
    read = _reader(name, kind, rules)

    def nullable(value: JsonValue) -> object:
        return None if value is None else read(value)

    return nullable


def _reader(name: str, kind: pa.DataType, rules: TextRules) -> Reader:
    types = pa.types
    if types.is_struct(kind):
        return _struct_reader(name, kind, rules)
    if types.is_list(kind):
        return _list_reader(name, kind, rules)
    if types.is_map(kind):
        return _map_reader(name, kind, rules)
    if types.is_string(kind):
        return _text
    if types.is_boolean(kind):
        return _boolean
    if types.is_integer(kind):
        return lambda value: _integer(value, kind.bit_width)
    if types.is_floating(kind):
        return lambda value: _double(value, kind.bit_width)
    if types.is_decimal(kind):
        return lambda value: _decimal(value, kind.precision, kind.scale)
    if types.is_timestamp(kind) or types.is_date(kind):
        return lambda value: _time(value, kind, rules.times)
    if types.is_binary(kind):
        return _binary
    raise ConfigError(f"column {name}: type {kind} cannot be read from JSON files")


def _misfit(value: JsonValue) -> Misfit:
    return Misfit(value.text if isinstance(value, JsonNumber | JsonObject | JsonArray) else repr(value))


def _text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, JsonNumber | JsonObject | JsonArray):
        return value.text
    assert value is not None
    return value


def _boolean(value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise _misfit(value)
    return value


def _integer(value: JsonValue, bits: int) -> int:
    if not isinstance(value, JsonNumber) or not value.is_integer:
        raise _misfit(value)
    number = int(value.text)
    if bits == 8 and 128 <= number < 256:
        return number - 256  # Jackson reads a byte unsigned or signed
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise _misfit(value)
    return number


def _double(value: JsonValue, bits: int) -> float:
    text = value.text if isinstance(value, JsonNumber) else value
    if not isinstance(text, str):
        raise _misfit(value)
    if text in _SPECIAL_DOUBLES:
        return _SPECIAL_DOUBLES[text]
    if not isinstance(value, JsonNumber):
        raise _misfit(value)
    return float(text) if bits == 64 else _single(text)


def _single(text: str) -> float:
    value = parse_float(text)
    assert value is not None, f"{text} is a JSON number"
    return value


def _decimal(value: JsonValue, precision: int, scale: int) -> Decimal:
    if isinstance(value, JsonNumber) and value.text not in _SPECIAL_DOUBLES:
        return _fitting(lambda text: fit_decimal(Decimal(text), precision, scale), value.text)
    return _from_text(value, lambda text: parse_grouped_decimal(text, precision, scale))


def _time(value: JsonValue, kind: pa.DataType, times: RecordTimes) -> int:
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if zoned and isinstance(value, JsonNumber) and value.is_integer:
        return int(value.text) * 1_000_000
    return _from_text(value, partial(parse_time, kind, times))


def _binary(value: JsonValue) -> bytes:
    if not isinstance(value, str):
        raise _misfit(value)
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise _misfit(value) from None


def _from_text(value: JsonValue, parse: Callable[[str], T]) -> T:
    if not isinstance(value, str):
        raise _misfit(value)
    return _fitting(parse, value)


def _fitting(parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except MALFORMED:
        raise Misfit(repr(text)) from None


def _struct_reader(name: str, kind: pa.DataType, rules: TextRules) -> Reader:
    readers = {field.name: json_reader(f"{name}.{field.name}", field.type, rules) for field in kind}

    def read(value: JsonValue) -> object:
        if not isinstance(value, JsonObject):
            raise _misfit(value)
        row: dict[str, object] = dict.fromkeys(readers)
        problem = ""
        for key, member in value.members:
            if key not in readers:
                continue
            try:
                row[key] = readers[key](member)
            except Partial as partial:
                row[key], problem = partial.value, problem or partial.problem
            except Misfit as misfit:
                problem = problem or f"{misfit} is no value of {name}.{key}"
        if problem:
            raise Partial(row, problem)
        return row

    return read


def _list_reader(name: str, kind: pa.DataType, rules: TextRules) -> Reader:
    read_item = json_reader(f"{name}[]", kind.value_type, rules)

    def read(value: JsonValue) -> object:
        if not isinstance(value, JsonArray):
            raise _misfit(value)
        items, problem = [], ""
        for item in value.items:
            try:
                items.append(read_item(item))
            except Partial as partial:
                items.append(partial.value)
                problem = problem or partial.problem
        if problem:
            raise Partial(items, problem)
        return items

    return read


def _map_reader(name: str, kind: pa.DataType, rules: TextRules) -> Reader:
    if not pa.types.is_string(kind.key_type):
        raise ConfigError(f"column {name}: JSON files hold maps with string keys only")
    read_item = json_reader(f"{name}{{}}", kind.item_type, rules)

    def read(value: JsonValue) -> object:
        if not isinstance(value, JsonObject):
            raise _misfit(value)
        entries, problem = [], ""
        for key, member in value.members:
            try:
                entries.append((key, read_item(member)))
            except Partial as partial:
                entries.append((key, partial.value))
                problem = problem or partial.problem
        if problem:
            raise Partial(entries, problem)
        return entries

    return read
