"""Parser for Avro schemas, and their mapping to Spark's types."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

Types = pa.types

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAMED = ("record", "enum", "fixed")


class InvalidValue(Exception):
    """A value cannot be read or written in any mode.

    Args:
        reason: the text that follows the field's name in the error.
        path: the names of the record fields that lead to the value.
    """

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason, path)
        self.reason, self.path = reason, path

    def within(self, name: str) -> InvalidValue:
        """Return the same error for a value inside the field ``name`` of a record."""
        return InvalidValue(self.reason, (name, *self.path))

    def __str__(self) -> str:
        return f"field {'.'.join(self.path)}: {self.reason}" if self.path else self.reason


class UnsupportedSchema(Exception):
    """The schema is malformed or not supported. The text says which part."""


@dataclass(frozen=True)
class Field:
    """Field of a record. ``default`` is JSON."""

    name: str
    schema: Schema
    has_default: bool
    default: Any


@dataclass(frozen=True)
class Schema:
    """Node of a schema. Attributes that do not apply to its kind are empty.

    Attributes:
        kind: Avro's name of the type, or ``union``.
        name: the full name of a named type.
        children: the element type of an array or map, or the branches of a union.
        default: the symbol of an enum for symbols that a reader does not know.
    """

    kind: str
    name: str = ""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    children: tuple[Schema, ...] = ()
    default: str | None = None

    @property
    def branches(self) -> tuple[Schema, ...]:
        """Branches of a union, without null."""
        return tuple(child for child in self.children if child.kind != "null")


def parse_schema(text: str) -> Schema:
    """Parse a schema in JSON.

    Raises:
        UnsupportedSchema: the text is not a schema, the schema contains itself, or it is not supported.
    """
    try:
        return _Parser().schema(json.loads(text), "")
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UnsupportedSchema(f"the schema cannot be read ({type(error).__name__}: {error}): {text:.99}") from None


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Schema | None] = {}  # None while the type is being read

    def schema(self, given: Any, space: str) -> Schema:
        if isinstance(given, str):
            return Schema(given) if given in PRIMITIVES else self._known(given, space)
        if isinstance(given, list):
            return Schema("union", children=tuple(self.schema(branch, space) for branch in given))
        kind = given["type"]
        if isinstance(kind, dict | list):
            return self.schema(kind, space)
        if kind == "array":
            return Schema(kind, children=(self.schema(given["items"], space),))
        if kind == "map":
            return Schema(kind, children=(self.schema(given["values"], space),))
        if kind in _NAMED:
            return self._name(kind, given, space)
        return _logical(self.schema(kind, space), given)

    def _known(self, name: str, space: str) -> Schema:
        full = f"{space}.{name}" if space and "." not in name and f"{space}.{name}" in self._named else name
        if full not in self._named:
            raise UnsupportedSchema(f"there is no type {name}")
        schema = self._named[full]
        if schema is None:
            raise UnsupportedSchema(f"the type {name} contains itself")
        return schema

    def _name(self, kind: str, given: Any, space: str) -> Schema:
        name = str(given["name"])
        if "." in name:
            space = name.rpartition(".")[0]
        else:
            space = str(given.get("namespace", space) or "")
            name = f"{space}.{name}" if space else name
        if given.get("aliases") or any(field.get("aliases") for field in given.get("fields", ())):
            raise UnsupportedSchema("aliases are not supported")
        self._named[name] = None
        if kind == "enum":
            schema = Schema(kind, name, symbols=tuple(given["symbols"]), default=given.get("default"))
        elif kind == "fixed":
            schema = _logical(Schema(kind, name, size=int(given["size"])), given)
        else:
            fields = tuple(
                Field(str(f["name"]), self.schema(f["type"], space), "default" in f, f.get("default"))
                for f in given["fields"]
            )
            if len({field.name.lower() for field in fields}) < len(fields):
                raise UnsupportedSchema(f"names of fields of {name} differ in case only")
            schema = Schema(kind, name, fields=fields)
        self._named[name] = schema
        return schema


def _logical(schema: Schema, given: Any) -> Schema:
    logical = str(given.get("logicalType", ""))
    if "spark.sql.catalyst.type" in given:
        raise UnsupportedSchema("types of intervals are not supported")
    if logical != "decimal":
        return replace(schema, logical=logical)
    return replace(schema, logical=logical, precision=int(given["precision"]), scale=int(given.get("scale", 0)))


_PLAIN = {
    "null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}


def promoted_type(union: Schema) -> str | None:
    """Return the common type of a union of two numeric types; None for other unions."""
    kinds = {branch.kind for branch in union.branches}
    if len(union.branches) == 2:
        return "long" if kinds == {"int", "long"} else "double" if kinds == {"float", "double"} else None
    return None


def require_type(schema: Schema, data_type: pa.DataType) -> None:
    """Check that Spark reads the schema as this type, ignoring nullability.

    Raises:
        UnsupportedSchema: Spark does not, or the part that the text names is not supported.
    """
    kind, inner = schema.kind, [data_type.field(i).type for i in range(data_type.num_fields)]
    if kind == "union":
        branches = schema.branches
        if len(branches) == 1:
            require_type(branches[0], data_type)
            return
        if wide := promoted_type(schema):
            matches = data_type == _PLAIN[wide]
        else:
            matches = Types.is_struct(data_type) and len(inner) == len(branches) > 0
            children = list(zip(branches, inner, strict=True)) if matches else []
    elif kind == "record":
        matches = Types.is_struct(data_type) and [f.name for f in data_type] == [f.name for f in schema.fields]
        children = [(field.schema, t) for field, t in zip(schema.fields, inner, strict=True)] if matches else []
    elif kind == "array":
        matches, children = Types.is_list(data_type), [(schema.children[0], inner[0])] if inner else []
    elif kind == "map":
        matches = Types.is_map(data_type)
        children = [(schema.children[0], data_type.item_type)] if matches else []
    elif schema.logical == "decimal" and Types.is_decimal(data_type):
        matches, children = (data_type.precision, data_type.scale) == (schema.precision, schema.scale), []
    else:
        matches, children = data_type == _LOGICAL.get((kind, schema.logical), _PLAIN.get(kind)), []
    if not matches:
        raise UnsupportedSchema(f"{schema.logical or kind} as {data_type} is not supported")
    for child, child_type in [] if kind == "union" and promoted_type(schema) else children:
        require_type(child, child_type)
