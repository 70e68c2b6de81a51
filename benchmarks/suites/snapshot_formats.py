"""A gigabyte of state as a portable snapshot, beside Spark's own Parquet write; and what a user's snapshot costs.

The query and its state are those of ``large_state``, with int64 keys.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from benchmarks.lib import harness
from benchmarks.suites import large_state
from penstock.coordinator.view import CheckpointView
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.portable.jobs import RunJobs, run_in_threads
from penstock.spark.snapshot_jobs import in_executors

VARIANT = "int64"
ROUNDS = 4
INTERVAL_S = 4.0
SLOW_SHARE = 0.002
"""Of the keys: the rows that the slow stages take in a second, all together; less than half of what is fed."""
BACKLOG = 10
"""Times 1 % of the keys: there when the stage becomes slow."""


def exported_s(location: Path, snapshot: str, directory: Path, run: RunJobs) -> float:
    began = time.perf_counter()
    export_snapshot(str(location), snapshot, directory, run=run)
    return time.perf_counter() - began


def by_spark_s(spark: SparkSession, portable: Path, target: Path, compression: str) -> float:
    """The same rows, from Parquet files to Parquet files."""
    rows = spark.read.parquet(str(next(portable.glob("state/*/*"))))
    began = time.perf_counter()
    rows.write.option("compression", compression).parquet(str(target))
    return time.perf_counter() - began


def export(spark: SparkSession, query: StreamingQuery, folder: Path, rounds: int) -> dict[str, object]:
    """Alternating; the first round of each warms up."""
    location, snapshot = harness.LOCATIONS[query.runId], query.snapshot().id
    seconds: dict[str, list[float]] = {"threads": [], "executors": [], "spark": [], "spark_snappy": []}
    for _ in range(1 + rounds):
        seconds["threads"].append(exported_s(location, snapshot, folder / "threads", run_in_threads))
        seconds["spark"].append(by_spark_s(spark, folder / "threads", folder / "spark", "none"))
        seconds["executors"].append(exported_s(location, snapshot, folder / "executors", in_executors(spark)))
        seconds["spark_snappy"].append(by_spark_s(spark, folder / "threads", folder / "snappy", "snappy"))
        size = sum(path.stat().st_size for path in (folder / "threads").rglob("*") if path.is_file())
        for made in ("threads", "spark", "executors", "snappy"):
            shutil.rmtree(folder / made)
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    return {
        "bytes": size,
        "seconds": {name: values[1:] for name, values in seconds.items()},
        "speed_to_spark": {name: medians["spark"] / medians[name] for name in ("threads", "executors")},
        "speed_to_spark_snappy": {name: medians["spark_snappy"] / medians[name] for name in ("threads", "executors")},
    }


def feed(inbox: large_state.Inbox, until: threading.Event) -> None:
    """Half a percent of the keys changes every second, far less than the query can take."""
    while not until.wait(1.0):
        inbox.add_some(large_state.CHANGED / 2)


def all_kinds(query: StreamingQuery, inbox: large_state.Inbox, rounds: int) -> dict[str, Any]:
    """A user's snapshot in the middle between two periodic ones, so that each has as much to write; every other one in
    the portable format, too, which is written when the query has done its part."""
    ended = threading.Event()
    feeder = threading.Thread(target=feed, args=(inbox, ended))
    feeder.start()
    found: dict[str, list[CheckpointView]] = {"periodic": [], "native": [], "portable": []}
    try:
        for number in range(rounds + 1):
            for kind in ("native", "portable"):
                periodic = next_periodic(query)
                time.sleep(INTERVAL_S / 2)
                requested = query.snapshot(format=kind).id
                if number:  # the first round warms up
                    found["periodic"].append(periodic)
                    found[kind] += [c for c in query.view().checkpoints if c.snapshot_id == requested]
    finally:
        ended.set()
        feeder.join()
    durations = {kind: [one.duration_ms for one in ones] for kind, ones in found.items()}
    medians = {kind: statistics.median(values) for kind, values in durations.items()}
    return {
        "duration_ms": durations,
        "state_bytes": {kind: [one.state_bytes for one in ones] for kind, ones in found.items()},
        "inflight_bytes": {kind: [one.inflight_bytes for one in ones] for kind, ones in found.items()},
        "to_periodic": {kind: medians[kind] / medians["periodic"] for kind in ("native", "portable")},
    }


def next_periodic(query: StreamingQuery) -> CheckpointView:
    """The first one that completes from now on."""
    newest = query.view().checkpoints[-1].checkpoint

    def found() -> list[CheckpointView]:
        ended = [c for c in query.view().checkpoints if c.checkpoint > newest and c.snapshot_id]
        return [c for c in ended if not c.requested]

    harness.wait_for("a periodic checkpoint", lambda: bool(found()), large_state.LIMIT_S)
    return found()[0]


def slowed(rows: DataFrame, slow: Path, keys: int) -> DataFrame:
    """Behind an exchange a stage that is slow from the moment on in which ``slow`` exists."""

    row_s = harness.SLOTS / (SLOW_SHARE * keys)

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if slow.exists():
                time.sleep(batch.num_rows * row_s)
            yield batch

    return rows.repartition("value").mapInArrow(stage, rows.schema)


def state_rows(query: StreamingQuery) -> int:
    """Return the state rows of the newest checkpoint, if it is complete."""
    newest = query.view().checkpoints[-1:]
    return sum(sum(subtask.state_rows.values()) for one in newest for subtask in one.subtasks)


@contextmanager
def built(rows: DataFrame, keys: int) -> Iterator[StreamingQuery]:
    """The query once it has all keys, and a complete snapshot of them."""
    interval = {"checkpoint.interval": f"{INTERVAL_S:.0f}s"}
    with harness.running(large_state.job(rows), mode="update", **interval) as query:
        harness.wait_for("a snapshot of all keys", lambda: state_rows(query) >= keys, large_state.LIMIT_S)
        yield query


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    keys = large_state.KEYS // 10 if quick else large_state.KEYS
    result: dict[str, object] = {"keys": keys}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-formats-") as name:
        folder, rounds = Path(name), 1 if quick else ROUNDS
        inbox = large_state.Inbox(folder, keys, VARIANT)
        inbox.add_all()
        rows = large_state.read(spark, inbox, VARIANT)
        with built(rows, keys) as query:
            result["calm"] = all_kinds(query, inbox, rounds)
            result["export"] = export(spark, query, folder, rounds)
        with built(slowed(rows, folder / "slow", keys), keys) as query:
            (folder / "slow").touch()
            for _ in range(BACKLOG):
                inbox.add_some(large_state.CHANGED)
            result["under_backpressure"] = all_kinds(query, inbox, rounds)
    return result
