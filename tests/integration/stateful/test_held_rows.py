"""Functions that hold rows in front of ``withWatermark``: no row is late, and the last window is emitted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from simulator.jobs.holding_functions import ahead
from tests.support.queries.query_running import Inbox, Start, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

register_pickle_by_value(sys.modules[__name__])

FILES = 12
PER_FILE_S = 40
"""Each second has a row of each key. Rows are in the order of time: a watermark may follow any row of a file."""
KEYS = 3
DELAY_S = 5


def backwards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from reversed(list(batches))


def windows(df: DataFrame, functions: int) -> DataFrame:
    for function in (ahead, backwards)[:functions]:
        df = df.mapInArrow(function, df.schema)
    df = df.withWatermark("at", f"{DELAY_S} seconds").groupBy(F.window("at", "40 seconds", "10 seconds"), "key")
    return df.agg(F.count("*").alias("n")).select(F.col("window.end").cast("long").alias("end"), "key", "n")


PAIRS = [("none", 1, "aligned"), ("none", 2, "unaligned"), ("process", 1, "unaligned"), ("process", 2, "aligned")]
"""Each two values are together once. None of the eight combinations executed a line that no other test does."""


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("isolation", "functions", "alignment"), PAIRS)
def test_held_rows_are_not_late_and_the_last_window_is_emitted(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, functions: int, alignment: str, isolation: str
) -> None:
    for file in range(FILES):
        inbox.add([(n % KEYS, n, file * PER_FILE_S + n // KEYS) for n in range(KEYS * PER_FILE_S)])
    df = windows(inbox.stream(spark).select("key", "at"), functions)
    options = {"parallelism": 2, "checkpoint.alignment": alignment, "function.isolation": isolation}
    query = start(df, **options)
    query.processAllAvailable()
    last_s = FILES * PER_FILE_S - 1 - DELAY_S
    read = spark.read.parquet(str(inbox.directory)).select("key", "at")
    right = sorted(tuple(row) for row in windows(read, 0).where(F.col("end") <= last_s).collect())
    assert sum(s.numRowsDroppedByWatermark for p in query.recentProgress for s in p.stateOperators) == 0
    assert sorted(rows_of(out)) == right
