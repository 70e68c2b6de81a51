"""Columns of stored rows: as the snapshot's plan declares them, and as Parquet and Spark know them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import CorruptSnapshot, NotSupported
from penstock.snapshots.format.type_texts import parse_column
from penstock.snapshots.portable.layout import Column, column_names
from penstock.snapshots.restoring.widening import can_evolve, can_widen, with_optional_columns

SPARK_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark looks for the types of a Parquet file that its own types cannot tell, as those of intervals."""

_NUMBERS = {str(kind): kind for kind in (pa.int16(), pa.int32(), pa.int64(), pa.float64())}
_WIDER = re.compile(r" (int16|int32|int64|double|decimal128\((\d+), (\d+)\))$")


def texts(schema: pa.Schema) -> list[str]:
    """``name type`` per column, as plans have it."""
    return [f"{field.name} {field.type}" for field in schema]


def declared_schema(columns: Sequence[str], written: pa.Schema, what: str, younger: int | None = None) -> pa.Schema:
    """The schema that a plan declares as texts, for rows that were written under this plan or an earlier one.

    Args:
        younger: columns from this one on may be younger than some rows; see ``widening.with_optional_columns``.

    Raises:
        CorruptSnapshot: the rows have other columns.
    """
    if texts(written) == list(columns):
        schema = written.remove_metadata()
    else:
        absent = len(columns) if younger is None else younger
        schema = pa.schema([_declared(one, written, what, at >= absent) for at, one in enumerate(columns)])
    return schema if younger is None else with_optional_columns(schema, younger)


def _declared(column: str, written: pa.Schema, what: str, may_be_absent: bool) -> pa.Field:
    for field in written:
        if f"{field.name} {field.type}" == column:
            return field
    for field in written:
        found = _WIDER.search(column)
        if found is not None and can_widen(f"{field.name} {field.type}", column):
            kind = pa.decimal128(int(found[2]), int(found[3])) if found[2] else _NUMBERS[found[1]]
            return pa.field(field.name, kind, field.nullable)
    known = parse_column(column) if may_be_absent else None
    if known is not None:
        stored = [f"{field.name} {field.type}" for field in written if field.name == known.name]
        if not stored or can_evolve(stored[0], column):
            return known
    raise CorruptSnapshot(f"{what} has no column {column!r}, which the snapshot's plan has; it has {texts(written)}")


def portable_columns(schema: pa.Schema) -> list[Column]:
    """The columns of a table. Raises NotSupported for a type that Spark does not have."""
    return [
        Column(field.name, stored, str(field.type), json.dumps(_spark_type(field)))
        for field, stored in zip(schema, column_names(schema.names), strict=True)
    ]


def parquet_schema(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """The same columns under the names that they have in Parquet files, with their types for Spark."""
    fields = [
        field.with_name(column.stored_as).remove_metadata() for field, column in zip(schema, columns, strict=True)
    ]
    spark = [
        {"name": column.stored_as, "type": json.loads(column.spark), "nullable": field.nullable, "metadata": {}}
        for field, column in zip(fields, columns, strict=True)
    ]
    return pa.schema(fields, {SPARK_METADATA: json.dumps({"type": "struct", "fields": spark}).encode()})


def from_parquet(kind: pa.DataType) -> pa.DataType:
    """A type as Arrow has it: Parquet gives the entries of maps another name, which shows in the type's text."""
    if pa.types.is_map(kind):
        return pa.map_(_field_from_parquet(kind.key_field), _field_from_parquet(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field_from_parquet(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_field_from_parquet(kind.value_field))
    return kind


def _field_from_parquet(field: pa.Field) -> pa.Field:
    return pa.field(field.name, from_parquet(field.type), field.nullable)


def _spark_type(field: pa.Field) -> object:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type  # a slow import that only an export needs

    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True).jsonValue()
    except PySparkException as error:
        raise NotSupported(f"column {field.name!r} of type {field.type} has no type in Spark: {error}") from error
