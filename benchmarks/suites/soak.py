"""Half an hour of one query: whether an event costs at its end what it cost at its beginning, and nothing is left over.

Rows by the clock -> hash -> count per key (Python) -> hash -> rows per key in windows of event time -> Parquet files,
two slots, a checkpoint every second. The state has a bound: as many keys as there are, and of the windows those that
are open; its rows come and go. Every ten seconds all processes are looked at, from the driver's own process: that is
in the driver's figures.

``SOAK_S`` in the environment sets another length.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

import penstock
from benchmarks.lib import harness
from benchmarks.lib.fixed_rate_source import FixedRateSource
from benchmarks.lib.trend import Verdict, last_to_first, slope
from benchmarks.suites.flip76_job import CountPerKey
from penstock.coordinator.view import CheckpointState
from penstock.queries.streaming_query import StreamingQuery

ROWS_PER_SECOND = 20_000
"""A quarter of what two cores can do: a run that falls behind the clock would be no paced one."""
KEYS = 5_000
WINDOW = "10 seconds"
DELAY = "1 second"
CHECKPOINT_INTERVAL = "1s"
CONF = {"spark.executorEnv.MIMALLOC_ALLOW_THP": "0"}
"""Slots' allocator does not ask for huge pages: the kernel gives them when it pleases, and what it gives is no leak."""
SCHEMA = "key int, value double, due_us bigint, at timestamp"


@dataclass(frozen=True)
class Length:
    """``block``: samples whose mean counts as one figure, so that bounds are honest; see ``trend``."""

    run_s: float
    warm_up_s: float
    sample_s: float
    block: int


FULL = Length(float(os.environ.get("SOAK_S", "1800")), 300.0, 10.0, 6)
QUICK = Length(60.0, 12.0, 2.0, 2)

FLAT = {
    "cpu": 0.03,
    "memory": 0.01,
    "duration": 0.10,
}
"""By kind of figure: the share by which the last third may differ from the first and still count as the same, with its
whole 95 % bound.

CPU for an event differs by some per cent from minute to minute on a machine that is shared. A hundredth of a slot's
memory, over the quarter of an hour between the two thirds, is a byte for ten events. A checkpoint waits for a disk that
others use, too. What is counted (threads, open files, files) goes up and down with what is under way; what leaks never
goes away, so it lifts the least there is: that must not be larger at all.
"""
JVM = "JVM"
"""Spark's: its memory is its heap, which it takes as it likes, and its CPU is some ticks of the clock for a sample and
counts in that of all. So nothing is wanted of these."""
GROWING = ("log", "history")
"""Folders of a checkpoint location that grow by design: an entry of the log is never removed, or a driver that was
paused could create it anew; the history of checkpoints has a bound that is reached after many hours."""
PROCESSES = ("driver", "slot 0", "slot 1", JVM)
KINDS = {"cpu_s_per_million": "cpu", "resident_bytes": "memory", "threads": "count", "open_files": "count"}


def job(spark: SparkSession) -> DataFrame:
    rows = (
        spark.readStream.format("fixed-rate")
        .option("startedUs", str(time.time_ns() // 1_000))
        .option("rowsPerSecond", str(ROWS_PER_SECOND))
        .option("keys", str(KEYS))
        .option("partitions", str(harness.SLOTS))
        .load()
    )
    timed = rows.withColumn("at", F.timestamp_micros("due_us")).withWatermark("at", DELAY)
    counted = penstock.transformWithStateInArrow(
        timed.groupBy("key"), CountPerKey(), SCHEMA, "Append", "EventTime", eventTimeColumnName="at"
    )
    windows = counted.groupBy(F.window("at", WINDOW), "key").agg(
        F.count("*").alias("rows"), F.sum("value").alias("sum")
    )
    return windows.select(F.col("window.start").alias("start"), "key", "rows", "sum")


# -- what is looked at ------------------------------------------------------------------------------------------------


def sample(query: StreamingQuery, output: Path, since_checkpoint: int) -> dict[str, Any]:
    """All figures now. ``checkpoint``: the newest that has ended; ``duration_ms``: of those since the last sample."""
    view = query.view()
    ended = [c for c in view.checkpoints if c.state is not CheckpointState.PENDING and c.checkpoint > since_checkpoint]
    durations = [c.duration_ms for c in ended if c.state is CheckpointState.COMPLETE]
    sources = [subtask.metrics for subtask in view.subtasks if subtask.metrics.vertex == 0]
    processes = {"driver": psutil.Process(), JVM: jvm()}
    processes |= {f"slot {slot.slot}": psutil.Process(slot.pid) for slot in view.slots}
    return {
        "at_s": time.perf_counter(),
        "rows": {metrics.index: metrics.rows_out for metrics in sources},
        "lived_s": {m.index: (m.busy_ms + m.backpressured_ms + m.idle_ms) / 1000 for m in sources},
        "processes": {name: of_process(one) for name, one in processes.items()},
        "files": files_below(harness.LOCATIONS[query.runId]),
        "output_files": sum(files_below(output).values()),
        "state_rows": sum(state.state_rows for state in view.last_epoch.states) if view.last_epoch else 0,
        "checkpoint": max((c.checkpoint for c in ended), default=since_checkpoint),
        "checkpoints": len(durations),
        "duration_ms": statistics.median(durations) if durations else None,
        "failed": view.checkpoints_failed,
        "restarts": view.restarts_begun,
    }


def jvm() -> psutil.Process:
    """The one that this process has started."""
    return next(one for one in psutil.Process().children(recursive=True) if one.name() == "java")


def of_process(process: psutil.Process) -> dict[str, float]:
    with process.oneshot():
        times = process.cpu_times()
        return {
            "cpu_s": times.user + times.system,
            "resident_bytes": process.memory_info().rss,
            "threads": process.num_threads(),
            "open_files": process.num_fds(),
        }


def files_below(folder: Path) -> dict[str, int]:
    """Return the number of files by top-level folder; files in the root itself have an empty name."""
    found: Counter[str] = Counter()
    for parent, _, names in os.walk(folder):
        found[os.path.relpath(parent, folder).split(os.sep)[0].replace(".", "")] += len(names)
    return dict(found)


# -- over time --------------------------------------------------------------------------------------------------------


def series(samples: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return a value per sample, except for the first, by metric; ``at_s`` counts from the first sample.

    A sample in which no checkpoint ended has the duration of the one before.
    """
    found: dict[str, list[float]] = {"at_s": [], "rows_per_second": []}
    duration_ms = samples[0]["duration_ms"] or 0.0
    for before, now in itertools.pairwise(samples):
        duration_ms = now["duration_ms"] or duration_ms
        rate = rows_per_second(before, now)
        found["at_s"].append(now["at_s"] - samples[0]["at_s"])
        found["rows_per_second"].append(rate)
        for process in PROCESSES:
            one, earlier = now["processes"][process], before["processes"][process]
            cores = (one["cpu_s"] - earlier["cpu_s"]) / (now["at_s"] - before["at_s"])
            values = {**one, "cpu_s_per_million": cores / rate * 1e6}
            for name in KINDS:
                found.setdefault(f"{process}, {name}", []).append(values[name])
        for name, value in _of_all(now, duration_ms).items():
            found.setdefault(name, []).append(value)
    total = zip(*(found[f"{process}, cpu_s_per_million"] for process in PROCESSES), strict=True)
    return found | {"all, cpu_s_per_million": [sum(each) for each in total]}


def _of_all(now: dict[str, Any], duration_ms: float) -> dict[str, float]:
    by_folder = now["files"]
    log, history = (by_folder.get(folder, 0) for folder in GROWING)
    return {
        "checkpoint, duration_ms": duration_ms,
        "location, files": sum(by_folder.values()) - log - history,
        "location, log_files": log,
        "location, history_files": history,
        "state_rows": now["state_rows"],
        "output_files": now["output_files"],
    }


def rows_per_second(before: dict[str, Any], now: dict[str, Any]) -> float:
    """Each subtask's rows by its own clock: its figures are up to half a second old, those of its rows and of how long
    it has lived equally."""
    return sum(
        (now["rows"][index] - before["rows"][index]) / (now["lived_s"][index] - before["lived_s"][index])
        for index in now["rows"]
    )


def kind(name: str) -> str | None:
    """Return the kind of trend that a metric must not have; None: no requirement."""
    if name in (f"{JVM}, resident_bytes", f"{JVM}, cpu_s_per_million"):
        return None
    if name in ("location, files", "checkpoint, duration_ms"):
        return "count" if name == "location, files" else "duration"
    return KINDS.get(name.rpartition(", ")[2]) if ", " in name else None


def summary(found: dict[str, list[float]], length: Length) -> dict[str, Any]:
    """Behind the warm-up: by figure the line's slope, the ratio of the last third to the first, and the verdict."""
    start = next(n for n, at_s in enumerate(found["at_s"]) if at_s >= length.warm_up_s)
    times_s = found["at_s"][start:]
    return {
        name: _figure(times_s, values[start:], kind(name), length.block)
        for name, values in found.items()
        if name != "at_s"
    }


def _figure(times_s: Sequence[float], values: Sequence[float], kind: str | None, block: int) -> dict[str, Any]:
    third = len(values) // 3
    first, last = values[:third], values[-third:]
    rise, ratio = slope(times_s, values, block), last_to_first(values, block)
    verdict = None
    if kind == "count":
        verdict = Verdict.FLAT if min(last) <= min(first) else Verdict.GROWS
    elif kind is not None:
        verdict = ratio.against(1.0, FLAT[kind])
    return {
        "median": statistics.median(values),
        "least": min(values),
        "most": max(values),
        "first_third": statistics.median(first),
        "last_third": statistics.median(last),
        "slope_per_hour": asdict(rise),
        "last_to_first": asdict(ratio),
        "verdict": None if verdict is None else verdict.value,
    }


def watch(query: StreamingQuery, output: Path, length: Length) -> list[dict[str, Any]]:
    """A sample at each of its times, whatever the one before took."""
    harness.wait_for("the first checkpoint", lambda: query.view().checkpoints_completed > 0)
    began_s = time.perf_counter()
    samples = [sample(query, output, 0)]
    for number in range(1, int(length.run_s / length.sample_s) + 1):
        time.sleep(max(0.0, began_s + number * length.sample_s - time.perf_counter()))
        samples.append(sample(query, output, samples[-1]["checkpoint"]))
        print(f"  {samples[-1]}", flush=True)
    return samples


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    length = QUICK if quick else FULL
    spark.dataSource.register(FixedRateSource)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        output = Path(folder) / "output"
        settings = {"checkpoint.interval": CHECKPOINT_INTERVAL}
        with harness.running(job(spark), sink="parquet", path=str(output), **settings) as query:
            samples = watch(query, output, length)
    found = series(samples)
    return {
        "rows_per_second": ROWS_PER_SECOND,
        "conf": CONF,
        "length": asdict(length),
        "failed": samples[-1]["failed"],
        "restarts": samples[-1]["restarts"],
        "checkpoints": sum(one["checkpoints"] for one in samples),
        "summary": summary(found, length),
        "series": found,
    }
