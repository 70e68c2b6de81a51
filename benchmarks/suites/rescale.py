"""``query.rescale`` under full backpressure: source -> hash -> stage -> hash -> a stage that takes nothing -> a keyed
aggregation -> sink.

First rows go through, until the aggregation has about 80 MB of state; then the stage in front of it is blocked, all
queues fill up and stay full. Now the query is rescaled from two slots to four and back, over and over: how long until
all subtasks run, and how long does the next checkpoint take? Beside each, in the same minute: a bare Spark barrier job
of as many tasks, and the raw time to write and fsync as many bytes as the checkpoint wrote.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import BarrierTaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from benchmarks.lib.stages import blocked_while
from benchmarks.suites import backpressure
from penstock.queries.streaming_query import StreamingQuery

GATES = {"2 MB": 2 << 20, "20 MB": 20 << 20}
ROUNDS = 5
WIDE = 4
KEYS = 2_000_000
SEEN = 700_000
"""Keys with state before it begins: the source repeats its rows, and has a few more."""
VALUES = 11
LIMIT_S = 60.0
AGGREGATION = 3


def job(spark: SparkSession, flag: Path) -> DataFrame:
    source = spark.readStream.format("max-rate").option("payloadBytes", str(backpressure.PAYLOAD_BYTES))
    source = source.option("keys", str(KEYS)).load()
    staged = source.repartition("key").mapInArrow(backpressure.middle, source.schema)
    last = staged.repartition("value").mapInArrow(blocked_while(str(flag)), source.schema)
    return last.groupBy("key").agg(*(F.max(F.col("value") + n).alias(f"v{n}") for n in range(VALUES)))


def state_rows(query: StreamingQuery) -> int:
    subtasks = [s.metrics for s in query.view().subtasks if s.metrics.vertex == AGGREGATION]
    return sum(metrics.counters.get("state_rows", 0) for metrics in subtasks)


def rescaled(query: StreamingQuery, parallelism: int) -> dict[str, Any]:
    """There, and the next checkpoint, from queues that are full."""
    queued = backpressure.fill(query)
    started = time.perf_counter()
    query.rescale(parallelism, timeout=LIMIT_S)
    running_s = time.perf_counter() - started
    query.snapshot(alignment="unaligned")
    checkpoint_s = time.perf_counter() - started - running_s
    done = query.view().checkpoints[-1]
    written = harness.written_bytes(query, done, parallelism)
    return {
        "queued_bytes": queued,
        "running_s": running_s,
        "checkpoint_s": checkpoint_s,
        "inflight_bytes": done.inflight_bytes,
        "state_total_bytes": done.state_total_bytes,
        "written_bytes": written,
        "raw_write_ms": backpressure.raw_write_ms(written),
    }


def barrier_job_s(spark: SparkSession, tasks: int) -> float:
    """A barrier job that does nothing but meet, from the call to its end."""

    def meet(items: Iterator[int]) -> Iterator[int]:
        BarrierTaskContext.get().barrier()
        return items

    started = time.perf_counter()
    spark.sparkContext.parallelize(range(tasks), tasks).barrier().mapPartitions(meet).collect()
    return time.perf_counter() - started


def measure(spark: SparkSession, flag: Path, gate: int, rounds: int) -> dict[str, Any]:
    steps: dict[str, list[dict[str, Any]]] = {"2 to 4": [], "4 to 2": []}
    options = {"exchange.memoryPerGate": str(gate)}
    with harness.running(job(spark, flag), mode="update", **options) as query:
        harness.wait_for("the state to be there", lambda: state_rows(query) >= SEEN, LIMIT_S)
        query.snapshot()  # what changed is emitted
        flag.touch()
        for number in range(rounds + 1):
            for name, parallelism in (("2 to 4", WIDE), ("4 to 2", harness.SLOTS)):
                figures = rescaled(query, parallelism)
                if number:  # the first round warms up
                    steps[name].append(figures | {"barrier_job_s": barrier_job_s(spark, parallelism)})
    flag.unlink()
    return {name: summary(its) for name, its in steps.items()}


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "median": {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]},
        "worst": {name: max(figures[name] for figures in rounds) for name in rounds[0]},
    }


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    result: dict[str, object] = {"values": VALUES}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        for name, gate in GATES.items():
            figures = measure(spark, Path(folder) / "blocked", gate, 1 if quick else ROUNDS)
            result[f"gates of {name}"] = figures
            print(f"  gates of {name}: {[step['median'] for step in figures.values()]}", flush=True)
    return result
