"""The test plan of FLIP-76, of three engines in one run: Apache Flink, Penstock, and Spark's own engine.

Rows with 100 bytes of ballast -> 3 x (hash exchange, count per key of 10,000 keys) -> a sink that takes 1 or 4 ms for
a row, two slots. When the queues are full, checkpoints are asked for one at a time: aligned, unaligned, and as each
engine changes from one to the other by itself. The engines take turns. What a checkpoint took is set beside the raw
time to write and fsync as many bytes as it wrote.

Spark has neither queues nor barriers: what is not committed is the running micro-batch, so the time of a micro-batch of
as many rows as Flink had in flight stands for its checkpoint. Its form of the job leaves out the counts.

https://cwiki.apache.org/confluence/display/FLINK/FLIP-76%3A+Unaligned+Checkpoints
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.lib import harness
from benchmarks.lib.stages import Stage
from benchmarks.peers.flink import cluster, job
from benchmarks.suites import backpressure
from benchmarks.suites.flip76_job import KEYS, PAYLOAD_BYTES, SCHEMA, STAGES, next_key, penstock_job, slow
from penstock.errors import CheckpointFailed

INTERVAL_MS = 3_600_000
"""Of periodic checkpoints: none come between those that are asked for."""
PAUSE_S = 0.5
"""From the end of a checkpoint to the next one."""
SETTLED_S = 3.0
FILL_LIMIT_S = 60.0
ROWS_MS = (1.0, 4.0)
CHECKPOINTS = 10
LIMIT_S = 75.0
"""Of all checkpoints of a run; Flink's aligned one takes 16 s at 1 ms a row, 60 s at 4 ms."""
DEFAULT_QUEUES = "Penstock, default queues"
GATES = {
    "Penstock, queues as Flink's": {"exchange.memoryPerGate": "1m", "exchange.exclusiveWindow": "256k"},
    DEFAULT_QUEUES: {},
}
ALIGNMENTS = {"aligned": "aligned", "unaligned": "unaligned", "default": "auto"}
FLINK_MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "100 ms time-out": {"unaligned": True, "alignment_timeout_ms": 100},
}

Cell = dict[str, Any]
"""What one run found: ``checkpoints``, and ``over_ms`` if the last one was given up at the limit."""


# -- the job, for Spark -----------------------------------------------------------------------------------------------


def spark_job(spark: SparkSession, last: Stage, batch_rows: int) -> DataFrame:
    """Each micro-batch has so many rows. The stages only hand rows on: counting would take Spark longer."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(batch_rows))
    numbers = source.option("numPartitions", str(harness.SLOTS)).load()
    rows = numbers.selectExpr("value % 10000 AS key", "value", f"repeat('x', {PAYLOAD_BYTES}) AS payload")
    for stage in range(STAGES):
        through = last if stage == STAGES - 1 else backpressure.middle
        rows = next_key(rows).repartition(harness.SLOTS, "key").mapInArrow(through, SCHEMA)
    return rows


# -- one run of each engine -------------------------------------------------------------------------------------------


def settle(size: Callable[[], int]) -> int:
    """Wait until it no longer grows; returns what it grew to."""
    harness.wait_for("the queues to fill", lambda: size() > 0, FILL_LIMIT_S)
    started = since = time.perf_counter()
    most = 0
    while time.perf_counter() - since < SETTLED_S and time.perf_counter() - started < FILL_LIMIT_S:
        if (now := size()) > most * 1.02:
            most, since = now, time.perf_counter()
        time.sleep(0.1)
    return most


def take(count: int, limit_s: float, one: Callable[[float], Cell | None], rows: Callable[[], int]) -> Cell:
    """``count`` checkpoints, or fewer in the time that is given to all of them, but one at least if it ends in time.

    ``one`` takes a checkpoint, given the seconds that are left; None: it was not complete then.
    """
    found: list[Cell] = []
    before, began = rows(), time.perf_counter()
    cell: Cell = {"checkpoints": found}
    while len(found) < count and (left := limit_s - (time.perf_counter() - began)) > 0:
        triggered = time.perf_counter()
        checkpoint = one(left)
        if checkpoint is None:
            if not found:
                cell["over_ms"] = (time.perf_counter() - triggered) * 1000
            break
        found.append(checkpoint | {"raw_write_ms": backpressure.raw_write_ms(checkpoint["written_bytes"])})
        time.sleep(PAUSE_S)
    cell["rows"], cell["seconds"] = rows() - before, time.perf_counter() - began
    return cell


def by_flink(
    peer: cluster.Cluster, mode: str, row_ms: float, count: int, hot_percent: int = 0, limit_s: float = LIMIT_S
) -> Cell:
    settings = job.Settings(
        row_ms, INTERVAL_MS, stages=STAGES, keys=KEYS, hot_percent=hot_percent, payload_bytes=PAYLOAD_BYTES
    )
    with job.running(peer, replace(settings, **FLINK_MODES[mode])) as running:

        def one(left_s: float) -> Cell | None:
            checkpoint = running.checkpoint(left_s)
            if checkpoint is None:
                return None
            return asdict(checkpoint) | asdict(running.waiting(checkpoint))

        queued = settle(lambda: running.rows_generated() - running.rows_processed())
        return {"queued_rows": queued, **take(count, limit_s, one, running.rows_processed)}


def by_penstock(spark: SparkSession, queues: str, mode: str, row_ms: float, count: int) -> Cell:
    return penstock_cell(penstock_job(spark, slow(row_ms)), GATES[queues], mode, count, LIMIT_S)


def penstock_cell(df: DataFrame, gates: dict[str, str], mode: str, count: int, limit_s: float) -> Cell:
    with harness.running(df, **gates) as query:

        def one(left_s: float) -> Cell | None:
            try:
                query.snapshot(alignment=ALIGNMENTS[mode], timeout=left_s)
            except CheckpointFailed:
                return None
            done = query.view().checkpoints[-1]
            return {
                "duration_ms": done.duration_ms,
                "inflight_bytes": done.inflight_bytes,
                "written_bytes": harness.written_bytes(query, done),
                "unaligned": done.unaligned,
                "start_delay_ms": max(subtask.start_delay_ms for subtask in done.subtasks),
                "alignment_ms": max(subtask.alignment_ms for subtask in done.subtasks),
            }

        queued = settle(lambda: query.view().inflight_bytes)
        return {"queued_bytes": queued, **take(count, limit_s, one, lambda: harness.rows_in(query, STAGES))}


def by_spark(spark: SparkSession, row_ms: float, batch_rows: int, count: int) -> Cell:
    """Its first micro-batch starts workers and does not count."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        writer = spark_job(spark, slow(row_ms), batch_rows).writeStream.format("noop")
        query = writer.option("checkpointLocation", location).start()
        try:
            limit_s = 60 + (count + 1) * 4 * batch_rows * row_ms / 1000
            harness.wait_for("Spark's micro-batches", lambda: len(query.recentProgress) > count, limit_s)
            took = [progress["durationMs"]["triggerExecution"] for progress in query.recentProgress[1 : count + 1]]
        finally:
            query.stop()
    return {"batch_rows": batch_rows, "micro_batch_ms": [float(ms) for ms in took]}


# -- all of them, in turns --------------------------------------------------------------------------------------------


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    with cluster.Cluster(harness.SLOTS) as peer:
        chosen = ROWS_MS[:1] if quick else ROWS_MS
        tables = {f"{row_ms:.0f}": measured(spark, peer, row_ms, quick) for row_ms in chosen}
        return {"flink": peer.version, "row_ms": tables}


def measured(spark: SparkSession, peer: cluster.Cluster, row_ms: float, quick: bool) -> dict[str, object]:
    """Return a cell by engine and mode; with the default queues no checkpoint is aligned, which would take minutes."""
    table: dict[str, dict[str, Cell]] = {"Flink": {}, **{queues: {} for queues in GATES}}

    def note(engine: str, mode: str, cell: Cell) -> None:
        table[engine][mode] = cell
        print(f"  {row_ms:.0f} ms a row, {engine}, {mode}: {cell}", flush=True)

    for flinks, mine in zip(FLINK_MODES, ALIGNMENTS, strict=True):
        count = 1 if mine == "aligned" else 5 if quick else CHECKPOINTS
        note("Flink", flinks, by_flink(peer, flinks, row_ms, count))
        for queues in GATES:
            if queues != DEFAULT_QUEUES or not (quick or mine == "aligned"):
                note(queues, mine, by_penstock(spark, queues, mine, row_ms, count))
    batch_rows = table["Flink"]["unaligned"]["queued_rows"]
    micro_batches = by_spark(spark, row_ms, batch_rows, 1)
    print(f"  {row_ms:.0f} ms a row, Spark: {micro_batches}", flush=True)
    return {"engines": table, "spark": micro_batches}
