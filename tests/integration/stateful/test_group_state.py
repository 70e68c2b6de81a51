"""``applyInPandasWithState``: the same function on Structured Streaming and on Penstock, file by file."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.support.queries.query_running import Inbox, Start, rows_of
from tests.support.structured_streaming import structured_streaming

pytestmark = pytest.mark.spark
register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

Function = Callable[[Any, Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]

FILES: list[list[tuple[int, int, float]]] = [
    [(1, 10, 100.0), (2, 20, 101.0), (9, 0, 110.0)],
    [(1, 11, 105.0), (1, 12, 109.0), (2, -1, 103.0), (9, 0, 117.0)],
    [(3, 30, 90.0), (2, 21, 112.0), (9, 0, 140.0)],  # the first one is late
    [(2, 22, 139.0), (1, 13, 136.0), (9, 0, 200.0)],
]
"""Rows of (key, value, seconds). All but the last one of a file are no newer than the newest before, so that both
engines have the same watermark while they pass."""


def sessions(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Sums per key until ten seconds of event time have passed without a row; keys whose sum is 20 are forgotten."""
    if state.hasTimedOut:
        [empty] = list(frames)
        assert len(empty) == 0
        assert list(empty.columns) == ["key", "value", "at"]
        total, rows, last = state.get
        state.remove()
        yield pd.DataFrame({"key": [key[0]], "total": [total], "rows": [rows], "last": [last], "why": ["timeout"]})
        return
    total, rows, last = state.getOption or (0, 0, pd.Timestamp(0))
    for frame in frames:
        total, rows, last = total + int(frame["value"].sum()), rows + len(frame), max(last, frame["at"].max())
    if total == 20:
        state.remove()
        yield pd.DataFrame({"key": [key[0]], "total": [total], "rows": [rows], "last": [last], "why": ["removed"]})
        return
    state.update((total, rows, last))
    state.setTimeoutTimestamp(max(int(last.timestamp() * 1000), state.getCurrentWatermarkMs()) + 10_000)
    if total < 0:
        yield pd.DataFrame()


def kinds(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    """Yield the values that the function sees; its state counts the calls."""
    calls = (state.getOption or (0,))[0] + 1
    state.update((calls,))
    for frame in frames:
        seen = " ".join(f"{name}:{kind}:{frame[name].iloc[0]}" for name, kind in frame.dtypes.astype(str).items())
        yield pd.DataFrame({"key": [str(key[0])], "seen": [f"{seen} index {list(frame.index)}"], "calls": [calls]})


def by_event_time(df: DataFrame) -> DataFrame:
    timed = df.withWatermark("at", "5 seconds").groupBy("key")
    return timed.applyInPandasWithState(
        sessions,
        "key bigint, total bigint, rows bigint, last timestamp, why string",
        "total bigint, rows bigint, last timestamp",
        "append",
        "EventTimeTimeout",
    )


def without_timeout(df: DataFrame) -> DataFrame:
    columns = ("cast(key as int) as key", "nullif(value, 11) as value", "value > 15 as many", "at")
    shown = df.selectExpr(*columns, "struct(key, cast(value as string) as v) as pair", "array(value) as list")
    return shown.groupBy("key").applyInPandasWithState(
        kinds, "key string, seen string, calls int", "calls int", "append", "NoTimeout"
    )


def of_structured_streaming(
    spark: SparkSession, tmp_path: Path, plan: Callable[[DataFrame], DataFrame]
) -> Counter[tuple[Any, ...]]:
    inbox = Inbox(tmp_path / "sparks-in")
    with structured_streaming(plan(inbox.stream(spark)), tmp_path / "sparks-checkpoint") as oracle:
        for rows in FILES:
            inbox.add(rows)
            oracle.go_on()
        return Counter(tuple(row.values()) for row in oracle.table.to_pylist())


@pytest.mark.parametrize("plan", [by_event_time, without_timeout])
def test_the_function_sees_and_gives_what_it_does_on_structured_streaming(
    spark: SparkSession,
    tmp_path: Path,
    inbox: Inbox,
    out: Path,
    start: Start,
    plan: Callable[[DataFrame], DataFrame],
) -> None:
    """Over a kill and a restart."""
    expected = of_structured_streaming(spark, tmp_path, plan)
    stream = plan(inbox.stream(spark))
    query = start(stream)
    for number, rows in enumerate(FILES):
        inbox.add(rows)
        query.processAllAvailable()
        if number == 0:
            os.kill(query.view().slots[0].pid, signal.SIGKILL)
        if number == 1:
            query.stop(snapshot=True)
            query = start(stream)
    query.stop()
    assert Counter(rows_of(out)) == expected
    assert expected.total() > 3


def yields_rows(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
    yield (1, 2)


def sets_no_such_timeout(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    state.setTimeoutDuration(10)
    yield pd.DataFrame()


@pytest.mark.parametrize(
    ("function", "why"),
    [(yields_rows, "must yield pandas.DataFrame, not tuple"), (sets_no_such_timeout, "CANNOT_WITHOUT")],
)
def test_misuse_is_a_function_error(
    spark: SparkSession, inbox: Inbox, start: Start, function: Function, why: str
) -> None:
    inbox.add(FILES[0])
    grouped = inbox.stream(spark).groupBy("key")
    query = start(
        grouped.applyInPandasWithState(function, "key bigint", "n int", "append", "NoTimeout"),
    )
    with pytest.raises(StreamingQueryException, match=rf"user code of operator group-state-0 [^\n]*{why}"):
        query.awaitTermination(60)
