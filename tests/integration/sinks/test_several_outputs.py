"""Several outputs of one query: each exactly once over a kill, the source read once, and outputs that come and go."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.api.several import combined
from penstock.api.start import QueryRequest
from penstock.api.triggers import Trigger
from penstock.api.writer import DataStreamWriter
from penstock.errors import ConfigError, PlanChanged
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually, rows_of

pytestmark = pytest.mark.spark

Launch = Callable[..., StreamingQuery]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """``launch(writers, **options)`` starts them at one location with quick checkpoints; all are stopped at the end."""
    queries: list[StreamingQuery] = []

    def start(*writers: DataStreamWriter, parallelism: int = 2) -> StreamingQuery:
        first = writers[0].option("checkpointLocation", str(tmp_path / "checkpoint"))
        first.options(**{"checkpoint.interval": "200ms", "restart.delay": "10ms", "parallelism": parallelism})
        queries.append(penstock.start(writers))
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def to(df: DataFrame, directory: Path) -> DataStreamWriter:
    return penstock.writeStream(df).format("parquet").option("path", str(directory))


def flow(first: int, last: int) -> list[tuple[int, int, float]]:
    return [(value % 5, value, float(value)) for value in range(first, last)]


def windows(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.count("*").alias("n")).select(F.col("window.start").cast("long").alias("start"), "key", "n")


def counted(rows: list[tuple[int, int, float]], before_s: float) -> list[tuple[int, int, int]]:
    groups = Counter((int(seconds) // 10 * 10, key) for key, _, seconds in rows)
    return sorted(((start, key, n) for (start, key), n in groups.items() if start + 10 <= before_s), key=repr)


def test_two_sinks_exactly_once_over_a_kill_and_the_source_read_once(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, launch: Launch
) -> None:
    parsed = inbox.stream(spark).withColumn("twice", F.col("value") * 2)
    odd, sums = tmp_path / "odd", tmp_path / "sums"
    query = launch(to(parsed.where("value % 2 = 1").select("value", "twice"), odd), to(windows(parsed), sums))
    inbox.add(flow(0, 60))
    query.processAllAvailable()
    assert rows_of(odd) == sorted(((v, 2 * v) for v in range(1, 60, 2)), key=repr)
    assert rows_of(sums) == counted(flow(0, 60), before_s=54)

    before = query.generation
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    inbox.add(flow(60, 120))
    eventually(lambda: query.generation > before, "the next Generation")
    query.processAllAvailable()
    assert rows_of(odd) == sorted(((v, 2 * v) for v in range(1, 120, 2)), key=repr)
    assert rows_of(sums) == counted(flow(0, 120), before_s=114)
    progress = query.recentProgress
    assert sum(p.numInputRows for p in progress) == 120, "each row once, not once per output"
    assert len(progress[-1].sources) == 1
    assert {"sink-0.numOutputRows", "sink-1.numOutputRows"} <= set(progress[-1].sink.metrics)
    assert str(odd) in progress[-1].sink.description
    assert str(sums) in progress[-1].sink.description


def test_outputs_are_added_and_removed_at_a_restart(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, launch: Launch
) -> None:
    def sums(df: DataFrame) -> DataStreamWriter:
        totals = df.groupBy("key").agg(F.sum("value").alias("total"))
        return penstock.writeStream(totals).format("memory").outputMode("update").queryName("totals")

    raw = inbox.stream(spark)
    archive, big = tmp_path / "archive", tmp_path / "big"

    def run(*writers: DataStreamWriter) -> None:
        query = launch(*writers)
        query.processAllAvailable()
        query.stop()

    inbox.add([(1, 10, 0.0), (2, 20, 0.0)])
    run(sums(raw))
    inbox.add([(1, 5, 0.0)])
    run(sums(raw), to(raw.select("value"), archive), to(raw.where("value > 6"), big))
    eventually(lambda: spark.table("totals").collect() == [(1, 15)], "the sum to go on")
    assert rows_of(archive) == [(5,)], "what is added sees what is read from then on"

    inbox.add([(2, 7, 0.0)])
    run(sums(raw), to(raw.select("value"), archive))
    eventually(lambda: spark.table("totals").collect() == [(2, 27)], "the sum to go on")
    assert rows_of(archive) == [(5,), (7,)]
    assert rows_of(big) == []

    with pytest.raises(PlanChanged, match=r"operator aggregate-0: stored Aggregate.*, now absent"):
        launch(to(raw.select("value"), archive))


def test_what_cannot_be_started_together_is_refused(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    raw = inbox.stream(spark)
    rate = spark.readStream.format("rate").load()
    with pytest.raises(ConfigError, match="at least one writer"):
        penstock.start([])
    with pytest.raises(ConfigError, match=r"writers from penstock.writeStream\(df\), not DataFrame"):
        penstock.start([raw])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"outputs 0 and 1 both write to .*/out"):
        penstock.start([to(raw, tmp_path / "out"), to(raw.select("key"), tmp_path / "in" / ".." / "out")])
    with pytest.raises(ConfigError, match="no source in common"):
        penstock.start([to(raw, tmp_path / "a"), to(rate, tmp_path / "b")])
    with pytest.raises(ConfigError, match=r"penstock.start\(\[writer of df, writer of penstock.late\(df\)\]\)"):
        penstock.start([to(penstock.late(windows(raw)), tmp_path / "a")])
    assert not list(tmp_path.glob("[ab]")), "nothing is left behind"


def about(location: str | None = None, trigger: Trigger | None = None, **options: str) -> QueryRequest:
    return QueryRequest(None, location, options, trigger or Trigger())


def test_what_the_writers_say_about_the_query_is_put_together() -> None:
    got = combined([about(), about("/c", parallelism="2"), about("/c/", Trigger("5s"), parallelism="2", other="x")])
    said = {"parallelism": "2", "other": "x", "checkpoint.interval": "5s"}
    assert got == QueryRequest(None, "/c", said, Trigger("5s"))
    often = {"checkpoint.interval": "5000ms"}
    assert combined([about(trigger=Trigger("5s")), about(**often)]).trigger == Trigger("5s")
    assert combined([about(), QueryRequest("b", None, {}), QueryRequest("c", None, {})]).name == "b"


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (about("/c"), about("/d"), "checkpointLocation: output 1 says /c, output 2 says /d"),
        (about(parallelism="2"), about(parallelism="3"), "parallelism: output 1 says 2, output 2 says 3"),
        (about(trigger=Trigger("5s")), about(trigger=Trigger("6s")), "interval: output 1 says 5s, output 2 says 6s"),
        (about(trigger=Trigger("5s")), about(**{"checkpoint.interval": "6s"}), "interval: output 1 says 5s.* says 6s"),
        (about(trigger=Trigger("5s")), about(trigger=Trigger(until_available=True)), "trigger: output 1 says Trigger"),
    ],
)
def test_contradictions_name_both_values(one: QueryRequest, other: QueryRequest, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        combined([about(), one, other])
