"""Runs stateful code on Spark's engine and, interrupted as the plan says, on Penstock's: output, state and timers."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import CheckpointFailed
from tests.oracle.oracle_runs import ATTEMPTS, _put, _shares, _some, _stop_with_snapshot
from tests.oracle.processor_plans import ProcessorPlan
from tests.oracle.scripted_processors import SHORT_MS
from tests.support.same_rows import canonical

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
WAIT_S = 20.0
PAST = 1
"""Our timer of a timeout is due when Spark's timeout has passed."""
_BOOKS = ("key_group", "__position", "__expires_ms")
"""Columns of which Spark has none, or others."""

Tables = dict[str, Counter[Any]]


def run_processor(spark: SparkSession, plan: ProcessorPlan, folder: Path) -> None:
    """
    Raises:
        AssertionError: output, or state behind it, is not Spark's.
        NotSupported: the plan is refused.
        StreamingQueryException: by Spark.
    """
    expected = on_spark(spark, plan, folder)
    compared(on_penstock(spark, plan, folder, expected["output"]), expected)


def compared(found: Tables, expected: Tables) -> None:
    """Raises AssertionError, with rows of the first table that differs."""
    for table, rows in expected.items():
        ours = found[table]
        assert ours == rows, f"{table}: too many: {_some(ours - rows)}; missing: {_some(rows - ours)}"


def _stream(spark: SparkSession, plan: ProcessorPlan, source: Path) -> DataFrame:
    source.mkdir(parents=True)
    return spark.readStream.schema(plan.schema).option("maxFilesPerTrigger", 1).parquet(str(source))


def _initial(spark: SparkSession, plan: ProcessorPlan, folder: Path) -> DataFrame | None:
    """A batch, of its own for each engine."""
    if not plan.initial:
        return None
    path = folder / f"initial-{uuid.uuid4().hex}.parquet"
    pq.write_table(plan.initial_table(), path)
    return spark.read.schema(plan.schema).parquet(str(path))


# -- Spark ------------------------------------------------------------------------------------------------------------


def on_spark(spark: SparkSession, plan: ProcessorPlan, folder: Path) -> Tables:
    """Return the output and the state of Structured Streaming after all files, each in a batch of its own.

    With timers of processing time it never rests, and so it has no batches without data here; the timers of the last
    file stay behind, of which there are none. It declares
    from the start on what a later start declares, for its own way to change a declaration (state as Avro) fails over
    nulls: what is deleted is so later.
    """
    source, checkpoint = folder / "sparks-in", str(folder / "sparks-checkpoint")
    stream, initial, tables = _stream(spark, plan, source), _initial(spark, plan, folder), plan.tables()
    settings = {PROVIDER: ROCKSDB, NO_DATA_BATCHES: str(plan.time == "EventTime").lower()}
    before = {setting: spark.conf.get(setting, None) for setting in settings}
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    try:
        first = plan.change.at if plan.change else len(tables)
        for begin, end in ((0, first), (first, len(tables))):
            if begin == end:
                continue
            df = plan.build(stream, initial=initial, file=begin, early=True)
            writer = df.writeStream.format("parquet").option("checkpointLocation", checkpoint)
            query = writer.start(str(folder / "sparks-out"))
            try:
                for number in range(begin, end):
                    _put(tables[number], source / f"part-{number:03d}.parquet")
                    query.processAllAvailable()
            finally:
                query.stop()
        return {
            "output": _rows(spark.read.parquet(str(folder / "sparks-out"))),
            **_sparks_state(spark, plan, checkpoint),
        }
    finally:
        for setting, old in before.items():
            spark.conf.unset(setting) if old is None else spark.conf.set(setting, old)


def _sparks_state(spark: SparkSession, plan: ProcessorPlan, checkpoint: str) -> Tables:
    def read(operator: int, **options: str) -> DataFrame:
        return spark.read.format("statestore").options(operatorId=operator, **options).load(checkpoint)

    if plan.form == "groups":
        state = read(0)
        tables = {"state": state.select("key.*", "value.groupState.*").where("value.groupState is not null")}
        if plan.time != "None":
            timeouts = state.select("key.*", (F.col("value.timeoutTimestamp") + PAST).alias("at"))
            tables["__timers"] = timeouts.where(f"at > {PAST}")
        return {table: _rows(rows) for table, rows in tables.items()}
    first = 1 if plan.chained else 0
    inner = ".*" if plan.shape.ttl_ms is None else ".value.*"
    tables = {}
    columns = {"value": ["value"], "list": ["list_element"], "map": ["user_map_key.*", "user_map_value"]}
    for name, kind in _compared_variables(plan).items():
        *keys, values = columns[kind]
        tables[name] = read(first, stateVarName=name).select("key.*", *keys, f"{values}{inner}")
    if plan.time != "None":
        timers = read(first, readRegisteredTimers="true")
        tables["__timers"] = timers.select("key.*", "expiration_timestamp_ms")
    if plan.chained:
        tables["seen"] = read(0, stateVarName="seen").select("key.*", "value.*")
    return {table: _rows(rows) for table, rows in tables.items()}


def _compared_variables(plan: ProcessorPlan) -> dict[str, str]:
    """Return, by name, the kinds of the variables that the last start declares. Rarely filled ones are not compared."""
    return {} if plan.shape.ttl_ms == SHORT_MS else plan.shape_at(plan.files).variables


def _rows(df: DataFrame) -> Counter[Any]:
    """Return rows by position, because names differ."""
    return Counter(tuple(canonical(_unrowed(one)) for one in row) for row in df.collect())


def _unrowed(value: Any) -> Any:
    return tuple(map(_unrowed, value)) if isinstance(value, list | tuple) else value


# -- Penstock ---------------------------------------------------------------------------------------------------------


def on_penstock(spark: SparkSession, plan: ProcessorPlan, folder: Path, output: Counter[Any]) -> Tables:
    """Likewise, over kills, restarts and rescales. ``output``: what is waited for."""
    tables, source = plan.tables(), folder / "in"
    read, initial = _stream(spark, plan, source), _initial(spark, plan, folder)
    stream = plan.build(read, plan.pause_s, initial)
    query, written = _start(plan, stream, folder, plan.parallelisms[0]), 0
    try:
        for run, count in enumerate(_shares(len(tables), len(plan.parallelisms))):
            if run and plan.live:
                query.rescale(plan.parallelisms[run], timeout=60)
            elif run:
                _stop_with_snapshot(query)
                query = _start(plan, stream, folder, plan.parallelisms[run])
            for table in tables[written : written + count]:
                if plan.change and written == plan.change.at:
                    _stop_with_snapshot(query)
                    stream = plan.build(read, plan.pause_s, initial, written)
                    query = _start(plan, stream, folder, plan.parallelisms[run])
                if plan.kills:
                    _snapshot(query)
                _put(table, source / f"part-{written:03d}.parquet")
                if plan.kills:
                    _kill(query, (plan.seed + written * 37) % 200 / 1000)
                query.processAllAvailable()
                written += 1
        deadline = time.monotonic() + WAIT_S
        while plan.time == "ProcessingTime" and time.monotonic() < deadline:
            if _output(spark, stream, folder / "out").total() >= output.total():
                break
            time.sleep(0.1)
        _stop_with_snapshot(query)
    finally:
        query.stop()
    return {"output": _output(spark, stream, folder / "out"), **_our_state(spark, plan, folder)}


def _start(plan: ProcessorPlan, stream: DataFrame, folder: Path, parallelism: int) -> penstock.StreamingQuery:
    writer = penstock.writeStream(stream).option("path", str(folder / "out"))
    writer.option("checkpointLocation", str(folder / "checkpoint")).option("parallelism", parallelism)
    writer.option("checkpoint.alignment", plan.alignment).option("checkpoint.interval", "60ms")
    writer.option("restart.delay", "10ms").option("restart.attempts", 20).option("state.backend", plan.backend)
    return writer.start()


def _snapshot(query: penstock.StreamingQuery) -> None:
    """Everything so far: a killed slot begins with it, and reads one file at most again. Files that are read at once
    would mix."""
    for left in reversed(range(ATTEMPTS)):
        try:
            query.snapshot()
            return
        except CheckpointFailed:
            if not left or not query.isActive:
                raise
            query.processAllAvailable()


def _kill(query: penstock.StreamingQuery, after_s: float) -> None:
    time.sleep(after_s)
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(query.view().slots[-1].pid, signal.SIGKILL)


def _output(spark: SparkSession, stream: DataFrame, out: Path) -> Counter[Any]:
    if not any(out.glob("*.parquet")):
        return Counter()
    return _rows(spark.read.schema(stream.schema).parquet(str(out)))


def _our_state(spark: SparkSession, plan: ProcessorPlan, folder: Path) -> Tables:
    def read(table: str) -> Counter[Any]:
        state = spark.read.format("penstock").option("state", table).load(str(folder / "checkpoint"))
        books = [one for one in _BOOKS if one in state.columns and not table.endswith("__timers")]
        return _rows(state.drop(*books, "key_group"))

    timers = [] if plan.time == "None" else ["__timers"]
    if plan.form == "groups":
        return {name: read(f"group-state-0/{name}") for name in ("state", *timers)}
    names = [*_compared_variables(plan), *timers]
    found = {name: read(f"transform-with-state-0/{name}") for name in names}
    return found | ({"seen": read("transform-with-state-1/seen")} if plan.chained else {})
