"""Sources through whole queries: files in all their ways, and the sources for tests."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import penstock
from penstock.errors import NotSupported
from tests.support.queries.query_running import Start, eventually, rows_of

pytestmark = pytest.mark.spark


def arrive(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.parent / f".{path.name}"
    hidden.write_text(text)
    os.replace(hidden, path)


def test_partitioned_text_is_read_archived_and_resumed(
    spark: SparkSession, start: Start, out: Path, tmp_path: Path
) -> None:
    inbox, archive = tmp_path / "in", tmp_path / "archive"
    arrive(inbox / "day=1" / "a.txt", "one\ntwo\n")
    options = {"cleanSource": "archive", "sourceArchiveDir": str(archive)}
    lines = spark.readStream.options(**options).text(str(inbox))
    rows = lines.selectExpr("value", "day", "_metadata.file_name as name")
    query = start(rows)
    query.processAllAvailable()
    eventually(lambda: (Path(f"{archive}{inbox}") / "day=1" / "a.txt").exists(), "the archived file")
    query.stop()
    arrive(inbox / "day=2" / "b.txt", "three\n")
    arrive(inbox / "day=1" / "c.txt", "four\n")
    again = start(rows, parallelism=1)
    again.processAllAvailable()
    expected = [("four", 1, "c.txt"), ("one", 1, "a.txt"), ("three", 2, "b.txt"), ("two", 1, "a.txt")]
    assert rows_of(out) == expected
    eventually(lambda: not list(inbox.rglob("*.txt")), "an empty inbox")


def test_files_are_cleaned_away_when_all_that_was_there_is_read(spark: SparkSession, out: Path, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    for name in "abc":
        arrive(inbox / name, f"{name}\n")
    lines = spark.readStream.option("cleanSource", "delete").text(str(inbox))
    writer = penstock.writeStream(lines).trigger(availableNow=True).option("path", str(out))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(parallelism=1)
    assert query.awaitTermination(120)
    assert rows_of(out) == [("a",), ("b",), ("c",)]
    assert list(inbox.iterdir()) == []


def test_only_needed_columns_of_orc_and_a_partition(
    spark: SparkSession, start: Start, out: Path, tmp_path: Path
) -> None:
    inbox = tmp_path / "in"
    spark.range(10).selectExpr("id", "id % 2 k", "timestamp_micros(id) at").write.partitionBy("k").orc(str(inbox))
    frame = spark.readStream.schema("id BIGINT, at TIMESTAMP, k INT").orc(str(inbox))
    start(frame.select("k", "id").where("k = 1")).processAllAvailable()
    assert rows_of(out) == [(1, i) for i in range(1, 10, 2)]
    start(frame.select("k"), path=f"{out}-k", checkpointLocation=str(tmp_path / "k")).processAllAvailable()
    assert rows_of(Path(f"{out}-k")) == [(0,)] * 5 + [(1,)] * 5


def test_partition_directories_may_appear_later(spark: SparkSession, start: Start, out: Path, tmp_path: Path) -> None:
    """A consumer starts before its producer, as in Spark's FileStreamSourceSuite."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    rows = spark.readStream.schema("value STRING, day STRING, unread INT").json(str(inbox)).select("value", "day")
    query = start(rows)
    query.processAllAvailable()
    arrive(inbox / "day=foo" / "1", '{"value": "x", "day": "from the file"}\n')
    query.processAllAvailable()
    assert rows_of(out) == [("x", "foo")]
    query.stop()
    arrive(inbox / "day=bar" / "unread=7" / "1", '{"value": "y"}\n')
    arrive(inbox / "1", '{"value": "z", "day": "from the file"}\n')
    start(rows, parallelism=1).processAllAvailable()
    assert rows_of(out) == [("x", "foo"), ("y", "bar"), ("z", "from the file")]


@pytest.mark.parametrize("multi_line", ["false", "true"])
def test_columns_of_csv_are_those_that_no_directory_gives(
    spark: SparkSession, start: Start, out: Path, tmp_path: Path, multi_line: str
) -> None:
    """``multiLine`` makes Spark read the files."""
    inbox = tmp_path / "in"
    inbox.mkdir()
    query = start(
        spark.readStream.schema("v STRING, day STRING, n INT").option("multiLine", multi_line).csv(str(inbox))
    )
    arrive(inbox / "day=foo" / "1", "x,1\n")
    query.processAllAvailable()
    arrive(inbox / "2", "y,here,2\n")
    query.processAllAvailable()
    assert rows_of(out) == [("x", "foo", 1), ("y", "here", 2)]


def test_a_directory_of_no_column_ends_the_query_soon(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    query = start(spark.readStream.schema("value STRING").json(str(inbox)))
    arrive(inbox / "day=foo" / "1", '{"value": "x"}\n')
    with pytest.raises(
        StreamingQueryException, match=r"in/day=foo/1: a directory is named like a partition.*\n.*twice"
    ):
        query.processAllAvailable()


def test_names_that_differ_in_case(
    spark: SparkSession, start: Start, out: Path, tmp_path: Path, spark_conf: Callable[[str, str], None]
) -> None:
    spark_conf("spark.sql.caseSensitive", "true")
    inbox = tmp_path / "in"
    inbox.mkdir()
    pq.write_table(pa.table({"a": [1, 2], "A": [3, 4]}), inbox / "x.parquet")
    start(spark.readStream.schema("a BIGINT, A BIGINT").parquet(str(inbox))).processAllAvailable()
    assert rows_of(out) == [(1, 3), (2, 4)]


def test_columns_that_cannot_be_held_are_refused_by_name(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    spark.sql("SELECT id, map() m FROM range(3)").coalesce(1).write.parquet(str(inbox))
    files = spark.readStream.schema("id BIGINT, m MAP<VOID, VOID>").parquet(str(inbox))
    with pytest.raises(NotSupported, match=r"m.*: maps with keys of type void are not supported"):
        start(files)


def test_socket_lines(spark: SparkSession, start: Start, out: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        query = start(lines)
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"a\nb\n")
            eventually(lambda: rows_of(out) == [("a",), ("b",)], "two lines")
            query.stop()
        again = start(lines)
        with pytest.raises(StreamingQueryException, match="a socket cannot send them again"):
            again.awaitTermination()


def test_micro_batches_of_rate(spark: SparkSession, start: Start, out: Path) -> None:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("startTimestamp", 5000).load()
    query = start(rate.selectExpr("value", "cast(timestamp as long) at").where("value < 25"))
    eventually(lambda: len(rows_of(out)) == 25, "three batches")
    query.stop()
    assert rows_of(out) == sorted([(i, 5 + i // 10) for i in range(25)], key=repr)
