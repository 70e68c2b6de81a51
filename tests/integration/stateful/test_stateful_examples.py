"""transformWithState through Spark sessions: PySpark's documentation, time that passes without input, initial state,
chains, and snapshots as data."""

from __future__ import annotations

import doctest
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import GroupedData, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import penstock
from penstock.errors import FunctionError
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
register_pickle_by_value(sys.modules[__name__])

# -- what PySpark's documentation shows -------------------------------------------------------------------------------

DEFINITIONS = ("import ", "from ", "output_schema ", "state_schema ", "class ", "def ")


def documented(method: Any, **names: Any) -> dict[str, Any]:
    """Return a module with the definitions of the examples in a method's documentation, and some more names."""
    module: dict[str, Any] = {"__name__": "__main__", **names}
    for example in doctest.DocTestParser().get_examples(method.__doc__):
        if example.source.startswith(DEFINITIONS):
            exec(example.source, module)
    return module


def written(directory: Path, name: str, table: pa.Table) -> None:
    directory.mkdir(exist_ok=True)
    pq.write_table(table, directory / f".{name}")
    (directory / f".{name}").rename(directory / f"{name}.parquet")


READINGS = pa.table({"id": ["0", "0", "1", "1", "1"], "temperature": pa.array([123, 23, 33, 188, 88], pa.int64())})


@pytest.mark.parametrize("mode", ["pandas", "rows"])
def test_the_examples_of_pysparks_documentation(
    spark: SparkSession, tmp_path: Path, out: Path, start: Start, mode: str
) -> None:
    """They run unchanged but for the Row example: it yields the key, a tuple, where its schema has a string. Spark
    refuses that, too; the first element is meant."""
    written(tmp_path / "in", "one", READINGS)
    df = spark.readStream.schema("id string, temperature long").parquet(str(tmp_path / "in"))
    if mode == "pandas":
        code = documented(GroupedData.transformWithStateInPandas)
        result = df.groupBy("id").transformWithStateInPandas(
            statefulProcessor=code["SimpleStatefulProcessor"](),
            outputStructType=code["output_schema"],
            outputMode="Update",
            timeMode="None",
        )
    else:
        code = documented(GroupedData.transformWithState)
        exec(KEY_OF_ROW, code)
        result = df.groupBy("id").transformWithState(code["KeyOfRow"](), code["output_schema"], "Update", "None")
    query = start(result)
    query.processAllAvailable()
    query.stop()
    assert rows_of(out) == [("0", 2), ("1", 3)]
    state = spark.read.format("penstock").option("state", "transform-with-state-0/numViolations")
    kept = state.load(str(tmp_path / "checkpoint")).drop("key_group").orderBy("id").collect()
    assert [tuple(row) for row in kept] == [("0", 1), ("1", 1)]


def test_a_repaired_key_and_state_from_elsewhere_are_where_a_query_starts(
    spark: SparkSession, tmp_path: Path, out: Path, start: Start
) -> None:
    """Changed through Spark, a map and its timers, too: positions, keys and all."""
    written(tmp_path / "in", "one", READINGS)
    df = spark.readStream.schema("id string, temperature long").parquet(str(tmp_path / "in"))
    result = df.groupBy("id").transformWithState(Remembering(), "id string, said string", "Update", "ProcessingTime")
    query = start(result)
    query.processAllAvailable()
    query.stop()
    table = "transform-with-state-0/seen"
    seen = spark.read.format("penstock").option("state", table).load(str(tmp_path / "checkpoint"))
    assert sorted((row.id, row.temperature, row.times) for row in seen.collect()) == [
        ("0", 23, 1), ("0", 123, 1), ("1", 33, 1), ("1", 88, 1), ("1", 188, 1),
    ]  # fmt: skip
    newest = spark.read.format("penstock").load(str(tmp_path / "checkpoint")).orderBy("checkpoint").collect()[-1].id
    writer = penstock.SnapshotWriter.from_snapshot(str(tmp_path / "checkpoint"), newest)
    repaired = seen.where("id = '0' or temperature < 50").withColumn("times", F.col("times") * 10)
    writer.with_state(table, repaired)
    timers = spark.createDataFrame([("0", 12345), ("new", 23456)], "id string, `__expires_ms` bigint")
    writer.with_state("transform-with-state-0/__timers", timers).write(str(tmp_path / "repaired"))
    written(tmp_path / "in", "two", READINGS.slice(0, 1))
    query = start(result, checkpointLocation=str(tmp_path / "repaired"), path=str(tmp_path / "second"), parallelism=2)
    query.processAllAvailable()
    eventually(lambda: len(rows_of(tmp_path / "second")) == 3, "both timers and a row")
    query.stop()
    found = rows_of(tmp_path / "second")
    assert found[1:] == [("0", "{23: 10, 123: 11}"), ("new", "23456 {}")]
    assert found[0] in [("0", f"12345 {{23: 10, 123: {times}}}") for times in (10, 11)], "before the row or behind it"


class Remembering(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getMapState("seen", "temperature bigint", "times int")

    def all(self) -> dict[int, int]:
        return dict(sorted((key[0], value[0]) for key, value in self.seen.iterator()))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            known = self.seen.getValue((row.temperature,))
            self.seen.updateValue((row.temperature,), ((known[0] if known else 0) + 1,))
        yield Row(id=key[0], said=str(self.all()))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        yield Row(id=key[0], said=f"{expiredTimerInfo.getExpiryTimeInMs()} {self.all()}")


KEY_OF_ROW = """
class KeyOfRow(SimpleStatefulProcessor):
    def handleInputRows(self, key, rows):
        for row in super().handleInputRows(key, rows):
            yield Row(id=row.id[0], count=row["count"])
"""


def test_the_example_of_group_state_in_pysparks_documentation(
    spark: SparkSession, tmp_path: Path, start: Start
) -> None:
    """It calls the state's class by its name in Scala."""
    code = documented(GroupedData.applyInPandasWithState, GroupStateImpl=GroupState)
    written(tmp_path / "in", "one", pa.table({"id": pa.array([1, 2, 2], pa.int64())}))
    df = spark.readStream.schema("id long").parquet(str(tmp_path / "in"))
    counted = df.groupby("id").applyInPandasWithState(
        code["count_fn"],
        outputStructType="id long, countAsString string",
        stateStructType="len long",
        outputMode="Update",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    query = start(counted, format="memory", queryName="documented", outputMode="update")
    query.processAllAvailable()
    query.stop()
    assert sorted(map(tuple, spark.table("documented").collect())) == [(1, "1"), (2, "2")]
    state = spark.read.format("penstock").option("state", "group-state-0/state").load(str(tmp_path / "checkpoint"))
    assert sorted((row.id, row.len) for row in state.collect()) == [(1, 1), (2, 2)]


# -- time, initial state, chains --------------------------------------------------------------------------------------


class Watchdog(StatefulProcessor):
    """Says so when nothing came of a key for a while; knows of some keys from the beginning."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "rows bigint")

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:  # noqa: N802, N803
        self.seen.update((initialState.rows,))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        seen = (self.seen.get() or (0,))[0] + sum(1 for _ in rows)
        self.seen.update((seen,))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 300)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        assert timerValues.getCurrentProcessingTimeInMs() >= expiredTimerInfo.getExpiryTimeInMs()
        yield Row(key=key[0], rows=self.seen.get()[0])


class Doubled(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.rows = handle.getListState("rows", "n bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        for frame in rows:
            self.rows.appendList([(n,) for n in frame["rows"]])
            frame["rows"] *= 2
            yield frame


def test_timers_of_processing_time_fire_without_input_and_feed_a_second_processor(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path
) -> None:
    """No file arrives any more: only the clock moves."""
    known = spark.createDataFrame([(1, 100), (3, 300)], "key bigint, rows bigint").groupBy("key")
    stream = inbox.stream(spark).groupBy("key")
    watched = stream.transformWithState(
        Watchdog(), "key bigint, rows bigint", "Append", "ProcessingTime", initialState=known
    )
    doubled = watched.groupBy("key").transformWithStateInPandas(Doubled(), "key bigint, rows bigint", "Append", "None")
    inbox.add([(1, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0)])
    query = start(penstock.named(doubled, "twice"), parallelism=2)
    eventually(lambda: rows_of(out) == [(1, 204), (2, 2)], "both timers")
    query.stop()
    read = spark.read.format("penstock")
    seen = read.option("state", "transform-with-state-0/seen").load(str(tmp_path / "checkpoint"))
    assert sorted((row.key, row.rows) for row in seen.collect()) == [(1, 102), (2, 1), (3, 300)]
    timers = spark.read.format("penstock").option("view", "timers").load(str(tmp_path / "checkpoint"))
    assert timers.collect() == []

    inbox.add([(3, 0, 0.0)])
    query = start(penstock.named(doubled, "twice"), parallelism=1)
    eventually(lambda: rows_of(out) == [(1, 204), (2, 2), (3, 602)], "the third one, with its initial state once")
    query.stop()
    kept = spark.read.format("penstock").option("state", "twice/rows").load(str(tmp_path / "checkpoint"))
    assert sorted((row.key, row["__position"], row.n) for row in kept.collect()) == [
        (1, 0, 102),
        (2, 0, 1),
        (3, 0, 301),
    ]


class Slow(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.seen = handle.getValueState("seen", "rows bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        time.sleep(0.04)
        seen = (self.seen.get() or (0,))[0] + sum(1 for _ in rows)
        self.seen.update((seen,))
        yield Row(key=key[0], rows=seen)


def test_a_slow_processor_is_through_when_all_that_is_available_was_processed(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path
) -> None:
    """Checkpoints come in the middle of its slices, and the last one does not."""
    query = start(
        inbox.stream(spark).groupBy("key").transformWithState(Slow(), "key bigint, rows bigint", "Append", "None")
    )
    for number in range(1, 4):
        inbox.add([(key, 0, 0.0) for key in range(25)])
        query.processAllAvailable()
        assert rows_of(out) == sorted(((key, n) for key in range(25) for n in range(1, number + 1)), key=repr)
    query.stop()
    waiting = spark.read.format("penstock").option("state", "transform-with-state-0/__waiting")
    assert waiting.load(str(tmp_path / "checkpoint")).collect() == []


class Late(StatefulProcessor):
    """Yields rows of the event time that came first; and waits for the end of time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self.handle.registerTimer(4_000_000_000_000)
            yield Row(key=row.key, at=row.at)


def event_times(spark: SparkSession, inbox: Inbox) -> Any:
    stream = inbox.stream(spark).withWatermark("at", "10 seconds").groupBy("key")
    return stream.transformWithState(
        Late(), "key bigint, at timestamp", "Append", "EventTime", eventTimeColumnName="at"
    )


def test_an_output_column_is_event_time_for_what_comes_behind(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path
) -> None:
    windows = event_times(spark, inbox).groupBy(F.window("at", "20 seconds")).count()
    inbox.add([(key, 0, 100.0 + second) for second in range(60) for key in (1, 2)])
    query = start(windows.select(F.unix_timestamp("window.start").alias("begin"), "count"), parallelism=2)
    query.processAllAvailable()
    query.stop()
    assert rows_of(out) == [(100, 40), (120, 40)]
    timers = spark.read.format("penstock").option("view", "timers").load(str(tmp_path / "checkpoint"))
    found = [(row.operator_id, row.key, row.time_mode, row.expires.year, row.expires_ms) for row in timers.collect()]
    moment = 4_000_000_000_000
    assert sorted(found) == [("transform-with-state-0", f'{{"key":{n}}}', "EventTime", 2096, moment) for n in (1, 2)]


def test_a_query_is_refused_whose_processor_fails_at_once(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    class Failing(Late):
        def init(self, handle: StatefulProcessorHandle) -> None:
            raise ValueError("no such model")

    stream = inbox.stream(spark).groupBy("key").transformWithState(Failing(), "key bigint", "Append", "None")
    with pytest.raises(FunctionError, match=r"transform-with-state-0 .*ValueError: no such model"):
        start(stream)
