"""One million timers that are due at once, and checkpoints meanwhile.

Every key has registered a timer; then one row moves the watermark past all of them. Unaligned checkpoints are taken
while they fire, and for comparison before, with the same state and nothing to do. What timers can delay is the time
from a checkpoint's trigger until a subtask has taken its state (``start_delay_ms + sync_ms``, the largest of all
subtasks); writing it out happens beside them.
"""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.lib import harness
from penstock.queries.streaming_query import StreamingQuery

TIMERS = 1_000_000
AT_REST = 10
DUE_MS = 3_600_000
FIRED = "user long, n long"
PAUSE_S = 0.3


class Alarms(StatefulProcessor):
    """A timer of the same moment for each key, told when it fires."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.count.update((sum(1 for _ in rows),))
        self.handle.registerTimer(DUE_MS)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        (n,) = self.count.get()
        self.count.clear()
        yield Row(user=key[0], n=n)

    def close(self) -> None:
        pass


def add_file(directory: Path, name: str, first: int, count: int, at_us: int) -> None:
    columns = {
        "user": pa.array(np.arange(first, first + count)),
        "at": pa.array(np.full(count, at_us), pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), directory / name)


def alarms(spark: SparkSession, directory: Path) -> DataFrame:
    rows = spark.readStream.schema("user long, at timestamp").parquet(str(directory)).withWatermark("at", "10 seconds")
    return rows.groupBy("user").transformWithState(Alarms(), FIRED, "Update", "EventTime")


def checkpoint(query: StreamingQuery) -> tuple[float, float]:
    """Until the last subtask had taken its state, and until all was written; in milliseconds."""
    query.snapshot(alignment="unaligned")
    done = query.view().checkpoints[-1]
    return max(one.start_delay_ms + one.sync_ms for one in done.subtasks), done.duration_ms


def told(checkpoints: list[tuple[float, float]]) -> dict[str, object]:
    taken, whole = zip(*checkpoints, strict=True)
    return {"taken_ms": harness.quantiles(taken), "duration_ms": harness.quantiles(whole)}


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    timers = TIMERS // 10 if quick else TIMERS
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        directory = Path(folder)
        add_file(directory, "a.parquet", 0, timers, 0)
        with harness.running(alarms(spark, directory), mode="update") as query:
            query.processAllAvailable()
            checkpoint(query)  # the first one writes all of the state
            at_rest = [checkpoint(query) for _ in range(AT_REST)]
            began = time.perf_counter()
            add_file(directory, "b.parquet", timers, 1, 10 * DUE_MS * 1_000)
            harness.wait_for("timers to fire", lambda: fired(query) > 0)
            firing = []
            while fired(query) < timers:
                firing.append(checkpoint(query))
                time.sleep(PAUSE_S)
            seconds = time.perf_counter() - began
    result = {"timers": timers, "seconds": seconds, "at_rest": told(at_rest), "firing": told(firing)}
    print(f"  {result}", flush=True)
    return result


def fired(query: StreamingQuery) -> int:
    """Timers that have been told of, over all subtasks, as last reported."""
    return sum(one.metrics.rows_out for one in query.view().subtasks if one.metrics.vertex > 0)
