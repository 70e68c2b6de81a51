"""Event time equals that of Spark after each step of input: the same output rows, and the same number of late rows.

The engines raise the watermark at different moments: Spark after each micro-batch, Penstock as rows pass. So the rows
of a step do not make each other late in any order, and both engines process a step before the next one arrives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, Start, rows_of
from tests.support.structured_streaming import structured_streaming

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAR = 9_999
"""Value of rows whose event time is far ahead."""
POLICY = "spark.sql.streaming.multipleWatermarkPolicy"

SetConf = Callable[[str, str], None]
Rows = Sequence[tuple[int, int, float | None]]
"""Rows of one file: key, value, event time in seconds."""
Step = tuple[Rows, Rows]
"""Rows of the two streams in one step; no file if a stream has none."""


def timed(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", "5 seconds")


def windows(df: DataFrame) -> DataFrame:
    counted = df.groupBy(F.window("at", "10 seconds").alias("w"), "key").count()
    return counted.select(F.col("w.start").cast("long").alias("start"), "key", "count")


def joined(left: DataFrame, right: DataFrame) -> DataFrame:
    """Left join: a row of the left side is emitted without a partner when event time excludes one."""
    renamed = right.select(F.col("key").alias("k"), F.col("value").alias("v"), F.col("at").alias("t"))
    near = F.expr("key = k AND t >= at - INTERVAL 2 SECONDS AND t <= at + INTERVAL 2 SECONDS")
    pairs = timed(left).join(renamed.withWatermark("t", "5 seconds"), near, "left_outer")
    return pairs.select("key", "value", "v")


def slowly(df: DataFrame) -> DataFrame:
    """A row with key 7 takes long."""
    wait = F.udf(lambda key: (time.sleep(0.004 * (key == 7)), key)[1], "bigint")
    return df.select(wait("key").alias("key"), "value", "at")


@dataclass(frozen=True)
class Case:
    """``plan`` of two streams. ``out``, ``late``: numbers of Spark, which document the case."""

    plan: Callable[[DataFrame, DataFrame], DataFrame]
    steps: Sequence[Step]
    out: int
    late: int
    policy: str = "min"


def only(*files: Rows) -> list[Step]:
    return [(rows, ()) for rows in files]


FAR_ROW_BETWEEN = only([(1, 1, 1.0)], [(1, FAR, 1_000.0)], [(1, 2, 2.0)], [(1, 3, 40.0)])
NULL_TIMES = only([(1, 1, 1.0)], [(1, 2, None), (2, 3, None)], [(1, 4, 12.0), (1, 5, None)], [(1, 6, 60.0)])
SILENT_SIDE: list[Step] = [([(1, 1, 1.0)], ()), ([(1, 2, 60.0)], ()), ([(1, 3, 3.0)], ()), ([(1, 4, 90.0)], ())]
SLOW = [(7, number, 30.0 + number % 9) for number in range(900)]

CASES = {
    # A row that a filter in front of withWatermark drops does not count: it may be wrong, and far ahead.
    "filter in front": Case(lambda one, _: windows(timed(one.where(f"value < {FAR}"))), FAR_ROW_BETWEEN, out=1, late=0),
    "filter by event time in front": Case(
        lambda one, _: windows(timed(one.where("at < timestamp_seconds(500)"))), FAR_ROW_BETWEEN, out=1, late=0
    ),
    # Spark's optimizer puts it in front.
    "filter behind": Case(lambda one, _: windows(timed(one).where(f"value < {FAR}")), FAR_ROW_BETWEEN, out=1, late=0),
    # Spark's optimizer leaves it behind, so that the row that it drops counts.
    "filter by event time behind": Case(
        lambda one, _: windows(timed(one).where("at < timestamp_seconds(500)")), FAR_ROW_BETWEEN, out=1, late=2
    ),
    "null times": Case(lambda one, _: windows(timed(one)), NULL_TIMES, out=2, late=0),
    "fewer splits than subtasks": Case(
        lambda one, _: windows(timed(one)),
        only([(1, 1, 1.0), (2, 2, 2.0)], [(1, 3, 30.0)], [(2, 4, 4.0)], [(2, 5, 70.0)]),
        out=3,
        late=1,
    ),
    "union with a silent input": Case(lambda one, two: windows(timed(one.union(two))), SILENT_SIDE, out=2, late=1),
    "union of watermarks with a silent input": Case(
        lambda one, two: windows(timed(one).union(timed(two))), SILENT_SIDE, out=0, late=0
    ),
    "union of watermarks with a silent input, max": Case(
        lambda one, two: windows(timed(one).union(timed(two))), SILENT_SIDE, out=2, late=1, policy="max"
    ),
    "join with a silent side": Case(joined, SILENT_SIDE, out=0, late=0),
    "join with a silent side, max": Case(joined, SILENT_SIDE, out=2, late=1, policy="max"),
    "join with a side that is silent at first": Case(
        joined, [*SILENT_SIDE, ((), [(1, 1, 2.0)]), ((), [(1, 2, 80.0)])], out=3, late=0
    ),
    "behind repartition": Case(
        lambda one, _: windows(timed(one.repartition("value").select("at", (F.col("key") + 1).alias("key")))),
        only([(1, 1, 1.0), (2, 2, 2.0)], [(1, 3, 30.0)], [(2, 4, 4.0)], [(2, 5, 70.0)]),
        out=3,
        late=1,
    ),
    "behind repartition of a union": Case(
        lambda one, two: windows(timed(one.union(two).repartition(2))), SILENT_SIDE, out=2, late=1
    ),
    # Spark keeps all rows of a micro-batch, however slow one reader is.
    "slow reader": Case(
        lambda one, two: windows(timed(slowly(one).union(slowly(two)))),
        [([(1, 1, 1.0)], [(1, 2, 2.0)]), (SLOW, [(1, 3, 49.0)]), ([(1, 4, 90.0)], ())],
        out=3,
        late=0,
    ),
}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("parallelism", [3, 1])
def test_rows_and_late_rows_are_sparks_after_each_step(
    spark: SparkSession,
    spark_conf: SetConf,
    tmp_path: Path,
    out: Path,
    start: Start,
    name: str,
    parallelism: int,
) -> None:
    def begin(df: DataFrame, step: int) -> StreamingQuery | None:
        return start(df, parallelism=parallelism) if not step else None

    _compare(spark, spark_conf, tmp_path, out, CASES[name], begin)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["null times", "union with a silent input", "fewer splits than subtasks"])
def test_restores_at_another_parallelism_change_nothing(
    spark: SparkSession, spark_conf: SetConf, tmp_path: Path, out: Path, start: Start, name: str
) -> None:
    def begin(df: DataFrame, step: int) -> StreamingQuery:
        return start(df, parallelism=(2, 3, 1, 2)[step])

    _compare(spark, spark_conf, tmp_path, out, CASES[name], begin)


def _compare(
    spark: SparkSession,
    spark_conf: SetConf,
    tmp_path: Path,
    out: Path,
    case: Case,
    begin: Callable[[DataFrame, int], StreamingQuery | None],
) -> None:
    """``begin``: starts a run before a step; None: the current run continues."""
    inboxes = [Inbox(tmp_path / name) for name in ("one", "two")]
    df = case.plan(*(inbox.stream(spark) for inbox in inboxes))
    spark_conf(POLICY, case.policy)
    spark_conf("spark.sql.shuffle.partitions", "1")
    runs: list[StreamingQuery] = []
    expected: list[tuple[object, ...]] = []
    with structured_streaming(df, tmp_path / "sparks") as sparks:
        for number, step in enumerate(case.steps):
            for inbox, rows in zip(inboxes, step, strict=True):
                if rows:
                    inbox.add(rows)
            sparks.go_on()
            for run in runs[-1:] if (fresh := begin(df, number)) else ():
                run.stop()
            runs += [fresh] if fresh else []
            runs[-1].processAllAvailable()
            expected = sorted((tuple(row.values()) for row in sparks.table.to_pylist()), key=repr)
            assert rows_of(out) == expected, f"step {number}"
        assert (len(expected), sparks.late) == (case.out, case.late), "what the case is there for"
    states = [state for run in runs for progress in run.recentProgress for state in progress.stateOperators]
    assert sum(state.numRowsDroppedByWatermark for state in states) == case.late
