"""A StatefulProcessor begins on Spark's engine and goes on in Penstock, with its values, lists, maps and timers."""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import penstock
from penstock.errors import NotSupported
from tests.support.spark_import.spark_runs import Arrivals, OnSpark, on_penstock, same

pytestmark = pytest.mark.slow

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
OUTPUT = "user string, event string, n long, items string, most double"
MANY_MS = 100_000_000


@pytest.fixture(autouse=True)
def rocksdb(spark_conf: Callable[[str, str], None]) -> None:
    """Spark runs transformWithState on no other store."""
    spark_conf(PROVIDER, ROCKSDB)


def sessions() -> Any:
    """Counts rows, keeps amounts in order and the largest ratio of each kind, and ends ten seconds of event time after
    the first row. A class of a function, so that it is pickled by value."""

    class Sessions(StatefulProcessor):  # type: ignore[misc]  # PySpark's sources are not typed
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n int, since struct<first: string>")
            self.items = handle.getListState("items", "amount long")
            self.most = handle.getMapState("most", "even boolean, half int", "ratio double")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            n, first = self.count.get() or (0, None)
            for frame in rows:
                if first is None:
                    first = (str(key[0]),)
                    self.handle.registerTimer(int(frame["at"].min().timestamp() * 1000) + 10_000)
                for amount, ratio in zip(frame["amount"].tolist(), frame["ratio"].tolist(), strict=True):
                    n += 1
                    self.items.appendValue((amount,))
                    place = (amount % 2 == 0, amount // 2 % 2)
                    old = self.most.getValue(place)
                    self.most.updateValue(place, (ratio if old is None else max(old[0], ratio),))
            self.count.update((n, first))
            yield self.line(key, "rows")

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            yield self.line(key, f"ended {expiredTimerInfo.getExpiryTimeInMs()}")
            self.count.clear()
            self.items.clear()
            self.most.clear()

        def line(self, key: Any, event: str) -> pd.DataFrame:
            n, first = self.count.get()
            items = ",".join(str(item[0]) for item in self.items.get())
            most = sum(value[0] for _, value in self.most.iterator())
            assert first[0] == str(key[0])
            return pd.DataFrame({"user": [key[0]], "event": [event], "n": [n], "items": [items], "most": [most]})

        def close(self) -> None:
            """Nothing is held."""

    return Sessions()


def by_session(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "1 second").groupBy("user")
    return grouped.transformWithStateInPandas(sessions(), OUTPUT, "update", "eventTime")


def changed(**changes: Any) -> Any:
    """``kept_for_long`` but for some declarations."""

    class Changed(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            for name, declare in changes.items():
                declare(handle, name)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            return iter(())

        def close(self) -> None:
            """Nothing is held."""

    return Changed()


@pytest.fixture(scope="module")
def begun(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Arrivals, Path]:
    """Input, and the checkpoint of a query that Spark has run on it."""
    folder = tmp_path_factory.mktemp("begun")
    arrivals = Arrivals(folder / "in")
    arrivals.add((1, "a", 1), (2, "b", 2), (3, None, 3), (4, "a", 7))
    arrivals.add((5, "a", 4), (6, "c", 5), (7, "b", 9))
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        before = OnSpark(folder / "spark", "update").run(by_session(arrivals.stream(spark)))
    finally:
        spark.conf.unset(PROVIDER)
    assert len([row for row in before if row[1] == "rows"]) == 6
    return arrivals, folder / "spark"


def test_another_processor_is_told_by_its_state(
    spark: SparkSession, begun: tuple[Arrivals, Path], tmp_path: Path
) -> None:
    arrivals, checkpoint = begun
    stream = arrivals.stream(spark).withWatermark("at", "1 second")

    def refusal(processor: Any, key: str = "user", time_mode: str = "eventTime") -> str:
        df = stream.groupBy(key).transformWithStateInPandas(processor, OUTPUT, "update", time_mode)
        with pytest.raises(NotSupported) as refused:
            penstock.importSparkCheckpoint(df, str(checkpoint), str(tmp_path / "new"), outputMode="update")
        assert not (tmp_path / "new").exists()
        return str(refused.value)

    said = refusal(
        changed(
            count=lambda handle, name: handle.getListState(name, "n int, since struct<first: string>"),
            items=lambda handle, name: handle.getListState(name, "amount string"),
            most=lambda handle, name: handle.getMapState(name, "even boolean", "ratio double"),
        )
    )
    assert "count: Spark's is a ValueState, not a list state" in said
    assert "items, values: Spark's are (int64), not (string)" in said
    assert "most, keys of the map: Spark's are (bool, int32), not (bool)" in said
    said = refusal(
        changed(
            count=lambda handle, name: handle.getValueState(name, "n int, since struct<first: string>"),
            most=lambda handle, name: handle.deleteIfExists(name),
        )
    )
    assert "items: the processor does not declare it; declare it, or delete it (deleteIfExists)" in said
    assert "most" not in said
    assert "grouping keys: Spark's are (string), not (int64)" in refusal(sessions(), "amount")
    assert "Spark's time mode is EventTime, not ProcessingTime" in refusal(sessions(), "user", "processingTime")


def test_values_lists_maps_and_timers_are_taken_over(
    spark: SparkSession, begun: tuple[Arrivals, Path], tmp_path: Path
) -> None:
    arrivals, checkpoint = begun
    df = by_session(arrivals.stream(spark))
    on_spark = OnSpark(checkpoint, "update")
    taken = penstock.importSparkCheckpoint(
        df, str(on_spark.checkpoint), str(tmp_path / "moved"), outputMode="update", parallelism=2
    )
    tables = {
        name: spark.read.format("penstock")
        .options(snapshot=taken.snapshot, state=f"transform-with-state-0/{name}")
        .load(taken.location)
        for name in ("count", "items", "most", "__timers")
    }
    assert {name: table.count() for name, table in tables.items()} == {"count": 4, "items": 7, "most": 7, "__timers": 4}
    assert taken.state_rows == 22
    assert [row.amount for row in tables["items"].where("user = 'a'").orderBy("__position").collect()] == [1, 7, 4]
    arrivals.add((12, "a", 11), (13, "d", 5), (3, "b", 1000))  # the last one is late
    arrivals.add((40, "e", 1), (41, "g", 2))
    arrivals.add((60, "f", 1))
    after = on_penstock(df, tmp_path / "moved", "update", 3)
    ended = {row[0]: (row[2], row[3]) for row in after if row[1].startswith("ended")}
    assert ended.keys() == {"a", "b", None, "c", "d", "e", "g"}
    assert ended["a"] == (4, "1,7,4,11")
    assert same_but_for_batches(after, on_spark.run(df))


def same_but_for_batches(some: list[Any], others: list[Any]) -> bool:
    """Spark hands a batch's rows of a key over together, and so may we those of two: what a session ended with counts,
    and the last line of those that have not ended."""

    def counted(rows: list[Any]) -> list[Any]:
        ended = [tuple(row) for row in rows if row[1] != "rows"]
        last = {row[0]: tuple(row) for row in rows if row[1] == "rows"}
        return [*ended, *last.values()]

    return same(counted(some), counted(others))


def kept_for_long() -> Any:
    """Everything with a time to live, and timers of processing time."""

    class Kept(StatefulProcessor):  # type: ignore[misc]
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.total = handle.getValueState("total", "n long", MANY_MS)
            self.items = handle.getListState("items", "amount long, text string", MANY_MS)
            self.seen = handle.getMapState("seen", "amount long", "n long", MANY_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            amounts = [int(row.amount) for row in rows]
            total = (self.total.get() or (0,))[0] + sum(amounts)
            self.total.update((total,))
            for amount in amounts:
                self.items.appendValue((amount, f"<{amount}>"))
                self.seen.updateValue((amount,), (len(amounts),))
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + MANY_MS)
            items = len(list(self.items.get()))
            line = {"user": key[0], "total": total, "items": items, "seen": len(list(self.seen.keys()))}
            yield Row(**line)

        def close(self) -> None:
            """Nothing is held."""

    return Kept()


def test_what_has_a_time_to_live_keeps_it(spark: SparkSession, tmp_path: Path) -> None:
    """A processor of Rows; Spark calls that operator by another name."""
    arrivals = Arrivals(tmp_path / "in")
    stream = arrivals.stream(spark).groupBy("user")
    output = "user string, total long, items long, seen long"
    df = stream.transformWithState(kept_for_long(), output, "update", "processingTime")
    arrivals.add((1, "a", 1), (2, "b", 2), (3, "a", 3))
    checkpoint = tmp_path / "spark"
    query = (
        df.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(checkpoint)).start()
    )  # with timers of processing time a query never has nothing to do
    deadline = time.monotonic() + 100
    while not (checkpoint / "commits/0").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    query.stop()  # within a batch without rows, mostly
    taken = penstock.importSparkCheckpoint(
        df, str(checkpoint), str(tmp_path / "moved"), outputMode="update", parallelism=2, planned="again"
    )

    def stored(name: str) -> list[tuple[Any, ...]]:
        table = (
            spark.read.format("penstock")
            .options(snapshot=taken.snapshot, state=f"transform-with-state-0/{name}")
            .load(taken.location)
        )
        return sorted(tuple(row)[1:] for row in table.collect())

    def at_spark(**options: str) -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row) for row in spark.read.format("statestore").options(**options).load(str(checkpoint)).collect()
        )

    total = [(key[0], value[0][0], value[1]) for key, value, _ in at_spark(stateVarName="total")]
    assert stored("total") == total
    assert [row[:2] for row in total] == [("a", 4), ("b", 2)]
    assert SparkSession.getActiveSession() is spark, "the session that reads the state stays out of sight"
    assert min(row[2] for row in total) > time.time() * 1000 + MANY_MS / 2
    elements = [(key[0], *value[0], value[1]) for key, value, _ in at_spark(stateVarName="items")]
    assert [(row[0], *row[2:]) for row in stored("items")] == elements
    seen = [(key[0], *inner, value[0][0], value[1]) for key, inner, value, _ in at_spark(stateVarName="seen")]
    assert stored("seen") == seen
    assert stored("__timers") == [(key[0], at) for key, at, _ in at_spark(readRegisteredTimers="true")]
    assert len(stored("__timers")) == 2
    arrivals.add((5, "a", 3), (6, "c", 9))
    assert same(on_penstock(df, tmp_path / "moved", "update"), [("a", 7, 3, 2), ("c", 9, 1, 1)])
