"""Avro messages that ``from_avro`` is compared on: of edge values, and damaged ones."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

import json
import os
import random
import struct
from typing import Any

import pyarrow as pa

_MESSAGES = int(os.environ.get("PENSTOCK_AVRO_MESSAGES", "80"))

# fmt: off
PLAIN = {"type": "record", "name": "plain", "namespace": "a.b", "fields": [
    {"name": "i", "type": "int"}, {"name": "l", "type": "long"}, {"name": "f", "type": "float"}, {"name": "d", "type": "double"},
    {"name": "b", "type": "boolean"}, {"name": "s", "type": "string"}, {"name": "y", "type": "bytes"},
    {"name": "e", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B", "C"], "default": "A"}},
    {"name": "x", "type": {"type": "fixed", "name": "four", "size": 4}}, {"name": "n", "type": "null"},
]}
NESTED = {"type": "record", "name": "nested", "fields": [
    {"name": "ni", "type": ["null", "int"]}, {"name": "sn", "type": ["string", "null"]}, {"name": "il", "type": ["int", "long"]},
    {"name": "df", "type": ["null", "double", "float"]}, {"name": "u", "type": ["int", "string", "null", "bytes", "boolean"]},
    {"name": "r", "type": ["null", {"type": "record", "name": "inner", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": {"type": "array", "items": ["null", "string"]}}]}]},
    {"name": "again", "type": {"type": "array", "items": "inner"}},
    {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
    {"name": "one", "type": ["int"]},
]}
LOGICAL = {"type": "record", "name": "logical", "fields": [
    {"name": "d", "type": {"type": "int", "logicalType": "date"}},
    {"name": "tm", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "tu", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    {"name": "lm", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
    {"name": "lu", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "c", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "g", "type": {"type": "fixed", "name": "sixteen", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 10}},
    {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
]}
INTEGERS = [0, 1, -1, 63, -64, 64, 300, 2**31 - 1, -(2**31)]
LONGS = [*INTEGERS, 2**31, 2**63 - 1, -(2**63), 253402300799999, 9223372036854775, 9223372036854776, 1700000000123]
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), -1e30, 1e-40]
STRINGS = ["", "a", "é😀", "abc" * 30, "\x00"]
BINARIES = [b"", b"\x00", b"\x7f\xff", b"\xff" * 9, b"\x01" + b"\x00" * 8, b"\x00\xe8\xd4\xa5\x10\x00", b"\x02\x54\x0b\xe3\xff"]
# fmt: on


def number(value: int) -> bytes:
    """Zigzag, seven bits a byte."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class Writer:
    """Random messages of a schema."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._named: dict[str, Any] = {}

    def message(self, schema: Any) -> bytes:
        """Any value of the schema."""
        if isinstance(schema, list):
            branch = self.chance.randrange(len(schema))
            return number(branch) + self.message(schema[branch])
        if isinstance(schema, str) and schema in self._named:
            return self.message(self._named[schema])
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, dict) and "name" in schema:
            self._named[schema["name"]] = schema
        return bytes(getattr(self, f"_{kind}")(schema))

    def _record(self, schema: Any) -> bytes:
        return b"".join(self.message(field["type"]) for field in schema["fields"])

    def _array(self, schema: Any) -> bytes:
        return self._blocks(lambda: self.message(schema["items"]))

    def _map(self, schema: Any) -> bytes:
        keys = iter("kj")
        return self._blocks(lambda: self._text(next(keys, "k").encode()) + self.message(schema["values"]), 1)

    def _blocks(self, item: Any, most: int = 4) -> bytes:
        count = self.chance.randrange(most + 1)
        body = b"".join(item() for _ in range(count))
        if not count:
            return b"\x00"
        return (number(-count) + number(len(body)) if self.chance.random() < 0.3 else number(count)) + body + b"\x00"

    def _text(self, data: bytes) -> bytes:
        return number(len(data)) + data

    def _int(self, schema: Any) -> bytes:
        return number(self.chance.choice(INTEGERS))

    def _long(self, schema: Any) -> bytes:
        return number(self.chance.choice(LONGS))

    def _float(self, schema: Any) -> bytes:
        return struct.pack("<f", self.chance.choice(FLOATS))

    def _double(self, schema: Any) -> bytes:
        return struct.pack("<d", self.chance.choice(FLOATS))

    def _boolean(self, schema: Any) -> bytes:
        return bytes([self.chance.choice([0, 1, 1, 2])])

    def _string(self, schema: Any) -> bytes:
        return self._text(self.chance.choice(STRINGS).encode())

    def _bytes(self, schema: Any) -> bytes:
        return self._text(self.chance.choice(BINARIES))

    def _fixed(self, schema: Any) -> bytes:
        return self.chance.choice([b"\x00", b"\xff", b"\x01"]) * schema["size"]

    def _enum(self, schema: Any) -> bytes:
        return number(self.chance.choice([0, 1, 2, 2, 3, -1]))

    def _null(self, schema: Any) -> bytes:
        return b""

    def damaged(self, data: bytes) -> bytes:
        """Cut off, or with another byte in it: not where Java would then ask for more memory than there is."""
        place = self.chance.randrange(len(data) + 1)
        if self.chance.random() < 0.5 or max(data, default=0) > 0x7F:
            return data[:place]
        return data[:place] + bytes([self.chance.randrange(0x40)]) + data[place + self.chance.randrange(2) :]


def messages() -> pa.Table:
    """Columns ``plain``, ``nested``, ``logical`` of messages of those schemas, ``v`` of numbers, whole and not."""
    writer = Writer(8)
    columns: dict[str, pa.Array] = {"id": pa.array(range(_MESSAGES), pa.int32())}
    for name, schema in (("plain", PLAIN), ("nested", NESTED), ("logical", LOGICAL)):
        whole = [writer.message(schema) for _ in range(_MESSAGES)]
        made = [writer.damaged(data) if i % 4 == 0 else data for i, data in enumerate(whole)]
        columns[name] = pa.array([None, b"", *made[2:]], pa.binary())
    odd = [b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f", b"\x80" * 5, b"\x80" * 9 + b"\x01", b"\xff" * 9 + b"\x7f",
           b"\x80" * 10, b"\x80", b"\x80\x80\x80\x80\x10", b"", b"\x02\x02\x00", b"\x01"]  # fmt: skip
    numbers = [*odd, *map(number, LONGS)]
    columns["v"] = pa.array([numbers[i % len(numbers)] for i in range(_MESSAGES)], pa.binary())
    return pa.table(columns)


def sql(schema: Any) -> str:
    """The schema as a string constant."""
    return "'" + json.dumps(schema) + "'"
