"""Kit of the end-to-end tests: input that arrives as files, output as rows, and a way to wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from penstock.queries.streaming_query import StreamingQuery

SCHEMA = "key bigint, value bigint, at timestamp"
ARROW = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
SECOND_US = 1_000_000

Start = Callable[..., StreamingQuery]
"""``start(df, **options)``, see the fixture."""


class Inbox:
    """A directory in which whole Parquet files appear."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir()
        self._files = 0

    def add(self, rows: Iterable[tuple[int, int, float | None]]) -> None:
        """Rows of (key, value, seconds of event time)."""
        keys, values, seconds = zip(*rows, strict=True)
        at = pa.array([None if s is None else round(s * SECOND_US) for s in seconds], pa.timestamp("us", tz="UTC"))
        table = pa.Table.from_arrays([pa.array(keys, pa.int64()), pa.array(values, pa.int64()), at], schema=ARROW)
        hidden = self.directory / f".{self._files}"
        pq.write_table(table, hidden)
        os.replace(hidden, self.directory / f"in-{self._files:04d}.parquet")
        self._files += 1

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).parquet(str(self.directory))


def rows_of(directory: Path) -> list[tuple[Any, ...]]:
    """The committed rows of an output directory, sorted; empty if it has none."""
    files = sorted(directory.glob("*.parquet"))
    rows = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=repr)


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 90.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:.0f} s for {what}"
        time.sleep(0.02)
