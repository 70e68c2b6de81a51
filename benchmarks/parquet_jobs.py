"""Everyday jobs over 40 million rows of Parquet, read to the end by Penstock and by Spark's own engine, in turns.

Both run ``availableNow`` into a noop sink from a fresh checkpoint location, on as many cores as the machine has, with
as many slots and shuffle partitions. A run's time is all of it, from ``start()`` to the query's own end: planning,
starting slots and the final checkpoint or last batch included. The first round of each is warm-up and does not count.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import truediv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

import penstock
from benchmarks import harness

FILES = 40
ROWS_PER_FILE = 1_000_000
KEYS = 10_000
MASTER = f"local[{harness.SLOTS}]"
"""More task threads than cores would only slow Spark down; a noop sink needs no slot beside the query's."""
ROUNDS = 5
SCHEMA = "key int, value double, at timestamp"
TIMEOUT_S = 600.0


def write_files(directory: Path, files: int) -> None:
    """Rows one millisecond apart, so that windows of ten minutes hold 600,000 each."""
    random = np.random.default_rng(7)
    for number in range(files):
        first = number * ROWS_PER_FILE
        at = np.arange(first, first + ROWS_PER_FILE, dtype="int64") * 1_000
        columns = {
            "key": pa.array(random.integers(0, KEYS, ROWS_PER_FILE, dtype="int32")),
            "value": pa.array(random.random(ROWS_PER_FILE)),
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number:03d}.parquet")


def filter_project(rows: DataFrame) -> DataFrame:
    return rows.where("value > 0.5 and key % 3 = 0").selectExpr("key", "value * 2 + 1 as twice", "at")


def keyed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def windows(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 minute").groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("n"))


def behind_python(rows: DataFrame) -> DataFrame:
    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    return rows.mapInArrow(identity, SCHEMA).groupBy("key").agg(F.count("*").alias("n"))


JOBS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "filter and project": (filter_project, "append"),
    "keyed count and sum": (keyed, "update"),
    "10-minute windows": (windows, "append"),
    "keyed count behind mapInArrow": (behind_python, "update"),
}


def by_penstock(df: DataFrame, mode: str, location: str) -> None:
    writer = penstock.writeStream(df).format("noop").outputMode(mode).option("checkpointLocation", location)
    query = writer.option("parallelism", harness.SLOTS).trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"Penstock did not end within {TIMEOUT_S:.0f} s")


def by_spark(df: DataFrame, mode: str, location: str) -> None:
    writer = df.writeStream.format("noop").outputMode(mode).option("checkpointLocation", location)
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"Spark did not end within {TIMEOUT_S:.0f} s")


ENGINES = {"penstock": by_penstock, "spark": by_spark}


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    rounds, files = (1, FILES // 4) if quick else (ROUNDS, FILES)
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    rates: dict[str, dict[str, list[float]]] = {job: {engine: [] for engine in ENGINES} for job in JOBS}
    with _data(files) as directory:
        for number in range(rounds + 1):
            for job, (make, mode) in JOBS.items():
                for engine in ENGINES if number % 2 else reversed(ENGINES):
                    rows = spark.readStream.schema(SCHEMA).parquet(str(directory))
                    seconds = _timed(ENGINES[engine], make(rows), mode)
                    if number:
                        rates[job][engine].append(files * ROWS_PER_FILE / seconds)
    ratios = {job: statistics.median(map(truediv, of["penstock"], of["spark"])) for job, of in rates.items()}
    return {"rows": files * ROWS_PER_FILE, "rows_per_second": rates, "ratio_to_spark": ratios}


def _timed(engine: Callable[[DataFrame, str, str], None], df: DataFrame, mode: str) -> float:
    location = tempfile.mkdtemp(prefix="penstock-bench-")
    try:
        started = time.perf_counter()
        engine(df, mode, location)
        return time.perf_counter() - started
    finally:
        shutil.rmtree(location)


@contextmanager
def _data(files: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-rows-") as name:
        write_files(Path(name), files)
        yield Path(name)
