"""Event time with continuous input: a reader without event time does not stop it; ``multipleWatermarkPolicy``."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

import penstock
from tests.support.mock_kafka import mock_kafka
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

register_pickle_by_value(sys.modules[__name__])

pytestmark = [pytest.mark.spark, pytest.mark.slow]

POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


def rate(spark: SparkSession, partitions: int = 2) -> DataFrame:
    source = spark.readStream.format("rate").option("rowsPerSecond", 100).option("numPartitions", partitions)
    return source.load().select(F.col("timestamp").alias("at"), "value")


def filtered(spark: SparkSession, empty: Path) -> DataFrame:
    """A filter drops all rows of one of two readers."""
    return rate(spark).where("value % 2 = 0").withWatermark("at", "200 milliseconds")


def without_times(spark: SparkSession, empty: Path) -> DataFrame:
    """All rows of one of two readers have no event time."""
    at = F.when(F.col("value") % 2 == 0, F.col("at")).alias("at")
    return rate(spark).select(at, "value").withWatermark("at", "200 milliseconds")


def fewer_splits(spark: SparkSession, empty: Path) -> DataFrame:
    """One of two readers has nothing to read."""
    return rate(spark, 1).withWatermark("at", "200 milliseconds")


def beside_a_silent_input(spark: SparkSession, empty: Path) -> DataFrame:
    """A watermark above a union, one of whose inputs has no rows."""
    silent = spark.readStream.schema(SCHEMA).parquet(str(empty)).select("at", "value")
    return rate(spark).union(silent).withWatermark("at", "200 milliseconds")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("stream", [filtered, without_times, fewer_splits, beside_a_silent_input])
def test_windows_are_emitted_although_a_reader_has_no_event_time(
    spark: SparkSession,
    tmp_path: Path,
    out: Path,
    start: Start,
    stream: Callable[[SparkSession, Path], DataFrame],
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    windows = stream(spark, empty).where("at IS NOT NULL").groupBy(F.window("at", "1 second")).count()
    query = start(windows.select(F.col("window.start").cast("long").alias("start"), "count"), parallelism=2)
    eventually(lambda: len(rows_of(out)) >= 3, "windows", 40)
    query.stop()
    counts = [count for _, count in sorted(rows_of(out))]
    per_second = 50 if stream in (filtered, without_times) else 100
    assert counts[1:] == [per_second] * (len(counts) - 1), "no row was late"
    assert sum(s.numRowsDroppedByWatermark for p in query.recentProgress for s in p.stateOperators) == 0


class SilentReader(DataSourceStreamReader):
    """Has never anything new."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"n": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())


class SilentSimpleReader(SimpleDataSourceStreamReader):
    """Reads again and again, and finds nothing."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        return iter(()), start

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:  # noqa: N802
        return iter(())


class Silent(DataSource):
    @classmethod
    def name(cls) -> str:
        return "silent"

    def schema(self) -> str:
        return "at timestamp, value bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return SilentReader()


class SilentSimple(DataSource):
    @classmethod
    def name(cls) -> str:
        return "silent_simple"

    def schema(self) -> str:
        return "at timestamp, value bigint"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return SilentSimpleReader()


def silent_kafka(spark: SparkSession, closing_: ExitStack) -> DataFrame:
    kafka = closing_.enter_context(mock_kafka())
    kafka.create("t", 3)
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "t"}
    rows = penstock.readStream(spark).format("kafka").options(**options).load()
    return rows.select(F.col("timestamp").alias("at"), F.col("offset").alias("value"))


def silent_python(spark: SparkSession, closing_: ExitStack) -> DataFrame:
    spark.dataSource.register(Silent)
    return spark.readStream.format("silent").load()


def silent_simple_python(spark: SparkSession, closing_: ExitStack) -> DataFrame:
    spark.dataSource.register(SilentSimple)
    return spark.readStream.format("silent_simple").load()


def silent_socket(spark: SparkSession, closing_: ExitStack) -> DataFrame:
    server = closing_.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
    options = {"host": "127.0.0.1", "port": server.getsockname()[1], "includeTimestamp": "true"}
    lines = spark.readStream.format("socket").options(**options).load()
    return lines.select(F.col("timestamp").alias("at"), F.col("value").cast("bigint").alias("value"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("silent", [silent_kafka, silent_python, silent_simple_python, silent_socket])
def test_a_silent_source_below_a_common_watermark_does_not_stop_the_others(
    spark: SparkSession, out: Path, start: Start, silent: Callable[[SparkSession, ExitStack], DataFrame]
) -> None:
    with ExitStack() as closing_:
        both = rate(spark).union(silent(spark, closing_)).withWatermark("at", "200 milliseconds")
        counted = both.groupBy(F.window("at", "1 second")).count()
        query = start(counted.select(F.col("window.start").cast("long").alias("start"), "count"), parallelism=2)
        eventually(lambda: len(rows_of(out)) >= 3, "windows", 60)
        query.stop()
    counts = [count for _, count in sorted(rows_of(out))]
    assert counts[1:] == [100] * (len(counts) - 1), "no row was late"


@pytest.mark.parametrize(("policy", "right"), [("min", []), ("max", [(0, 1)])])
def test_the_policy_for_several_watermarks_is_obeyed(
    spark: SparkSession, tmp_path: Path, inbox: Inbox, out: Path, start: Start, policy: str, right: list[object]
) -> None:
    """The same query as "MultipleWatermarkPolicy" in EventTimeWatermarkSuite."""
    other = Inbox(tmp_path / "other")
    streams = [one.stream(spark).withWatermark("at", "10 seconds") for one in (inbox, other)]
    windows = streams[0].union(streams[1]).groupBy(F.window("at", "5 seconds").alias("w")).count()
    spark.conf.set(POLICY, policy)
    try:
        query = start(windows.select(F.col("w.start").cast("long").alias("start"), "count"), parallelism=2)
    finally:
        spark.conf.unset(POLICY)
    inbox.add([(0, 0, 1.0)])
    other.add([(0, 0, 100.0)])
    query.processAllAvailable()
    assert rows_of(out) == right
    inbox.add([(0, 0, 2.0), (0, 0, 101.0)])
    query.processAllAvailable()
    late = sum(s.numRowsDroppedByWatermark for p in query.recentProgress for s in p.stateOperators)
    assert (rows_of(out), late) == (([(0, 2)], 0) if policy == "min" else ([(0, 1)], 1))
