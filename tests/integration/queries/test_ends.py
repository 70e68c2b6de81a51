"""Runs that end by themselves: what is available is read, or event time is ended with it; Spark is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, sum, window  # noqa: A004 - as Spark calls them

import penstock
from penstock.api.triggers import Trigger, parse_trigger
from penstock.config import LEAST_INTERVAL_MS
from penstock.errors import LocationError
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark


def sums(df: DataFrame) -> DataFrame:
    """Ten-second windows by key."""
    grouped = df.withWatermark("at", "5 seconds").groupBy(window("at", "10 seconds"), "key")
    return grouped.agg(count("*").alias("n"), sum("value").alias("total")).select("window.start", "key", "n", "total")


def flow(first_s: int, last_s: int) -> list[tuple[int, int, float]]:
    return [(second % 3, second, float(second)) for second in range(first_s, last_s)]


def available(df: DataFrame, out: Path, location: Path, trigger: str) -> None:
    """One run to its end."""
    writer = penstock.writeStream(df).trigger(**{trigger: True}).option("checkpointLocation", str(location))
    query = writer.start(str(out), parallelism=2)
    assert query.awaitTermination(120)
    assert not query.isActive
    assert query.exception() is None


def sparks_available(df: DataFrame, out: Path, location: Path) -> None:
    """Return Spark's result of the same query."""
    writer = df.writeStream.trigger(availableNow=True).option("checkpointLocation", str(location))
    assert writer.start(str(out)).awaitTermination(120)


def by_batch(spark: SparkSession, inbox: Inbox) -> list[tuple[Any, ...]]:
    rows = sums(spark.read.schema(SCHEMA).parquet(str(inbox.directory))).toArrow()
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def test_two_runs_of_what_is_available_give_what_sparks_give(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path
) -> None:
    """One file per batch; the second run goes on with the windows that the first one left open."""
    for trigger, (first_s, last_s) in (("availableNow", (0, 34)), ("once", (34, 71))):
        middle_s = (first_s + last_s) // 2
        inbox.add(flow(first_s, middle_s))
        inbox.add(flow(middle_s, last_s))
        reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        df = sums(reader.parquet(str(inbox.directory)))
        available(df, out, tmp_path / "checkpoint", trigger)
        sparks_available(df, tmp_path / "theirs", tmp_path / "sparks")
        theirs = spark.read.parquet(str(tmp_path / "theirs")).toArrow().to_pylist()
        assert rows_of(out) == sorted((tuple(row.values()) for row in theirs), key=repr)
        assert len(theirs) == {34: 6, 71: 18}[last_s]


def test_a_drained_query_gives_what_a_batch_gives_and_its_location_is_closed(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    inbox.add(flow(0, 40))
    query = start(sums(inbox.stream(spark)), parallelism=2)
    query.processAllAvailable()
    open_windows = len(by_batch(spark, inbox)) - len(rows_of(out))
    assert open_windows > 0
    inbox.add(flow(40, 57))
    query.stop(drain=True)
    assert not query.isActive
    assert query.exception() is None
    assert rows_of(out) == by_batch(spark, inbox), "every window, also those that were open"
    query.stop(drain=True)
    with pytest.raises(LocationError, match="was drained"):
        start(sums(inbox.stream(spark)), parallelism=2)


def test_a_drained_rate_query_has_every_row_up_to_the_drain(spark: SparkSession, out: Path, start: Start) -> None:
    rates = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    query = start(rates.select("value"), parallelism=2)
    eventually(lambda: len(rows_of(out)) > 100, "rows", 120)
    query.stop(drain=True)
    values = [value for (value,) in rows_of(out)]
    for reader in range(2):  # each hears of the drain at a moment of its own, and its rows have no gap until then
        its = sorted(value for value in values if value % 2 == reader)
        assert its == list(range(reader, its[-1] + 1, 2))


SPARKS_INTERVALS = (
    "5 seconds", "1 second", "0 seconds", "interval 2 minutes", "INTERVAL 1 HOUR", "1 minute 30 seconds",
    "500 milliseconds", "1.5 seconds", "250 microseconds", "1 day", " 2  hours ", "1 week",
)  # fmt: skip


def test_intervals_are_sparks(spark: SparkSession) -> None:
    for text in SPARKS_INTERVALS:
        sparks = spark._jvm.org.apache.spark.sql.streaming.Trigger.ProcessingTime(text.strip()).intervalMs()
        for name in ("processingTime", "continuous", "realTime"):
            assert parse_trigger({name: text}) == Trigger(interval=f"{sparks or LEAST_INTERVAL_MS}ms"), text
