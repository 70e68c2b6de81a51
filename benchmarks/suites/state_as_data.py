"""A state table of many rows as a DataFrame: written by ``penstock.SnapshotWriter``, read with ``format("penstock")``.

Each in turns with Spark writing and reading Parquet files of the same rows.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

import penstock

ROWS = 10_000_000
ROUNDS = 3
TABLE = "aggregate-0/groups"


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    """Seconds; the first round of everything warms up and does not count. Reads are of all columns, into noop."""
    rows = ROWS // 100 if quick else ROWS
    with tempfile.TemporaryDirectory(prefix="penstock-bench-data-") as name:
        folder = Path(name)
        writing = in_turns(
            {
                "penstock": lambda: bootstrapped(spark, rows, folder / "location"),
                "parquet": lambda: groups(spark, rows).write.mode("overwrite").parquet(str(folder / "parquet")),
            }
        )
        table = spark.read.format("penstock").options(state=TABLE).load(str(folder / "location"))
        parquet = spark.read.parquet(str(folder / "parquet"))
        reading = in_turns({"penstock": lambda: read(table), "parquet": lambda: read(parquet)})
        found = spark.read.format("penstock").options(state=TABLE, keys=f'{{"value": {rows // 2}}}')
        one = found.load(str(folder / "location"))
        finding = in_turns({"penstock": lambda: one_key(one, rows), "parquet": lambda: one_key(parquet, rows)})
    return {"rows": rows, "write_s": writing, "read_s": reading, "one_key_s": finding}


def in_turns(actions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(1 + ROUNDS):
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(found[1:]) for name, found in times.items()}


def bootstrapped(spark: SparkSession, rows: int, location: Path) -> None:
    """A location that begins with the rows as the state of an aggregation."""
    shutil.rmtree(location, ignore_errors=True)
    grouped = spark.readStream.format("rate").load().groupBy("value")
    df = grouped.agg(F.count("*").alias("n"), F.max("timestamp").alias("at"))
    writer = penstock.SnapshotWriter.from_plan(df, "update", parallelism=4)
    writer.with_state(TABLE, groups(spark, rows)).write(str(location))


def groups(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).select(
        F.col("id").alias("value"),
        (F.col("id") % 1000).alias("__a0_count"),
        F.timestamp_micros(F.lit(1_700_000_000_000_000) + F.col("id")).alias("__a1_max"),
    )


def read(df: DataFrame) -> None:
    df.write.format("noop").mode("overwrite").save()


def one_key(source: DataFrame, rows: int) -> None:
    """Look up one row by its key."""
    (row,) = source.where(F.col("value") == rows // 2).collect()
    assert row["value"] == rows // 2
