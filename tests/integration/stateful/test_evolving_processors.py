"""Processors that declare other state from one start to the next, from input to output."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.coordinator import generation_slots as attempt
from penstock.errors import PlanChanged
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.format.table_entries import table_entries
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark
register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

TABLE = "transform-with-state-0/total"


class Totals(StatefulProcessor):
    """Says what is known of a key, newest release last."""

    release = 1

    def init(self, handle: StatefulProcessorHandle) -> None:
        schemas = {1: "n bigint", 2: "newest bigint, n bigint", 3: "newest bigint, n bigint"}
        self.total = handle.getValueState("total", schemas[self.release])
        if self.release == 2:
            self.seen = handle.getListState("seen", "value bigint")
        if self.release == 3:
            handle.deleteIfExists("seen")

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        self.total.update((int(initialState["n"].iloc[0]),))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        values = [int(value) for frame in rows for value in frame["value"]]
        known = self.total.get() or (None,) * min(self.release, 2)
        total = (known[-1] or 0) + sum(values)
        said = f"{self.release}: {known} -> {total}"
        if self.release == 2:
            self.seen.appendList([(value,) for value in values])
            said += f", seen {[value for (value,) in self.seen.get()]}"
        self.total.update((total,) if self.release == 1 else (max(values), total))
        yield pd.DataFrame({"key": [key[0]], "said": [said]})


class Second(Totals):
    release = 2


class Third(Totals):
    release = 3


def noting(folder: str) -> Callable[[Iterator[pd.DataFrame]], Iterator[pd.DataFrame]]:
    """Passes rows on, and leaves a file whenever they are read."""

    def note(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            Path(folder, str(os.urandom(4).hex())).touch()
            yield frame

    return note


def test_fields_and_variables_come_and_go(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The initial state is read by the first start alone."""
    monkeypatch.setattr(attempt, "JOB_GRACE_S", 10.0)
    reads = tmp_path / "reads"
    reads.mkdir()
    known = spark.createDataFrame([(1, 100)], "key bigint, n bigint").coalesce(1)
    known = known.mapInPandas(noting(str(reads)), "key bigint, n bigint")

    def totals(processor: Totals, rows: DataFrame) -> DataFrame:
        initial = known.groupBy("key")
        grouped = rows.groupBy("key")
        return grouped.transformWithStateInPandas(processor, "key bigint, said string", "Append", "None", initial)

    inbox.add([(1, 5, 1.0), (2, 6, 1.0)])
    query = start(totals(Totals(), inbox.stream(spark)))
    query.processAllAvailable()
    query.stop()
    assert rows_of(out) == [(1, "1: (100,) -> 105"), (2, "1: (None,) -> 6")]
    assert len(list(reads.iterdir())) == 1

    query = start(totals(Second(), inbox.stream(spark)))
    eventually(lambda: bool(query.view().slots), "slots")
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    eventually(lambda: query.generation == 3, "the next Generation")
    inbox.add([(1, 7, 2.0)])
    query.processAllAvailable()
    query.rescale(2, timeout=60)
    inbox.add([(1, 1, 3.0), (3, 8, 3.0)])
    query.processAllAvailable()
    query.stop()
    second = ["2: (None, 105) -> 112, seen [7]", "2: (7, 112) -> 113, seen [7, 1]"]
    assert {said for key, said in rows_of(out) if key == 1} == {"1: (100,) -> 105", *second}
    assert len(list(reads.iterdir())) == 1

    location, edited = str(tmp_path / "checkpoint"), str(tmp_path / "edited")
    state = spark.read.format("penstock").option("state", TABLE).load(location)
    rows = sorted((row.key, row.newest, row.n) for row in state.collect())
    assert rows == [(1, 1, 113), (2, None, 6), (3, 8, 8)]
    repaired = state.withColumn("n", F.when(F.col("key") == 2, F.lit(60)).otherwise(F.col("n")))
    penstock.SnapshotWriter.from_snapshot(location).with_state(TABLE, repaired).write(edited)

    with_more = inbox.stream(spark).withColumn("more", F.lit("x"))
    with pytest.raises(PlanChanged, match=r"(?s)state of transform-with-state-0, seen: .*now absent.*deleteIfExists"):
        start(totals(Totals(), with_more))
    inbox.add([(2, 1, 4.0)])
    for place, expected in ((location, "3: (None, 6) -> 7"), (edited, "3: (None, 60) -> 61")):
        path = str(tmp_path / f"out of {Path(place).name}")
        query = start(totals(Third(), with_more), checkpointLocation=place, path=path)
        query.processAllAvailable()
        query.stop()
        assert rows_of(Path(path)) == [(2, expected)]
        assert tables_of(place) == {"total", "__waiting"}
    assert len(list(reads.iterdir())) == 1


def tables_of(location: str) -> set[str]:
    """Return the tables of the newest snapshot."""
    opened = open_location_to_read(location)
    return {table for _, table in table_entries(opened.metadata(opened.view.lineage[-1]))}


def test_the_state_of_a_function_over_groups_gets_a_field(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path
) -> None:
    def counted(fields: int) -> DataFrame:
        def count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
            known = state.getOption
            n = (known[0] if known else 0) + sum(map(len, frames))
            state.update((n, "x")[:fields])
            yield pd.DataFrame({"key": [key[0]], "said": [f"{known and tuple(known)} -> {n}"]})

        schema = "n bigint, s string" if fields == 2 else "n bigint"
        grouped = inbox.stream(spark).groupBy("key")
        return grouped.applyInPandasWithState(count, "key bigint, said string", schema, "append", "NoTimeout")

    for fields in (1, 2):
        inbox.add([(1, 0, 1.0)])
        query = start(counted(fields))
        query.processAllAvailable()
        query.stop()
    assert rows_of(out) == [(1, "(1, None) -> 2"), (1, "None -> 1")]
    with pytest.raises(PlanChanged, match="state, field s: stored s string, now absent"):
        start(counted(1))


class Slow(StatefulProcessor):
    """One row of each key, and which columns it had."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            time.sleep(self.pause_s)
            n = (self.seen.get() or (0,))[0] + 1
            self.seen.update((n,))
            yield Row(key=key[0], n=n, columns=",".join(row.__fields__))


def test_rows_that_wait_go_on_without_a_column_that_the_input_lost(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path, tmp_path: Path
) -> None:
    """The snapshot comes amid a slice, and the query ends with it."""

    def slow(pause_s: float, *columns: str) -> DataFrame:
        rows = inbox.stream(spark).selectExpr("key", *columns)
        return rows.groupBy("key").transformWithState(
            Slow(pause_s), "key bigint, n bigint, columns string", "Append", "None"
        )

    keys, location = range(2000), str(tmp_path / "checkpoint")
    inbox.add([(key, key, 1.0) for key in keys])
    query = start(slow(0.004, "value", "at"), parallelism=1)
    eventually(lambda: bool(rows_of(out)), "the first keys")
    query.stop(snapshot=True)
    before = {key for key, *_ in rows_of(out)}
    opened = open_location_to_read(location)
    entries = table_entries(opened.metadata(opened.view.lineage[-1]))
    [waiting] = [found for (_, table), found in entries.items() if table == "__waiting"]
    assert sum(entry.rows for entry in waiting) == len(keys) - len(before) > 0

    with pytest.raises(PlanChanged, match=r"__waiting, where \d+ rows wait: .*now .*more"):
        start(slow(0.0, "value", "at", "value as more"))
    query = start(slow(0.0, "at"), parallelism=2)
    query.processAllAvailable()
    query.stop()
    first, last = "key,value,at", "key,at"
    assert rows_of(out) == sorted(((key, 1, first if key in before else last) for key in keys), key=repr)
