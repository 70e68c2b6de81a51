"""The main job of the cluster's tests, for spark-submit: ``windowed_count.py <place> <executors>`` does jobs until
it is killed, each when at least so many executors are there.

A file ``next`` in the place names a job: its folder and, in a second line, a mode, ``recovers``, ``goes-on`` or
``is-fenced``. The program speaks in lines: ``RUNNING <generation> <pids of the slots>`` when all slots run and
something is committed; then it waits for the file ``go`` in the job's folder, by which time somebody has done something
to the slots, and, if it ``recovers``, for another Generation to run. At the end it prints ``STOPPED`` and the
Generation, and compares with Spark's batch over the same files: ``EQUAL`` and the number of rows, or what differs. If
it ``is-fenced``, it waits until somebody else has taken the query over, and prints ``ENDED`` and why. The last line of
a job is ``DONE``. A folder that somebody has begun with is gone on with.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import avg, col, count, window
from pyspark.sql.functions import sum as total

import penstock

ROWS = 2_000
IDLE_S = 600
"""Nobody wants any more jobs then."""
LAST_HOUR = 10_000
"""Event time of the row that closes all windows but its own."""


def add(folder: Path, number: int, first_hour: int, rows: int = ROWS) -> None:
    if (folder / f"in-{number}.parquet").exists():
        return
    hours = [first_hour + index // 100 for index in range(rows)]
    at = pa.array([hour * 3_600_000_000 for hour in hours], pa.timestamp("us", tz="UTC"))
    keys = pa.array([(number * 7 + index) % 11 for index in range(rows)], pa.int64())
    values = pa.array([index * number for index in range(rows)], pa.int64())
    hidden = folder / f".{number}"
    pq.write_table(pa.table({"at": at, "key": keys, "value": values}), hidden)
    os.replace(hidden, folder / f"in-{number}.parquet")


def counts(rows: DataFrame) -> DataFrame:
    grouped = rows.withWatermark("at", "1 hour").groupBy(window("at", "2 hours"), "key")
    found = grouped.agg(count("*").alias("n"), total("value").alias("sum"), avg("value").alias("mean"))
    return found.select(col("window.start").alias("start"), "key", "n", "sum", "mean")


def wait(condition: Callable[[], bool], what: str, patience_s: float = 150) -> None:
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.05)


def executors(spark: SparkSession) -> int:
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1  # without the driver


def do(spark: SparkSession, folder: Path, mode: str) -> None:
    source = folder / "in"
    source.mkdir(parents=True, exist_ok=True)
    schema = "at timestamp, key bigint, value bigint"
    writer = penstock.writeStream(counts(spark.readStream.schema(schema).parquet(str(source))))
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.option("checkpoint.interval", "300ms").queryName("cluster").start()
    for number in (1, 2):
        add(source, number, number * 20)
    query.processAllAvailable()
    wait(lambda: all(slot.running for slot in query.view().slots), "the slots")
    before = query.generation
    print("RUNNING", before, *(slot.pid for slot in query.view().slots), flush=True)
    if mode == "is-fenced":
        wait(lambda: not query.isActive, "its end")
        print("ENDED", query.exception(), flush=True)
        return
    wait((folder / "go").exists, "the word to go on")
    add(source, 3, 60)
    if mode == "recovers":
        wait(lambda: query.generation > before and query.view().state.value == "running", "the next Generation")
    add(source, 4, 80)
    add(source, 5, LAST_HOUR, 1)
    query.processAllAvailable()
    for restart in query.view().restarts:
        print("RECOVERED", restart.duration_ms, restart.cause, flush=True)
    print("STOPPED", query.generation, flush=True)
    query.stop()
    expected = counts(spark.read.schema(schema).parquet(str(source))).where(col("start") < "1971-01-01")
    got = spark.read.parquet(str(folder / "out"))
    missing, extra = expected.exceptAll(got).collect(), got.exceptAll(expected).collect()
    print(f"EQUAL {got.count()}" if not missing and not extra else f"missing {missing}, extra {extra}", flush=True)


def main() -> None:
    place, least = Path(sys.argv[1]), int(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    while True:
        wait((place / "next").exists, "a job", IDLE_S)
        folder, mode = (place / "next").read_text().splitlines()
        (place / "next").unlink()
        wait(lambda: executors(spark) >= least, "the executors")
        do(spark, Path(folder), mode)
        print("DONE", flush=True)


if __name__ == "__main__":
    main()
