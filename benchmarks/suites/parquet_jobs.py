"""Everyday jobs over Parquet, by Penstock and by Spark's own engine: what DataFrames are made of.

Each has as many rows as keep either engine busy for some seconds (``peers.against_spark`` says how they run).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from benchmarks.lib import harness
from benchmarks.peers.against_spark import compare

FILES = 40
ROWS_PER_FILE = 1_000_000
KEYS = 10_000
ROUNDS = 3
SCHEMA = "key int, value double, at timestamp, word string"
WORDS = 5_000


def write_files(directory: Path, files: int) -> None:
    """Rows a millisecond apart."""
    random = np.random.default_rng(7)
    words = pa.array([f"word-{number}, {'x' * (number % 23)}" for number in range(WORDS)])
    for number in range(files):
        first = number * ROWS_PER_FILE
        at = np.arange(first, first + ROWS_PER_FILE, dtype="int64") * 1_000
        columns = {
            "key": pa.array(random.integers(0, KEYS, ROWS_PER_FILE, dtype="int32")),
            "value": pa.array(random.random(ROWS_PER_FILE) * 1000),
            "at": pa.array(at).cast(pa.timestamp("us", "UTC")),
            "word": words.take(pa.array(random.integers(0, WORDS, ROWS_PER_FILE))),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number:03d}.parquet")


def expressions(rows: DataFrame) -> DataFrame:
    """Ten, of numbers, texts, times and hashes, behind a filter."""
    return rows.where("value > 100 and word like 'word-1%'").selectExpr(
        "key % 97 + 1 as bucket",
        "round(value * 1.19, 2) as gross",
        "cast(value as decimal(12, 2)) as exact",
        "case when value > 900 then 'high' when value > 500 then 'mid' else 'low' end as band",
        "upper(substring(word, 1, 8)) as code",
        "concat(word, '-', key) as label",
        "date_trunc('minute', at) as minute",
        "hour(at) as hour",
        "xxhash64(key, word) as hash",
        "coalesce(nullif(key, 7), -1) as other",
    )


def filter_project(rows: DataFrame) -> DataFrame:
    return rows.where("value > 500 and key % 3 = 0").selectExpr("key", "value * 2 + 1 as twice", "at")


def windows(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", "1 minute").groupBy(F.window("at", "10 minutes")).agg(F.count("*").alias("n"))


def keyed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").agg(F.count("*").alias("n"), F.sum("value").alias("total"))


def static_join(rows: DataFrame) -> DataFrame:
    names = rows.sparkSession.range(KEYS).selectExpr("cast(id as int) as key", "concat('name ', id) as name")
    return rows.join(names, "key").where("value > 500").select("key", "name", "value")


def sliding(rows: DataFrame) -> DataFrame:
    windows = F.window("at", "10 minutes", "1 minute")
    return rows.withWatermark("at", "1 minute").groupBy(windows).agg(F.count("*").alias("n"), F.sum("value").alias("v"))


def sliding_by_key(rows: DataFrame) -> DataFrame:
    keys = F.window("at", "2 minutes", "30 seconds"), "key"
    return rows.withWatermark("at", "10 seconds").groupBy(*keys).agg(F.count("*").alias("n"))


def sessions(rows: DataFrame) -> DataFrame:
    """About 20 rows in a session, which lasts five minutes."""
    keys = F.session_window("at", "30 seconds"), "key"
    return rows.withWatermark("at", "10 seconds").groupBy(*keys).agg(F.count("*").alias("n"))


def stream_join(rows: DataFrame) -> DataFrame:
    """Half of the rows with those of the other half, of the same key and not ten seconds older: one each."""
    left = rows.where("value < 500").withWatermark("at", "10 seconds").alias("left")
    right = rows.where("value >= 500").withWatermark("at", "10 seconds").alias("right")
    near = "left.key = right.key and right.at <= left.at and right.at > left.at - interval 10 seconds"
    return left.join(right, F.expr(near)).selectExpr("left.key", "left.at", "right.value")


def udf(rows: DataFrame) -> DataFrame:
    return rows.select("key", F.udf(lambda value: value * 2 + 1, "double", useArrow=False)("value").alias("twice"))


def arrow_udf(rows: DataFrame) -> DataFrame:
    return rows.select("key", F.udf(lambda value: value * 2 + 1, "double", useArrow=True)("value").alias("twice"))


def pandas_udf(rows: DataFrame) -> DataFrame:
    @F.pandas_udf("double")
    def twice(values: pd.Series) -> pd.Series:
        return values * 2 + 1

    return rows.select("key", twice("value").alias("twice"))


def map_in_pandas(rows: DataFrame) -> DataFrame:
    def twice(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(value=frame["value"] * 2 + 1)

    return rows.select("key", "value").mapInPandas(twice, "key int, value double")


def behind_python(rows: DataFrame) -> DataFrame:
    def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    columns = rows.select("key", "value", "at")
    return columns.mapInArrow(identity, columns.schema).groupBy("key").agg(F.count("*").alias("n"))


@dataclass(frozen=True)
class Job:
    """``files`` of those that there are; ``target``: of its speed to Spark's."""

    make: Callable[[DataFrame], DataFrame]
    mode: str
    files: int
    target: float


JOBS = {
    "filter and project": Job(filter_project, "append", 40, 1.0),
    "filter and ten expressions": Job(expressions, "append", 10, 1.0),
    "keyed count and sum": Job(keyed, "update", 40, 1.0),
    "join with a static side": Job(static_join, "append", 20, 1.0),
    "10-minute windows": Job(windows, "append", 40, 1.0),
    "sliding windows, 10 of each row": Job(sliding, "append", 10, 2.0),
    "sliding windows by key, 4 of each row": Job(sliding_by_key, "append", 1, 2.0),
    "session windows by key": Job(sessions, "append", 1, 2.0),
    "join of two streams": Job(stream_join, "append", 1, 1.0),
    "udf": Job(udf, "append", 40, 4.0),
    "udf, Arrow": Job(arrow_udf, "append", 40, 4.0),
    "pandas_udf": Job(pandas_udf, "append", 20, 4.0),
    "mapInPandas": Job(map_in_pandas, "append", 20, 4.0),
    "keyed count behind mapInArrow": Job(behind_python, "update", 40, 4.0),
}


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-rows-") as folder:
        write_files(Path(folder), FILES // 4 if quick else FILES)
        for name, job in JOBS.items():
            found[name] = measure(spark, Path(folder), job, quick)
            print(f"  {name}: {found[name]}", flush=True)
    return {"jobs": found}


def measure(spark: SparkSession, folder: Path, job: Job, quick: bool) -> dict[str, object]:
    files, rounds = (max(job.files // 4, 1), 1) if quick else (job.files, ROUNDS)
    with _first_files(folder, files) as directory:

        def make() -> DataFrame:
            return job.make(spark.readStream.schema(SCHEMA).parquet(str(directory)))

        return {"rows": files * ROWS_PER_FILE, "target": job.target, **compare(make, job.mode, rounds)}


@contextmanager
def _first_files(folder: Path, count: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as name:
        for path in sorted(folder.glob("part-*.parquet"))[:count]:
            os.link(path, Path(name, path.name))
        yield Path(name)
