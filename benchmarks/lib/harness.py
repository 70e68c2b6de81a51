"""Harness of the benchmarks: a session, a running query to observe, medians, raw results."""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks import ROOT
from benchmarks.lib import machine
from benchmarks.lib.max_rate_source import MaxRateSource
from penstock.coordinator.view import CheckpointView
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.format.sections import data_path, state_path

LOCATIONS: dict[str, Path] = {}
"""Of running queries, by ``runId``."""
RESULTS = ROOT / "benchmarks" / "results"
SLOTS = 2
MASTER = "local[8]"


@contextmanager
def session(master: str = MASTER, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    # Spark's workers import this package too, and Penstock from where it is imported here.
    found = (str(ROOT), str(Path(penstock.__file__).parent.parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(found)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .appName("penstock-benchmarks")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.python.daemon.module", "penstock.spark.daemon")
        .config(map=dict(conf or {}))
        .getOrCreate()
    )
    spark.dataSource.register(MaxRateSource)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def running(
    df: DataFrame,
    mode: str = "append",
    sink: str = "noop",
    path: str | None = None,
    name: str | None = None,
    **options: str,
) -> Iterator[StreamingQuery]:
    """The DataFrame as a Penstock query on two slots, to nowhere and without periodic checkpoints unless asked for.
    ``name``: the query's, which a memory sink needs."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        writer = penstock.writeStream(df).format(sink).outputMode(mode).option("checkpointLocation", location)
        settings = {"parallelism": str(SLOTS), "checkpoint.interval": "1h", **options}
        for setting, value in settings.items():
            writer = writer.option(f"spark.penstock.{setting}", value)
        if name is not None:
            writer = writer.queryName(name)
        query = writer.start(path)
        LOCATIONS[query.runId] = Path(location)
        try:
            yield query
        finally:
            query.stop()
            del LOCATIONS[query.runId]


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 60.0) -> float:
    """Poll until it holds; returns the seconds it took."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > timeout_s:
            raise TimeoutError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(0.002)
    return time.perf_counter() - started


def written_bytes(query: StreamingQuery, checkpoint: CheckpointView, slots: int = SLOTS) -> int:
    """The size of a checkpoint's own data files, as long as it is kept; a slot that had nothing new has written none.
    What it refers to in older ones is not in it.
    """
    own = (
        path(checkpoint.generation, checkpoint.checkpoint, slot)
        for slot in range(slots)
        for path in (data_path, state_path)
    )
    paths = [LOCATIONS[query.runId] / path for path in own]
    return sum(path.stat().st_size for path in paths if path.exists())


def rows_in(query: StreamingQuery, vertex: int) -> int:
    """Rows that a vertex consumed (or, for a source, emitted), over all its subtasks."""
    chosen = [s.metrics for s in query.view().subtasks if s.metrics.vertex == vertex]
    return sum(max(m.rows_in, m.rows_out) for m in chosen)


def rate(query: StreamingQuery, vertex: int, seconds: float, subtasks: int = SLOTS) -> float:
    """Rows per second of a vertex: each subtask's between two of its reports, about ``seconds`` apart.

    Figures are reported every half second; a window between any two looks would be off by as much.
    """
    first = _fresh_reports(query, vertex, subtasks)
    time.sleep(seconds)
    last = _fresh_reports(query, vertex, subtasks)
    return sum((rows - first[i][1]) / (at - first[i][0]) for i, (at, rows) in last.items())


def _fresh_reports(query: StreamingQuery, vertex: int, subtasks: int) -> dict[int, tuple[float, int]]:
    """Return, by subtask, the time at which its metrics changed and its rows then."""
    before: dict[int, int] = {}
    found: dict[int, tuple[float, int]] = {}

    def look() -> bool:
        now = time.perf_counter()
        for subtask in query.view().subtasks:
            metrics = subtask.metrics
            rows = max(metrics.rows_in, metrics.rows_out)
            if metrics.vertex == vertex and before.setdefault(metrics.index, rows) != rows:
                found.setdefault(metrics.index, (now, rows))
        return len(found) == subtasks

    wait_for(f"every subtask of vertex {vertex} to report progress", look)
    return found


def rotated(names: Iterable[str], by: int) -> list[str]:
    """Return the items rotated by round, so that each round begins with another one."""
    found = list(names)
    return found[by % len(found) :] + found[: by % len(found)]


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """p99 by nearest rank: of fewer than 100 values it is the largest."""
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "p99": ordered[math.ceil(0.99 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def save(name: str, result: dict[str, object]) -> None:
    """Keep the raw figures beside the benchmark, with what they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    kept = {"machine": machine.recorded(), **result}
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=2) + "\n")
