"""Schema resolution by Avro's specification: readers of data written with one schema as another schema.

A reader is a function that takes the next value from a ``Cursor``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.functions.avro.schema import Field, InvalidValue, Schema, UnsupportedSchema

MAX_ITEMS = 2**31 - 9
"""Java's maximum number of items of an array or map, and of bytes of a string."""
MAX_EMPTY_ITEMS = 1 << 20
"""Maximum number of items that need no bytes, such as nulls. A damaged count must not create billions of items."""
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class MalformedMessage(Exception):
    """The bytes do not match the schema."""


class IncompatibleSchemas(UnsupportedSchema):
    """Data of one schema can never be read as the other.

    For a branch of a written union, the error is deferred until a message has a value of that branch.
    """


class Cursor:
    """Read position in a message."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise MalformedMessage
        start, self.at = self.at, end
        return self.data[start:end]

    def number(self, bits: int) -> int:
        """Read a zigzag number of 32 or 64 bits. Bits that do not fit are dropped, as in Java."""
        value, shift = 0, 0
        while True:
            if self.at >= len(self.data) or shift >= bits:
                raise MalformedMessage
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        value &= (1 << bits) - 1
        return (value >> 1) ^ -(value & 1)


Read = Callable[[Cursor], Any]


def schema_reader(writer: Schema, reader: Schema) -> Read:
    """Return the reader of data of ``writer`` as ``reader``.

    A union is read as a pair: the number of the branch, and the value.

    Raises:
        UnsupportedSchema: such data cannot be read as ``reader``, or a schema is not supported.
    """
    if writer.kind == "union":
        return _of_written_union([_of_branch(branch, reader) for branch in writer.children])
    if reader.kind == "union":
        number = _branch(writer, reader)
        read = schema_reader(writer, reader.children[number])
        return lambda cursor: (number, read(cursor))
    if writer.kind != reader.kind:
        return _promoted(writer, reader)
    if writer.kind == "record":
        _same_name(writer, reader)
        return _record(writer, reader)
    if writer.kind == "enum":
        _same_name(writer, reader)
        return _enum(writer, reader)
    if writer.kind == "fixed":
        _same_name(writer, reader)
        if writer.size != reader.size:
            raise UnsupportedSchema(f"the sizes of {writer.name} differ")
        return lambda cursor: cursor.take(writer.size)
    if writer.kind == "array":
        return _blocks(schema_reader(writer.children[0], reader.children[0]), list)
    if writer.kind == "map":
        value = schema_reader(writer.children[0], reader.children[0])
        # Of equal keys, the value of the last is used, at the position of the first.
        return _blocks(lambda cursor: (_string(cursor), value(cursor)), lambda pairs: list(dict(pairs).items()))
    return _PLAIN[writer.kind]


def _same_name(writer: Schema, reader: Schema) -> None:
    if writer.name != reader.name:
        raise UnsupportedSchema(f"the names {writer.name} and {reader.name} differ")


def _string(cursor: Cursor) -> str:
    data = _bytes(cursor)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidValue(
            f"the string {data[:50]!r} of {len(data)} bytes is not UTF-8; read it with the type bytes"
        ) from None


def _bytes(cursor: Cursor) -> bytes:
    return cursor.take(cursor.number(64))


_PLAIN: dict[str, Read] = {
    "null": lambda cursor: None,
    "boolean": lambda cursor: cursor.take(1) == b"\x01",
    "int": lambda cursor: cursor.number(32),
    "long": lambda cursor: cursor.number(64),
    "float": lambda cursor: _FLOAT.unpack(cursor.take(4))[0],
    "double": lambda cursor: _DOUBLE.unpack(cursor.take(8))[0],
    "bytes": _bytes,
    "string": _string,
}
_WIDER = {
    ("int", "long"): int, ("int", "float"): np.float32, ("int", "double"): float, ("long", "float"): np.float32,
    ("long", "double"): float, ("float", "double"): float,
}  # fmt: skip


def _promoted(writer: Schema, reader: Schema) -> Read:
    kinds = writer.kind, reader.kind
    if kinds in (("bytes", "string"), ("string", "bytes")):
        return _PLAIN[reader.kind]
    if kinds not in _WIDER:
        raise IncompatibleSchemas(f"{writer.kind} cannot be read as {reader.kind}")
    read, widen = _PLAIN[writer.kind], _WIDER[kinds]
    return lambda cursor: widen(read(cursor))


def _of_branch(writer: Schema, reader: Schema) -> Read:
    try:
        return schema_reader(writer, reader)
    except IncompatibleSchemas:
        return _malformed


def _malformed(cursor: Cursor) -> Any:
    raise MalformedMessage


def _of_written_union(branches: list[Read]) -> Read:
    def read(cursor: Cursor) -> Any:
        number = cursor.number(32)
        if not 0 <= number < len(branches):
            raise MalformedMessage
        return branches[number](cursor)

    return read


def _branch(writer: Schema, reader: Schema) -> int:
    """Return the first branch of the same type, or else the first branch to which the type can be promoted.

    Raises:
        UnsupportedSchema: there is no such branch.
    """
    for number, branch in enumerate(reader.children):
        if branch.kind == writer.kind and branch.name == writer.name:
            return number
    for number, branch in enumerate(reader.children):
        kinds = writer.kind, branch.kind
        if kinds in _WIDER or kinds in (("bytes", "string"), ("string", "bytes")):
            return number
    if writer.name:  # Java also accepts a record of another name with the same fields
        raise UnsupportedSchema(f"{writer.name} is not among the types of a union")
    raise IncompatibleSchemas(f"{writer.kind} is not among the types of a union")


def _record(writer: Schema, reader: Schema) -> Read:
    reader_fields = {field.name: field for field in reader.fields}
    steps: list[tuple[str, str | None, Read]] = []
    for field in writer.fields:
        target = reader_fields.pop(field.name, None)
        read = schema_reader(field.schema, field.schema if target is None else target.schema)
        steps.append((field.name, None if target is None else field.name, read))
    defaults: dict[str | None, Any] = {name: default_value(field) for name, field in reader_fields.items()}

    def read_record(cursor: Cursor) -> dict[str | None, Any]:
        record = dict(defaults)
        for field, name, read in steps:
            try:
                record[name] = read(cursor)
            except InvalidValue as bad:
                raise bad.within(field) from None
        return record

    return read_record


def _enum(writer: Schema, reader: Schema) -> Read:
    symbols = [symbol if symbol in reader.symbols else reader.default for symbol in writer.symbols]

    def read(cursor: Cursor) -> str:
        number = cursor.number(32)
        symbol = symbols[number] if 0 <= number < len(symbols) else None
        if symbol is None:
            raise MalformedMessage
        return symbol

    return read


def _blocks(item: Read, made: Callable[[list[Any]], list[Any]]) -> Read:
    def read(cursor: Cursor) -> list[Any]:
        items: list[Any] = []
        while count := cursor.number(64):
            if count < 0:
                cursor.number(64)  # the size of the block in bytes
                count = -count
            left = len(cursor.data) - cursor.at
            if len(items) + count > MAX_ITEMS or count > max(left, MAX_EMPTY_ITEMS):
                raise MalformedMessage
            items += [item(cursor) for _ in range(count)]
        return made(items)

    return read


def default_value(field: Field) -> Any:
    """Return the default of a field, in the form of decoded values.

    Raises:
        UnsupportedSchema: the field has no default, or the default is not supported.
    """
    if not field.has_default:
        raise UnsupportedSchema(f"the field {field.name} is not in the data's schema and has no default")
    return _from_json(field.schema, field.default, field.name)


def _from_json(schema: Schema, value: Any, name: str) -> Any:
    if schema.kind == "union":
        return 0, _from_json(schema.children[0], value, name)
    if schema.kind == "array" and isinstance(value, list):
        return [_from_json(schema.children[0], item, name) for item in value]
    if schema.kind == "map" and isinstance(value, dict):
        return [(key, _from_json(schema.children[0], item, name)) for key, item in value.items()]
    if schema.kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1")
    if schema.kind in ("float", "double") and type(value) in (int, float):
        return float(value)
    if type(value) is _JSON_TYPES.get(schema.kind):
        return value
    raise UnsupportedSchema(f"the default of the field {name} is not supported")


_JSON_TYPES = {"null": type(None), "boolean": bool, "int": int, "long": int, "string": str, "enum": str}
