"""Every source is paused while what is in flight is drained, and goes on at its position: no row is lost or read twice.

The queues are full and input is left when the drain begins, and more input comes meanwhile.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import penstock
from penstock.errors import CheckpointFailed
from penstock.queries.streaming_query import StreamingQuery
from tests.integration.snapshots.test_edits_under_pressure import in_flight, slowly
from tests.integration.sources.test_simple_reader import LinesSource
from tests.integration.sources.test_spark_bridge import MemoryStream
from tests.support.mock_kafka import mock_kafka
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

register_pickle_by_value(sys.modules[__name__])

ROWS = 2_000
COST_US = 25_000
"""Time that the sink takes for a row. The queues hold more than a hundred rows: a drain takes over ``TIMEOUT_S``."""
TIMEOUT_S = 1
FULL = 60_000


@dataclass
class Input:
    """Rows of one column ``number``, each number once. ``add`` brings more; None: new ones come all the time."""

    rows: DataFrame
    add: Callable[[Iterable[int]], None] | None = None


class RangesReader(DataSourceStreamReader):
    """Numbers up to what a file says, in two partitions."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = options["path"]

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"end": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        return {"end": int(Path(self._path).read_text())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["end"] + first, end["end"])) for first in range(2)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        first, end = partition.value
        return ((number,) for number in range(first, end, 2))


class RangesSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "growing_ranges"

    def schema(self) -> str:
        return "number bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return RangesReader(self.options)


@contextmanager
def files(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    """The first files come to one of two directories, the others to the second one, which is empty until then."""
    first, second = Inbox(tmp_path / "first"), Inbox(tmp_path / "second")

    def add(numbers: Iterable[int]) -> None:
        (second if list(first.directory.glob("*.parquet")) else first).add((n, n, float(n)) for n in numbers)

    yield Input(first.stream(spark).union(second.stream(spark)).selectExpr("value AS number"), add)


@contextmanager
def kafka(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    """The first rows come to one topic with two partitions, the others to new topics."""
    with mock_kafka() as cluster:
        topics = 0

        def add(numbers: Iterable[int]) -> None:
            nonlocal topics
            topics += 1
            cluster.create(f"t{topics}", 2)
            values = [(None, b"%d" % number) for number in numbers]
            for partition in range(2):
                cluster.send(f"t{topics}", values[partition::2], partition)

        options = {"subscribePattern": r"t\d", "startingOffsets": "earliest", "kafka.metadata.max.age.ms": "500"}
        read = penstock.readStream(spark).format("kafka").option("kafka.bootstrap.servers", cluster.servers)
        yield Input(read.options(**options).load().selectExpr("cast(cast(value as string) as bigint) number"), add)


@contextmanager
def rate(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    yield Input(spark.readStream.format("rate").option("rowsPerSecond", 2_000).load().selectExpr("value AS number"))


@contextmanager
def rate_micro_batch(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    read = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 300)
    yield Input(read.load().selectExpr("value AS number"))


@contextmanager
def sockets(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections: list[socket.socket] = []

        def add(numbers: Iterable[int]) -> None:
            if not connections:
                connections.append(server.accept()[0])
            connections[0].sendall(b"".join(b"%d\n" % number for number in numbers))

        read = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", server.getsockname()[1])
        yield Input(read.load().selectExpr("cast(value as bigint) number"), add)
        for connection in connections:
            connection.close()


@contextmanager
def python_ranges(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    spark.dataSource.register(RangesSource)
    end = tmp_path / "end"
    end.write_text("0")

    def add(numbers: Iterable[int]) -> None:
        draft = tmp_path / "draft"
        draft.write_text(str(max(numbers) + 1))
        draft.rename(end)  # the source never reads half of it

    yield Input(spark.readStream.format("growing_ranges").option("path", str(end)).load(), add)


@contextmanager
def simple_python(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    """Only one of the two readers has a split."""
    spark.dataSource.register(LinesSource)
    lines = tmp_path / "lines"
    lines.touch()

    def add(numbers: Iterable[int]) -> None:
        with lines.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)

    read = spark.readStream.format("growing_lines").option("path", str(lines))
    yield Input(read.load().selectExpr("n AS number"), add)


@contextmanager
def spark_stream(spark: SparkSession, tmp_path: Path) -> Iterator[Input]:
    memory = MemoryStream(spark)
    yield Input(memory.frame().selectExpr("value AS number"), lambda numbers: memory.add(*numbers))


def before(rows: DataFrame, cost: Path) -> DataFrame:
    padded = rows.selectExpr("number", "repeat('x', 400) AS padding")
    return slowly(padded.repartition(2, "number"), cost).select("number")


def after(rows: DataFrame, cost: Path) -> DataFrame:
    """The exchange has one more column, which rows in flight lack."""
    padded = rows.selectExpr("number", "repeat('x', 400) AS padding", "number * 2 AS more")
    return slowly(padded.repartition(2, "number"), cost).select("number")


def values(out: Path) -> list[int]:
    return sorted(number for (number,) in rows_of(out))


def read_by(query: StreamingQuery) -> int:
    """Return the number of rows that the sources have returned."""
    sources = {vertex.id for vertex in query._graph.vertices if vertex.source is not None}
    return sum(s.metrics.rows_in for s in query.view().subtasks if s.metrics.vertex in sources)


def is_paused(query: StreamingQuery, checkpoints: int) -> bool:
    """A strictly aligned snapshot is triggered, which follows the pause."""
    return any(c.alignment == "aligned" for c in query.view().checkpoints[checkpoints:])


SOURCES = [files, kafka, rate, rate_micro_batch, sockets, python_ranges, simple_python, spark_stream]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("source", SOURCES)
def test_a_drained_source_reads_nothing_and_goes_on_at_its_position(
    spark: SparkSession, tmp_path: Path, out: Path, start: Start, source: Callable[..., Any]
) -> None:
    cost = tmp_path / "cost"
    cost.write_text(str(COST_US))
    with source(spark, tmp_path) as given, ThreadPoolExecutor(1) as pool:
        options = {"exchange.memoryPerGate": "100kb", "exchange.exclusiveWindow": "20kb", "parallelism": 2}
        options |= {"checkpoint.interval": "60s", "checkpoint.timeout": f"{TIMEOUT_S}s"}
        query = start(before(given.rows, cost), **options)
        if given.add is not None:
            given.add(range(ROWS))
        eventually(lambda: query.view().inflight_bytes > FULL, "full queues", 60)
        with pytest.raises(CheckpointFailed, match=r"not acknowledged .* checkpoint\.timeout"):
            query.stop(snapshot=True, inflight="drain")
        read, checkpoints = read_by(query), len(query.view().checkpoints)
        eventually(lambda: read_by(query) > read, "rows after the drain that failed")
        eventually(lambda: query.view().inflight_bytes > FULL, "full queues")

        drained = pool.submit(query.stop, snapshot=True, inflight="drain")
        eventually(lambda: is_paused(query, checkpoints), "the pause")
        if given.add is not None:
            given.add(range(ROWS, ROWS + 100))
        time.sleep(TIMEOUT_S / 2)
        read = read_by(query)
        cost.write_text("0")
        taken = drained.result(60)
        assert in_flight(taken) == 0
        assert read_by(query) == read, "nothing was read behind the barriers either"
        first = values(out)
        assert len(first) == len(set(first)) == read, "what was read before the pause, and nothing else"
        assert given.add is None or len(first) < ROWS

        query = start(after(given.rows, cost), parallelism=2)
        if source is sockets:
            with pytest.raises(StreamingQueryException, match="a socket cannot send them again"):
                query.awaitTermination()
        elif given.add is not None:
            query.processAllAvailable()
            assert values(out) == list(range(ROWS + 100))
        else:
            eventually(lambda: len(values(out)) > len(first) + 500, "more rows")
            query.stop()
            for reader in range(2):
                own = [number for number in values(out) if number % 2 == reader]
                assert own == list(range(reader, max(own) + 1, 2))
