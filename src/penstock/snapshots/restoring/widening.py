"""Columns that a later plan has wider: every value of the old type is one of the new type, so rows can be taken over.

Widening is an integer to a longer one, a float to a double, a decimal to one with at least as many digits on both
sides of the point. Nothing else: what would have to be rounded, parsed or printed is another column. Columns are given
as they are stored: ``name type``, with Arrow's names of types.
"""

from __future__ import annotations

import re

import pyarrow as pa

from penstock.errors import CorruptSnapshot
from penstock.snapshots.format.type_texts import column_of

_FAMILIES = (("int8", "int16", "int32", "int64"), ("float", "double"))
_YOUNGER = {b"penstock.younger": b"true"}
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
_NUMERIC = re.compile(rf"(.*) ({'|'.join(kind for family in _FAMILIES for kind in family)}|{_DECIMAL.pattern})", re.S)


def widens(stored: str, new: str) -> bool:
    """Whether the column ``stored`` can go on as ``new``; an equal one can."""
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


def grows(stored: str, new: str) -> bool:
    """As ``widens``, of state that evolves: what is inside of structs, lists and map values may be wider, too, and
    structs may have new fields, which are null in what there is."""
    before, after = column_of(stored), column_of(new)
    if before is None or after is None:
        return widens(stored, new)
    return before.name == after.name and _type_grows(before.type, after.type)


def _type_grows(stored: pa.DataType, new: pa.DataType) -> bool:
    if stored == new:
        return True
    if pa.types.is_struct(stored) and pa.types.is_struct(new):
        before, after = ({field.name: field for field in kind} for kind in (stored, new))
        added = (field for name, field in after.items() if name not in before)
        return (
            (len(before), len(after)) == (stored.num_fields, new.num_fields)
            and all(name in after and _field_grows(field, after[name]) for name, field in before.items())
            and all(field.nullable for field in added)
        )
    if pa.types.is_list(stored) and pa.types.is_list(new):
        return _field_grows(stored.value_field, new.value_field)
    if pa.types.is_map(stored) and pa.types.is_map(new):
        return bool(stored.key_type == new.key_type) and _type_grows(stored.item_type, new.item_type)
    return widens(f"_ {stored}", f"_ {new}")


def _field_grows(stored: pa.Field, new: pa.Field) -> bool:
    return (new.nullable or not stored.nullable) and _type_grows(stored.type, new.type)


def with_younger(schema: pa.Schema, first: int) -> pa.Schema:
    """The same columns, of which those from ``first`` on may be younger than rows that are to be read: see
    ``as_schema``. The fields' metadata says so, so that it goes wherever the schema does."""
    marked = [field.with_metadata(_YOUNGER) for field in list(schema)[first:]]
    return pa.schema([*list(schema)[:first], *marked])


def as_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``, each found by name and type, or else by name and widened. One that may be younger than
    these rows (``with_younger``) and is not there is null.

    Raises:
        CorruptSnapshot: a column is missing, or does not fit: the plan was compared before, so these rows are not what
            the snapshot's plan says.
    """
    written = [(field.name, field.type) for field in batch.schema]
    wanted = [(field.name, field.type) for field in schema]
    if written == wanted:
        return batch
    if not wanted:
        return batch.select([])
    try:
        columns = [
            batch.column(written.index(column)) if column in written else _other(batch, field)
            for column, field in zip(wanted, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except (KeyError, ValueError, pa.ArrowException) as error:
        raise CorruptSnapshot(
            f"stored rows have other columns than their plan says ({error!s:.200}); restore the files from a copy"
        ) from None


def _other(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names and field.metadata == _YOUNGER:
        return pa.nulls(batch.num_rows, field.type)
    return batch.column(field.name).cast(field.type)
