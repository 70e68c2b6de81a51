"""What the benchmarks share: a session, a running query to look at, medians, raw results."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pyspark
from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks.feed import FeedSource
from penstock.query.streaming_query import StreamingQuery

RESULTS = Path(__file__).parent / "results"
SLOTS = 2


@contextmanager
def session() -> Iterator[SparkSession]:
    # Spark's workers import this package too.
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[8]")
        .appName("penstock-benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.python.daemon.module", "penstock.spark.daemon")
        .getOrCreate()
    )
    spark.dataSource.register(FeedSource)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def running(df: DataFrame, mode: str = "append", **options: str) -> Iterator[StreamingQuery]:
    """The DataFrame as a Penstock query on two slots with a noop sink and no periodic checkpoint unless asked for."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        writer = penstock.writeStream(df).format("noop").outputMode(mode).option("checkpointLocation", location)
        settings = {"parallelism": str(SLOTS), "checkpoint.interval": "1h", **options}
        for name, value in settings.items():
            writer = writer.option(f"spark.penstock.{name}", value)
        query = writer.start()
        try:
            yield query
        finally:
            query.stop()


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 60.0) -> float:
    """Poll until it holds; returns the seconds it took."""
    started = time.perf_counter()
    while not condition():
        if time.perf_counter() - started > timeout_s:
            raise TimeoutError(f"{what} did not happen within {timeout_s:.0f} s")
        time.sleep(0.002)
    return time.perf_counter() - started


def rows_in(query: StreamingQuery, vertex: int) -> int:
    """Rows that a vertex consumed (or, for a source, emitted), over all its subtasks."""
    chosen = [s.metrics for s in query.view().subtasks if s.metrics.vertex == vertex]
    return sum(max(m.rows_in, m.rows_out) for m in chosen)


def quantiles(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "min": ordered[0],
        "median": statistics.median(ordered),
        "max": ordered[-1],
    }


def save(name: str, result: dict[str, object]) -> None:
    """Keep the raw figures beside the benchmark, with what they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine, **result}, indent=2) + "\n")
