"""Checkpoints of ``flip76`` at a millisecond a row where queues are shorter or longer, and where rows crowd on one key.

Penstock's queues have the budget of its gates; Flink's are of a fixed number of buffers, so the size of a buffer makes
them shorter or longer, and its buffer debloating keeps them at about a second of work. With skew nine of ten rows have
the same key in every stage. An aligned checkpoint waits behind whatever is queued; it is given up at a limit.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.peers.flink import cluster
from benchmarks.peers.flink.installation import installation
from benchmarks.suites import flip76
from benchmarks.suites.flip76_job import penstock_job, slow

ROW_MS = 1.0
LIMIT_S = 40.0
"""Of the checkpoints of a run."""
CHECKPOINTS = {"aligned": 1, "unaligned": 6}
HOT_PERCENT = 90
AS_SHIPPED = "32 KB buffers (as shipped)"
FLINK_QUEUES: dict[str, dict[str, str]] = {
    "8 KB buffers": {"taskmanager.memory.segment-size": "8kb"},
    AS_SHIPPED: {},
    "128 KB buffers": {"taskmanager.memory.segment-size": "128kb"},
    "debloated": {"taskmanager.network.memory.buffer-debloat.enabled": "true"},
}
ALIKE = "gates of 1 MB"
PENSTOCK_QUEUES: dict[str, dict[str, str]] = {
    "gates of 256 KB": {"exchange.memoryPerGate": "256k", "exchange.exclusiveWindow": "64k"},
    ALIKE: {"exchange.memoryPerGate": "1m", "exchange.exclusiveWindow": "256k"},
    "gates of 8 MB": {"exchange.memoryPerGate": "8m"},
    "gates as shipped": {},
}
SKEWED = f"{HOT_PERCENT} % of the rows have one key"

Table = dict[str, dict[str, flip76.Cell]]
"""By queues and keys, and by mode."""


def by_flink(queues: str, hot_percent: int, counts: dict[str, int]) -> dict[str, flip76.Cell]:
    """Run Flink in a cluster of its own, because the buffers are a setting of the TaskManager."""
    with cluster.Cluster(harness.SLOTS, **FLINK_QUEUES[queues]) as peer:
        return {
            mode: flip76.by_flink(peer, mode, ROW_MS, count, hot_percent, LIMIT_S) for mode, count in counts.items()
        }


def by_penstock(spark: SparkSession, queues: str, hot_percent: int, counts: dict[str, int]) -> dict[str, flip76.Cell]:
    return {
        mode: flip76.penstock_cell(
            penstock_job(spark, slow(ROW_MS), hot_percent), PENSTOCK_QUEUES[queues], mode, count, LIMIT_S
        )
        for mode, count in counts.items()
    }


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    counts = {"unaligned": 2} if quick else CHECKPOINTS
    found: dict[str, Table] = {"Flink": {}, "Penstock": {}}

    def note(engine: str, what: str, cells: dict[str, Any]) -> None:
        found[engine][what] = cells
        print(f"  {engine}, {what}: {cells}", flush=True)

    for flinks, mine in zip(FLINK_QUEUES, PENSTOCK_QUEUES, strict=True):
        note("Flink", flinks, by_flink(flinks, 0, counts))
        note("Penstock", mine, by_penstock(spark, mine, 0, counts))
    note("Flink", SKEWED, by_flink(AS_SHIPPED, HOT_PERCENT, counts))
    note("Penstock", SKEWED, by_penstock(spark, ALIKE, HOT_PERCENT, counts))
    return {"flink": installation().version, "engines": found}
