"""Widening of columns: the new type has every value of the old one, so stored rows remain usable.

An integer may become a longer integer, a float may become a double, and a decimal may become one with at least as many
digits on both sides of the point. A column that would need rounding, parsing or printing counts as another column.
Columns are given in their stored form: ``name type``, with Arrow's names of types.
"""

from __future__ import annotations

import re

import pyarrow as pa

from penstock.errors import CorruptSnapshot
from penstock.snapshots.format.type_texts import parse_column

_FAMILIES = (("int8", "int16", "int32", "int64"), ("float", "double"))
_OPTIONAL = {b"penstock.younger": b"true"}
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_NUMERIC = re.compile(rf"(.*) ({'|'.join(kind for family in _FAMILIES for kind in family)}|{_DECIMAL.pattern})", re.S)


def can_widen(stored: str, new: str) -> bool:
    """Return True if the stored column is equal to the new one or can be widened to it."""
    if stored == new:
        return True
    before, after = _NUMERIC.fullmatch(stored), _NUMERIC.fullmatch(new)
    return before is not None and after is not None and before[1] == after[1] and _is_wider(before[2], after[2])


def _is_wider(stored: str, new: str) -> bool:
    for family in _FAMILIES:
        if stored in family:
            return new in family and family.index(stored) < family.index(new)
    before, after = _DECIMAL.fullmatch(stored), _DECIMAL.fullmatch(new)
    if before is None or after is None:
        return False
    digits, scale, new_digits, new_scale = (int(part) for match in (before, after) for part in match.groups())
    return new_scale >= scale and new_digits - new_scale >= digits - scale


def can_evolve(stored: str, new: str) -> bool:
    """Return True if a stored column of evolving state can become the new one.

    In addition to ``can_widen``, the contents of structs, lists and map values may become wider, and structs may get
    new fields, which are null in existing rows.
    """
    before, after = parse_column(stored), parse_column(new)
    if before is None or after is None:
        return can_widen(stored, new)
    return before.name == after.name and _can_type_evolve(before.type, after.type)


def _can_type_evolve(stored: pa.DataType, new: pa.DataType) -> bool:
    if stored == new:
        return True
    if pa.types.is_struct(stored) and pa.types.is_struct(new):
        before, after = ({field.name: field for field in kind} for kind in (stored, new))
        added = (field for name, field in after.items() if name not in before)
        return (
            (len(before), len(after)) == (stored.num_fields, new.num_fields)
            and all(name in after and _can_field_evolve(field, after[name]) for name, field in before.items())
            and all(field.nullable for field in added)
        )
    if pa.types.is_list(stored) and pa.types.is_list(new):
        return _can_field_evolve(stored.value_field, new.value_field)
    if pa.types.is_map(stored) and pa.types.is_map(new):
        return bool(stored.key_type == new.key_type) and _can_type_evolve(stored.item_type, new.item_type)
    return can_widen(f"_ {stored}", f"_ {new}")


def _can_field_evolve(stored: pa.Field, new: pa.Field) -> bool:
    return (new.nullable or not stored.nullable) and _can_type_evolve(stored.type, new.type)


def with_optional_columns(schema: pa.Schema, first: int) -> pa.Schema:
    """Return the schema with all columns from position ``first`` on marked as optional.

    Rows may lack optional columns, see ``as_schema``. The mark is metadata of the fields, so it stays with the schema.
    """
    marked = [field.with_metadata(_OPTIONAL) for field in list(schema)[first:]]
    return pa.schema([*list(schema)[:first], *marked])


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of ``schema``, found by name and type, or by name and widened.

    Missing optional columns are null.

    Raises:
        CorruptSnapshot: a column is missing or does not fit. The plans were compared before, so the rows do not match
            their snapshot's plan.
    """
    written = [(field.name, field.type) for field in batch.schema]
    expected = [(field.name, field.type) for field in schema]
    if written == expected:
        return batch
    if not expected:
        return batch.select([])
    try:
        columns = [
            batch.column(written.index(column)) if column in written else _widened_column(batch, field)
            for column, field in zip(expected, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise CorruptSnapshot(
            f"stored rows have other columns than their plan says ({error!s:.200}); restore the files from a copy"
        ) from None


def _widened_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names and field.metadata == _OPTIONAL:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)
