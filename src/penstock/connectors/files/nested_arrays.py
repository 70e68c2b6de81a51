"""Conversion of the leaves of nested arrays (structs, lists and maps)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Convert = Callable[[pa.Array, pa.DataType], pa.Array]


def map_leaves(array: pa.Array, kind: pa.DataType, convert: Convert) -> pa.Array:
    """Replace each leaf by ``convert(leaf, kind of the leaf)``. Return the same array if no leaf changes.

    Args:
        kind: type with the same nesting as the array's type. Its structs may have additional fields.
    """
    types, found = pa.types, array.type
    if types.is_struct(found):
        leaves = array.flatten()
        kinds = [kind.field(field.name).type for field in found]
        changed = [map_leaves(leaf, of, convert) for leaf, of in zip(leaves, kinds, strict=True)]
        if all(after is before for after, before in zip(changed, leaves, strict=True)):
            return array
        fields = [field.with_type(leaf.type) for field, leaf in zip(found, changed, strict=True)]
        return pa.StructArray.from_arrays(changed, fields=fields, mask=array.is_null())
    if types.is_map(found):
        before = array.keys, array.items
        keys, items = map_leaves(before[0], kind.key_type, convert), map_leaves(before[1], kind.item_type, convert)
        if keys is before[0] and items is before[1]:
            return array
        changed_type = pa.map_(found.key_field.with_type(keys.type), found.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(nullable_offsets(array), keys, items, type=changed_type)
    if types.is_list(found):
        before = array.values
        values = map_leaves(before, kind.value_type, convert)
        if values is before:
            return array
        changed_type = pa.list_(found.value_field.with_type(values.type))
        return pa.ListArray.from_arrays(nullable_offsets(array), values, type=changed_type)
    return convert(array, kind)


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """Return the type whose fields, elements and values may all be null, as in files that Spark writes."""
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([field.with_type(nullable_type(field.type)).with_nullable(True) for field in kind])
    if types.is_map(kind):
        item = kind.item_field
        key = kind.key_field.with_type(nullable_type(kind.key_type))
        return pa.map_(key, item.with_type(nullable_type(item.type)).with_nullable(True))
    if types.is_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(nullable_type(element.type)).with_nullable(True))
    return kind


def nullable_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the ``nullable_type`` of each column. The columns are nullable, too."""
    return pa.schema([pa.field(field.name, nullable_type(field.type)) for field in schema])


def nullable_table(table: pa.Table) -> pa.Table:
    """Return the table with its ``nullable_schema``, without a copy.

    In Spark, a nullable struct may have a field that is not nullable. If the struct is null in a row, Arrow has a null
    in the field, too, and then neither converts nor writes such a column.
    """
    schema = nullable_schema(table.schema)
    pairs = zip(table.columns, schema, strict=True)
    columns = [
        column
        if column.type == field.type
        else pa.chunked_array([c.view(field.type) for c in column.chunks], field.type)
        for column, field in pairs
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of a schema, by position.

    A column that already has the requested type is not changed. Arrow's own cast would fail if a field that is not
    nullable is null because its struct is null.
    """
    pairs = zip(table.columns, schema, strict=True)
    columns = [column if column.type == field.type else column.cast(field.type) for column, field in pairs]
    return pa.Table.from_arrays(columns, schema=schema)


def nullable_offsets(array: pa.Array) -> pa.Array:
    """Return the offsets of a list or map array, with null for each list or map that is null."""
    offsets = array.offsets.cast(pa.int32())
    if not array.null_count:
        return offsets
    present = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pa.compute.if_else(present, offsets, pa.scalar(None, pa.int32()))
