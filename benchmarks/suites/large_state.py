"""A query with ten million keys, 1 GB of state, on two slots: its checkpoints, a kill, a rescale. Once with int64 keys,
once with strings of 20 bytes.

``groupBy(key)`` with eleven sums, minima and maxima in update mode, from Parquet files into a sink that drops rows. At
the end of an epoch update mode emits every group that changed, which is the sink's business and not the snapshot's: so
that the first full checkpoint has all to write and nothing to emit, one before it is given up after its barrier.

A first full checkpoint is there once in a query's life. So each round builds a new query in a new location from the
same files, takes it, and writes the same batches by ``pyarrow.ipc`` alone. The first round warms up and counts nowhere:
the first gigabyte that anybody writes is several times slower, whoever writes it. The last round's query goes on: its
later checkpoints, the kills and the rescales.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from penstock.coordinator.view import CheckpointView
from penstock.errors import CheckpointFailed
from penstock.model.manifest import SnapshotMetadata
from penstock.queries.streaming_query import StreamingQuery

KEYS = 10_000_000
VALUES = 11
ROUNDS = 3
CHANGED = 0.01
FILES = 40
DELTAS = 9
"""In some of them each subtask writes a key group anew, in others none: their mean counts."""
KILLS = 3
SPREAD = 7_919
"""Keys are so far apart that no table over their range would do."""
GIVEN_UP_AFTER_S = 0.5
"""With all keys, seconds before their emission ends; in proportion with fewer."""
LIMIT_S = 240.0
AGGREGATION = 1
"""The vertex behind the exchange."""
VARIANTS = {"int64": "key bigint, value bigint", "string": "key string, value bigint"}

Numbers = npt.NDArray[np.int64]


class Inbox:
    """The folder that the query reads: files appear in it whole."""

    def __init__(self, folder: Path, keys: int, variant: str) -> None:
        self.path = folder / "in"
        self.path.mkdir()
        self.folder = folder
        self._texts = variant == "string"
        self._count = itertools.count()
        self._chance = np.random.default_rng(7)
        self.keys = keys

    def add_all(self) -> None:
        """Rows for all keys in random order, all files at once."""
        parts = np.array_split(self._chance.permutation(self.keys).astype(np.int64), FILES)
        self._publish([self._write(numbers) for numbers in parts])

    def add_some(self, share: float) -> int:
        """Rows for some keys; returns how many."""
        numbers = self._chance.choice(self.keys, int(share * self.keys), replace=False).astype(np.int64)
        self._publish([self._write(numbers)])
        return len(numbers)

    def _write(self, numbers: Numbers) -> Path:
        keys = pa.array(numbers * SPREAD)
        if self._texts:
            keys = pc.utf8_lpad(keys.cast(pa.string()), 20, "0")
        values = pa.array(self._chance.integers(0, 1 << 40, len(numbers)))
        path = self.folder / f"{next(self._count):04d}.parquet"
        pq.write_table(pa.table({"key": keys, "value": values}), path, use_dictionary=False)
        return path

    def _publish(self, paths: Sequence[Path]) -> None:
        for path in paths:
            os.replace(path, self.path / path.name)


def read(spark: SparkSession, inbox: Inbox, variant: str) -> DataFrame:
    return spark.readStream.schema(VARIANTS[variant]).parquet(str(inbox.path))


def job(rows: DataFrame) -> DataFrame:
    value = F.col("value")
    makers: list[Callable[[Column], Column]] = [F.sum, F.min, F.max]
    calls = [makers[n % 3](value + n // 3).alias(f"v{n}") for n in range(VALUES)]
    return rows.groupBy("key").agg(*calls)


def count(query: StreamingQuery, what: Callable[[Any], int]) -> int:
    return sum(what(s.metrics) for s in query.view().subtasks if s.metrics.vertex == AGGREGATION)


def rows_in(query: StreamingQuery) -> int:
    return count(query, lambda metrics: int(metrics.rows_in))


def taken(query: StreamingQuery) -> tuple[CheckpointView, SnapshotMetadata]:
    metadata = query.snapshot(alignment="unaligned")
    return query.view().checkpoints[-1], metadata


def figures_of(done: CheckpointView) -> dict[str, float]:
    return {
        "duration_ms": done.duration_ms,
        "pause_ms": max(s.sync_ms for s in done.subtasks),
        "writing_ms": max(s.async_ms for s in done.subtasks),
        "state_bytes": done.state_bytes,
    }


def build(query: StreamingQuery, keys: int) -> dict[str, float]:
    """All keys are read, and what changed is emitted."""
    started = time.perf_counter()
    harness.wait_for("all keys to be there", lambda: rows_in(query) >= keys, LIMIT_S)
    read_s = time.perf_counter() - started
    began = time.perf_counter()
    with contextlib.suppress(CheckpointFailed):
        query.snapshot(alignment="unaligned", timeout=GIVEN_UP_AFTER_S * keys / KEYS)
    harness.wait_for("all keys to be emitted", lambda: count(query, lambda m: int(m.rows_out)) >= keys, LIMIT_S)
    return {"rows_per_second": keys / read_s, "emitted_s": time.perf_counter() - began}


def sections(query: StreamingQuery, metadata: SnapshotMetadata) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches of the state of each slot."""
    location = harness.LOCATIONS[query.runId]
    for slot in metadata.slots:
        batches: list[pa.RecordBatch] = []
        for ref in (entry.section for subtask in slot.subtasks for entry in subtask.states):
            with (location / ref.path).open("rb") as file:
                file.seek(ref.offset)
                batches += pa.ipc.open_stream(file.read(ref.length))
        yield batches


def plain_write_ms(slots: Sequence[list[pa.RecordBatch]], folder: Path) -> float:
    """The same rows by ``pyarrow.ipc`` alone, with fsync: a file and a thread for each slot."""

    def write(path: Path, batches: list[pa.RecordBatch]) -> None:
        with path.open("wb") as file:
            with pa.ipc.new_stream(file, batches[0].schema) as out:
                for batch in batches:
                    out.write_batch(batch)
            file.flush()
            os.fsync(file.fileno())

    paths = [folder / f"plain-{slot}" for slot in range(len(slots))]
    threads = [threading.Thread(target=write, args=pair) for pair in zip(paths, slots, strict=True)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_ms = (time.perf_counter() - started) * 1000
    for path in paths:
        path.unlink()
    return elapsed_ms


def full(query: StreamingQuery, folder: Path) -> dict[str, float]:
    """The first full checkpoint, then the plain write of what it wrote, which is in memory no longer than that."""
    done, metadata = taken(query)
    assert done.state_bytes == done.state_total_bytes, "the checkpoint before was not given up: this one refers to it"
    return {**figures_of(done), "plain_ms": plain_write_ms(list(sections(query, metadata)), folder)}


@contextlib.contextmanager
def built(spark: SparkSession, inbox: Inbox, variant: str) -> Iterator[tuple[StreamingQuery, dict[str, float]]]:
    """One round: a new query up to its first full checkpoint, and the figures."""
    with harness.running(job(read(spark, inbox, variant)), mode="update") as query:
        figures = build(query, inbox.keys)
        yield query, {**figures, **full(query, inbox.folder)}


def a_round(spark: SparkSession, inbox: Inbox, variant: str) -> dict[str, float]:
    with built(spark, inbox, variant) as (_, figures):
        return figures


def delta(query: StreamingQuery, inbox: Inbox, row_bytes: float) -> dict[str, float]:
    """A checkpoint after 1 % of the keys changed."""
    before = rows_in(query)
    rows = inbox.add_some(CHANGED)
    harness.wait_for("the changes to be there", lambda: rows_in(query) >= before + rows, LIMIT_S)
    done, _ = taken(query)
    return {**figures_of(done), "changed_bytes": rows * row_bytes}


def running_since(query: StreamingQuery, generation: int) -> bool:
    view = query.view()
    return view.generation > generation and view.state.value == "running"


def kill(query: StreamingQuery, inbox: Inbox, number: int) -> dict[str, float]:
    """kill -9 of a worker. New rows are there already; figures are reported twice a second, so that the first one
    of them is seen a little late."""
    victim = query.view().slots[number % harness.SLOTS]
    before, generation = rows_in(query), query.view().generation
    inbox.add_some(CHANGED / 10)
    started = time.perf_counter()
    os.kill(victim.pid, signal.SIGKILL)
    harness.wait_for("all subtasks to run again", lambda: running_since(query, generation), LIMIT_S)
    running_s = time.perf_counter() - started
    harness.wait_for("rows to be processed", lambda: rows_in(query) > before, LIMIT_S)
    kept = sum(slot.kept_tables for slot in query.view().slots)
    return {"running_s": running_s, "row_s": time.perf_counter() - started, "kept_tables": kept}


def rescale(query: StreamingQuery, parallelism: int) -> float:
    started = time.perf_counter()
    query.rescale(parallelism, timeout=LIMIT_S)
    return time.perf_counter() - started


def measure(spark: SparkSession, variant: str, keys: int, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-state-") as name:
        inbox = Inbox(Path(name), keys, variant)
        inbox.add_all()
        result: dict[str, Any] = {"keys": keys, "warm_up": a_round(spark, inbox, variant)}
        result["rounds"] = [a_round(spark, inbox, variant) for _ in range(0 if quick else ROUNDS - 1)]
        with built(spark, inbox, variant) as (query, figures):
            result["rounds"].append(figures)
            result |= later(query, inbox, figures["state_bytes"] / keys, quick)
    return result | {"ratios": ratios(result)}


def later(query: StreamingQuery, inbox: Inbox, row_bytes: float, quick: bool) -> dict[str, Any]:
    """Run the part after the first full checkpoint."""
    deltas = [delta(query, inbox, row_bytes) for _ in range(DELTAS)]
    kill(query, inbox, 0)  # warms up
    kills = [kill(query, inbox, number) for number in range(1 if quick else KILLS)]
    rescale_s = {"2 to 4": rescale(query, 4), "4 to 2": rescale(query, harness.SLOTS)}
    return {"deltas": deltas, "kills": kills, "rescale_s": rescale_s}


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """Return the ratios that the targets refer to."""
    rounds, deltas = result["rounds"], result["deltas"]
    full_ms = statistics.median(figures["duration_ms"] for figures in rounds)
    killed_s = statistics.median(figures["running_s"] for figures in result["kills"])
    return {
        "full_to_plain_speed": statistics.median(f["plain_ms"] / f["duration_ms"] for f in rounds),
        "delta_bytes_to_changed": max(figures["state_bytes"] / figures["changed_bytes"] for figures in deltas),
        "delta_to_full_time": statistics.mean(f["duration_ms"] for f in deltas) / full_ms,
        "delta_without_pause_to_full_time": statistics.mean(f["duration_ms"] - f["pause_ms"] for f in deltas) / full_ms,
        "worst_pause_ms": max(figures["pause_ms"] for figures in (*rounds, *deltas)),
        "kill_s": killed_s,
        "rescale_to_kill": result["rescale_s"]["2 to 4"] / killed_s,
    }


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    keys = KEYS // 10 if quick else KEYS
    result: dict[str, object] = {"values": VALUES, "changed": CHANGED}
    for variant in VARIANTS:
        result[variant] = measure(spark, variant, keys, quick)
        print(f"  {variant}: {result[variant]}", flush=True)
    return result
