"""Kafka end to end: what Spark's users write, run by Penstock over librdkafka's mock cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

import penstock
from penstock.errors import PenstockError
from tests.support.mock_kafka import MockKafka, mock_kafka
from tests.support.queries.query_running import Start, eventually, rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def kafka() -> Iterator[MockKafka]:
    with mock_kafka() as cluster:
        yield cluster


def stream(spark: SparkSession, kafka: MockKafka, **options: Any) -> DataFrame:
    texts = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "t", "startingOffsets": "earliest"} | options
    return penstock.readStream(spark).format("kafka").options(**texts).load()


def numbered(first: int, count: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number % 3), b"%d" % number) for number in range(first, first + count)]


def values(out: Path) -> list[int]:
    return sorted(int(value) for (value,) in rows_of(out))


def test_the_schema_is_sparks(spark: SparkSession, kafka: MockKafka) -> None:
    plain = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    plain += "timestampType int"
    assert stream(spark, kafka).schema == spark.createDataFrame([], plain).schema
    headers = plain + ", headers array<struct<key string, value binary>>"
    assert stream(spark, kafka, includeHeaders="true").schema == spark.createDataFrame([], headers).schema


def test_spark_keeps_the_name_for_its_own_connector(spark: SparkSession, kafka: MockKafka, tmp_path: Path) -> None:
    """Why ``penstock.readStream`` is needed at all; and what Spark's engine says to such a stream."""
    with pytest.raises(AnalysisException, match="KAFKA_DATA_SOURCE_NOT_ENABLED"):
        spark.readStream.format("kafka").load()
    query = stream(spark, kafka).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "s")).start()
    with pytest.raises(Exception, match=r"penstock\.writeStream"):
        query.awaitTermination(30)


def test_every_row_once_over_restarts_new_partitions_and_a_broker_that_is_away(
    spark: SparkSession, kafka: MockKafka, out: Path, start: Start
) -> None:
    for topic, partitions in (("t", 3), ("t2", 1)):
        kafka.create(topic, partitions)
    df = stream(spark, kafka, subscribe="t,t2", **{"kafka.reconnect.backoff.max.ms": "100"})
    df = df.selectExpr("cast(value as string) value")
    query = start(df, parallelism=2)
    for partition in range(3):
        kafka.send("t", numbered(partition * 100, 50), partition)
    eventually(lambda: len(values(out)) == 150, "the first rows")
    query.stop()
    kafka.send("t2", numbered(300, 10))
    query = start(df, parallelism=2)
    eventually(lambda: len(values(out)) == 160, "rows that came while nothing ran")
    kafka.down()
    kafka.up()
    kafka.send("t", numbered(400, 10), 2)
    eventually(lambda: len(values(out)) == 170, "rows after the broker was away")
    assert query.isActive
    query.processAllAvailable()
    progress = query.lastProgress
    assert progress is not None
    [source] = progress.sources
    assert json.loads(source.endOffset) == {"t": {"0": 50, "1": 50, "2": 60}, "t2": {"0": 10}}
    assert json.loads(source.startOffset).keys() == {"t", "t2"}
    assert {name for name in source.metrics if name.endswith("BehindLatest")} == {
        "minOffsetsBehindLatest",
        "maxOffsetsBehindLatest",
        "avgOffsetsBehindLatest",
    }
    expected = [*range(50), *range(100, 150), *range(200, 250), *range(300, 310), *range(400, 410)]
    assert values(out) == expected


def test_available_now_reads_what_is_there_and_goes_on_later(
    spark: SparkSession, kafka: MockKafka, out: Path, tmp_path: Path
) -> None:
    kafka.create("t", 2)
    df = stream(spark, kafka).selectExpr("cast(value as string) value")

    def run() -> None:
        writer = penstock.writeStream(df).format("parquet").option("path", str(out)).option("parallelism", 1)
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()

    for first, partition in ((0, 0), (20, 1), (40, 0)):
        kafka.send("t", numbered(first, 20), partition)
        run()
        assert values(out) == list(range(first + 20))


def test_windows_of_a_backlog_are_whole(spark: SparkSession, kafka: MockKafka, out: Path, start: Start) -> None:
    """One reader has both partitions: the first rows of one must not come behind the last of the other."""
    kafka.create("t", 2)
    for partition in range(2):
        for second in range(0, 300, 5):
            kafka.send("t", [(None, b"x" * 900)] * 10, partition, timestamp=1_700_000_000_000 + 1_000 * second)
    df = stream(spark, kafka, **{"kafka.max.partition.fetch.bytes": "20000", "kafka.queued.min.messages": "1"})
    counts = df.withWatermark("timestamp", "0 seconds").groupBy(window("timestamp", "10 seconds")).count()
    start(counts.select("count"), parallelism=1)
    eventually(lambda: len(rows_of(out)) >= 29, "all windows but the last")
    assert set(rows_of(out)) == {(40,)}


def test_a_silent_partition_does_not_stop_event_time_while_another_one_brings_rows(
    spark: SparkSession, kafka: MockKafka, out: Path, start: Start
) -> None:
    """Each of two readers has a partition; the windows are those that Spark makes of the same rows."""
    kafka.create("t", 2)
    counts = stream(spark, kafka).withWatermark("timestamp", "1 second").groupBy(window("timestamp", "10 seconds"))
    query = start(counts.count().selectExpr("cast(window.start as long) start", "count"), parallelism=2)
    sent: list[int] = []

    def first_three_came_out() -> bool:
        second = 1_700_000_000 + 2 * len(sent)
        kafka.send("t", [(None, b"x")], 0, timestamp=1_000 * second)
        sent.append(second)
        return {1_700_000_000 + 10 * number for number in range(3)} <= {row[0] for row in rows_of(out)}

    eventually(first_three_came_out, "windows", 60)
    query.stop()
    times = spark.createDataFrame([(second,) for second in sent], "second long").selectExpr("timestamp(second) at")
    made = times.groupBy(window("at", "10 seconds")).count().selectExpr("cast(window.start as long)", "count")
    # One subtask can be windows behind the other, and the last window is not whole.
    came_out = rows_of(out)
    assert len(came_out) == len(set(came_out))
    assert set(came_out) <= {tuple(row) for row in made.collect()}
    assert sum(state.numRowsDroppedByWatermark for p in query.recentProgress for state in p.stateOperators) == 0


def test_what_goes_wrong_is_one_clear_error_without_secrets(
    spark: SparkSession, kafka: MockKafka, start: Start, tmp_path: Path
) -> None:
    secret = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="geheim";'
    keys = {"kafka.sasl.jaas.config": secret, "kafka.ssl.key.pem": "--geheim, x=[geheim], [geheim\ngeheim--"}
    with pytest.raises(PenstockError, match=r"kafka\.auto\.offset\.reset.*startingOffsets") as refused:
        start(stream(spark, kafka, **keys, **{"kafka.auto.offset.reset": "latest"}))
    assert "geheim" not in str(refused.value)
    assert "(not shown)" in str(refused.value)
    query = start(stream(spark, kafka, subscribe="nope", **{"kafka.sasl.jaas.config": secret}))
    with pytest.raises(Exception, match="nope: no such topic or partition") as failed:
        query.awaitTermination(30)
    assert "geheim" not in str(failed.value)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if b"geheim" in path.read_bytes()]


def test_a_planned_batch_is_read_up_to_its_offsets_first(spark: SparkSession, kafka: MockKafka, tmp_path: Path) -> None:
    """Spark's connector is not here, so its checkpoint is written as Spark 4.3 does."""
    kafka.create("t", 2)
    kafka.send("t", numbered(0, 6))
    kafka.send("t", numbered(10, 2), partition=1)
    plan = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    for path, lines in (
        ("metadata", ['{"id":"sparks-own"}']),
        ("offsets/0", ["v1", plan, '{"t":{"0":2,"1":0}}']),
        ("offsets/1", ["v1", plan, '{"t":{"0":4,"1":1}}']),
        ("commits/0", ["v1", '{"nextBatchWatermarkMs":0}']),
    ):
        file = tmp_path / "spark" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))
    df = stream(spark, kafka).selectExpr("cast(cast(value as string) as int) n")
    taken = penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"), parallelism=2)
    assert (taken.batch, taken.planned) == (0, 1)
    calls: list[tuple[str, int, list[int]]] = []

    def keep(rows: DataFrame, batch: int) -> None:
        writer = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        calls.append((writer, batch, sorted(row.n for row in rows.collect())))

    def run() -> str:
        writer = penstock.writeStream(df).foreachBatch(keep).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "moved")).start()
        assert query.awaitTermination(60)
        return str(query.id)

    own = run()
    kafka.send("t", numbered(20, 1))
    run()
    assert calls[0] == ("sparks-own", 1, [2, 3, 10])
    assert [(writer, batch) for writer, batch, _ in calls[1:]] == [(own, 2 + n) for n in range(len(calls) - 1)]
    assert sorted(n for _, _, rows in calls[1:] for n in rows) == [4, 5, 11, 20]
