"""Sources through whole queries: files in all their ways, and the sources for tests."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from query_running import Start, eventually, rows_of

import penstock

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
