"""Conversion of Arrow batches to PySpark Rows for user code, by the rules of PySpark's own workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import StructType, _create_row

from penstock.operators.python.user_code import convert_for_user


def to_rows(batch: pa.RecordBatch, schema: StructType) -> Iterator[Row]:
    """Yield the rows of the batch as Rows, in order. Column names may repeat."""
    converters = [ArrowTableToRowsConversion._create_converter(f.dataType, binary_as_bytes=True) for f in schema]
    names = schema.fieldNames()
    columns = convert_for_user(_lists, batch)
    for values in zip(*columns, strict=True):
        converted = [convert(value) for convert, value in zip(converters, values, strict=True)]
        yield _create_row(fields=names, values=converted)


def _lists(batch: pa.RecordBatch) -> list[list[Any]]:
    return [column.to_pylist() for column in batch.columns]
