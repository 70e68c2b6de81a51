"""Number of files of a checkpoint location: ``python -m benchmarks.suites.location_files``.

Counts them after so many simulated checkpoints of the log and its retention, over a store in memory, and while a real
query takes one checkpoint per second. What it prints is in ``docs/log-compaction.md``.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from typing import Annotated

import typer
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from penstock.snapshots.log.entries import GenerationOpened, MetadataRef, SnapshotComplete, SnapshotDeleted
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore, MemoryStore

RETAINED = 10
SAMPLE_EVERY_S = 1.0
MINUTE_S = 60


def simulated(checkpoints: int) -> tuple[int, int]:
    """Return the largest number of files of the log, and the number of its last entry."""
    store = MemoryStore()
    log = SnapshotLog(store, lambda: secrets.token_hex(16))
    log.append(GenerationOpened(1, 0, 1, 65, 0))
    log.summarise()
    most = 0
    for checkpoint in range(1, checkpoints + 1):
        ref = MetadataRef(f"snapshots/chk-{checkpoint}/metadata.json", 2000, "0" * 32)
        log.append(SnapshotComplete(1, checkpoint, False, ref, checkpoint - 1, checkpoint + 64, next_batch=checkpoint))
        for record in log.view.snapshots[:-RETAINED]:
            log.append(SnapshotDeleted(1, record.checkpoint))
        log.summarise()
        log.remove_covered()
        most = max(most, len(store.files))
    return most, log.view.next_seq - 1


def measured(seconds: int) -> None:
    """Print the files of a real query's location, by folder, once per minute: the largest number in that minute."""
    with harness.session() as spark:
        rows = spark.readStream.format("rate").option("rowsPerSecond", 1_000).load()
        counts = rows.groupBy((F.col("value") % 100).alias("key")).agg(F.count("*").alias("n"))
        with harness.running(counts, mode="update", **{"checkpoint.interval": "1s"}) as query:
            location = harness.LOCATIONS[query.runId]
            for minute in range(1, seconds // MINUTE_S + 1):
                most: Counter[str] = Counter()
                end_s = time.monotonic() + MINUTE_S
                while time.monotonic() < end_s:
                    paths = (path.relative_to(location) for path in location.rglob("*") if path.is_file())
                    files = Counter(path.parts[0] for path in paths)
                    most |= files
                    time.sleep(SAMPLE_EVERY_S)
                entries = SnapshotLog(LocalStore(location)).refresh().next_seq - 1
                print(f"minute {minute}: entry {entries}, files {dict(sorted(most.items()))}", flush=True)


def main(
    checkpoints: Annotated[int, typer.Option(help="Simulated checkpoints.")] = 1_000_000,
    seconds: Annotated[int, typer.Option(help="How long the real query runs.")] = 3600,
) -> None:
    """Count the files of a location."""
    if checkpoints:
        most, entries = simulated(checkpoints)
        print(f"{checkpoints} simulated checkpoints: {entries} entries, at most {most} files in log/", flush=True)
    measured(seconds)


if __name__ == "__main__":
    typer.run(main)
