"""Event time with continuous input: a reader without event time does not stop it; ``multipleWatermarkPolicy``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def rate(spark: SparkSession, partitions: int = 2) -> DataFrame:
    source = spark.readStream.format("rate").option("rowsPerSecond", 100).option("numPartitions", partitions)
    return source.load().select(F.col("timestamp").alias("at"), "value")


def filtered(spark: SparkSession, empty: Path) -> DataFrame:
    """A filter drops all rows of one of two readers."""
    return rate(spark).where("value % 2 = 0").withWatermark("at", "200 milliseconds")


def without_times(spark: SparkSession, empty: Path) -> DataFrame:
    """All rows of one of two readers have no event time."""
    at = F.when(F.col("value") % 2 == 0, F.col("at")).alias("at")
    return rate(spark).select(at, "value").withWatermark("at", "200 milliseconds")


def fewer_splits(spark: SparkSession, empty: Path) -> DataFrame:
    """One of two readers has nothing to read."""
    return rate(spark, 1).withWatermark("at", "200 milliseconds")


def beside_a_silent_input(spark: SparkSession, empty: Path) -> DataFrame:
    """A watermark above a union, one of whose inputs has no rows."""
    silent = spark.readStream.schema(SCHEMA).parquet(str(empty)).select("at", "value")
    return rate(spark).union(silent).withWatermark("at", "200 milliseconds")


@pytest.mark.parametrize("stream", [filtered, without_times, fewer_splits, beside_a_silent_input])
def test_windows_are_emitted_although_a_reader_has_no_event_time(
    spark: SparkSession,
    tmp_path: Path,
    out: Path,
    start: Start,
    stream: Callable[[SparkSession, Path], DataFrame],
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    windows = stream(spark, empty).where("at IS NOT NULL").groupBy(F.window("at", "1 second")).count()
    query = start(windows.select(F.col("window.start").cast("long").alias("start"), "count"), parallelism=2)
    eventually(lambda: len(rows_of(out)) >= 3, "windows", 40)
    query.stop()
    counts = [count for _, count in sorted(rows_of(out))]
    per_second = 50 if stream in (filtered, without_times) else 100
    assert counts[1:] == [per_second] * (len(counts) - 1), "no row was late"
    assert sum(s.numRowsDroppedByWatermark for p in query.recentProgress for s in p.stateOperators) == 0


@pytest.mark.parametrize(("policy", "right"), [("min", []), ("max", [(0, 1)])])
def test_the_policy_for_several_watermarks_is_obeyed(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, out: Path, start: Start, policy: str, right: list[object]
) -> None:
    """The same query as "MultipleWatermarkPolicy" in EventTimeWatermarkSuite."""
    other = Inbox(tmp_path / "other")
    streams = [one.stream(spark).withWatermark("at", "10 seconds") for one in (inbox, other)]
    windows = streams[0].union(streams[1]).groupBy(F.window("at", "5 seconds").alias("w")).count()
    spark.conf.set(POLICY, policy)
    try:
        query = start(windows.select(F.col("w.start").cast("long").alias("start"), "count"), parallelism=2)
    finally:
        spark.conf.unset(POLICY)
    inbox.add([(0, 0, 1.0)])
    other.add([(0, 0, 100.0)])
    query.processAllAvailable()
    assert rows_of(out) == right
    inbox.add([(0, 0, 2.0), (0, 0, 101.0)])
    query.processAllAvailable()
    late = sum(s.numRowsDroppedByWatermark for p in query.recentProgress for s in p.stateOperators)
    assert (rows_of(out), late) == (([(0, 2)], 0) if policy == "min" else ([(0, 1)], 1))
