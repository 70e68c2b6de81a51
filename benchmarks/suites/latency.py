"""Latency of rows through a keyed Python function, from their due time to the sink, in Penstock and in Spark's engine.

10,000 rows a second arrive by the clock (``benchmarks.lib.fixed_rate_source``); the function keeps a running total of
each key and yields every row with it. A row's latency counts from its due time instead of the time at which it was
fetched, so that an engine that falls behind does not look faster. It ends

- with Penstock at the memory sink's write call, in the slot. (Rows are visible with the commit, at the checkpoint
  interval; checkpoints run meanwhile, as they do by default, and unaligned.)
- with Structured Streaming and its default trigger when the rows of their micro-batch are in its memory sink. The
  query's progress has no such time; the benchmark takes the begin of the commit of the offsets.
"""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from benchmarks.lib import harness
from benchmarks.lib.fixed_rate_source import FixedRateSource, Schedule
from penstock.connectors.base import SinkContext, SinkWriter
from penstock.connectors.memory import MemorySink

ROWS_PER_SECOND = 10_000
KEYS = 100
FEW_KEYS = 10
"""With them the pandas forms are measured as well: with 100, the calls of the function alone keep the machine busy."""
LEAD_S = 8.0
"""From the start of a run until row 0 is due: planning and slots take their time."""
WARM_UP_S = 12.0
"""From row 0 on: Spark's first micro-batches, in which it starts its workers, and what was due meanwhile."""
MEASURED_S = 20.0
"""Two checkpoints by default."""
ROUNDS = 1
LIMIT_S = 120.0
TARGET_MS = 50.0
OUTPUT = "key int, total double, due_us long"
FORMS = {
    "penstock": {"checkpoint.interval": "10s"},
    "penstock, unaligned": {"checkpoint.interval": "10s", "checkpoint.alignment": "unaligned"},
}
SPARK = "spark"
TABLE = "latency"


# -- the function, in each form ---------------------------------------------------------------------------------------


class PandasTotals(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("total", "total double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        (total,) = self.kept.get() or (0.0,)
        for frame in rows:
            totals = frame["value"].cumsum() + total
            total = float(totals.iloc[-1])
            yield pd.DataFrame({"key": frame["key"], "total": totals, "due_us": frame["due_us"]})
        self.kept.update((total,))

    def close(self) -> None:
        pass


class RowTotals(PandasTotals):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (total,) = self.kept.get() or (0.0,)
        for row in rows:
            total += row.value
            yield Row(key=row.key, total=total, due_us=row.due_us)
        self.kept.update((total,))


class ArrowTotals(penstock.ArrowStatefulProcessor):
    """The same for many keys at a time."""

    def init(self, handle: penstock.ArrowStatefulProcessorHandle) -> None:
        self.kept = handle.getValueState("total", "total double")

    def handleInputBatch(self, keys: Any, owners: Any, rows: Any, timerValues: Any) -> Iterator[pa.RecordBatch]:
        before = self.kept.get().column("total").fill_null(0.0).to_numpy()
        order = np.argsort(owners, kind="stable")
        sums = np.cumsum(rows.column("value").to_numpy()[order])
        lasts = np.cumsum(np.bincount(owners, minlength=keys.num_rows)) - 1  # of each key, among the ordered rows
        total = before + np.diff(sums[lasts], prepend=0.0)
        totals = np.empty(len(order))
        totals[order] = sums + (total - sums[lasts])[owners[order]]
        self.kept.update(pa.RecordBatch.from_pydict({"total": total}))
        yield pa.RecordBatch.from_arrays(
            [rows.column("key"), pa.array(totals), rows.column("due_us")], names=["key", "total", "due_us"]
        )

    def close(self) -> None:
        pass


def group_totals(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (total,) = state.getOption or (0.0,)
    for frame in frames:
        totals = frame["value"].cumsum() + total
        total = float(totals.iloc[-1])
        yield pd.DataFrame({"key": frame["key"], "total": totals, "due_us": frame["due_us"]})
    state.update((total,))


class _Kept:
    """A value state that costs nothing."""

    value: tuple[float] | None = None

    def get(self) -> tuple[float] | None:
        return self.value

    def update(self, value: tuple[float]) -> None:
        self.value = value


def call_us(processor: PandasTotals, fresh: Callable[[], Any]) -> float:
    """Return the duration of a call of the function by itself, in microseconds, which no engine can save.

    ``fresh`` makes its rows: a frame caches the requested columns and would be faster the second time.
    """
    processor.kept = _Kept()
    took = []
    for _ in range(5):
        given = [fresh() for _ in range(1_000)]
        began = time.perf_counter()
        for rows in given:
            for _ in processor.handleInputRows((1,), iter(rows), None):
                pass
        took.append((time.perf_counter() - began) * 1_000)
    return statistics.median(took)


def calls_alone_us() -> dict[str, float]:
    """Return the duration of a call by form, with five rows."""
    rows = [Row(key=1, value=float(number), due_us=number) for number in range(5)]
    frame = pd.DataFrame([row.asDict() for row in rows])
    return {
        "pandas": call_us(PandasTotals(), lambda: [frame.iloc[:]]),
        "Rows": call_us(RowTotals(), lambda: rows),
    }


def in_pandas(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithStateInPandas(PandasTotals(), OUTPUT, "Append", "None")


def in_rows(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").transformWithState(RowTotals(), OUTPUT, "Append", "None")


def with_group_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").applyInPandasWithState(group_totals, OUTPUT, "total double", "append", "NoTimeout")


def in_arrow(rows: DataFrame) -> DataFrame:
    return penstock.transformWithStateInArrow(rows.groupBy("key"), ArrowTotals(), OUTPUT, "Append", "None")


@dataclass(frozen=True)
class Job:
    make: Callable[[DataFrame], DataFrame]
    keys: int = KEYS


JOBS = {
    "transformWithStateInPandas": Job(in_pandas),
    "transformWithStateInPandas, few keys": Job(in_pandas, FEW_KEYS),
    "applyInPandasWithState": Job(with_group_state),
    "applyInPandasWithState, few keys": Job(with_group_state, FEW_KEYS),
    "transformWithState, Rows": Job(in_rows),
    "transformWithStateInArrow": Job(in_arrow),
}


# -- Penstock ---------------------------------------------------------------------------------------------------------


class StampingMemorySink(MemorySink):
    """The memory sink; the last column of its rows becomes when ``write`` was called, in microseconds since 1970."""

    def create_writer(self) -> SinkWriter:
        return _StampingWriter(super().create_writer())


class _StampingWriter(SinkWriter):
    def __init__(self, writer: SinkWriter) -> None:
        self._writer = writer

    def open(self, context: SinkContext) -> None:
        self._writer.open(context)

    def write(self, batch: pa.RecordBatch) -> None:
        now = pa.array(np.full(batch.num_rows, time.time_ns() // 1_000))
        self._writer.write(batch.set_column(batch.num_columns - 1, batch.schema.field(batch.num_columns - 1), now))

    def replace(self) -> None:
        self._writer.replace()

    def prepare(self, epoch: int) -> bytes | None:
        return self._writer.prepare(epoch)

    def close(self) -> None:
        self._writer.close()


def by_penstock(df: DataFrame, schedule: Schedule, window: range, options: dict[str, str]) -> np.ndarray:
    """Milliseconds of latency of each row of the window (row numbers)."""
    made: list[StampingMemorySink] = []

    def make(name: str, schema: pa.Schema, replaces: bool) -> MemorySink:
        made.append(StampingMemorySink(name, schema, replaces))
        return made[0]

    stamped = df.withColumn("written_us", F.lit(0).cast("long"))
    with (
        patch("penstock.api.sinks.MemorySink", make),
        harness.running(stamped, sink="memory", name=TABLE, **options) as query,
    ):
        sleep_until(schedule, window.stop)
        deadline = time.monotonic() + LIMIT_S
        while True:
            query.snapshot()  # it commits
            written = made[0].table()
            due_us = written["due_us"].to_numpy()
            measured = in_window(due_us, schedule, window)
            if np.count_nonzero(measured) >= len(window):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"rows that were due are not in the sink {LIMIT_S:.0f} s later")
    return of_window((written["written_us"].to_numpy() - due_us)[measured] / 1_000, window)


# -- Spark ------------------------------------------------------------------------------------------------------------


def by_spark(df: DataFrame, schedule: Schedule, window: range) -> np.ndarray:
    """Milliseconds of latency of each row of the window (row numbers)."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        writer = df.writeStream.format("memory").queryName(TABLE).outputMode("append")
        query = writer.option("checkpointLocation", location).start()
        try:
            sleep_until(schedule, window.stop)
            read = lambda: max((stop for _, stop, _ in batches(query.recentProgress)), default=0)  # noqa: E731
            harness.wait_for("every row in Spark's sink", lambda: read() >= window.stop, LIMIT_S)
            progress = query.recentProgress
        finally:
            query.stop()
    found = [
        (written_us - schedule.due_us(np.arange(max(first, window.start), min(stop, window.stop)))) / 1_000
        for first, stop, written_us in batches(progress)
    ]
    return of_window(np.concatenate(found), window)


def batches(progress: list[Any]) -> list[tuple[int, int, int]]:
    """Return first row number, last row number + 1 and time of writing (us since 1970) of micro-batches with rows."""
    found = []
    for one in progress:
        source, took_ms = one["sources"][0], one["durationMs"]
        if not one["numInputRows"]:
            continue
        first, stop = (json.loads(text)["rows"] if text else 0 for text in (source["startOffset"], source["endOffset"]))
        began = datetime.fromisoformat(one["timestamp"])
        written_ms = took_ms["triggerExecution"] - took_ms["commitOffsets"]
        found.append((first, stop, round(began.timestamp() * 1_000_000) + written_ms * 1_000))
    return found


# -- both -------------------------------------------------------------------------------------------------------------


def sleep_until(schedule: Schedule, number: int) -> None:
    """The row of this number is due."""
    due_us = int(schedule.due_us(np.array([number]))[0])
    time.sleep(max(0.0, due_us / 1_000_000 - time.time()))


def in_window(due_us: np.ndarray, schedule: Schedule, window: range) -> np.ndarray:
    """Return a mask of the rows that were due in the window."""
    first_us, stop_us = schedule.due_us(np.array([window.start, window.stop]))
    chosen: np.ndarray = (due_us >= first_us) & (due_us < stop_us)
    return chosen


def of_window(latencies: np.ndarray, window: range) -> np.ndarray:
    """Checked: none is missing, or twice there."""
    if len(latencies) != len(window):
        raise AssertionError(f"{len(latencies)} of {len(window)} rows")
    return latencies


def measure(spark: SparkSession, job: str, form: str, measured_s: float) -> dict[str, float]:
    """Return the quantiles of one run in milliseconds."""
    schedule = Schedule(time.time_ns() // 1_000 + round(LEAD_S * 1_000_000), ROWS_PER_SECOND)
    first = round(WARM_UP_S * ROWS_PER_SECOND)
    window = range(first, first + round(measured_s * ROWS_PER_SECOND))
    options = {"startedUs": schedule.started_us, "rowsPerSecond": ROWS_PER_SECOND, "keys": JOBS[job].keys}
    rows = spark.readStream.format("fixed-rate").options(partitions=harness.SLOTS, **options).load()
    df = JOBS[job].make(rows)
    latencies = by_spark(df, schedule, window) if form == SPARK else by_penstock(df, schedule, window, FORMS[form])
    return harness.quantiles(latencies.tolist())


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    spark.dataSource.register(FixedRateSource)
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "10000")
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    forms = [*FORMS, SPARK]
    rounds: dict[str, dict[str, list[dict[str, float]]]] = {job: {form: [] for form in forms} for job in JOBS}
    measure(spark, next(iter(JOBS)), SPARK, 1.0)  # the first query of a session pays for it
    for number in range(1 if quick else ROUNDS):
        for job in JOBS:
            for form in forms if number % 2 else reversed(forms):
                found = measure(spark, job, form, MEASURED_S / 2 if quick else MEASURED_S)
                rounds[job][form].append(found)
                print(f"  {job}, {form}: {found}", flush=True)
    return {
        "rows_per_second": ROWS_PER_SECOND,
        "keys": {job: one.keys for job, one in JOBS.items()},
        "target_ms": TARGET_MS,
        "call_us": calls_alone_us(),
        "jobs": rounds,
    }
