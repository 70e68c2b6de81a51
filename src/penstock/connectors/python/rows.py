"""Conversion of the rows that a user's ``read`` yields to Arrow batches, by the rules of PySpark's own worker.

A null in a column that is declared as not nullable is an error, because operators rely on the declaration. Spark
accepts such a null, with undefined results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.types import StructType

from penstock.errors import DataError

_SHOWN = 60
"""Maximum number of characters of a value in a message."""


class RowConverter:
    """Converter of tuples, lists and Rows to record batches. Record batches are checked and returned unchanged.

    Args:
        name: name of the source, for messages.
        schema: the Arrow schema of the batches.
        spark_schema: the same schema as PySpark types, whose conversion rules apply.
    """

    def __init__(self, name: str, schema: pa.Schema, spark_schema: StructType) -> None:
        self._name = name
        self._schema = schema
        self._names = list(spark_schema.fieldNames())
        self._converters: list[Callable[[Any], Any] | None] = [
            LocalDataToArrowConversion._create_converter(f.dataType) for f in spark_schema.fields
        ]

    def batches(self, items: Sequence[Any], first_row: int = 0) -> list[pa.RecordBatch]:
        """Convert items to batches, in order. Consecutive rows become one batch; empty batches are left out.

        Args:
            items: rows and record batches.
            first_row: number of the first row in its range, for messages.

        Raises:
            DataError: an item does not fit the schema. The message has the column and the row.
        """
        result: list[pa.RecordBatch] = []
        rows: list[Any] = []
        number = first_row
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self._flush(rows, number - len(rows), result)
                if item.num_rows:
                    result.append(self._checked(item, number))
                number += item.num_rows
            else:
                rows.append(item)
                number += 1
        self._flush(rows, number - len(rows), result)
        return result

    def _flush(self, rows: list[Any], first_row: int, result: list[pa.RecordBatch]) -> None:
        if not rows:
            return
        try:
            columns: list[list[Any]] = [[] for _ in self._names]
            for row in rows:
                for column, convert, value in zip(columns, self._converters, self._values(row), strict=True):
                    column.append(convert(value) if convert is not None else value)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        except Exception as error:
            explained = self._explained(rows, first_row)
            if explained is None:
                raise
            raise explained from error
        rows.clear()
        result.append(self._without_forbidden_nulls(arrays, first_row))

    def _values(self, row: Any) -> Sequence[Any]:
        if not isinstance(row, list | tuple):
            raise DataError(f"yielded a {type(row).__name__}; use tuples, lists, Rows or RecordBatches")
        if len(row) != len(self._names):
            raise DataError(f"yielded a row of {len(row)} values for {len(self._names)} columns")
        if isinstance(row, Row) and hasattr(row, "__fields__"):
            if sorted(row.__fields__) != sorted(self._names):
                raise DataError(f"yielded columns {row.__fields__}, not {self._names}")
            return [row[name] for name in self._names]
        return row

    def _explained(self, rows: Sequence[Any], first_row: int) -> DataError | None:
        """Return the error of the first row that cannot be converted; None if all rows can be converted."""
        for number, row in enumerate(rows, first_row):
            try:
                values = self._values(row)
            except DataError as problem:
                return self._error(number, str(problem))
            for field, convert, value in zip(self._schema, self._converters, values, strict=True):
                try:
                    pa.array([convert(value) if convert is not None else value], field.type)
                except Exception as problem:  # noqa: BLE001 - Spark's converters raise what they like
                    text = repr(value)
                    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
                    why = f"{type(problem).__name__}: {problem}"
                    return self._error(number, f"column {field.name}: {text} is no {field.type}: {why}")
        return None

    def _checked(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        kinds = [(field.name, field.type) for field in batch.schema]
        declared = [(field.name, field.type) for field in self._schema]
        if kinds != declared:
            raise self._error(first_row, f"yielded a RecordBatch of {kinds}; the schema is {declared}")
        return self._without_forbidden_nulls(batch.columns, first_row)

    def _without_forbidden_nulls(self, arrays: Sequence[pa.Array], first_row: int) -> pa.RecordBatch:
        for array, field in zip(arrays, self._schema, strict=True):
            for where, row in _forbidden_nulls(array, field, field.name):
                raise self._error(first_row + row, f"column {where} is null, and is declared never to be")
        return pa.RecordBatch.from_arrays(list(arrays), schema=self._schema)

    def _error(self, row: int, what: str) -> DataError:
        return DataError(f"source {self._name}, row {row}: {what}")


def _forbidden_nulls(array: pa.Array, field: pa.Field, where: str) -> Iterator[tuple[str, int]]:
    """Yield path and row of nulls that ``field`` does not allow: at least one if there are any, but not all.

    For a null inside a list or map, the row is that of the outermost value.
    """
    if not field.nullable and array.null_count:
        yield where, int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        return
    if not _forbids(field.type):
        return
    if pa.types.is_struct(field.type):
        present = array.is_valid()
        rows = np.flatnonzero(present.to_numpy(zero_copy_only=False))
        for index, inner in enumerate(field.type):
            child = pc.filter(pc.struct_field(array, index), present)
            yield from ((path, int(rows[row])) for path, row in _forbidden_nulls(child, inner, f"{where}.{inner.name}"))
        return
    if pa.types.is_map(field.type):
        inner = pa.field("entries", pa.struct([field.type.key_field, field.type.item_field]), nullable=False)
        array = array.cast(pa.list_(inner))
    else:
        inner = field.type.value_field
    parents = pc.list_parent_indices(array).to_numpy()
    for path, row in _forbidden_nulls(array.flatten(), inner, f"{where}[]"):
        yield path, int(parents[row])


def _forbids(kind: pa.DataType) -> bool:
    """Return True if the type has an inner field that is not nullable. The keys of a map are always valid."""
    inner = [kind.item_field] if pa.types.is_map(kind) else [kind.field(i) for i in range(kind.num_fields)]
    return any(not field.nullable or _forbids(field.type) for field in inner)
