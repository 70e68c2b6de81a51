"""transformWithState on Spark: a processor's rows and its state, over kills and rescales, and beside Spark's engine."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.coordinator import generation_slots as attempt
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of
from tests.support.stateful.counting_processors import Line, counted, expected_rows, expected_state

pytestmark = pytest.mark.spark


def lines(first: int, last: int) -> list[Line]:
    """Seven keys; a row in every second of event time. Not at time 0, where Spark's watermark begins."""
    return [(second * second % 7, second, 600.0 + second) for second in range(first, last)]


def state_of(spark: SparkSession, location: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the state of the newest snapshot in the form of ``expected_state``."""
    found = {}
    for name in ("total", "values", "minutes", "__timers"):
        read = spark.read.format("penstock").option("state", f"transform-with-state-0/{name}").load(str(location))
        columns = [column for column in read.columns if column not in ("key_group", "__position")]
        found[name] = sorted(tuple(row) for row in read.select(columns).collect())
    return found


@pytest.mark.parametrize(("mode", "backend"), [("pandas", "memory"), ("rows", "rocksdb")])
def test_rows_state_and_timers_survive_a_kill_and_rescales(
    spark: SparkSession,
    inbox: Inbox,
    out: Path,
    start: Start,
    tmp_path: Path,
    mode: str,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "JOB_GRACE_S", 10.0)
    options = {"parallelism": 2, "state.backend": backend}
    inbox.add(lines(0, 100))
    query = start(counted(inbox.stream(spark), mode), **options)
    query.processAllAvailable()
    assert rows_of(out) == expected_rows(lines(0, 100))

    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    inbox.add(lines(100, 230))
    eventually(lambda: query.generation == 2, "the next Generation")
    query.processAllAvailable()
    assert rows_of(out) == expected_rows(lines(0, 230))

    query.rescale(3, timeout=60)
    inbox.add(lines(230, 300))
    query.processAllAvailable()
    query.stop()
    inbox.add(lines(300, 400))
    query = start(counted(inbox.stream(spark), mode), **(options | {"parallelism": 1}))
    query.processAllAvailable()
    query.stop()
    assert rows_of(out) == expected_rows(lines(0, 400))
    assert state_of(spark, tmp_path / "checkpoint") == expected_state(lines(0, 400))


@pytest.mark.parametrize("mode", ["pandas", "rows"])
def test_sparks_own_engine_gives_the_same(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, spark_conf: Any, mode: str
) -> None:
    """Penstock against the same expectation: above."""
    pytest.importorskip("google.protobuf", reason="Spark's own transformWithState needs it")
    spark_conf(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    spark_conf("spark.sql.shuffle.partitions", "1")
    for first in range(0, 400, 200):
        inbox.add(lines(first, first + 200))
    out, checkpoint = tmp_path / "spark-out", str(tmp_path / "spark-checkpoint")
    writer = counted(inbox.stream(spark), mode).writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(str(out))
    query.awaitTermination()
    rows = spark.read.parquet(str(out)).collect()
    assert sorted((tuple(row) for row in rows), key=repr) == expected_rows(lines(0, 400))
    read = spark.read.format("statestore").option("stateVarName", "total").load(checkpoint)
    totals = sorted((row.key.key, row.value.rows, row.value.value) for row in read.collect())
    assert totals == expected_state(lines(0, 400))["total"]
