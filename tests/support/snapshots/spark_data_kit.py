"""Queries whose snapshots are read and written as data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.queries.streaming_query import StreamingQuery

Start = Callable[..., StreamingQuery]
"""``start(df, **options)``, see the fixture."""


class Input:
    """A directory in which whole Parquet files appear, of any columns."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self.directory = directory
        self.directory.mkdir()
        self.schema = schema
        self._files = 0

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        hidden = self.directory / f".{self._files}"
        pq.write_table(pa.Table.from_pylist(list(rows), self.schema), hidden)
        os.replace(hidden, self.directory / f"in-{self._files:04d}.parquet")
        self._files += 1

    def batch(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(self.directory))

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(self.batch(spark).schema).parquet(str(self.directory))


def rows_in(directory: Path) -> list[dict[str, Any]]:
    """The committed rows of an output directory, in the order of the files."""
    return [row for file in sorted(directory.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]


def as_set(df: DataFrame) -> list[str]:
    """All rows, comparable."""
    return sorted(repr(row) for row in df.toArrow().to_pylist())


def read(spark: SparkSession, location: object, **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(**options).load(str(location))
