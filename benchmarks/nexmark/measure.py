"""Nexmark over a million events: every query equals Spark's batch result, and its speed against Structured Streaming.

``benchmarks.against_spark`` says how both run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks import harness
from benchmarks.against_spark import compare
from benchmarks.nexmark.generator import SPARK_SCHEMA
from benchmarks.nexmark.queries import NAMES, query
from benchmarks.nexmark.source import write_parquet
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
                found[query_name] = {"rows": rows, **beside_spark(spark, events, query_name, rounds)}
            except NotSupported as error:
                found[query_name] = {"refused": str(error).splitlines()[0]}
    return {"events": count, "queries": found}


def beside_spark(spark: SparkSession, events: Path, name: str, rounds: int) -> dict[str, object]:
    """One query over the files of ``events`` by both engines."""
    return compare(lambda: query(spark, stream(spark, events), name), "append", rounds)


def check_equal(spark: SparkSession, events: Path, name: str, folder: Path) -> int:
    """Run it to its drained end and compare with the batch; the number of rows.

    Raises:
        AssertionError: some differ.
    """
    writer = penstock.writeStream(query(spark, stream(spark, events), name)).option("path", str(folder / "out"))
    started = writer.start(checkpointLocation=str(folder / "checkpoint"), parallelism=harness.SLOTS)
    started.processAllAvailable()
    started.stop(drain=True)
    expected = query(spark, spark.read.schema(SPARK_SCHEMA).parquet(str(events)), name)
    written = spark.read.schema(expected.schema).parquet(str(folder / "out"))
    differing = written.exceptAll(expected).count(), expected.exceptAll(written).count()
    assert differing == (0, 0), f"{name}: {differing[0]} rows too many, {differing[1]} missing"
    return expected.count()


def stream(spark: SparkSession, events: Path) -> DataFrame:
    return spark.readStream.schema(SPARK_SCHEMA).parquet(str(events))
