"""Runs a plan as a query, interrupted as the plan says, and compares what it wrote with Spark's batch."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from oracle_plans import SCHEMA, Plan
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import CheckpointFailed

ATTEMPTS = 5


def run(spark: SparkSession, plan: Plan, folder: Path) -> None:
    """Every run of the query gets its share of the files, ends with a snapshot, and the next one begins with that; the
    last one is drained.

    Raises:
        AssertionError: the output is not the batch's.
        NotSupported: the plan is refused.
    """
    tables, source = plan.data.tables(), folder / "in"
    source.mkdir(parents=True)
    shares = [tables[number :: len(plan.parallelisms)] for number in range(len(plan.parallelisms))]
    stream = plan.build(spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source)))
    written = 0
    for number, parallelism in enumerate(plan.parallelisms):
        query = _start(plan, stream, folder, parallelism)
        try:
            for table in _in_order(tables, shares, number):
                _put(table, source / f"part-{written:03d}.parquet")
                written += 1
            _live_through(plan, query, number)
        finally:
            query.stop()
    batch = plan.build(spark.read.schema(SCHEMA).parquet(str(source)))
    expected = multiset(batch.toArrow())
    found = multiset(_output(spark, batch, folder / "out"))
    assert found == expected, f"too many: {_some(found - expected)}; missing: {_some(expected - found)}"


def _in_order(tables: list[pa.Table], shares: list[list[pa.Table]], number: int) -> list[pa.Table]:
    """The run's share of the tables; all runs together read them in their order."""
    first = sum(len(share) for share in shares[:number])
    return tables[first : first + len(shares[number])]


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


def _live_through(plan: Plan, query: penstock.StreamingQuery, number: int) -> None:
    last = number == len(plan.parallelisms) - 1
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


def _output(spark: SparkSession, batch: DataFrame, out: Path) -> pa.Table:
    if not any(out.glob("*.parquet")):
        return batch.limit(0).toArrow()
    return spark.read.schema(batch.schema).parquet(str(out)).toArrow()


def multiset(table: pa.Table) -> Counter[Any]:
    columns = [[canonical(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True))


def canonical(value: Any) -> Any:
    """NaN equals NaN; and -0.0 equals 0.0, for the least of both is the one that came first."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, dict):
        return tuple((name, canonical(part)) for name, part in value.items())
    return tuple(map(canonical, value)) if isinstance(value, list) else value


def _some(rows: Counter[Any]) -> list[Any]:
    return list(rows.items())[:3]
