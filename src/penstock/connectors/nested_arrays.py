"""Conversion of the leaves of nested arrays (structs, lists and maps)."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Convert = Callable[[pa.Array, pa.DataType], pa.Array]


def map_leaves(array: pa.Array, kind: pa.DataType, convert: Convert) -> pa.Array:
    """Return the array with ``convert(leaf, kind of the leaf)`` in place of each leaf; the same array if none changes.

    Args:
        kind: a type with the shape of the array's own, in which structs may have more fields.
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


def nullable_offsets(array: pa.Array) -> pa.Array:
    """Return the offsets into the children, with null for a list or map that is null."""
    offsets = array.offsets.cast(pa.int32())
    if not array.null_count:
        return offsets
    present = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pa.compute.if_else(present, offsets, pa.scalar(None, pa.int32()))
