"""transformWithStateInArrow on Spark: the documentation's sessions over a kill, a rescale and a change of form, and
beside Spark's own engine."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock
from penstock.coordinator import generation_slots as attempt
from penstock.errors import ConfigError
from tests.support.places import DOCS
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark
register_pickle_by_value(sys.modules[__name__])

GAP_MS = 60_000
PAGE = DOCS / "stateful-python.md"
Line = tuple[int, int, float]
"""key, value, seconds of event time"""


def documented() -> dict[str, Any]:
    """Return the definitions of the documentation's example."""
    [example] = [one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "(df):" in one]
    names: dict[str, Any] = {"__name__": "documented_sessions"}
    exec(example, names)
    return names


def lines(first: int, last: int) -> list[Line]:
    """A row in every second of event time, of keys that come and go: gaps of 60 s and more, and of less."""
    return [(second * second // 20 % 31, second, 600.0 + second) for second in range(first, last)]


def sessions_of(some: list[Line]) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int, int]]]:
    """Those that are over once all of these came, with the watermark behind the last one, and those that are open."""
    over, open_ = [], {}
    for key, _, second in some:
        at = round(second * 1000)
        began, n, ends = open_.get(key, (at, 0, at + 1))
        if at >= ends:
            over.append((key, began, n))
            began, n = at, 0
        open_[key] = began, n + 1, at + GAP_MS
    watermark_ms = round(some[-1][2] * 1000) - 30_000
    over += [(key, began, n) for key, (began, n, ends) in open_.items() if ends <= watermark_ms]
    return sorted(over, key=repr), sorted((key, *one) for key, one in open_.items() if one[2] > watermark_ms)


class OneByOne(StatefulProcessor):
    """The example's sessions, key by key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.open = handle.getValueState("open", "began bigint, n bigint, ends bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for at in sorted(int(row.at.timestamp() * 1000) for row in rows):
            began, n, ends = self.open.get() or (at, 0, at + 1)
            if at >= ends:
                yield Row(key=key[0], began=began, n=n)
                began, n = at, 0
            self.handle.deleteTimer(ends)
            self.handle.registerTimer(at + GAP_MS)
            self.open.update((began, n + 1, at + GAP_MS))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        began, n, _ = self.open.get()
        self.open.clear()
        yield Row(key=key.key, began=began, n=n)


def one_by_one(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "30 seconds").groupBy("key")
    return grouped.transformWithState(OneByOne(), "key bigint, began bigint, n bigint", "Append", "EventTime")


def state_of(spark: SparkSession, location: Path, table: str) -> list[tuple[Any, ...]]:
    read = spark.read.format("penstock").option("state", f"transform-with-state-0/{table}").load(str(location))
    return sorted(tuple(row) for row in read.drop("key_group").collect())


def test_the_documented_sessions_survive_a_kill_a_rescale_and_a_change_of_form(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "JOB_GRACE_S", 10.0)
    sessions = documented()["sessions"]
    inbox.add(lines(0, 250))
    query = start(sessions(inbox.stream(spark)), parallelism=2)
    query.processAllAvailable()
    assert rows_of(out) == sessions_of(lines(0, 250))[0]

    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    inbox.add(lines(250, 400))
    eventually(lambda: query.generation == 2, "the next Generation")
    query.rescale(3, timeout=60)
    query.processAllAvailable()  # files that are read side by side would mix, and sessions go by the order of rows
    inbox.add(lines(400, 500))
    query.processAllAvailable()
    query.stop()
    for number, form in enumerate((one_by_one, sessions)):
        end = 600 + 100 * number
        inbox.add(lines(end - 100, end))
        query = start(form(inbox.stream(spark)), parallelism=1)
        query.processAllAvailable()
        query.stop()
        over, open_ = sessions_of(lines(0, end))
        assert len(over) > 60
        assert rows_of(out) == over
        assert state_of(spark, tmp_path / "checkpoint", "open") == open_
        assert state_of(spark, tmp_path / "checkpoint", "__timers") == [(key, ends) for key, *_, ends in open_]


def totals(df: DataFrame) -> DataFrame:
    grouped = df.withColumn("rest", df.key % 3).groupBy("rest", "at")
    output = "rest bigint, at timestamp, total map<string,bigint>"
    return penstock.transformWithStateInArrow(grouped, Totals(), output, "Update", "None")


class Totals(penstock.ArrowStatefulProcessor):
    """Totals by a number and a timestamp; nulls and nested values in the state and in the output."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "m map<string,bigint>, at timestamp")

    def handleInputBatch(self, keys: Any, owners: Any, rows: Any, timerValues: Any) -> Iterator[pa.RecordBatch]:  # noqa: N802, N803
        known = self.total.get()
        before = np.array([dict(m)["v"] or 0 if m else 0 for m in known.column("m").to_pylist()], np.int64)
        assert known.column("at").filter(pa.array(self.total.exists())).null_count == 0
        sums = before + np.bincount(owners, rows.column("value").to_numpy(), keys.num_rows).astype(np.int64)
        kind = pa.map_(pa.string(), pa.int64())
        maps = pa.array([[("v", total if total % 2 else None), ("k", None)] for total in sums.tolist()], kind)
        self.total.update(pa.RecordBatch.from_arrays([maps, keys.column("at")], names=["m", "at"]))
        yield pa.RecordBatch.from_arrays([*keys.columns, maps], names=["rest", "at", "total"])


def test_sparks_own_engine_runs_the_same_dataframe(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path, spark_conf: Any
) -> None:
    pytest.importorskip("google.protobuf", reason="Spark's own transformWithState needs it")
    spark_conf(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    spark_conf("spark.sql.shuffle.partitions", "1")
    spark_conf("spark.sql.session.timeZone", "Asia/Tokyo")
    inbox.add(lines(0, 250))
    theirs = tmp_path / "theirs"
    found = {}
    for name, make in {"sessions": documented()["sessions"], "totals": totals}.items():

        def written(batch: DataFrame, _: int, to: str = str(theirs / name)) -> None:
            batch.write.parquet(to, "append")

        mode = "append" if name == "sessions" else "update"
        writer = make(inbox.stream(spark)).writeStream.outputMode(mode).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(theirs / f"checkpoint-{name}")).foreachBatch(written)
        writer.start().awaitTermination()
        found[name] = sorted(map(tuple, spark.read.parquet(str(theirs / name)).collect()), key=repr)
    assert found["sessions"] == sessions_of(lines(0, 250))[0]
    query = start(totals(inbox.stream(spark)), path=str(tmp_path / "ours"), checkpointLocation=str(tmp_path / "c"))
    query.processAllAvailable()
    query.stop()
    ours = spark.read.parquet(str(tmp_path / "ours")).collect()
    assert sorted(map(tuple, ours), key=repr) == found["totals"]
    assert len(ours) == 250


def test_what_is_no_group_or_no_such_processor_is_refused(spark: SparkSession, inbox: Inbox) -> None:
    df: Any = inbox.stream(spark)
    with pytest.raises(ConfigError, match=r"must be df.groupBy\(...\) .*, not DataFrame"):
        penstock.transformWithStateInArrow(df, Totals(), "n bigint", "Update", "None")
    one_by_one: Any = OneByOne()
    with pytest.raises(ConfigError, match=r"must be a penstock\.ArrowStatefulProcessor .*, not OneByOne"):
        penstock.transformWithStateInArrow(df.groupBy("key"), one_by_one, "n bigint", "Update", "None")
