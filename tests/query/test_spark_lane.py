"""The Spark lane: streams without a connector of ours, read by Spark's jobs and by nobody twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from query_running import Start, eventually, rows_of

import penstock
from penstock.connectors.spark_lane import SparkLaneSource
from penstock.errors import ResourceError
from penstock.frontend.catalyst import arrow_schema, elements
from penstock.spark.lane import SparkLane, can_read

pytestmark = pytest.mark.spark


class MemoryStream:
    """Spark's own stream for tests, a DSv2 source that lives in the JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm = spark._jvm
        none = jvm.scala.Option.empty()
        session = spark._jsparkSession
        encoder = jvm.org.apache.spark.sql.Encoders.STRING()
        self._stream = jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream(1, session, none, encoder)

    def add(self, *values: int) -> None:
        jvm = self._spark._jvm
        numbers = jvm.java.util.ArrayList()
        for value in values:
            numbers.add(str(value))
        self._stream.addData(jvm.scala.jdk.javaapi.CollectionConverters.asScala(numbers).toSeq())

    def frame(self) -> DataFrame:
        return DataFrame(self._stream.toDF(), self._spark).selectExpr("cast(value as bigint) value")


@pytest.fixture
def memory(spark: SparkSession) -> MemoryStream:
    return MemoryStream(spark)


def values(out: Path) -> list[int]:
    return sorted(value for (value,) in rows_of(out))


def staged(location: Path) -> list[str]:
    return [path.name for path in location.glob("lane/*/*") if path.name[:1].isdigit()]


def test_every_row_once_over_a_restart_and_staged_files_go(
    spark: SparkSession, memory: MemoryStream, out: Path, start: Start, tmp_path: Path
) -> None:
    df = memory.frame().selectExpr("value * 2 as doubled").where("doubled < 1000")
    memory.add(*range(10))
    query = start(df)
    eventually(lambda: values(out) == list(range(0, 20, 2)), "the first rows", 120)
    memory.add(*range(10, 15), 777)
    eventually(lambda: len(values(out)) == 15, "later rows")
    query.stop()
    memory.add(*range(15, 20))
    query = start(df)
    eventually(lambda: values(out) == list(range(0, 40, 2)), "rows that came while nothing ran")
    eventually(lambda: not staged(tmp_path / "checkpoint"), "the end of what was staged")
    assert query.lastProgress.sources[0].description == "SparkLane[memory]"


def test_available_now_ends_with_what_is_there(
    spark: SparkSession, memory: MemoryStream, out: Path, tmp_path: Path
) -> None:
    for first in (0, 5):
        memory.add(*range(first, first + 5))
        writer = penstock.writeStream(memory.frame()).format("parquet").option("path", str(out))
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).option("parallelism", 1)
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        assert values(out) == list(range(first + 5))


def test_a_spare_slot_is_asked_for(spark: SparkSession, memory: MemoryStream, start: Start) -> None:
    with pytest.raises(ResourceError, match="slots"):
        start(memory.frame(), parallelism=4)


def test_ranges_of_rate_micro_batch_are_staged_and_a_lost_look_leaves_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    options = {"rowsPerBatch": "6", "numPartitions": "2"}
    df = spark.readStream.format("rate-micro-batch").options(**options).load()
    node: Any = df._jdf.queryExecution().analyzed()
    assert can_read(node)

    def new_driver() -> SparkLaneSource:
        schema = arrow_schema(elements(node.output()))
        source = SparkLaneSource("rate-micro-batch", SparkLane(spark, node, "rate"), schema, "UTC")
        source.open(str(tmp_path), "op")
        return source

    source = new_driver()
    first = source.discover(None, 1)
    second = source.discover(first.state, 1)
    assert [split.split_id for split in [*first.splits, *second.splits]] == ["0/0", "0/1", "1/0", "1/1"]
    assert read(source, [*first.splits, *second.splits]) == list(range(12))
    again = new_driver()  # the second look is lost
    repeated = again.discover(first.state, 1)
    assert read(again, repeated.splits) == list(range(6, 12))
    assert len(staged(tmp_path)) == 2
    again.committed(first.state)
    assert [name[:10] for name in staged(tmp_path)] == ["0000000001"]


def read(source: SparkLaneSource, splits: Any) -> list[int]:
    reader = source.create_reader()
    for split in splits:
        reader.add_split(split)
    found: list[int] = []
    while (batch := reader.poll(4, 0)) is not None:
        found += batch.column("value").to_pylist()
    return sorted(found)
