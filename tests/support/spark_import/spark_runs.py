"""Kit for tests of moving between the engines: input as files, a run on Spark's engine, and one on Penstock's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import penstock

SCHEMA = (
    "at timestamp, user string, amount bigint, "
    "small decimal(7,2), price decimal(10,2), wide decimal(30,4), ratio double"
)
ARROW = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("user", pa.string()),
        ("amount", pa.int64()),
        ("small", pa.decimal128(7, 2)),
        ("price", pa.decimal128(10, 2)),
        ("wide", pa.decimal128(30, 4)),
        ("ratio", pa.float64()),
    ]
)
SECOND_US = 1_000_000
Row = tuple[Any, ...]


class Arrivals:
    """A directory in which Parquet files appear, one batch of Spark's each; its name needs escaping in a URL."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir()
        self.count = 0

    def add(self, *rows: tuple[float, str | None, int | None]) -> None:
        """Rows of (seconds of event time, user, amount); the other columns follow from the amount."""
        columns: list[Sequence[Any]] = [
            [round(seconds * SECOND_US) for seconds, _, _ in rows],
            [user for _, user, _ in rows],
            [amount for _, _, amount in rows],
            [None if amount is None else Decimal(amount) / 4 for _, _, amount in rows],
            [None if amount is None else Decimal(amount) for _, _, amount in rows],
            [None if amount is None else Decimal(amount) * 3 for _, _, amount in rows],
            [None if amount is None else amount / 4 for _, _, amount in rows],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)]
        hidden = self.directory / f".{self.count}"
        pq.write_table(pa.Table.from_arrays(arrays, schema=ARROW), hidden)
        stamp = 1_700_000_000 + self.count
        os.utime(hidden, (stamp, stamp))  # the order in which both engines read
        os.replace(hidden, self.directory / f"part {self.count:03d}.parquet")
        self.count += 1

    def add_all(self, batches: Iterable[Sequence[tuple[float, str | None, int | None]]]) -> None:
        for rows in batches:
            self.add(*rows)

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.directory))


class OnSpark:
    """Runs of one query on Spark's engine."""

    def __init__(self, checkpoint: Path, mode: str) -> None:
        self.checkpoint = checkpoint
        self.mode = mode

    def run(self, df: DataFrame, fail_at: int | None = None) -> list[Row]:
        """Read what there is, and return what was emitted. ``fail_at``: a batch that is planned and run, and not
        committed."""
        emitted: list[Row] = []

        def keep(rows: DataFrame, batch: int) -> None:
            if batch == fail_at:
                raise RuntimeError("killed")
            emitted.extend(tuple(row) for row in rows.collect())

        writer = df.writeStream.foreachBatch(keep).outputMode(self.mode).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.checkpoint)).start()
        if fail_at is None:
            query.awaitTermination()
        else:
            with pytest.raises(StreamingQueryException, match="killed"):
                query.awaitTermination()
        return emitted


def on_penstock(df: DataFrame, location: Path, mode: str, parallelism: int = 2) -> list[Row]:
    """Read what there is; what was emitted, epoch after epoch."""
    emitted: list[Row] = []

    def keep(rows: DataFrame, _: int) -> None:
        emitted.extend(tuple(row) for row in rows.collect())

    writer = penstock.writeStream(df).foreachBatch(keep).outputMode(mode).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(location)).option("parallelism", parallelism).start()
    assert query.awaitTermination(60)
    return emitted


def same(some: Iterable[Row], others: Iterable[Row]) -> bool:
    """Return True if both have the same rows, equally often."""
    return sorted(map(repr, some)) == sorted(map(repr, others))


def latest(rows: Iterable[Row], keys: int) -> dict[Row, Row]:
    """Update mode: the last row of every key, which is the first ``keys`` columns."""
    return {row[:keys]: row for row in rows}
