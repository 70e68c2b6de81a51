"""A union as a whole query: nothing is lost or doubled over a kill, a rescale, a restart; the least watermark rules."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

Row = tuple[int, int, float]


@pytest.fixture
def inboxes(tmp_path: Path) -> tuple[Inbox, Inbox]:
    return Inbox(tmp_path / "one"), Inbox(tmp_path / "two")


def flow(first: int, last: int) -> list[Row]:
    return [(value % 7, value, float(value)) for value in range(first, last)]


def windows(df: DataFrame) -> DataFrame:
    grouped = df.groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.count("*").alias("n")).select(F.col("window.start").cast("long").alias("start"), "key", "n")


def counted(rows: Sequence[Row], before_s: float) -> list[tuple[Any, ...]]:
    groups = Counter((int(seconds) // 10 * 10, key) for key, _, seconds in rows)
    return sorted(((start, key, n) for (start, key), n in groups.items() if start + 10 <= before_s), key=repr)


@pytest.mark.parametrize("alignment", ["aligned", "unaligned"])
def test_two_streams_below_an_aggregation_over_a_kill_and_a_rescale(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start, alignment: str
) -> None:
    one, two = inboxes
    united = one.stream(spark).withWatermark("at", "5 seconds").union(two.stream(spark).withWatermark("at", "1 second"))
    fresh = united.dropDuplicates(["key", "value", "at"])
    query = start(windows(fresh), parallelism=2, **{"checkpoint.alignment": alignment})
    one.add(flow(0, 60))
    two.add(flow(40, 90))
    query.processAllAvailable()
    everything = flow(0, 90)
    assert rows_of(out) == counted(everything, before_s=54), "the least watermark of both, less its delay"

    before = query.generation
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    one.add(flow(60, 120))
    eventually(lambda: query.generation > before, "the next Generation")
    query.processAllAvailable()
    everything = flow(0, 120)
    assert rows_of(out) == counted(everything, before_s=88)

    query.rescale(1)
    two.add(flow(80, 150))
    query.processAllAvailable()
    query.stop(drain=True)
    assert rows_of(out) == counted(flow(0, 150), before_s=1e9)
    assert [sum(p.sources[n].numInputRows for p in query.recentProgress) for n in (0, 1)] == [120, 120]


def test_rows_without_event_time_come_until_the_end(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start
) -> None:
    """The watermark is the first stream's alone, as in Spark; a drain ends it when the other one is read, too."""
    one, two = inboxes
    united = one.stream(spark).withWatermark("at", "0 seconds").union(two.stream(spark))
    query = start(windows(united), parallelism=2)
    one.add(flow(0, 35))
    query.processAllAvailable()
    assert rows_of(out) == counted(flow(0, 35), before_s=34)
    two.add([(8, 1, 36.0), (8, 2, 12.0)])
    query.processAllAvailable()
    assert sum(state.numRowsDroppedByWatermark for p in query.recentProgress for state in p.stateOperators) == 1
    two.add(flow(100, 140))
    query.stop(drain=True)
    assert rows_of(out) == counted([*flow(0, 35), (8, 1, 36.0), *flow(100, 140)], before_s=1e9)


def test_a_watermark_above_a_union_is_one_for_all_its_inputs(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start
) -> None:
    """Like Spark: an idle input does not hold the watermark back, and rows behind the others' time are late."""
    one, two = inboxes
    query = start(windows(one.stream(spark).union(two.stream(spark)).withWatermark("at", "5 seconds")), parallelism=2)
    one.add(flow(0, 60))
    query.processAllAvailable()
    assert rows_of(out) == counted(flow(0, 60), before_s=54)
    two.add([(1, 1, 49.0), (1, 1, 52.0)])
    query.processAllAvailable()
    two.add(flow(80, 90))
    query.processAllAvailable()
    query.stop()
    seen = [*flow(0, 60), (1, 1, 52.0), *flow(80, 90)]
    assert rows_of(out) == counted(seen, before_s=84), "49.0 was late"
    again = start(windows(one.stream(spark).union(two.stream(spark)).withWatermark("at", "5 seconds")), parallelism=1)
    one.add(flow(100, 130))
    again.processAllAvailable()
    assert rows_of(out) == counted([*seen, *flow(100, 130)], before_s=124)


def test_a_limit_holds_over_a_kill_and_restarts(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start
) -> None:
    one, two = inboxes
    df = one.stream(spark).union(two.stream(spark)).select("value").limit(25)
    one.add(flow(0, 10))
    query = start(df, parallelism=2)
    query.processAllAvailable()
    before = query.generation
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    two.add(flow(10, 20))
    eventually(lambda: query.generation > before, "the next Generation")
    query.processAllAvailable()
    query.stop()
    assert rows_of(out) == sorted(((value,) for value in range(20)), key=repr)
    again = start(df, parallelism=1)
    two.add(flow(20, 40))
    again.processAllAvailable()
    values = [value for (value,) in rows_of(out)]
    assert len(values) == len({*values}) == 25
    assert {*values} >= {*range(20)}


def test_a_query_over_a_union_goes_on_where_it_was(
    spark: SparkSession, inboxes: tuple[Inbox, Inbox], out: Path, start: Start
) -> None:
    one, two = inboxes
    united = one.stream(spark).select("value").union(two.stream(spark).select("key"))
    for first in (0, 10):
        one.add(flow(first, first + 10))
        two.add(flow(first, first + 10))
        query = start(united.withColumn("twice", F.expr("value * 2")), parallelism=1 + first // 10)
        query.processAllAvailable()
        query.stop()
    values = [*range(20), *(value % 7 for value in range(20))]
    assert rows_of(out) == sorted(((value, 2 * value) for value in values), key=repr)
