"""The columns that a read yields, as Spark wants its batches: by name, in its order, of its very types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from penstock.errors import ConfigError, NotSupported


def spark_schema(schema: pa.Schema, what: str) -> StructType:
    """Raises NotSupported for a column whose type Spark does not have."""
    return StructType([_field(field, what) for field in schema])


def _field(field: pa.Field, what: str) -> StructField:
    try:
        return StructField(field.name, from_arrow_type(field.type), field.nullable)
    except PySparkException as error:
        raise NotSupported(f"{what}: column {field.name} of type {field.type} has no type in Spark: {error}") from error


def chosen(schema: pa.Schema, names: Sequence[str], what: str) -> pa.Schema:
    """The columns of these names, in this order; all for no names.

    Raises:
        ConfigError: there is none of a name; those that there are are listed.
    """
    return pa.schema([schema.field(position_of(schema, name, what)) for name in names]) if names else schema


def position_of(schema: pa.Schema, name: str, what: str) -> int:
    """As Spark finds columns: upper and lower case are the same. ConfigError if there is none."""
    for position, known in enumerate(schema.names):
        if known.lower() == name.lower():
            return position
    raise ConfigError(f"{what} has no column {name!r}; it has: {', '.join(schema.names)}")


@dataclass(frozen=True)
class Projection:
    """From the columns that are there to those that Spark asked for."""

    positions: tuple[int, ...]
    target: pa.Schema

    @staticmethod
    def of(available: pa.Schema, wanted: StructType, what: str) -> Projection:
        """``wanted``: what ``spark_schema`` gave, or the user's ``schema(...)``: some columns, of types that values can
        be cast to. Raises ConfigError for a column that is not there."""
        positions = tuple(position_of(available, name, what) for name in wanted.names)
        return Projection(positions, to_arrow_schema(wanted, timezone="UTC"))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises ConfigError for values that do not fit the user's types."""
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
