"""What a user's ``read`` yields, as Arrow batches: the rules of PySpark's own data source worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import StructType

from penstock.errors import DataError


class RowConverter:
    """Tuples, lists and Rows to record batches of ``schema``; record batches pass through, checked.

    Args:
        name: of the source, for messages.
        schema: the Arrow schema of the output.
        spark_schema: the same as PySpark types, whose conversion rules apply.
    """

    def __init__(self, name: str, schema: pa.Schema, spark_schema: StructType) -> None:
        self._name = name
        self._schema = schema
        self._names = list(spark_schema.fieldNames())
        self._converters = [LocalDataToArrowConversion._create_converter(f.dataType) for f in spark_schema.fields]

    def batches(self, items: Sequence[Any]) -> list[pa.RecordBatch]:
        """The rows of ``items`` in order; rows in a row make one batch. Empty batches are left out."""
        result: list[pa.RecordBatch] = []
        rows: list[Any] = []
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self._flush(rows, result)
                if item.num_rows:
                    result.append(self._checked(item))
            else:
                rows.append(item)
        self._flush(rows, result)
        return result

    def _flush(self, rows: list[Any], result: list[pa.RecordBatch]) -> None:
        if not rows:
            return
        columns: list[list[Any]] = [[] for _ in self._names]
        for row in rows:
            for column, convert, value in zip(columns, self._converters, self._values(row), strict=True):
                column.append(convert(value) if convert is not None else value)
        rows.clear()
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        result.append(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def _values(self, row: Any) -> Sequence[Any]:
        if not isinstance(row, list | tuple):
            raise DataError(
                f"source {self._name} yielded a {type(row).__name__}; use tuples, lists, Rows or RecordBatches"
            )
        if len(row) != len(self._names):
            raise DataError(f"source {self._name} yielded a row of {len(row)} values for {len(self._names)} columns")
        if isinstance(row, Row) and hasattr(row, "__fields__"):
            if sorted(row.__fields__) != sorted(self._names):
                raise DataError(f"source {self._name} yielded columns {row.__fields__}, not {self._names}")
            return [row[name] for name in self._names]
        return row

    def _checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._schema, check_metadata=True):
            return batch
        kinds = [(field.name, field.type) for field in batch.schema]
        wanted = [(field.name, field.type) for field in self._schema]
        if kinds != wanted:
            raise DataError(f"source {self._name} yielded a RecordBatch of {kinds}; its schema is {wanted}")
        return pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
