"""The Spark source bridge: streams without a connector of Penstock are read by Spark jobs, and each row once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.catalyst.trees import arrow_schema, elements
from penstock.connectors.spark.bridge import SparkBridgeSource
from penstock.errors import NotYet, ResourceError
from penstock.planner import sources
from penstock.spark.source_bridge import SparkSourceBridge, can_read
from tests.support.queries.query_running import Start, eventually, rows_of

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
    eventually(lambda: query.lastProgress is not None, "its progress")
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


def test_a_stream_that_not_even_the_lane_reads_is_refused(
    memory: MemoryStream, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "can_read", lambda node: False)
    with pytest.raises(NotYet, match=r"source format memory.*Python DataSource"):
        start(memory.frame())


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

    def new_driver() -> SparkBridgeSource:
        schema = arrow_schema(elements(node.output()))
        source = SparkBridgeSource("rate-micro-batch", SparkSourceBridge(spark, node, "rate"), schema, "UTC")
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


def read(source: SparkBridgeSource, splits: Any) -> list[int]:
    reader = source.create_reader()
    for split in splits:
        reader.add_split(split)
    found: list[int] = []
    until = time.monotonic() + 60
    while reader.snapshot() and time.monotonic() < until:
        if (batch := reader.poll(4, 0)) is not None:  # None also while a file is opened
            found += batch.column("value").to_pylist()
    return sorted(found)


AT = "0001-01-01 00:00:00", "1600-03-01 12:00:00", "2026-03-29 02:30:00", "9999-12-31 23:59:59.999999"


def orc(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    """Timestamps of all times, in directories."""
    rows = ", ".join(f"({n}, timestamp'{at}', array(date'1500-01-0{n + 1}'), 'p{n % 2}')" for n, at in enumerate(AT))
    spark.sql(f"SELECT * FROM VALUES {rows} AS t(n, at, days, part)").write.partitionBy("part").orc(path)
    return "n INT, at TIMESTAMP, days ARRAY<DATE>, part STRING", {}


def nested_orc(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    """The directory's name is a column only where it is looked for; here the file's own column counts."""
    orc(spark, f"{path}/part=outer/deep")
    return "n INT, at TIMESTAMP", {"recursiveFileLookup": "true"}


def csv(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    Path(path).mkdir()
    (Path(path) / "odd {name}*.csv").write_text('1,"x\ny"\n2,z\nthree,3,4\n')
    return "k INT, v STRING, _corrupt_record STRING", {"multiLine": "true"}


def xml(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:
    Path(path).mkdir()
    (Path(path) / "a.xml").write_text("<rows><row><k>1</k><v>x</v></row><row><k>2</k></row></rows>")
    return "k INT, v STRING", {"rowTag": "row"}


def binaryFile(spark: SparkSession, path: str) -> tuple[str, dict[str, str]]:  # noqa: N802 - as Spark calls it
    Path(path).mkdir()
    (Path(path) / "a").write_bytes(bytes(range(256)))
    return "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY", {}


@pytest.mark.parametrize("write", [orc, nested_orc, csv, xml, binaryFile])
def test_files_that_only_spark_reads_are_read_by_it(
    spark: SparkSession, start: Start, out: Path, tmp_path: Path, write: Callable[..., tuple[str, dict[str, str]]]
) -> None:
    path = str(tmp_path / "in")
    schema, options = write(spark, path)
    kind = write.__name__.removeprefix("nested_")
    files = spark.readStream.schema(schema).format(kind).options(**options).load(path)
    query = start(files.select("*", "_metadata.file_name"), parallelism=2)
    query.processAllAvailable()
    rows = spark.read.schema(schema).format(kind).options(**options).load(path).select("*", "_metadata.file_name")
    expected = sorted((tuple(row.values()) for row in rows.toArrow().to_pylist()), key=repr)
    assert rows_of(out) == expected
    query.stop()
    again = start(files.select("*", "_metadata.file_name"), parallelism=2)
    again.processAllAvailable()
    assert rows_of(out) == expected, "nothing is read twice"


def test_directories_below_a_pattern_are_columns(spark: SparkSession, start: Start, out: Path, tmp_path: Path) -> None:
    orc(spark, str(tmp_path / "in-a"))
    files = spark.readStream.schema("n INT, at TIMESTAMP, part STRING").orc(str(tmp_path / "in-*"))
    query = start(files.selectExpr("n", "at IS NOT NULL", "part"), parallelism=2)
    query.processAllAvailable()
    orc(spark, str(tmp_path / "in-b"))
    query.processAllAvailable()
    assert rows_of(out) == sorted((n, True, f"p{n % 2}") for n in range(len(AT)) for _ in "ab")


def test_what_spark_cannot_read_is_named(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    schema, options = xml(spark, str(tmp_path / "in"))
    (tmp_path / "in" / "b.xml").write_text("<rows><row><k>1</k><v>x</row></rows>")
    files = spark.readStream.schema(schema).format("xml").options(mode="FAILFAST", **options)
    query = start(files.load(str(tmp_path / "in")), **{"restart.attempts": 10})
    named = r"(?s)Spark cannot read 2 files of format xml.*in/b\.xml.*twice is deterministic"
    with pytest.raises(StreamingQueryException, match=named):
        query.awaitTermination(60)


@pytest.mark.parametrize("provider", ["parquet", "orc", "csv", "json"])
def test_a_table_of_files_is_a_source(spark: SparkSession, start: Start, out: Path, provider: str) -> None:
    name = f"penstock_in_{provider}"
    try:
        spark.sql(f"CREATE TABLE {name} (value BIGINT, day STRING) USING {provider} PARTITIONED BY (day)")
        spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
        query = start(spark.readStream.table(name).selectExpr("value * 10 AS value", "day"))
        query.processAllAvailable()
        spark.sql(f"INSERT INTO {name} VALUES (3, 'a')")
        query.processAllAvailable()
        assert rows_of(out) == [(10, "a"), (20, "b"), (30, "a")]
        query.stop()
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
