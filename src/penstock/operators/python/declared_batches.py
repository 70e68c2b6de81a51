"""Checks of record batches from user code against the declared schema, by the rules of Spark's ``mapInArrow``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def as_declared(batch: Any, declared: pa.Schema, requirement: str, verb: str = "yielded") -> pa.RecordBatch:
    """Return the batch with the declared schema. Columns are matched by name, or by position if names are duplicated.

    Columns must have the declared types, but a timestamp may have another zone or unit, and a string or binary may be
    large. A batch without columns and rows is accepted.

    Args:
        batch: value from user code.
        declared: the declared schema.
        requirement: start of the error text "... pyarrow.RecordBatch, not int".
        verb: verb for error texts about the batch's columns.

    Raises:
        TypeError: the value is not a record batch, or a column does not have the declared type.
        ValueError: the columns are not the declared ones.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"{requirement} pyarrow.RecordBatch, not {type(batch).__name__}")
    if batch.schema.equals(declared, check_metadata=False) or (batch.num_columns == 0 and batch.num_rows == 0):
        return batch if batch.num_columns else declared.empty_table().to_batches()[0]
    if sorted(batch.schema.names) != sorted(declared.names) or len({*declared.names}) != len(declared):
        if batch.schema.names != declared.names:
            raise ValueError(f"{verb} columns {batch.schema.names}, declared are {declared.names}")
        columns = batch.columns
    else:
        columns = [batch.column(name) for name in declared.names]
    return pa.RecordBatch.from_arrays(
        [_as_type(column, target, verb) for column, target in zip(columns, declared, strict=True)], schema=declared
    )


def _as_type(column: pa.Array, target: pa.Field, verb: str) -> pa.Array:
    if column.type == target.type:
        return column
    if _is_same_kind(column.type, target.type):
        return column.cast(target.type)
    raise TypeError(f"column {target.name} was {verb} as {column.type}, declared is {target.type}")


def _is_same_kind(given: pa.DataType, declared: pa.DataType) -> bool:
    """Return True if two types differ only in properties that Spark does not distinguish."""
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(declared):
        return (given.tz is None) == (declared.tz is None)
    if pa.types.is_large_string(given) or pa.types.is_string_view(given):
        return bool(pa.types.is_string(declared))
    if pa.types.is_large_binary(given) or pa.types.is_binary_view(given):
        return bool(pa.types.is_binary(declared))
    if pa.types.is_map(given) and pa.types.is_map(declared):
        pairs = [(given.key_type, declared.key_type), (given.item_type, declared.item_type)]
        return all(a == b or _is_same_kind(a, b) for a, b in pairs)
    same_nesting = (pa.types.is_struct(given) and pa.types.is_struct(declared)) or (
        pa.types.is_list(given) and pa.types.is_list(declared)
    )
    if not same_nesting or given.num_fields != declared.num_fields:
        return False
    fields = [(given.field(i), declared.field(i)) for i in range(given.num_fields)]
    return all(
        (a.name == b.name or pa.types.is_list(given)) and (a.type == b.type or _is_same_kind(a.type, b.type))
        for a, b in fields
    )
