"""Python data sources end to end: the examples of PySpark's documentation, and sources that block for ever."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)

import penstock
from tests.support.queries.query_running import Start, eventually, rows_of

pytestmark = pytest.mark.spark

register_pickle_by_value(sys.modules[__name__])


def test_the_example_of_admission_control_runs_unchanged(spark: SparkSession, out: Path, start: Start) -> None:
    from pyspark.examples.src.main.python.sql.streaming import structured_blockchain_admission_control as example

    class Chain(example.BlockchainDataSource):
        """Shorter, so that the test is; and pickled by value, since workers have no examples on their path."""

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - PySpark's name
            reader = super().streamReader(schema)
            reader.CHAIN_HEIGHT = 90
            return reader

    register_pickle_by_value(example)
    spark.dataSource.register(Chain)
    query = start(spark.readStream.format("blockchain_example").load(), parallelism=2)
    query.processAllAvailable()
    rows = rows_of(out)
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), key=repr)
    assert sorted(row[0] for row in rows) == list(range(90))
    assert (0, "5feceb66ffc86f38", 1700000000, 1) in rows


class RangePartition(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end


class FakeStreamReader(DataSourceStreamReader):
    """The reader of PySpark's guide to data sources: two rows per read, and no start offset."""

    def __init__(self) -> None:
        self.current = 0

    def initialOffset(self) -> dict:  # noqa: N802
        return {"offset": 0}

    def latestOffset(self) -> dict:  # type: ignore[override]  # noqa: N802
        self.current += 2
        return {"offset": self.current}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return [RangePartition(start["offset"], end["offset"])]

    def commit(self, end: dict) -> None:
        return None

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        for i in range(partition.start, partition.end):
            yield (i, str(i))


class SimpleStreamReader(SimpleDataSourceStreamReader):
    """The same as a simple reader."""

    def initialOffset(self) -> dict:  # noqa: N802
        return {"offset": 0}

    def read(self, start: dict) -> tuple[Iterator[tuple[int]], dict]:
        start_idx = start["offset"]
        return iter([(i,) for i in range(start_idx, start_idx + 2)]), {"offset": start_idx + 2}

    def readBetweenOffsets(self, start: dict, end: dict) -> Iterator[tuple[int]]:  # noqa: N802
        return iter([(i,) for i in range(start["offset"], end["offset"])])

    def commit(self, end: dict) -> None:
        return None


class Fake(DataSource):
    @classmethod
    def name(cls) -> str:
        return "guide"

    def schema(self) -> str:
        return "i int, s string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return FakeStreamReader()


class FakeSimple(DataSource):
    @classmethod
    def name(cls) -> str:
        return "guide_simple"

    def schema(self) -> str:
        return "i int"

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
        return SimpleStreamReader()


@pytest.mark.parametrize("source", [Fake, FakeSimple], ids=lambda source: source.name())
def test_the_readers_of_the_guide_count_on(
    source: type[DataSource], spark: SparkSession, out: Path, start: Start
) -> None:
    spark.dataSource.register(source)
    query = start(spark.readStream.format(source.name()).load(), parallelism=2)
    eventually(lambda: len(rows_of(out)) >= 20, "twenty rows")
    query.stop()
    numbers = sorted(row[0] for row in rows_of(out))
    assert numbers == list(range(len(numbers)))


class Blocking(DataSource):
    """Two partitions of ten rows, of which one never yields; or no offsets after the first."""

    @classmethod
    def name(cls) -> str:
        return "blocking"

    def schema(self) -> str:
        return "n int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return BlockingReader(self.options["where"])


class BlockingReader(DataSourceStreamReader):
    def __init__(self, where: str) -> None:
        self.where = where
        self.looks = 0

    def initialOffset(self) -> dict:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict, limit: Any) -> dict:  # noqa: N802
        self.looks += 1
        if self.where == "latestOffset" and self.looks > 1:
            threading.Event().wait()
        return {"at": 1}

    def partitions(self, start: dict, end: dict) -> list[InputPartition]:
        return [RangePartition(0, 10), RangePartition(10, 20)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        if self.where == "read" and partition.start == 0:
            threading.Event().wait()
        yield from ((n,) for n in range(partition.start, partition.end))


@pytest.mark.parametrize("where", ["read", "latestOffset"])
def test_a_source_that_blocks_holds_up_no_snapshot_and_no_end(
    where: str, spark: SparkSession, out: Path, start: Start
) -> None:
    spark.dataSource.register(Blocking)
    query = start(spark.readStream.format("blocking").option("where", where).load(), parallelism=2)
    expected = [(n,) for n in range(10 if where == "read" else 0, 20)]
    eventually(lambda: sorted(rows_of(out)) == expected, "the rows of who does not block")
    began = time.monotonic()
    query.snapshot(label="while it blocks")
    assert time.monotonic() - began < 60
    began = time.monotonic()
    query.stop()
    assert time.monotonic() - began < 60
    assert query.exception() is None
    assert sorted(rows_of(out)) == expected


@pytest.mark.parametrize("old", [False, True], ids=["with limits", "as before PySpark 4.2"])
def test_calls_on_the_driver_are_those_of_spark(old: bool, spark: SparkSession, tmp_path: Path, out: Path) -> None:
    """Trigger.AvailableNow in two runs: what Spark asks of the reader that plans, and in which order."""
    from tests.support.queries.recording_source import Recording

    spark.dataSource.register(Recording)
    end = tmp_path / "end"

    def frame(log: str) -> Any:
        options = {"log": str(tmp_path / log), "end": str(end), **({"old": "1"} if old else {})}
        return spark.readStream.format("recording").options(**options).load()

    for rows in ("10", "13"):
        end.write_text(rows)
        theirs = frame("spark").writeStream.format("noop").option("checkpointLocation", str(tmp_path / "theirs"))
        theirs.trigger(availableNow=True).start().awaitTermination()
        ours = penstock.writeStream(frame("penstock")).format("parquet").trigger(availableNow=True)
        ours = ours.option("checkpointLocation", str(tmp_path / "ours")).option("parallelism", 2)
        assert ours.start(str(out)).awaitTermination(60)
    assert sorted(row[0] for row in rows_of(out)) == list(range(13))
    assert _planned(tmp_path / "penstock") == _planned(tmp_path / "spark")
    assert len(_planned(tmp_path / "spark")) == 2


def _planned(log: Path) -> list[list[Any]]:
    """Calls of the planning reader of each run, without repetitions; ``initialOffset`` first, if it is called: Spark
    asks a reader of old for its latest offset before that, which does not depend on it."""
    runs: dict[str, list[Any]] = {}
    for line in log.read_text().splitlines():
        reader, *call = json.loads(line)
        calls = runs.setdefault(reader, [])
        if call not in calls:
            calls.insert(0 if call == ["initialOffset"] and calls == [["latestOffset"]] else len(calls), call)
    return [calls for calls in runs.values() if any(call[0] == "latestOffset" for call in calls)]
