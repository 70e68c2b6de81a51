"""The same StatefulProcessor by Penstock and by Spark's own engine: running totals by user, and sessions that a timer
ends, with frames of pandas and with Rows. And these sessions by Penstock alone, in all forms that it has.

Both run ``availableNow`` (``peers.against_spark``), Spark with RocksDB, which ``transformWithState`` demands.
Every file is a micro-batch of Spark's: a query that runs all day gets its rows bit by bit. How often an engine calls
the user's code depends on how it cuts the rows, and so do the sessions: the more often timers have their turn, the
sooner a session ends. So calls are counted, and the files of the sessions are so many that both engines make about as
many.
"""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from benchmarks.lib import harness
from benchmarks.peers.against_spark import by_penstock, compare

USERS = 100_000
ROWS = 2_000_000
ROUNDS = 1
"""Besides the warm-up: Spark takes minutes for one job."""
WARM_UP_ROWS = 5_000
SCHEMA = "user int, amount double, at timestamp"
GAP_MS = 60_000
TOTALS = "user int, n long, total double"
SESSIONS = "user int, began long, n long"


def write_files(directory: Path, rows: int, users: int, files: int) -> None:
    """Rows a millisecond apart, users by chance."""
    directory.mkdir()
    random = np.random.default_rng(7)
    for number in range(files):
        first, count = rows // files * number, rows // files
        columns = {
            "user": pa.array(random.integers(0, users, count, dtype="int32")),
            "amount": pa.array(random.random(count) * 100),
            "at": pa.array(np.arange(first, first + count) * 1_000, pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), directory / f"part-{number:03d}.parquet")


class Counted(StatefulProcessor):
    """Counts its calls, in a file of ``folder`` for every time that an engine begins and ends it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.calls = 0

    def close(self) -> None:
        Path(self.folder, uuid.uuid4().hex).write_text(str(self.calls))


def take_calls(folder: str) -> int:
    """Those counted since the last time."""
    counted = list(Path(folder).iterdir())
    calls = sum(int(one.read_text()) for one in counted)
    for one in counted:
        one.unlink()
    return calls


class PandasTotals(Counted):
    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.kept = handle.getValueState("total", "n long, total double")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        self.calls += 1
        n, total = self.kept.get() or (0, 0.0)
        for frame in rows:
            n, total = n + len(frame), total + float(frame["amount"].sum())
        self.kept.update((n, total))
        yield pd.DataFrame({"user": [key[0]], "n": [n], "total": [total]})


class RowTotals(PandasTotals):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self.calls += 1
        n, total = self.kept.get() or (0, 0.0)
        for row in rows:
            n, total = n + 1, total + row.amount
        self.kept.update((n, total))
        yield Row(user=key[0], n=n, total=total)


class PandasSessions(Counted):
    """A session ends when its user has been silent for a minute: one timer each, moved by every call."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self.handle = handle
        self.kept = handle.getValueState("session", "began long, n long, ends long")

    def add(self, first_ms: int, last_ms: int, count: int) -> None:
        self.calls += 1
        began, n, ends = self.kept.get() or (first_ms, 0, 0)
        if ends:
            self.handle.deleteTimer(ends)
        ends = max(ends, last_ms + GAP_MS)
        self.handle.registerTimer(ends)
        self.kept.update((min(began, first_ms), n + count, ends))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        for frame in rows:
            at = frame["at"]
            self.add(int(at.min().timestamp() * 1000), int(at.max().timestamp() * 1000), len(frame))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        self.calls += 1
        began, n, _ = self.kept.get()
        self.kept.clear()
        yield pd.DataFrame({"user": [key[0]], "began": [began], "n": [n]})


class RowSessions(PandasSessions):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        moments = [int(row.at.timestamp() * 1000) for row in rows]
        self.add(min(moments), max(moments), len(moments))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        self.calls += 1
        began, n, _ = self.kept.get()
        self.kept.clear()
        yield Row(user=key[0], began=began, n=n)


class ArrowSessions(penstock.ArrowStatefulProcessor):
    """The same for many users at a time."""

    def init(self, handle: penstock.ArrowStatefulProcessorHandle) -> None:
        self.handle = handle
        self.kept = handle.getValueState("session", "began long, n long, ends long")

    def handleInputBatch(self, keys: Any, owners: Any, rows: Any, timerValues: Any) -> Iterable[pa.RecordBatch]:
        at = rows.column("at").cast(pa.int64()).to_numpy() // 1000
        first, last = np.full(keys.num_rows, at.max()), np.zeros(keys.num_rows, np.int64)
        np.minimum.at(first, owners, at)
        np.maximum.at(last, owners, at)
        there = self.kept.exists()
        began, n, ends = (column.fill_null(0).to_numpy() for column in self.kept.get().columns)
        self.handle.deleteTimers(ends[there], there)
        ends = np.maximum(ends, last + GAP_MS)
        self.handle.registerTimers(ends)
        began = np.where(there, np.minimum(began, first), first)
        n = n + np.bincount(owners, minlength=keys.num_rows)
        self.kept.update(pa.RecordBatch.from_pydict({"began": began, "n": n, "ends": ends}))
        return ()

    def handleExpiredTimers(self, keys: Any, moments: Any, timerValues: Any) -> Iterable[pa.RecordBatch]:
        began, n, _ = self.kept.get().columns
        self.kept.clear()
        yield pa.RecordBatch.from_arrays([keys.column("user"), began, n], names=["user", "began", "n"])


@dataclass(frozen=True)
class Job:
    """``make``: of the rows, and the folder of ``Counted``. ``target``: of its speed to Spark's."""

    make: Callable[[DataFrame, str], DataFrame]
    files: int
    target: float


def totals_in_pandas(rows: DataFrame, folder: str) -> DataFrame:
    return rows.groupBy("user").transformWithStateInPandas(PandasTotals(folder), TOTALS, "Update", "None")


def totals_in_rows(rows: DataFrame, folder: str) -> DataFrame:
    return rows.groupBy("user").transformWithState(RowTotals(folder), TOTALS, "Update", "None")


def sessions_in_pandas(rows: DataFrame, folder: str) -> DataFrame:
    late = rows.withWatermark("at", "10 seconds").groupBy("user")
    return late.transformWithStateInPandas(PandasSessions(folder), SESSIONS, "Update", "EventTime")


def sessions_in_rows(rows: DataFrame, folder: str) -> DataFrame:
    late = rows.withWatermark("at", "10 seconds").groupBy("user")
    return late.transformWithState(RowSessions(folder), SESSIONS, "Update", "EventTime")


def sessions_in_arrow(rows: DataFrame, folder: str) -> DataFrame:
    late = rows.withWatermark("at", "10 seconds").groupBy("user")
    return penstock.transformWithStateInArrow(late, ArrowSessions(), SESSIONS, "Update", "EventTime")


FORMS = {"pandas": sessions_in_pandas, "Rows": sessions_in_rows, "Arrow": sessions_in_arrow}
"""Of the sessions."""


JOBS = {
    "running totals, pandas": Job(totals_in_pandas, 5, 5.0),
    "running totals, Rows": Job(totals_in_rows, 5, 3.0),
    "sessions by timers, pandas": Job(sessions_in_pandas, 10, 5.0),
    "sessions by timers, Rows": Job(sessions_in_rows, 10, 3.0),
}


def compare_forms(
    source: Callable[[], DataFrame], few: Callable[[], DataFrame], folder: str, rounds: int
) -> dict[str, object]:
    """The sessions by Penstock, form by form in turns: ``seconds`` of each round but the first, which is warm-up over
    ``few`` rows, and how many times as quick as each of the others Arrow is, the median of the rounds' ratios."""
    seconds: dict[str, list[float]] = {form: [] for form in FORMS}
    for number in range(rounds + 1):
        for form, make in FORMS.items():
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
                began = time.perf_counter()
                by_penstock(make(source() if number else few(), folder), "update", location)
                if number:
                    seconds[form].append(time.perf_counter() - began)
    ratios = {form: statistics.median(map(truediv, taken, seconds["Arrow"])) for form, taken in seconds.items()}
    return {"seconds": seconds, "arrow_to": ratios, "target": 5.0}


def configure(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)


def source(spark: SparkSession, directory: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(directory))


def beside_spark(spark: SparkSession, job: Job, whole: Path, part: Path, calls: str, rounds: int) -> dict[str, object]:
    """One job over the files of ``whole`` by both engines; ``calls``: an empty folder."""
    return compare(
        lambda: job.make(source(spark, whole), calls),
        "update",
        rounds,
        warm_up=lambda: job.make(source(spark, part), calls),
        calls=lambda: take_calls(calls),
    )


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    configure(spark)
    rows, users, rounds = (ROWS // 10, USERS // 10, 1) if quick else (ROWS, USERS, ROUNDS)
    found: dict[str, object] = {}
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-rows-") as folder,
        tempfile.TemporaryDirectory(prefix="penstock-bench-calls-") as calls,
    ):
        part = Path(folder, "part")
        write_files(part, WARM_UP_ROWS, users, 1)
        wholes = {files: Path(folder, str(files)) for files in sorted({job.files for job in JOBS.values()})}
        for files, directory in wholes.items():
            write_files(directory, rows, users, files)

        whole = wholes[max(wholes)]
        forms = {
            "rows": rows,
            **compare_forms(lambda: source(spark, whole), lambda: source(spark, part), calls, rounds),
        }
        print(f"  sessions, form by form: {forms}", flush=True)
        take_calls(calls)
        for name, job in JOBS.items():
            figures = beside_spark(spark, job, wholes[job.files], part, calls, rounds)
            found[name] = {"rows": rows, "files": job.files, "target": job.target} | figures
            print(f"  {name}: {found[name]}", flush=True)
    return {"jobs": found, "forms": forms, "users": users}
