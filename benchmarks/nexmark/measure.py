"""Nexmark over a million events: every query equals Spark's batch result, and its speed against Structured Streaming.

Both engines read the same Parquet files ``availableNow`` into a noop sink, in turns, on as many slots as there are
cores; the first round warms up. CPU seconds are those of the driver, the JVM and all Python processes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import penstock
from benchmarks import harness
from benchmarks.cpu_time import cpu_seconds
from benchmarks.nexmark.generator import SPARK_SCHEMA
from benchmarks.nexmark.queries import NAMES, query
from benchmarks.nexmark.source import write_parquet
from benchmarks.parquet_jobs import ENGINES
from penstock.errors import NotSupported

EVENTS = 1_000_000
FILES = 20
ROUNDS = 3


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    count, rounds = (EVENTS // 10, 1) if quick else (EVENTS, ROUNDS)
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-nexmark-") as name:
        events = Path(name, "events")
        write_parquet(events, count, FILES)
        for number, query_name in enumerate(NAMES):
            try:
                rows = check_equal(spark, events, query_name, Path(name, str(number)))
                found[query_name] = {"rows": rows, **measure(spark, events, query_name, rounds)}
            except NotSupported as error:
                found[query_name] = {"refused": str(error).splitlines()[0]}
    return {"events": count, "queries": found}


def check_equal(spark: SparkSession, events: Path, name: str, folder: Path) -> int:
    """Run it to its drained end and compare with the batch; the number of rows.

    Raises:
        AssertionError: some differ.
    """
    stream = spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 2).parquet(str(events))
    writer = penstock.writeStream(query(spark, stream, name)).option("path", str(folder / "out"))
    started = writer.start(checkpointLocation=str(folder / "checkpoint"), parallelism=harness.SLOTS)
    started.processAllAvailable()
    started.stop(drain=True)
    expected = query(spark, spark.read.schema(SPARK_SCHEMA).parquet(str(events)), name)
    written = spark.read.schema(expected.schema).parquet(str(folder / "out"))
    differing = written.exceptAll(expected).count(), expected.exceptAll(written).count()
    assert differing == (0, 0), f"{name}: {differing[0]} rows too many, {differing[1]} missing"
    return expected.count()


def measure(spark: SparkSession, events: Path, name: str, rounds: int) -> dict[str, object]:
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    cpu: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for number in range(rounds + 1):
        for engine in ENGINES if number % 2 else reversed(ENGINES):
            stream = spark.readStream.schema(SPARK_SCHEMA).parquet(str(events))
            df = query(spark, stream, name)
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
                began, used = time.perf_counter(), cpu_seconds()
                ENGINES[engine](df, "append", location)
                if number:
                    seconds[engine].append(time.perf_counter() - began)
                    cpu[engine].append(cpu_seconds() - used)
    medians = {engine: statistics.median(values) for engine, values in seconds.items()}
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "speed_to_spark": medians["spark"] / medians["penstock"],
        "cpu_to_spark": statistics.median(cpu["penstock"]) / statistics.median(cpu["spark"]),
    }
