"""A vectorised processor begins on Spark's engine, key by key, and goes on in Penstock with many keys at a time."""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import penstock
from tests.support.spark_import.spark_runs import Arrivals, OnSpark, on_penstock, same

pytestmark = pytest.mark.slow

OUTPUT = "user string, event string, n long, total long"


def sessions() -> Any:
    """Counts and adds up, and ends ten seconds of event time after the first row. A class of a function, so that it is
    pickled by value."""

    class Sessions(penstock.ArrowStatefulProcessor):
        def init(self, handle: Any) -> None:
            self.handle = handle
            self.known = handle.getValueState("known", "n bigint, total bigint")

        def handleInputBatch(self, keys: Any, owners: Any, rows: Any, timerValues: Any) -> Iterator[pa.RecordBatch]:
            known, new = self.known.get(), ~self.known.exists()
            n, total = (column.fill_null(0).to_numpy() for column in known.columns)
            at = rows.column("at").cast(pa.int64()).to_numpy() // 1000
            first = np.full(keys.num_rows, np.iinfo(np.int64).max)
            np.minimum.at(first, owners, at)
            self.handle.registerTimers(first[new] + 10_000, new)
            n = n + np.bincount(owners, minlength=keys.num_rows)
            amounts = rows.column("amount").to_numpy()
            total = total + np.bincount(owners, amounts, keys.num_rows).astype(np.int64)
            self.known.update(pa.RecordBatch.from_pydict({"n": n, "total": total}))
            yield self.lines(keys, "rows", n, total)

        def handleExpiredTimers(self, keys: Any, moments: Any, timerValues: Any) -> Iterator[pa.RecordBatch]:
            yield self.lines(keys, "ended", *self.known.get().columns)
            self.known.clear()

        def lines(self, keys: Any, event: str, n: Any, total: Any) -> pa.RecordBatch:
            columns = {"user": keys.column("user"), "event": [event] * keys.num_rows, "n": n, "total": total}
            return pa.RecordBatch.from_pydict(columns)

    return Sessions()


def test_state_and_timers_of_the_adapter_are_taken_over(
    spark: SparkSession, tmp_path: Path, spark_conf: Callable[[str, str], None]
) -> None:
    spark_conf(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    arrivals = Arrivals(tmp_path / "in")
    grouped = arrivals.stream(spark).withWatermark("at", "1 second").groupBy("user")
    df = penstock.transformWithStateInArrow(grouped, sessions(), OUTPUT, "update", "eventTime")
    arrivals.add((1, "a", 1), (2, "b", 2), (3, None, 3), (4, "a", 7))
    arrivals.add((5, "a", 4), (6, "c", 5))
    on_spark = OnSpark(tmp_path / "spark", "update")
    assert len(on_spark.run(df)) == 5

    moved = tmp_path / "moved"
    taken = penstock.importSparkCheckpoint(df, str(on_spark.checkpoint), str(moved), outputMode="update", parallelism=2)
    assert taken.state_rows == 8, "a value and a timer of each of four keys"
    arrivals.add((9, "a", 10), (10, "d", 5))
    arrivals.add((40, "e", 1))
    after = on_penstock(df, moved, "update", 3)
    ended = {row[0]: (row[2], row[3]) for row in after if row[1] == "ended"}
    assert ended == {"a": (4, 22), "b": (1, 2), None: (1, 3), "c": (1, 5), "d": (1, 5)}
    assert same(after, on_spark.run(df))
