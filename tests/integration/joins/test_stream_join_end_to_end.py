"""Joins of two streams as whole queries: killed, rescaled, restarted, drained, they give Spark's batch result."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

Row = tuple[int, int, float]


@pytest.fixture
def inboxes(tmp_path: Path) -> tuple[Inbox, Inbox]:
    return Inbox(tmp_path / "clicks"), Inbox(tmp_path / "views")


def flow(first: int, last: int, side: int) -> list[Row]:
    """Every third row of either side has no partner."""
    return [(value % 11 if value % 3 else 100 + side, value, value / 2) for value in range(first, last)]


def pairs(left: DataFrame, right: DataFrame, kind: str) -> DataFrame:
    right = right.withWatermark("at", "2 seconds").selectExpr("key AS r", "value AS w", "at AS t")
    near = F.expr("key = r AND t BETWEEN at - INTERVAL 3 SECONDS AND at + INTERVAL 5 SECONDS AND (value + w) % 5 <> 0")
    joined = left.withWatermark("at", "2 seconds").join(right, near, kind)
    return joined.select("key", "value") if kind == "left_semi" else joined.select("key", "value", "r", "w")


def expected(spark: SparkSession, inboxes: tuple[Inbox, Inbox], kind: str) -> list[tuple[object, ...]]:
    left, right = (spark.read.schema(SCHEMA).parquet(str(inbox.directory)) for inbox in inboxes)
    return sorted((tuple(row) for row in pairs(left, right, kind).collect()), key=repr)


@pytest.mark.parametrize(
    ("kind", "alignment"), [("full", "aligned"), ("left", "unaligned"), ("left_semi", "unaligned")]
)
def test_over_a_kill_a_rescale_and_a_restart(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start, kind: str, alignment: str
) -> None:
    def add(first: int, last: int) -> None:
        for side, inbox in enumerate(inboxes):
            inbox.add(flow(first, last, side))

    add(0, 60)
    query = start(
        pairs(inboxes[0].stream(spark), inboxes[1].stream(spark), kind),
        parallelism=2,
        **{"checkpoint.alignment": alignment, "checkpoint.interval": "100ms"},
    )
    query.processAllAvailable()
    first = rows_of(out)
    assert first, "some rows have come out"
    before = query.generation
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    add(60, 120)
    eventually(lambda: query.generation > before, "the next Generation")
    query.processAllAvailable()
    query.rescale(3)
    add(120, 180)
    query.processAllAvailable()
    assert max(state.numRowsTotal for state in query.lastProgress.stateOperators) < 120, "rows are forgotten"
    query.stop()

    add(180, 200)
    again = start(pairs(inboxes[0].stream(spark), inboxes[1].stream(spark), kind), parallelism=1)
    again.processAllAvailable()
    again.stop(drain=True)
    assert rows_of(out) == expected(spark, inboxes, kind)


def joined_on_the_right(sides: list[DataFrame]) -> DataFrame:
    """Return a join whose right side is a join whose right side is a join, and so on."""
    *others, joined = sides
    for side in reversed(others):
        joined = side.join(joined, "key")
    return joined


def sides(stream: DataFrame, number: int) -> list[DataFrame]:
    return [
        stream.where(f"value % {number} = {side}").selectExpr("key", f"value v{side}", f"at t{side}")
        for side in range(number)
    ]


def test_joins_on_the_right_of_joins_go_on_after_a_kill_and_a_restart(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start
) -> None:
    inbox = inboxes[0]
    values = [f"v{side}" for side in range(5)]

    def add(first: int, last: int) -> None:
        inbox.add([(value % 3, value, value / 2) for value in range(first, last)])

    def joined(df: DataFrame) -> DataFrame:
        return joined_on_the_right(sides(df, 5)).select("key", *values)

    stream = inbox.stream(spark).withWatermark("at", "1 hour")
    add(0, 15)
    query = start(joined(stream), parallelism=2)
    query.processAllAvailable()
    before = query.generation
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    eventually(lambda: query.generation > before, "the next generation")
    query.stop()
    add(15, 25)
    again = start(joined(stream), parallelism=1)
    again.processAllAvailable()
    batch = joined(spark.read.schema(SCHEMA).parquet(str(inbox.directory)))
    assert rows_of(out) == sorted((tuple(row) for row in batch.collect()), key=repr)


def test_joins_that_are_nested_too_deeply_are_refused_before_anything_is_written(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], tmp_path: Path, start: Start
) -> None:
    stream = inboxes[0].stream(spark).withWatermark("at", "1 hour")
    with pytest.raises(AnalysisException, match=r"nested too deeply.* at most 300 can be stored"):
        start(joined_on_the_right(sides(stream, 17)).select("key"))
    assert not (tmp_path / "checkpoint").exists()
