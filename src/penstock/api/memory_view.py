"""The temporary view of a memory sink."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import StructType

from penstock.catalyst.types import repeated_fields
from penstock.connectors.files.nested_arrays import nullable_table
from penstock.connectors.memory import MemorySink
from penstock.spark.arrow_frames import ArrowFrames

MERGED = 10
"""Number of parts of the same size that are merged into one. A row is handed to Spark once, and again each time the
number of epochs grows tenfold. So a commit costs little more than its own rows, and a view of a million epochs has at
most 60 parts."""


@dataclass(frozen=True)
class _Part:
    """The rows of the epochs ``first`` to ``stop - 1``. ``level`` is the number of merges they went through."""

    level: int
    first: int
    stop: int
    frame: DataFrame


class MemoryView:
    """View that is replaced after every commit that changed the sink's rows.

    Most rows are converted for Spark when they are read. A conversion at the commit would take CPU time from the query,
    possibly for rows that are never read.

    A DataFrame taken from the view keeps the rows of that moment; call ``spark.table(name)`` again for the newest.
    """

    def __init__(self, spark: SparkSession, sink: MemorySink, schema: StructType) -> None:
        self._frames = ArrowFrames(spark)
        self._sink = sink
        self._schema = schema
        self._lock = threading.Lock()
        self._version = -1
        self._parts: list[_Part] = []

    @property
    def parts(self) -> int:
        """Number of DataFrames in the view's union; 0 if it is empty."""
        return len(self._parts)

    def refresh(self) -> None:
        """Replace the view if the committed rows have changed. May be called from any thread."""
        with self._lock:
            version, epochs = self._sink.epochs()
            if version != self._version:
                self._show(epochs)
                self._version = version

    def _show(self, epochs: tuple[pa.Table, ...]) -> None:
        count = self._parts[-1].stop if self._parts else 0
        if self._sink.replaces or count > len(epochs):  # epochs were taken back
            self._parts, count = [], 0
        if count < len(epochs):
            self._parts.append(self._part(0, count, epochs[count:]))
        while len(tail := self._parts[-MERGED:]) == MERGED and tail[0].level == tail[-1].level:
            del self._parts[-MERGED:]
            self._parts.append(self._part(tail[0].level + 1, tail[0].first, epochs[tail[0].first :]))
        frames = [part.frame for part in self._parts] or [self._frame(())]
        _with_fields_of(self._schema, reduce(DataFrame.union, frames)).createOrReplaceTempView(self._sink.name)

    def _part(self, level: int, first: int, epochs: tuple[pa.Table, ...]) -> _Part:
        return _Part(level, first, first + len(epochs), self._frame(epochs))

    def _frame(self, epochs: tuple[pa.Table, ...]) -> DataFrame:
        return self._frames.frame(nullable_table(pa.concat_tables([self._sink.schema.empty_table(), *epochs])))


def _with_fields_of(schema: StructType, rows: DataFrame) -> DataFrame:
    """Return the rows with the query's names for struct fields.

    Arrow uses other names if several fields of a struct have the same name.
    """
    if not any(list(repeated_fields(field.name, field.dataType.jsonValue())) for field in schema):
        return rows
    numbered = rows.toDF(*(str(index) for index in range(len(schema))))
    return numbered.select(
        [col(str(index)).cast(field.dataType._as_nullable()).alias(field.name) for index, field in enumerate(schema)]
    )
