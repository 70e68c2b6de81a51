"""kill -9 of a Python worker until all subtasks run again, warm, ten times."""

from __future__ import annotations

import os
import signal
import time

from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.suites import backpressure

KILLS = 10


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    durations, restored = kill(spark, 3 if quick else KILLS)
    return {"kill_to_running_ms": harness.quantiles(durations), "restored_inflight_rows": restored}


def kill(spark: SparkSession, kills: int) -> tuple[list[float], list[int]]:
    """Return, for each kill, the milliseconds until all subtasks run again and the restored in-flight rows."""
    durations: list[float] = []
    restored: list[int] = []
    df = backpressure.job(spark, "sleeping")
    with harness.running(df, **{"exchange.memoryPerGate": str(2 << 20)}) as query:
        backpressure.fill(query)
        for number in range(kills + 1):
            query.snapshot(alignment="unaligned")
            victim = query.view().slots[number % harness.SLOTS]
            before = query.view().generation
            killed = time.perf_counter()
            os.kill(victim.pid, signal.SIGKILL)
            harness.wait_for(
                "all subtasks to run again",
                lambda before=before: query.view().generation > before and query.view().state.value == "running",
            )
            if number:  # the first one warms up
                durations.append((time.perf_counter() - killed) * 1000)
                restored.append(query.view().restarts[-1].restored_inflight_rows)
            time.sleep(1.0)
    return durations, restored
