"""Conversion of JSON documents to values of a schema by the rules of Spark's ``JacksonParser``.

``from_json`` and JSON files use it. A value that is malformed or has the wrong type makes the record malformed; the
other values of the record are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.casts.text_numbers import decimal_to_float, narrowed
from penstock.functions.core.record_fields import RecordTimes, parse_grouped_decimal, parse_integer
from penstock.functions.json.text import copy_structure, java_text
from penstock.functions.json.tokens import JsonError, JsonReader, JsonRules, Token
from penstock.functions.numbers.decimals import to_precision

Types = pa.types
Converter = Callable[[JsonReader], object]
_NUMBERS = (Token.INTEGER, Token.FLOAT)
_INFINITIES = {
    "NaN": "nan", "+INF": "inf", "+Infinity": "inf", "Infinity": "inf", "-INF": "-inf", "-Infinity": "-inf",
}  # fmt: skip
_GREGORIAN = -141_427
_BYTE_MAX = 255
"""Jackson also reads unsigned bytes."""


class Unreadable(Exception):
    """A value does not have the type of its field."""


def _problem(name: str, error: Exception) -> str:
    return f"member {name}: {error or 'no value of its type'}"


class PartialResult(Exception):
    """A record is malformed, but some of its values were read."""

    def __init__(self, value: object, problem: str) -> None:
        super().__init__(problem)
        self.value = value


@dataclass(frozen=True)
class JsonOptions:
    """Options of ``from_json``.

    Attributes:
        times: the formats of dates and times.
        rules: the accepted extensions of standard JSON.
        fails_fast: a malformed record raises. Otherwise the values that could be read are kept.
        dateless_time_is_malformed: a time of day without a date makes the record malformed. Otherwise it raises
            EvaluationError, because its value would depend on the current day.
        corrupt_field: the field that receives the text of a malformed record, if the schema has it.
    """

    times: RecordTimes
    rules: JsonRules
    fails_fast: bool = False
    dateless_time_is_malformed: bool = False
    corrupt_field: str = "_corrupt_record"


class Converters:
    """Factory of the converters of types, used once per batch."""

    def __init__(self, options: JsonOptions) -> None:
        self._options = options

    def root(self, data_type: pa.DataType) -> Converter:
        """Return the converter of a document. If an array of structs is expected, an object is an array of one."""
        if Types.is_struct(data_type):
            return self._expecting({Token.START_OBJECT: self._object(data_type, root=True)})
        if Types.is_map(data_type):
            return self._expecting({Token.START_OBJECT: self._map(data_type)})
        readers = {Token.START_ARRAY: self._array(data_type)}
        if Types.is_struct(data_type.value_type):
            one = self._object(data_type.value_type, root=False)
            readers[Token.START_OBJECT] = lambda reader: _single(one, reader)
        return self._expecting(readers)

    def rows(self, data_type: pa.StructType) -> Converter:
        """Return a converter from a record of a file to its rows. Each object of an array is a row."""
        one, several = self._object(data_type, root=True), self._array(pa.list_(data_type))

        def convert(reader: JsonReader) -> list[object]:
            if None in (rows := several(reader)):
                raise Unreadable("null is no object")
            return rows

        return self._expecting({Token.START_OBJECT: lambda reader: _single(one, reader), Token.START_ARRAY: convert})

    def of(self, data_type: pa.DataType) -> Converter:
        if Types.is_struct(data_type):
            return self._expecting({Token.START_OBJECT: self._object(data_type, root=False)})
        if Types.is_map(data_type):
            return self._expecting({Token.START_OBJECT: self._map(data_type)})
        if Types.is_list(data_type):
            return self._expecting({Token.START_ARRAY: self._array(data_type)})
        if Types.is_null(data_type):
            return self._expecting(dict.fromkeys(Token, lambda reader: None))
        if Types.is_string(data_type):
            others = dict.fromkeys(Token, _source_text)
            return self._expecting(others | {Token.STRING: lambda reader: java_text(reader.text())})
        return self._expecting(self._atomic(data_type))

    def _atomic(self, data_type: pa.DataType) -> dict[Token, Converter]:
        if Types.is_boolean(data_type):
            return {Token.TRUE: lambda reader: True, Token.FALSE: lambda reader: False}
        if Types.is_integer(data_type):
            return {Token.INTEGER: lambda reader: _integer(reader.text(), data_type.bit_width)}
        if Types.is_floating(data_type):
            number = _float if Types.is_float32(data_type) else _double
            return {
                Token.INTEGER: lambda reader: number(reader.text()) + 0.0,  # the integer -0 is 0.0
                Token.FLOAT: lambda reader: number(reader.text()),
                Token.STRING: self._special,
            }
        if Types.is_decimal(data_type):
            return {
                **dict.fromkeys(_NUMBERS, lambda reader: _decimal(reader.text(), data_type)),
                Token.STRING: lambda reader: _decimal_of_text(_filled(reader), data_type),
            }
        if Types.is_binary(data_type):
            return {Token.STRING: lambda reader: reader.binary()}
        if Types.is_date(data_type):
            return {Token.STRING: lambda reader: self._time(self._date, _filled(reader))}
        if data_type.tz is None:
            return {Token.STRING: lambda reader: self._time(self._options.times.wall_time, _filled(reader))}
        return {
            Token.STRING: lambda reader: self._time(self._options.times.instant, _filled(reader)),
            Token.INTEGER: lambda reader: _wrapped(_integer(reader.text(), 64) * 1_000_000),
        }

    def time_parser(self, data_type: pa.DataType) -> Callable[[str], int | None]:
        """Return a parser of texts; it returns None for an empty or unreadable text."""
        times = self._options.times
        convert = times.date if Types.is_date(data_type) else times.wall_time if data_type.tz is None else times.instant
        return lambda text: convert(text) if text else None

    def _expecting(self, readers: Mapping[Token, Converter]) -> Converter:
        """Return a converter like Spark's ``parseJsonToken``.

        Names before the value are skipped, null is None, and a token without a reader raises Unreadable.
        """

        def convert(reader: JsonReader) -> object:
            while reader.token is Token.NAME:
                reader.next_token()
            if reader.token is None or reader.token is Token.NULL:
                return None
            if reader.token not in readers:
                if reader.token is Token.STRING:
                    reader.text()
                raise Unreadable
            return readers[reader.token](reader)

        return convert

    def _object(self, data_type: pa.StructType, root: bool) -> Converter:
        converters = {field.name: self.of(field.type) for field in data_type}

        def convert(reader: JsonReader) -> object:
            record: dict[str, object] = {}
            problem = ""
            while reader.next_token() not in (None, Token.END_OBJECT):
                name = reader.name
                if name is None or name not in converters:
                    reader.skip_children()
                    continue
                try:
                    record[name] = converters[name](reader)
                except PartialResult as partly:
                    problem = problem or _problem(name, partly)
                    record[name] = partly.value
                except (JsonError, Unreadable) as error:
                    problem = problem or _problem(name, error)
                    reader.skip_children()
            if problem:
                raise PartialResult(record, problem)
            return record

        return convert

    def _map(self, data_type: pa.MapType) -> Converter:
        value_of = self.of(data_type.item_type)

        def convert(reader: JsonReader) -> object:
            entries: list[tuple[str, object]] = []
            problem, unreadable = "", ""
            while reader.next_token() not in (None, Token.END_OBJECT):
                key = java_text(reader.name or "")
                try:
                    entries.append((key, value_of(reader)))
                except PartialResult as partly:
                    problem = problem or _problem(key, partly)
                    entries.append((key, partly.value))
                except (JsonError, Unreadable) as error:
                    unreadable = unreadable or _problem(key, error)
                    reader.skip_children()
            if unreadable:
                raise Unreadable(unreadable)
            if problem:
                raise PartialResult(entries, problem)
            return entries

        return convert

    def _array(self, data_type: pa.ListType) -> Callable[[JsonReader], list[object]]:
        value_of = self.of(data_type.value_type)

        def convert(reader: JsonReader) -> list[object]:
            values: list[object] = []
            problem = ""
            while reader.next_token() not in (None, Token.END_ARRAY):
                try:
                    values.append(value_of(reader))
                except PartialResult as partly:
                    problem = problem or str(partly)
                    values.append(partly.value)
            if problem:
                raise PartialResult(values, problem)
            return values

        return convert

    def _special(self, reader: JsonReader) -> float:
        text = reader.text()
        if text not in _INFINITIES or not self._options.rules.non_numeric:
            raise Unreadable
        return float(_INFINITIES[text])

    def _date(self, text: str) -> int | None:
        days = self._options.times.date(text)
        return _days_since_1970(text) if days is None and self._options.times.date_format is None else days

    def _time(self, parse: Callable[[str], int | None], text: str) -> int:
        try:
            return _found(parse(text))
        except EvaluationError:
            if self._options.dateless_time_is_malformed:
                raise Unreadable(f"{text!r} is a time without a day") from None
            raise


def _found(value: int | None) -> int:
    if value is None:
        raise Unreadable
    return value


def _days_since_1970(text: str) -> int:
    """Return the number of days that the text contains: Spark 1.5 wrote dates in this form.

    Raises:
        Unreadable: the text is not an integer.
        EvaluationError: the date is before 1582-10-15, the start of the Gregorian calendar.
    """
    try:
        days = parse_integer(text, 32)
    except ValueError:
        raise Unreadable from None
    if days < _GREGORIAN:
        raise EvaluationError(f"the date {text!r} is a number of days before 1582-10-15; write dates as yyyy-MM-dd")
    return days


def _filled(reader: JsonReader) -> str:
    """Return the text of a non-empty string.

    Raises:
        Unreadable: the string is empty, which only a string field accepts.
    """
    if not reader.text():
        raise Unreadable
    return reader.text()


def _single(convert: Converter, reader: JsonReader) -> list[object]:
    try:
        return [convert(reader)]
    except PartialResult as partly:
        raise PartialResult([partly.value], str(partly)) from None


def _source_text(reader: JsonReader) -> str:
    text = reader.source()
    return java_text(copy_structure(reader)) if text is None else text


def _integer(text: str, bits: int) -> int:
    value = int(text)
    if bits == 8 and 127 < value <= _BYTE_MAX:
        return value - 256
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise Unreadable
    return value


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _double(text: str) -> float:
    return float(_INFINITIES.get(text, text))


def _float(text: str) -> float:
    return narrowed(float(_INFINITIES[text])) if text in _INFINITIES else decimal_to_float(Decimal(text))


def _decimal_of_text(text: str, data_type: pa.DataType) -> Decimal:
    try:
        return parse_grouped_decimal(text, data_type.precision, data_type.scale)
    except (ValueError, InvalidOperation):
        raise Unreadable from None


def _decimal(text: str, data_type: pa.DataType) -> Decimal:
    try:
        value = to_precision(Decimal(text), data_type.precision, data_type.scale)
    except InvalidOperation:
        raise Unreadable from None
    if value is None:
        raise Unreadable
    return value
