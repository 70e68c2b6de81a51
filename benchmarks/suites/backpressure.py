"""Checkpoints under backpressure: source -> hash -> stage -> hash -> slow stage (1 ms a row) -> sink, two slots.

The slow stage (a) sleeps, (b) burns Python, (c) makes one C call of a second per batch that holds the GIL. Unaligned
checkpoints are taken with gates of 2 MB and of 20 MB; each is set beside the raw time to write and fsync as many bytes
as it wrote. Aligned ones wait for the queues and are stopped at a limit.
"""

from __future__ import annotations

import functools
import os
import random
import tempfile
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from benchmarks.lib.stages import Stage
from penstock.errors import CheckpointFailed
from penstock.queries.streaming_query import StreamingQuery

GATES = {"2 MB": 2 << 20, "20 MB": 20 << 20}
ROW_MS = 1.0
ALIGNED_LIMIT_S = 30.0
PAYLOAD_BYTES = 100
NUMBERS = 4_000_000
FILL_LIMIT_S = 60.0


def sleeping(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        time.sleep(batch.num_rows * ROW_MS / 1000)
        yield batch


def burning(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        until = time.perf_counter() + batch.num_rows * ROW_MS / 1000
        while time.perf_counter() < until:
            sum(range(100))
        yield batch


@functools.cache
def shuffled() -> list[float]:
    """Return as many numbers as take about a second to sort, in one C call that holds the GIL."""
    chance = random.Random(7)
    return [chance.random() for _ in range(NUMBERS)]


def holding(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sorted(shuffled())
        yield batch


STAGES: dict[str, Stage] = {
    "sleeping": sleeping,
    "burning": burning,
    "holding": holding,
}


def middle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def job(spark: SparkSession, stage: str) -> DataFrame:
    return job_with(spark, STAGES[stage])


def job_with(spark: SparkSession, last: Stage) -> DataFrame:
    """source -> hash -> stage -> hash -> ``last``."""
    source = (
        spark.readStream.format("max-rate")
        .option("payloadBytes", str(PAYLOAD_BYTES))
        .option("batchRows", "8192")
        .load()
    )
    staged = source.repartition("key").mapInArrow(middle, source.schema)
    keyed = staged.withColumn("key", (F.col("key") * 31) % 10_007)
    return keyed.repartition("key").mapInArrow(last, source.schema)


def call_seconds() -> float:
    """Return the duration of the GIL-holding call on an idle interpreter."""
    numbers = shuffled()
    started = time.perf_counter()
    sorted(numbers)
    return time.perf_counter() - started


def fill(query: StreamingQuery) -> int:
    """Wait until the queues no longer grow; returns their bytes."""
    harness.wait_for("the job to run", lambda: query.view().inflight_bytes > 0)
    best, since = 0, time.perf_counter()
    started = since
    while time.perf_counter() - since < 3.0 and time.perf_counter() - started < FILL_LIMIT_S:
        now = query.view().inflight_bytes
        if now > best * 1.02:
            best, since = now, time.perf_counter()
        time.sleep(0.1)
    return best


def raw_write_ms(length: int, files: int = harness.SLOTS) -> float:
    """Write and fsync as many bytes, in a file for each slot, one after the other: slots do it side by side."""
    chunk = os.urandom(length // files + 1)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        started = time.perf_counter()
        for number in range(files):
            with open(os.path.join(folder, str(number)), "wb") as file:
                file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        return (time.perf_counter() - started) * 1000


def unaligned(query: StreamingQuery, count: int) -> dict[str, object]:
    """The first writes everything that is in flight (and pays for imports); the others what is new since the one
    before. Only those are in the quantiles.
    """
    durations, sizes, written, raw = [], [], [], []
    for _ in range(count + 1):
        query.snapshot(alignment="unaligned")
        done = query.view().checkpoints[-1]
        durations.append(done.duration_ms)
        sizes.append(done.inflight_bytes)
        written.append(harness.written_bytes(query, done))
        raw.append(raw_write_ms(written[-1]))
        time.sleep(0.5)
    first = {"duration_ms": durations.pop(0), "inflight_bytes": sizes.pop(0)}
    first |= {"written_bytes": written.pop(0), "raw_write_ms": raw.pop(0)}
    less_raw = [max(0.0, d - r) for d, r in zip(durations, raw, strict=True)]
    return {
        "first": first,
        "duration_ms": harness.quantiles(durations),
        "inflight_bytes": harness.quantiles([float(s) for s in sizes]),
        "written_bytes": harness.quantiles([float(w) for w in written]),
        "raw_write_ms": harness.quantiles(raw),
        "less_raw_write_ms": harness.quantiles(less_raw),
    }


def aligned(query: StreamingQuery) -> dict[str, object]:
    """One aligned checkpoint; beyond the limit only the bound is known."""
    started = time.perf_counter()
    try:
        query.snapshot(alignment="aligned", timeout=ALIGNED_LIMIT_S)
    except CheckpointFailed:
        return {"duration_ms": None, "over_ms": (time.perf_counter() - started) * 1000}
    return {"duration_ms": (time.perf_counter() - started) * 1000}


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    count = 5 if quick else 20
    table: dict[str, object] = {"call_seconds": call_seconds()}
    for stage in STAGES:
        for name, gate in GATES.items():
            options = {"exchange.memoryPerGate": str(gate)}
            with harness.running(job(spark, stage), **options) as query:
                queued = fill(query)
                cell: dict[str, object] = {"queued_bytes": queued, "unaligned": unaligned(query, count)}
                if name == "2 MB" or not quick:
                    cell["aligned"] = aligned(query)
            table[f"{stage}, gates of {name}"] = cell
            print(f"  {stage}, gates of {name}: {cell}", flush=True)
    return table
