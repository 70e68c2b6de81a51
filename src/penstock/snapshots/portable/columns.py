"""Columns of stored rows, as plans declare them and as Parquet and Spark represent them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import CorruptSnapshot, NotSupported
from penstock.snapshots.format.type_texts import parse_column
from penstock.snapshots.portable.layout import Column, unique_column_names
from penstock.snapshots.restoring.widening import can_evolve, can_widen, with_optional_columns

SPARK_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
"""Key under which Spark finds types that Parquet's own types cannot express, such as intervals."""

_NUMBERS = {str(kind): kind for kind in (pa.int16(), pa.int32(), pa.int64(), pa.float64())}
_WIDER = re.compile(r" (int16|int32|int64|double|decimal128\((\d+), (\d+)\))$")


def column_texts(schema: pa.Schema) -> list[str]:
    """Return ``name type`` per column, as plans store them."""
    return [f"{field.name} {field.type}" for field in schema]


def declared_schema(
    columns: Sequence[str], written: pa.Schema, what: str, first_optional: int | None = None
) -> pa.Schema:
    """Return the schema that a plan declares as texts, for rows that were written under this plan or an earlier one.

    Args:
        first_optional: rows may lack columns from this position on; see ``widening.with_optional_columns``.

    Raises:
        CorruptSnapshot: the rows have other columns.
    """
    if column_texts(written) == list(columns):
        schema = written.remove_metadata()
    else:
        absent = len(columns) if first_optional is None else first_optional
        schema = pa.schema([_declared(one, written, what, at >= absent) for at, one in enumerate(columns)])
    return schema if first_optional is None else with_optional_columns(schema, first_optional)


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
    raise CorruptSnapshot(
        f"{what} has no column {column!r}, which the snapshot's plan has; it has {column_texts(written)}"
    )


def portable_columns(schema: pa.Schema) -> list[Column]:
    """Return the columns of a table. Raises NotSupported for a type that Spark lacks."""
    return [
        Column(field.name, stored, str(field.type), json.dumps(_spark_type(field)))
        for field, stored in zip(schema, unique_column_names(schema.names), strict=True)
    ]


def parquet_schema(schema: pa.Schema, columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of Parquet files. It has the same columns with their stored names and their types for Spark."""
    fields = [
        field.with_name(column.stored_as).remove_metadata() for field, column in zip(schema, columns, strict=True)
    ]
    spark = [
        {"name": column.stored_as, "type": json.loads(column.spark), "nullable": field.nullable, "metadata": {}}
        for field, column in zip(fields, columns, strict=True)
    ]
    return pa.schema(fields, {SPARK_METADATA: json.dumps({"type": "struct", "fields": spark}).encode()})


def arrow_type(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a Parquet column. Parquet renames the entries of maps, which changes their texts."""
    if pa.types.is_map(kind):
        return pa.map_(_arrow_field(kind.key_field), _arrow_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_arrow_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        return pa.list_(_arrow_field(kind.value_field))
    return kind


def _arrow_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, arrow_type(field.type), field.nullable)


def _spark_type(field: pa.Field) -> object:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type  # The import is slow, and only an export needs it.

    try:
        return from_arrow_type(field.type, prefer_timestamp_ntz=True).jsonValue()
    except PySparkException as error:
        raise NotSupported(f"column {field.name!r} of type {field.type} has no type in Spark: {error}") from error
