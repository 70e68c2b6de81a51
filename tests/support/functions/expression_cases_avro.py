"""Cases over ``messages``."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

import copy
from typing import Any

from tests.support.functions.avro_messages import LOGICAL, NESTED, PLAIN, sql

PERMISSIVE = "map('mode', 'PERMISSIVE')"


def changed(schema: Any, **types: Any) -> Any:
    """The schema with other types of some fields; None drops one."""
    made = copy.deepcopy(schema)
    made["fields"] = [{**f, "type": types.get(f["name"], f["type"])} for f in made["fields"] if types.get(f["name"], f)]
    return made


WIDER = changed(PLAIN, i="double", l="float", f="double", s="bytes", b=["null", "boolean"], x=None, n=None)
WIDER["fields"] += [
    {"name": "new", "type": ["null", "int"], "default": None}, {"name": "text", "type": "string", "default": "é"},
    {"name": "many", "type": {"type": "array", "items": "long"}, "default": [1, 2]}, {"name": "ratio", "type": "double", "default": 1},
    {"name": "raw", "type": "bytes", "default": "\u00ff"}, {"name": "pairs", "type": {"type": "map", "values": "int"}, "default": {"a": 1}},
]  # fmt: skip
FEWER = changed(
    PLAIN, i=["null", "long", "string"], e={"type": "enum", "name": "kind", "symbols": ["A", "C"], "default": "C"}
)
STRICTER = changed(NESTED, ni="int", sn="string", il=["null", "long"], u=["null", "bytes", "int"], r=None, again=None)


def read_as(column: str, written: Any, wanted: Any, mode: str = "PERMISSIVE") -> str:
    return f"from_avro({column}, {sql(written)}, map('mode', '{mode}', 'avroSchema', {sql(wanted)}))"


NUMBERS = [{"type": "int"}, {"type": "long"}, "bytes", {"type": "array", "items": "int"},
           {"type": "map", "values": "int"}, {"type": "long", "logicalType": "timestamp-millis"}, "boolean"]  # fmt: skip
READ = [
    f"from_avro({column}, {sql(schema)}, {PERMISSIVE})"
    for column, schema in (("plain", PLAIN), ("nested", NESTED), ("logical", LOGICAL))
]
READ += [f"from_avro(v, {sql(schema)}, {PERMISSIVE})" for schema in NUMBERS]
READ += [
    read_as("plain", PLAIN, WIDER), read_as("plain", PLAIN, FEWER), read_as("nested", NESTED, STRICTER), read_as("v", "int", "double"),
    read_as("v", "long", "float"), read_as("v", "bytes", "bytes"),
]  # fmt: skip
# Not whole records: PySpark fails to hand out nulls of structs whose fields may not be null.
RAISING = [
    read_as("v", "int", "long"),
    f"from_avro(plain, {sql(PLAIN)}).s", f"from_avro(nested, {sql(NESTED)}, map('mode', 'FAILFAST')).again",
    f"from_avro(logical, {sql(LOGICAL)}).c", read_as("v", "int", "long", "FAILFAST"),
]  # fmt: skip


GIVEN = {"type": "record", "name": "given", "fields": [
    {"name": "y", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10}]},
    {"name": "x", "type": ["int", "null"]}, {"name": "z", "type": ["null", "double"]},
]}  # fmt: skip
MILLIS = {"type": "record", "name": "given", "fields": [
    {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "n", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}]},
    {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]},
]}  # fmt: skip
OF_NUMBERS = [f"to_avro(x_{name})" for name in ("b", "i8", "i16", "i32", "i64", "f32", "f64", "dec", "big")]
OF_NUMBERS += [
    "to_avro(named_struct('a', x_i32, 'b', named_struct('c', y_f64, 'd', array(x_i64, y_i64)), 'e', 1, 'n', null))",
    "to_avro(coalesce(x_i64, 0))", "to_avro(coalesce(x_big, y_big, 0.0))", "to_avro(if(x_b, named_struct('a', y_dec), null))",
    f"to_avro(named_struct('x', x_i32, 'y', y_big, 'z', y_f64), {sql(GIVEN)})", "to_avro(x_i32, '\"int\"')",
]  # fmt: skip
OF_TEXTS = [
    "to_avro(s)", "to_avro(bin)", "to_avro(split(s, ','))", "to_avro(array(named_struct('s', s, 'p', p)))", "to_avro(struct(s, bin, n))",
    """to_avro(p, '["null", {"type": "enum", "name": "e", "symbols": ["a", "b", "c", "X", "aa", "ab"]}]')""",
    """to_avro(substring(bin, 1, 2), '["null", {"type": "fixed", "name": "f", "size": 2}]')""",
    "from_avro(to_avro(struct(s)), '{\"type\":\"record\",\"name\":\"r\",\"fields\":[{\"name\":\"s\",\"type\":[\"string\",\"null\"]}]}').s",
]  # fmt: skip
OF_TIMES = [
    "to_avro(ts)", "to_avro(ntz)", "to_avro(dt)", "to_avro(struct(ts, ntz, dt))",
    f"to_avro(named_struct('t', ts, 'n', ntz, 'd', dt), {sql(MILLIS)})",
]  # fmt: skip
