"""``to_avro``: values as messages, column by column, in the format of Spark's ``AvroSerializer`` and Avro for Java."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.avro.schema import Field, InvalidValue, Schema, UnsupportedSchema
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import ragged
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import null_outside, to_vector
from penstock.functions.numbers.fixed_point import WIDE

Types = pa.types

_PLAIN = {
    pa.null(): Schema("null"), pa.bool_(): Schema("boolean"), pa.int8(): Schema("int"), pa.int16(): Schema("int"),
    pa.int32(): Schema("int"), pa.int64(): Schema("long"), pa.float32(): Schema("float"),
    pa.float64(): Schema("double"),
    pa.string(): Schema("string"), pa.binary(): Schema("bytes"), pa.date32(): Schema("int", logical="date"),
    pa.timestamp("us"): Schema("long", logical="local-timestamp-micros"),
    pa.timestamp("us", tz="UTC"): Schema("long", logical="timestamp-micros"),
}  # fmt: skip
_NULL = Schema("null")


def schema_of(data_type: pa.DataType, nullable: bool) -> Schema:
    """Return Spark's default schema for a type.

    Raises:
        UnsupportedSchema: the type is not supported.
    """
    if Types.is_struct(data_type):
        fields = tuple(Field(f.name, schema_of(f.type, f.nullable), False, None) for f in data_type)
        schema = Schema("record", fields=fields)
    elif Types.is_list(data_type):
        element = data_type.value_field
        schema = Schema("array", children=(schema_of(element.type, element.nullable),))
    elif Types.is_decimal(data_type):
        digits = 10**data_type.precision - 1
        schema = Schema("fixed", logical="decimal", precision=data_type.precision, scale=data_type.scale,
                        size=digits.bit_length() // 8 + 1)  # fmt: skip
    elif data_type in _PLAIN:
        schema = _PLAIN[data_type]
    else:
        raise UnsupportedSchema(f"{data_type} is not supported")
    return Schema("union", children=(schema, _NULL)) if nullable and schema != _NULL else schema


def require_writable(schema: Schema, data_type: pa.DataType) -> None:
    """Check that a schema given by the user accepts values of the type.

    Raises:
        UnsupportedSchema: it does not. The text names the part.
    """
    if schema.kind == "union":
        if len(schema.branches) != 1 or len(schema.children) > 2:
            raise UnsupportedSchema("a union other than one of null and a type is not supported")
        require_writable(schema.branches[0], data_type)
    elif schema.kind == "record" and Types.is_struct(data_type):
        if {field.name for field in schema.fields} != {field.name for field in data_type}:
            raise UnsupportedSchema(f"the fields of {schema.name} are others than the columns")
        for field in schema.fields:
            require_writable(field.schema, data_type.field(field.name).type)
    elif schema.kind == "array" and Types.is_list(data_type):
        require_writable(schema.children[0], data_type.value_type)
    elif not _fits(schema, data_type):
        raise UnsupportedSchema(f"{data_type} as {schema.logical or schema.kind} is not supported")


def _fits(schema: Schema, data_type: pa.DataType) -> bool:
    if Types.is_decimal(data_type):
        same = (schema.precision, schema.scale) == (data_type.precision, data_type.scale)
        return schema.logical == "decimal" and schema.kind in ("bytes", "fixed") and same
    plain = _PLAIN.get(data_type)
    if plain is None or schema.kind in ("enum", "fixed"):
        return plain == Schema("string" if schema.kind == "enum" else "bytes")
    logical = schema.logical.replace("millis", "micros") if plain.kind == "long" else schema.logical
    return schema.kind == plain.kind and logical == plain.logical


class ToAvro(Strict):
    """``to_avro``. Null gives null.

    Raises:
        EvaluationError: a value does not match the given schema.
    """

    def __init__(self, child: Expression, schema: Schema, nullable: bool) -> None:
        super().__init__((child,), pa.binary(), nullable)
        self.schema = schema

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        array = null_outside(arrays[0], rows)
        valid = array.is_valid()
        try:
            messages = pa.array(written(array.filter(valid), self.schema), pa.binary())
        except InvalidValue as bad:
            raise EvaluationError(f"to_avro: {bad}") from None
        indices = np.cumsum(valid.to_numpy(zero_copy_only=False)) - 1
        return messages.take(pa.array(indices, mask=~valid.to_numpy(zero_copy_only=False)))


def written(array: pa.Array, schema: Schema) -> list[bytes]:
    """Return the bytes of each value.

    Raises:
        InvalidValue: a value does not match the schema.
    """
    if schema.kind == "union":
        return _union(array, schema)
    if schema.kind == "null":
        return [b""] * len(array)
    if array.null_count:
        raise InvalidValue(f"null for a {schema.name or schema.kind} that may not be null")
    if schema.kind == "record":
        columns = [_field(array.field(field.name), field) for field in schema.fields]
        return [b"".join(parts) for parts in zip(*columns, strict=True)] if columns else [b""] * len(array)
    if schema.kind == "array":
        lists = ragged(array, None)
        items = written(lists.values, schema.children[0])
        bounds = zip(lists.starts.tolist(), lists.ends.tolist(), strict=True)
        return [_block(items[begin:end]) for begin, end in bounds]
    if schema.logical == "decimal":
        return [_decimal(schema, value) for value in array.to_pylist()]
    return _atomic(array, schema)


def _field(array: pa.Array, field: Field) -> list[bytes]:
    try:
        return written(array, field.schema)
    except InvalidValue as bad:
        raise bad.within(field.name) from None


def _union(array: pa.Array, schema: Schema) -> list[bytes]:
    kinds = [child.kind for child in schema.children]
    begin = number(1 - kinds.index("null") if "null" in kinds else 0)
    valid = array.is_valid()
    values = iter(written(array.filter(valid), schema.branches[0]))
    nothing = number(kinds.index("null")) if "null" in kinds else None
    if nothing is None and array.null_count:
        raise InvalidValue("null for a union without null")
    return [begin + next(values) if valid else nothing or b"" for valid in valid.to_pylist()]


def _block(items: Sequence[bytes]) -> bytes:
    return number(len(items)) + b"".join(items) + b"\0" if items else b"\0"


def _atomic(array: pa.Array, schema: Schema) -> list[bytes]:
    kind = schema.kind
    if kind in ("int", "long"):
        values = to_vector(array).astype(np.int64)
        return [number(value) for value in (values // 1000 if "millis" in schema.logical else values).tolist()]
    if kind == "enum":
        return [_symbol(schema, value) for value in array.to_pylist()]
    if kind == "fixed":
        return [_sized(schema, value) for value in array.to_pylist()]
    return [_WRITERS[kind](value) for value in array.to_pylist()]


def number(value: int) -> bytes:
    """Encode an integer as zigzag with seven bits per byte."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized_text(data: bytes) -> bytes:
    return number(len(data)) + data


_WRITERS: dict[str, Callable[..., bytes]] = {
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "float": struct.Struct("<f").pack,
    "double": struct.Struct("<d").pack,
    "string": lambda value: _sized_text(value.encode()),
    "bytes": _sized_text,
}


def _symbol(schema: Schema, value: str) -> bytes:
    if value not in schema.symbols:
        raise InvalidValue(f"{value!r} is not a symbol of the enum {schema.name}")
    return number(schema.symbols.index(value))


def _sized(schema: Schema, value: bytes) -> bytes:
    if len(value) != schema.size:
        raise InvalidValue(f"{len(value)} bytes for {schema.name}, which has {schema.size}")
    return value


def _decimal(schema: Schema, value: Decimal) -> bytes:
    unscaled = int(value.scaleb(schema.scale, WIDE))
    if schema.kind == "fixed":
        return unscaled.to_bytes(schema.size, "big", signed=True)
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return _sized_text(unscaled.to_bytes(size, "big", signed=True))
