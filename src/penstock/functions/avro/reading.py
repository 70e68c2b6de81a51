"""``from_avro``: decodes messages one at a time and converts the values like Spark's ``AvroDeserializer``."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from penstock.errors import DataError, EvaluationError
from penstock.functions.avro.resolution import Cursor, MalformedMessage, schema_reader
from penstock.functions.avro.schema import InvalidValue, Schema, parse_schema, promoted_type
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import map_distinct
from penstock.functions.numbers.fixed_point import WIDE

Convert = Callable[[Any], Any]

_LONG_DIGITS = 18


class FromAvro(Strict):
    """``from_avro``. Entries of maps are in the order of the message.

    Args:
        child: the messages.
        data_type: the result's type.
        writer_schema: the schema of the messages, as JSON.
        reader_schema: the schema to read them as, as JSON.
        permissive: a malformed message gives null, or a struct of nulls. Otherwise it raises.

    Raises:
        EvaluationError: a message is malformed and ``permissive`` is False.
        DataError: a string is not UTF-8.
    """

    def __init__(
        self, child: Expression, data_type: pa.DataType, writer_schema: str, reader_schema: str, permissive: bool
    ) -> None:
        super().__init__((child,), data_type)
        self.writer_schema = writer_schema
        self.reader_schema = reader_schema
        self.permissive = permissive

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return map_distinct(self._message, arrays, self.data_type, rows)

    def _message(self, data: bytes) -> object:
        try:
            return message_reader(self.writer_schema, self.reader_schema)(data)
        except MalformedMessage:
            if not self.permissive:
                raise EvaluationError(
                    "[MALFORMED_AVRO_MESSAGE] Malformed Avro messages are detected in message deserialization: "
                    f"{data[:50]!r} of {len(data)} bytes. Parse Mode: FAILFAST. To process malformed Avro message as "
                    "null result, try setting the option 'mode' as 'PERMISSIVE'."
                ) from None
            return {} if pa.types.is_struct(self.data_type) else None
        except InvalidValue as bad:
            raise DataError(f"from_avro: {bad}") from None


@lru_cache(maxsize=64)
def message_reader(writer_schema: str, reader_schema: str) -> Callable[[bytes], object]:
    """Return a function that decodes one message to a value that ``pyarrow.array`` accepts.

    Raises:
        UnsupportedSchema: immediately, if a schema is not supported, or if data of one cannot be read as the other.
        MalformedMessage: by the returned function, for a malformed message.
        InvalidValue: by the returned function, for a value that cannot be read in any mode.
    """
    reader = parse_schema(reader_schema)
    read, convert = schema_reader(parse_schema(writer_schema), reader), converter(reader)
    return lambda data: convert(read(Cursor(data)))


def converter(schema: Schema) -> Convert:
    """Return the conversion from a decoded Avro value to Spark's value."""
    if schema.kind == "union":
        return _union(schema)
    if schema.kind == "record":
        fields = [(field.name, converter(field.schema)) for field in schema.fields]
        return lambda record: {name: convert(record[name]) for name, convert in fields}
    if schema.kind == "array":
        element = converter(schema.children[0])
        return lambda items: [element(item) for item in items]
    if schema.kind == "map":
        value = converter(schema.children[0])
        return lambda entries: [(key, value(item)) for key, item in entries]
    if schema.logical == "decimal" and schema.kind in ("bytes", "fixed"):
        return lambda data: _decimal(schema, data)
    if schema.kind == "long" and schema.logical.endswith("timestamp-millis"):
        return _micros
    return lambda value: value


def _union(schema: Schema) -> Convert:
    branches = schema.branches
    if promoted_type(schema):
        return lambda chosen: chosen[1]
    converters = [None if branch.kind == "null" else converter(branch) for branch in schema.children]
    names = {schema.children.index(branch): f"member{i}" for i, branch in enumerate(branches)}

    def convert(chosen: tuple[int, Any]) -> Any:
        number, value = chosen
        of_branch = converters[number]
        if of_branch is None:
            return None
        return of_branch(value) if len(branches) == 1 else {names[number]: of_branch(value)}

    return convert


def _decimal(schema: Schema, data: bytes) -> Decimal:
    """Decode like Java's ``BigInteger`` of the bytes.

    If the precision is at most 18 digits, Spark uses only the low 64 bits.

    Raises:
        MalformedMessage: there are no bytes, or the value needs more digits than the precision.
    """
    if not data:
        raise MalformedMessage
    value = int.from_bytes(data, "big", signed=True)
    if schema.precision <= _LONG_DIGITS:
        value = (value + 2**63) % 2**64 - 2**63
    if abs(value) >= 10**schema.precision:
        raise MalformedMessage
    return Decimal(value).scaleb(-schema.scale, WIDE)


def _micros(millis: int) -> int:
    if not -(2**63) <= millis * 1000 < 2**63:
        raise MalformedMessage
    return millis * 1000
