"""Sessions, aggregations over aggregations, distinct aggregates and those with lists as state, as outputs of one query
that is killed, and started again with another parallelism and state backend: what Spark gives for a batch."""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually

pytestmark = pytest.mark.spark


def session() -> Column:
    return F.session_window("at", F.when(F.col("key") == 1, "3 seconds").otherwise("5 seconds")).alias("w")


def tumbling() -> Column:
    return F.window("at", "10 seconds").alias("w")


PLANS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "sessions": lambda df: df.groupBy("key", session()).agg(
        F.count("*").alias("n"), F.sum("value").alias("s"), F.collect_set("value").alias("values")
    ),
    "twice": lambda df: (
        df.groupBy(tumbling(), "key")
        .agg(F.sum("value").alias("s"))
        .groupBy(F.window(F.window_time("w"), "30 seconds"))
        .agg(F.count("*").alias("n"), F.max("s").alias("most"))
    ),
    "distinct": lambda df: df.groupBy(tumbling()).agg(
        F.count_distinct("value").alias("n"), F.sum_distinct("key").alias("s"), F.count("*").alias("rows")
    ),
    "once": lambda df: df.groupBy(tumbling(), "key").agg(
        F.count_distinct("value").alias("n"),
        F.stddev("value").alias("spread"),
        F.collect_list("value").alias("values"),
        F.expr("percentile_approx(value, array(0.5, 0.9))").alias("middle"),
        F.approx_count_distinct("value").alias("about"),
        F.max_by("value", "at").alias("newest"),
    ),
}


def plain(value: Any) -> Any:
    """Comparable: lists in no order, doubles to nine digits."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return sorted(value)
    return round(value, 9) if isinstance(value, float) and not math.isnan(value) else value


def rows(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.parquet"))
    return sorted(repr(plain(row)) for file in files for row in pq.read_table(file).to_pylist())


def test_nothing_is_lost_or_doubled(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    timed = inbox.stream(spark).withWatermark("at", "10 seconds")
    outputs = {name: plan(timed) for name, plan in PLANS.items()}

    def start(parallelism: int, backend: str) -> StreamingQuery:
        writers = [
            penstock.writeStream(df).format("parquet").option("path", str(tmp_path / "out" / name))
            for name, df in outputs.items()
        ]
        options = {"checkpoint.interval": "200ms", "restart.delay": "10ms", "state.backend": backend}
        writers[0].options(checkpointLocation=str(tmp_path / "checkpoint"), parallelism=parallelism, **options)
        return penstock.start(writers)

    chance = random.Random(17)

    def add(number: int) -> None:
        """Event time goes on by 20 s a file, and no row is behind another one by as much as the delay."""
        seconds = [100 + 20 * number + place / 2 + chance.uniform(-4, 4) for place in range(40)]
        inbox.add((chance.randint(0, 3), chance.randint(0, 9), second) for second in seconds)

    query = start(2, "memory")
    try:
        for number in range(3):
            add(number)
            query.processAllAvailable()
            if number == 1:
                os.kill(query.view().slots[0].pid, signal.SIGKILL)
                eventually(lambda: query.view().generation > 1, "the next Generation")
        query.stop()
        query = start(1, "rocksdb")
        add(3)
        query.processAllAvailable()
        add(4)
        query.stop(drain=True)
    finally:
        query.stop()
    assert sum(progress.stateOperators[n].numRowsDroppedByWatermark for progress in query.recentProgress
               for n in range(len(progress.stateOperators))) == 0  # fmt: skip
    batch = spark.read.schema(inbox.stream(spark).schema).parquet(str(inbox.directory))
    for name, plan in PLANS.items():
        expected = plan(batch).toArrow().to_pylist()
        assert rows(tmp_path / "out" / name) == sorted(repr(plain(row)) for row in expected), name
        assert len(expected) > 3
