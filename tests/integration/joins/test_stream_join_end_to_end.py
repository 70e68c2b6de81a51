"""Joins of two streams as whole queries: killed, rescaled, restarted, drained, they give Spark's batch result."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
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
