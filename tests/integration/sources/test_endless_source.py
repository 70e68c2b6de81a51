"""A source that one reader alone reads for ever, while the other never gets a split."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.functions import window

from tests.support.queries.query_running import Start, eventually, rows_of

pytestmark = pytest.mark.spark

register_pickle_by_value(sys.modules[__name__])

SECOND_0 = 1_700_000_000


class TicksReader(SimpleDataSourceStreamReader):
    """One row per read, a second of event time after the one before; there is always one more."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"tick": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[datetime]], dict[str, int]]:
        time.sleep(0.005)
        end = {"tick": start["tick"] + 1}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[datetime]]:  # noqa: N802
        return iter([(datetime.fromtimestamp(SECOND_0 + n, tz=UTC),) for n in range(start["tick"], end["tick"])])


class TicksSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "ticks"

    def schema(self) -> str:
        return "at timestamp"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802 - PySpark's name
        return TicksReader()


def test_windows_close_although_one_reader_never_gets_a_split(spark: SparkSession, out: Path, start: Start) -> None:
    spark.dataSource.register(TicksSource)
    ticks = spark.readStream.format("ticks").load()
    counts = ticks.withWatermark("at", "0 seconds").groupBy(window("at", "10 seconds")).count()
    start(counts.select("count"), parallelism=2)
    eventually(lambda: bool(rows_of(out)), "a window")
    assert set(rows_of(out)) == {(10,)}, "a window closes with all its ticks"
