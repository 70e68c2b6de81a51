"""Columns of a read: conversion of schemas and batches to the names, order and types that Spark requires."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.errors import ConfigError, NotSupported


def spark_schema(schema: pa.Schema, what: str) -> StructType:
    """Convert a schema. Raises NotSupported for a column whose type does not exist in Spark."""
    return StructType([_field(field, what) for field in schema])


def _field(field: pa.Field, what: str) -> StructField:
    try:
        return StructField(field.name, from_arrow_type(field.type), field.nullable)
    except PySparkException as error:
        raise NotSupported(f"{what}: column {field.name} of type {field.type} has no type in Spark: {error}") from error


def select_columns(schema: pa.Schema, names: Sequence[str], what: str) -> pa.Schema:
    """Return the columns with these names, in this order; all columns if there are no names.

    Raises:
        ConfigError: a column does not exist. The text has the names of all columns.
    """
    return pa.schema([schema.field(column_position(schema, name, what)) for name in names]) if names else schema


def column_position(schema: pa.Schema, name: str, what: str) -> int:
    """Return the position of a column, ignoring case as Spark does. Raises ConfigError if it does not exist."""
    for position, known in enumerate(schema.names):
        if known.lower() == name.lower():
            return position
    raise ConfigError(f"{what} has no column {name!r}; it has: {', '.join(schema.names)}")


@dataclass(frozen=True)
class Projection:
    """Projection of the available columns to those that Spark requested."""

    positions: tuple[int, ...]
    target: pa.Schema

    @staticmethod
    def of(available: pa.Schema, requested: StructType, what: str) -> Projection:
        """Create the projection.

        Args:
            available: the available columns.
            requested: result of ``spark_schema``, or the user's ``schema(...)``. Values are cast to its types.
            what: description of the read, for messages.

        Raises:
            ConfigError: a column is not available.
        """
        positions = tuple(column_position(available, name, what) for name in requested.names)
        return Projection(positions, to_arrow_schema(requested, timezone="UTC"))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch. Raises ConfigError for values that do not fit the user's types."""
        columns = []
        for position, field in zip(self.positions, self.target, strict=True):
            column = batch.column(position)
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowException as error:
                raise ConfigError(
                    f"column {field.name} of type {column.type} cannot be read as {field.type}: {error}; leave "
                    "schema(...) out to read it as it is"
                ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self.target)
