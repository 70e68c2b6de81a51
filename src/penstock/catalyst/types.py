"""Catalyst's data types (as JSON) and their Arrow counterparts.

The mapping is PySpark's ``to_arrow_schema`` with one difference: a timestamp is always ``timestamp[us, tz=UTC]``, the
instant that Spark stores. The session time zone belongs to the expressions that use it. As in PySpark, struct fields
with the same name get distinct names: casts in Arrow find fields by name, and would silently find none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import _dedup_names

from penstock.errors import NotSupported

TIMESTAMP = pa.timestamp("us", tz="UTC")

_ATOMIC: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_CATALYST = {arrow: name for name, arrow in _ATOMIC.items()}
_DECIMAL = re.compile(r"^decimal\((\d+),(-?\d+)\)$")
_DAY_TIME = re.compile(r"^interval (day|hour|minute|second)( to (hour|minute|second))?$")
_CHARACTER = re.compile(r"^(char|varchar)\(\d+\)$")

Json = Any
"""A parsed JSON value, as returned by ``json.loads``."""


def to_arrow_type(data_type: Json) -> pa.DataType:
    """Return the Arrow type of a Catalyst type.

    Args:
        data_type: parsed JSON (``json.loads(dataType.json())``); for an atomic type this is its name.

    Raises:
        NotSupported: the type is not supported as a column (variant, calendar and year-month intervals, collations).
    """
    if isinstance(data_type, str):
        return _to_arrow_atomic(data_type)
    kind = data_type["type"]
    if kind == "struct":
        fields = list(to_arrow_schema(data_type))
        names = distinct_names([field.name for field in fields])
        return pa.struct([field.with_name(name) for field, name in zip(fields, names, strict=True)])
    if kind == "array":
        return pa.list_(_nested_field("element", data_type["elementType"], data_type["containsNull"]))
    if kind == "map":
        key_type = to_arrow_type(data_type["keyType"])
        if pa.types.is_null(key_type):
            raise NotSupported("maps with keys of type void are not supported; cast the keys to another type first")
        key = pa.field("key", key_type, nullable=False)
        return pa.map_(key, _nested_field("value", data_type["valueType"], data_type["valueContainsNull"]))
    if kind == "udt":
        return to_arrow_type(data_type["sqlType"])
    raise NotSupported(f"columns of type {kind} are not supported; cast them to another type first")


def distinct_names(names: list[str]) -> list[str]:
    """Return the names that Spark gives the fields of a struct in Arrow: ``w, w`` become ``w_0, w_1``.

    Raises:
        NotSupported: another field already has such a name.
    """
    distinct: list[str] = _dedup_names(names)
    if len(set(distinct)) < len(names):
        raise NotSupported(f"a struct has fields {', '.join(names)}: rename those of the same name")
    return distinct


def repeated_fields(path: str, data_type: Json, case_sensitive: bool = True) -> Iterator[tuple[str, str]]:
    """Yield path and name for each repeated field name of the structs in a Catalyst type."""
    if isinstance(data_type, str):
        return
    if data_type["type"] == "struct":
        names = [field["name"] for field in data_type["fields"]]
        seen: set[str] = set()
        for name in names:
            key = name if case_sensitive else name.lower()
            if key in seen:
                yield path, name
            seen.add(key)
        below = [(field["name"], field["type"]) for field in data_type["fields"]]
    else:
        parts = {"element": "elementType", "key": "keyType", "value": "valueType"}
        below = [(name, data_type[part]) for name, part in parts.items() if part in data_type]
    for name, kind in below:
        yield from repeated_fields(f"{path}.{name}", kind, case_sensitive)


def _nested_field(name: str, data_type: Json, nullable: bool) -> pa.Field:
    """Return an Arrow field. A field of type void is always nullable, as Arrow requires."""
    arrow = to_arrow_type(data_type)
    return pa.field(name, arrow, nullable or pa.types.is_null(arrow))


def _to_arrow_atomic(name: str) -> pa.DataType:
    if name in _ATOMIC:
        return _ATOMIC[name]
    if match := _DECIMAL.match(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    if _DAY_TIME.match(name):
        return pa.duration("us")
    if _CHARACTER.match(name):
        return pa.string()
    raise NotSupported(f"columns of type {name} are not supported; cast them to another type first")


def to_arrow_schema(struct: Json) -> pa.Schema:
    """Return the Arrow schema of a StructType, given as JSON text or parsed JSON. Column names may repeat.

    Raises:
        NotSupported: a column's type is not supported; the message names the column.
    """
    parsed = json.loads(struct) if isinstance(struct, str) else struct
    fields = []
    for field in parsed["fields"]:
        if "__COLLATIONS" in field.get("metadata", {}):
            raise NotSupported(f"column {field['name']} has a collation; only UTF8_BINARY strings are supported")
        try:
            fields.append(_nested_field(field["name"], field["type"], field["nullable"]))
        except NotSupported as error:
            raise NotSupported(f"column {field['name']}: {error}") from None
    return pa.schema(fields)


def to_catalyst_json(arrow: pa.DataType) -> Json:
    """Return the inverse of ``to_arrow_type``: the JSON value of a field's type for ``StructType.fromJson``.

    Raises:
        NotSupported: Spark has no such type.
    """
    if arrow in _CATALYST:
        return _CATALYST[arrow]
    if pa.types.is_decimal128(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_duration(arrow):
        return "interval day to second"
    if pa.types.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return {"type": "struct", "fields": [_field_json(field) for field in fields]}
    if pa.types.is_map(arrow):
        return {
            "type": "map",
            "keyType": to_catalyst_json(arrow.key_type),
            "valueType": to_catalyst_json(arrow.item_type),
            "valueContainsNull": arrow.item_field.nullable,
        }
    if pa.types.is_list(arrow):
        element = arrow.value_field
        return {"type": "array", "elementType": to_catalyst_json(element.type), "containsNull": element.nullable}
    raise NotSupported(f"Spark has no type for Arrow's {arrow}")


def _field_json(field: pa.Field) -> Json:
    return {"name": field.name, "type": to_catalyst_json(field.type), "nullable": field.nullable, "metadata": {}}
