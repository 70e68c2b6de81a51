"""A state table of many rows as a DataFrame: ``format("penstock")`` against Parquet of the same rows, in turns.

Run ``python -m benchmarks.state_as_data [ROWS]``. The rows are written by ``penstock.SnapshotWriter``, which is timed,
too. Every read is of all columns into a noop sink; the first of each is warm-up and does not count.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

import penstock
from benchmarks import harness

ROWS = 10_000_000
ROUNDS = 3
TABLE = "aggregate-0/groups"


def main(rows: int = ROWS) -> None:
    """Print the figures, in seconds."""
    with tempfile.TemporaryDirectory() as directory, harness.session() as spark:
        location, parquet = str(Path(directory) / "location"), str(Path(directory) / "parquet")
        state = groups(spark, rows)
        grouped = spark.readStream.format("rate").load().groupBy("value")
        df = grouped.agg(F.count("*").alias("n"), F.max("timestamp").alias("at"))
        writer = penstock.SnapshotWriter.from_plan(df, "update", parallelism=4)
        print(f"SnapshotWriter: {seconds(lambda: writer.with_state(TABLE, state).write(location)):.1f} s", flush=True)
        table = spark.read.format("penstock").options(state=TABLE).load(location)
        table.write.parquet(parquet)
        sources = {"penstock": table, "parquet": spark.read.parquet(parquet)}
        times: dict[str, list[float]] = {name: [] for name in sources}
        for _ in range(1 + ROUNDS):
            for name, source in sources.items():
                times[name].append(seconds(lambda source=source: read(source)))  # type: ignore[misc]
        for name, found in times.items():
            median = statistics.median(found[1:])
            print(f"{name}: {median:.2f} s, {rows / median / 1e6:.1f} M rows/s ({found})", flush=True)
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        one = table.where(F.col("value") == rows // 2)
        print(f"one key: {seconds(one.collect):.2f} s, then {seconds(one.collect):.2f} s", flush=True)


def groups(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).select(
        F.col("id").alias("value"),
        (F.col("id") % 1000).alias("__a0_count"),
        F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("id")).alias("__a1_max"),
    )


def read(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
