"""``query.rescale`` and restarts at another parallelism, through Spark: the results are those of a query left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.errors import ConfigError, QueryFailed, ResourceError
from tests.support.queries.query_running import Inbox, Start, rows_of

pytestmark = pytest.mark.spark

Rows = list[tuple[int, int, float]]
DELAY_S = 20
"""As far as rows of one file are out of order."""


def windows(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", f"{DELAY_S} seconds").groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.sum("value").alias("total"), F.count("*").alias("rows")).select("key", "total", "rows")


def some_rows(chance: random.Random, since: float) -> Rows:
    return [(chance.randrange(20), chance.randrange(100), since + chance.uniform(0, 20)) for _ in range(200)]


def expected(spark: SparkSession, out: Path, rows: Rows) -> list[tuple[object, ...]]:
    """Return Spark's result of all rows at once, without the windows that are still open."""
    closed = (max(at for _, _, at in rows) - DELAY_S) // 10 * 10
    df = spark.createDataFrame([row for row in rows if row[2] < closed], "key bigint, value bigint, at double")
    grouped = df.groupBy(F.floor(F.col("at") / 10), "key").agg(F.sum("value"), F.count("*"))
    return sorted(tuple(row)[1:] for row in grouped.collect())


def test_windows_are_closed_once_whatever_the_parallelism(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    chance = random.Random(7)
    rows: Rows = []
    query = start(windows(inbox.stream(spark)), parallelism=2)
    for step, parallelism in enumerate((3, 1, 2)):
        inbox.add(more := some_rows(chance, 20.0 * step))
        rows += more
        query.processAllAvailable()
        query.rescale(parallelism, timeout=60)
        assert query.parallelism == parallelism
    inbox.add(more := some_rows(chance, 60.0))
    rows += more
    query.processAllAvailable()
    assert query.lastProgress is not None
    assert query.lastProgress.stateOperators[0].numShufflePartitions == 2
    query.stop()
    assert sorted(rows_of(out)) == expected(spark, out, rows)


def test_a_restart_has_the_last_parallelism_unless_it_says_otherwise(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    chance = random.Random(8)
    rows: Rows = []

    def feed(since: float) -> None:
        inbox.add(more := some_rows(chance, since))
        rows.extend(more)

    query = start(windows(inbox.stream(spark)), parallelism=1)
    feed(0.0)
    query.processAllAvailable()
    query.rescale(3)
    feed(20.0)
    query.processAllAvailable()
    query.stop()
    query = start(windows(inbox.stream(spark)), parallelism=None)
    assert query.parallelism == 3
    feed(40.0)
    query.processAllAvailable()
    query.stop()
    query = start(windows(inbox.stream(spark)), parallelism=2)
    feed(60.0)
    query.processAllAvailable()
    assert query.parallelism == 2
    query.stop()
    assert sorted(rows_of(out)) == expected(spark, out, rows)


def test_what_cannot_be_had_is_said(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    query = start(windows(inbox.stream(spark)), parallelism=1)
    for parallelism, error, text in (
        (0, ConfigError, "rescaled to 0"),
        (99, ResourceError, "to 99: 4 slots are there"),
    ):
        with pytest.raises(error, match=text):
            query.rescale(parallelism)
    with pytest.raises(ConfigError, match="timeout must be a number of seconds above zero"):
        query.rescale(2, timeout=0)
    query.stop()
    with pytest.raises(QueryFailed, match="not running"):
        query.rescale(2)


def test_another_backend_goes_on_with_the_state_of_the_first(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    chance = random.Random(9)
    rows: Rows = []
    for step, (backend, parallelism) in enumerate((("rocksdb", 1), ("memory", 2), ("rocksdb", 3))):
        query = start(windows(inbox.stream(spark)), parallelism=parallelism, **{"state.backend": backend})
        inbox.add(more := some_rows(chance, 20.0 * step))
        rows += more
        query.processAllAvailable()
        query.stop()
    assert sorted(rows_of(out)) == expected(spark, out, rows)
