"""Runs a plan as a query, interrupted as the plan says, and compares what it wrote with Spark's batch."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import penstock
from penstock.errors import CheckpointFailed
from tests.oracle.oracle_plans import SCHEMA, Plan
from tests.support.same_rows import multiset
from tests.support.structured_streaming import structured_streaming

ATTEMPTS = 5


def run(spark: SparkSession, plan: Plan, folder: Path) -> None:
    """Every run of the query gets its share of the files, ends with a snapshot, and the next one begins with that; the
    last one is drained.

    Raises:
        AssertionError: the output is not the batch's.
        NotSupported: the plan is refused.
    """
    tables, source = plan.data.tables(), folder / "in"
    stream = _stream(spark, plan, source)
    written = 0
    for number, count in enumerate(_shares(len(tables), len(plan.parallelisms))):
        query = _start(plan, stream, folder, plan.parallelisms[number])
        try:
            for table in tables[written : written + count]:
                _put(table, source / f"part-{written:03d}.parquet")
                written += 1
            _live_through(plan, query, last=number == len(plan.parallelisms) - 1)
        finally:
            query.stop()
    batch = plan.build(spark.read.schema(SCHEMA).parquet(str(source)))
    expected = multiset(batch.toArrow())
    found = multiset(_output(spark, batch.schema, folder / "out"))
    assert found == expected, f"too many: {_some(found - expected)}; missing: {_some(expected - found)}"


def run_late(spark: SparkSession, plan: Plan, folder: Path) -> int:
    """The same files one after the other for Structured Streaming and for the query, as ``late_plans`` has it; what
    both have written after the last one is equal. Several runs follow each other, by a snapshot.

    Returns:
        How many rows Spark has dropped as late.

    Raises:
        AssertionError: the output is not Structured Streaming's.
        NotSupported: the plan is refused.
    """
    tables = plan.data.tables()
    source = folder / "in"
    stream = _stream(spark, plan, source)
    written = 0
    for count in _shares(len(tables), len(plan.parallelisms)):
        query = _start(plan, stream, folder, 1)
        try:
            for table in tables[written : written + count]:
                _put(table, source / f"part-{written:03d}.parquet")
                query.processAllAvailable()
                written += 1
            _live_through(plan, query, last=False)
        finally:
            query.stop()
    found = multiset(_output(spark, stream.schema, folder / "out"))
    expected, late = _structured_streaming(spark, plan, folder)
    assert found == expected, f"too many: {_some(found - expected)}; missing: {_some(expected - found)}"
    return late


def _structured_streaming(spark: SparkSession, plan: Plan, folder: Path) -> tuple[Counter[Any], int]:
    """Return the output of Spark's own engine, and its number of late rows."""
    source = folder / "sparks-in"
    stream = _stream(spark, plan, source)
    with structured_streaming(stream, folder / "sparks-checkpoint") as oracle:
        for number, table in enumerate(plan.data.tables()):
            _put(table, source / f"part-{number:03d}.parquet")
            oracle.go_on()
        return multiset(oracle.table), oracle.late


def _stream(spark: SparkSession, plan: Plan, source: Path) -> DataFrame:
    source.mkdir(parents=True)
    return plan.build(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source)))


def _shares(files: int, runs: int) -> list[int]:
    """Return the number of files of each run."""
    return [len(range(number, files, runs)) for number in range(runs)]


def _put(table: pa.Table, path: Path) -> None:
    hidden = path.with_name(f".{path.name}")
    pq.write_table(table, hidden)
    os.replace(hidden, path)


def _start(plan: Plan, stream: DataFrame, folder: Path, parallelism: int) -> penstock.StreamingQuery:
    writer = penstock.writeStream(stream).option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(folder / "checkpoint")).option("parallelism", parallelism)
    writer.option("checkpoint.alignment", plan.alignment).option("checkpoint.interval", "150ms")
    writer.option("restart.delay", "10ms").option("restart.attempts", 10).option("state.backend", plan.backend)
    return writer.start()


def _live_through(plan: Plan, query: penstock.StreamingQuery, last: bool) -> None:
    """Perhaps a kill; then the last run is drained."""
    if plan.kills:
        query.processAllAvailable()
        query.snapshot()
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    if last:
        query.processAllAvailable()
        query.stop(drain=True)
    else:
        _stop_with_snapshot(query)


def _stop_with_snapshot(query: penstock.StreamingQuery) -> None:
    """A snapshot during which a killed slot is noticed fails, and the query goes on."""
    for left in reversed(range(ATTEMPTS)):
        try:
            query.stop(snapshot=True)
            return
        except CheckpointFailed:
            if not left or not query.isActive:
                raise
            query.processAllAvailable()


def _output(spark: SparkSession, schema: StructType, out: Path) -> pa.Table:
    if not any(out.glob("*.parquet")):
        return spark.createDataFrame([], schema).toArrow()
    return spark.read.schema(schema).parquet(str(out)).toArrow()


def _some(rows: Counter[Any]) -> list[Any]:
    return list(rows.items())[:3]
