"""Cost and benefit of parallelism: queries of 1 to 16 slots. For larger jobs see ``coordinator``.

Cost: the job of ``flip76`` with rows of 10 kB, for each of which the last stage sleeps 50 ms, and with checkpoints only
on request. So few rows flow that two cores can run 16 slots, and the queues are what is measured. Benefit: rows per
second of a CPU-bound job, for as many slots as there are cores.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession

from benchmarks.lib import harness
from benchmarks.suites import exchange
from benchmarks.suites.backpressure import raw_write_ms
from benchmarks.suites.flip76 import settle
from benchmarks.suites.flip76_job import KEYS, STAGES, chained, slow
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.catalog import metadata_path

MASTER = "local[18]"
"""A task thread for each slot, and room."""
PARALLELISMS = (1, 2, 4, 8, 16)
ROUNDS = 2
"""Upwards, then downwards."""
CHECKPOINTS = 8
PAUSE_S = 0.5
ROW_MS = 50.0
"""A checkpoint waits for the row that a stage is at, up to so long; with less, more rows are work for the cores."""
PAYLOAD_BYTES = 10_000
BATCH_ROWS = 32
GATE_BYTES = 1 << 20
WINDOW_BYTES = 256 << 10
"""Both as in ``flip76``."""
SETTINGS = {"exchange.memoryPerGate": str(GATE_BYTES), "exchange.exclusiveWindow": str(WINDOW_BYTES)}
IDLE_S = 4.0
"""What the driver uses without a checkpoint is looked at for so long."""
WARM_UP_S = 3.0
MEASURED_S = 5.0


def scaled_job(spark: SparkSession, parallelism: int) -> DataFrame:
    """A partition of the source for each slot."""
    source = spark.readStream.format("max-rate").option("keys", str(KEYS)).option("batchRows", str(BATCH_ROWS))
    rows = source.option("payloadBytes", str(PAYLOAD_BYTES)).option("partitions", str(parallelism)).load()
    return chained(rows, slow(ROW_MS))


def one(spark: SparkSession, parallelism: int, checkpoints: int) -> dict[str, Any]:
    """A query whose queues are full: its gates, its slots, and checkpoints one at a time."""
    settings = {"parallelism": str(parallelism), **SETTINGS}
    with harness.running(scaled_job(spark, parallelism), **settings) as query:
        queued_bytes = settle(lambda: query.view().inflight_bytes)
        query.snapshot(alignment="unaligned")  # the first one writes everything, and pays for imports
        before = _cpu_s(query)
        time.sleep(IDLE_S)
        idle_cores = (_cpu_s(query)["driver"] - before["driver"]) / IDLE_S
        began_s = time.perf_counter()
        before = _cpu_s(query)
        for _ in range(checkpoints):
            query.snapshot(alignment="unaligned")
            time.sleep(PAUSE_S)
        used_s = {who: now_s - before[who] for who, now_s in _cpu_s(query).items()}
        seconds = time.perf_counter() - began_s
        return {
            "channels": STAGES * parallelism**2,
            "queued_bytes": queued_bytes,
            "gate_bytes": gates(query),
            **_checkpoints(query, parallelism, checkpoints),
            "slot_bytes": _memory(query),
            "driver_cpu_ms": (used_s["driver"] - idle_cores * seconds) * 1000 / checkpoints,
            "driver_idle_cores": idle_cores,
            "slot_cores": used_s["slots"] / seconds,
            "busy_cores": used_s["machine"] / seconds,
        }


def gates(query: StreamingQuery) -> list[int]:
    """Bytes that wait in each subtask's gate; a source has none."""
    subtasks = [subtask.metrics for subtask in query.view().subtasks]
    return [metrics.input_queued_bytes for metrics in subtasks if metrics.vertex > 0]


def _checkpoints(query: StreamingQuery, parallelism: int, count: int) -> dict[str, Any]:
    taken = query.view().checkpoints[-count - 1 :]
    written = [harness.written_bytes(query, checkpoint, parallelism) for checkpoint in taken]
    location = harness.LOCATIONS[query.runId]
    return {
        "duration_ms": [checkpoint.duration_ms for checkpoint in taken[1:]],
        "inflight_bytes": [checkpoint.inflight_bytes for checkpoint in taken[1:]],
        "written_bytes": written[1:],
        "raw_write_ms": [raw_write_ms(length, parallelism) for length in written[1:]],
        "first": {"duration_ms": taken[0].duration_ms, "written_bytes": written[0]},
        "metadata_bytes": [(location / metadata_path(c.checkpoint)).stat().st_size for c in taken[1:]],
    }


def _memory(query: StreamingQuery) -> dict[str, list[int]]:
    """Return, for each slot's process, its resident memory and the part of it that no other process shares."""
    found = [psutil.Process(slot.pid).memory_full_info() for slot in query.view().slots]
    return {"resident": [one.rss for one in found], "own": [one.uss for one in found]}


def _cpu_s(query: StreamingQuery) -> dict[str, float]:
    """CPU seconds so far: of this process, which is the driver without Spark's JVM; of the slots; of everything."""
    machine = psutil.cpu_times()
    busy_s = machine.user + machine.nice + machine.system + machine.irq + machine.softirq + machine.steal
    slots = [psutil.Process(slot.pid).cpu_times() for slot in query.view().slots]
    return {"driver": time.process_time(), "slots": sum(t.user + t.system for t in slots), "machine": busy_s}


def working(spark: SparkSession, parallelism: int) -> dict[str, float]:
    """Rows per second of a job that no slot sleeps in, and the cores that its slots use: hash, count and sum."""
    settings = {"parallelism": str(parallelism)}
    with harness.running(exchange.exchanged(spark, parallelism), mode="update", **settings) as query:
        harness.wait_for("the first row", lambda: harness.rows_in(query, 0) > 0)
        time.sleep(WARM_UP_S)
        before, began_s = _cpu_s(query), time.perf_counter()
        rate = harness.rate(query, 0, MEASURED_S, parallelism)
        seconds = time.perf_counter() - began_s
        used_s = {who: now_s - before[who] for who, now_s in _cpu_s(query).items()}
    return {
        "rows_per_second": rate,
        "slot_cores": used_s["slots"] / seconds,
        "busy_cores": used_s["machine"] / seconds,
    }


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    waiting: dict[int, list[dict[str, Any]]] = {parallelism: [] for parallelism in PARALLELISMS}
    busy: dict[int, list[dict[str, float]]] = {parallelism: [] for parallelism in PARALLELISMS}
    chosen = PARALLELISMS[::2] if quick else PARALLELISMS
    orders = [chosen] if quick else [chosen[:: (-1) ** number] for number in range(ROUNDS)]
    working(spark, 1)  # the first query of a session pays for it
    for order in orders:
        for parallelism in order:
            found = one(spark, parallelism, 3 if quick else CHECKPOINTS)
            waiting[parallelism].append(found)
            print(f"  parallelism {parallelism}: {found}", flush=True)
            if parallelism <= (os.cpu_count() or 1):
                busy[parallelism].append(working(spark, parallelism))
                print(f"  parallelism {parallelism}: {busy[parallelism][-1]}", flush=True)
    measured = {str(parallelism): cells for parallelism, cells in waiting.items() if cells}
    return {
        "gate_budget_bytes": GATE_BYTES,
        "parallelism": measured,
        "ratio_to_1": {parallelism: ratios(measured["1"], cells) for parallelism, cells in measured.items()},
        "working": {str(parallelism): cells for parallelism, cells in busy.items() if cells},
    }


RATIOS = ("duration_ms", "inflight_bytes", "raw_write_ms", "metadata_bytes")


def ratios(base: list[dict[str, Any]], cells: list[dict[str, Any]]) -> dict[str, float]:
    """Return the ratios of medians over all rounds."""
    found = {name: _median(cells, name) / max(_median(base, name), 1) for name in RATIOS}
    own = [statistics.median(each for cell in some for each in cell["slot_bytes"]["own"]) for some in (base, cells)]
    cpu = [statistics.median(cell["driver_cpu_ms"] for cell in some) for some in (base, cells)]
    return found | {"slot_own_bytes": own[1] / own[0], "driver_cpu_ms": cpu[1] / cpu[0]}


def _median(cells: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(value for cell in cells for value in cell[name]))
