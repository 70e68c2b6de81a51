"""Complete and update mode, batch by batch beside Structured Streaming with one file per trigger."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.functions import avg, col, count, max, sum, window  # noqa: A004 - as Spark calls them
from pyspark.sql.types import StructType

import penstock
from penstock.errors import NotSupported
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Start = Callable[..., StreamingQuery]
Batches = list[list[tuple[Any, ...]]]

FILES = [
    [(1, 10, 5.0), (2, 20, 12.0), (3, 30, 18.0)],
    [(1, 1, 41.0), (4, 40, 42.0)],
    [(2, 7, 3.0), (1, 100, 6.0)],  # late behind 41 - 5 s
    [(5, 50, 44.0), (2, 2, 60.0)],
]


def by_key(df: DataFrame) -> DataFrame:
    return df.groupBy("key").agg(count("*").alias("n"), sum("value").alias("total"), avg("value").alias("mean"))


def by_window(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "5 seconds").groupBy(window("at", "10 seconds"), "key")
    return grouped.agg(max("value").alias("most")).select("window.start", "key", "most")


def once(df: DataFrame) -> DataFrame:
    """Empty after the first file but one."""
    return df.where("key < 3").groupBy("key").agg(count("*").alias("n")).filter("n = 1").select("key")


def top(df: DataFrame) -> DataFrame:
    total = by_key(df).filter(col("n") > 0).repartition(3)
    return total.orderBy(col("total").desc(), "key").limit(2).select("key", "total")


def spark_batches(df: DataFrame, mode: str, checkpoint: Path) -> Batches:
    """Return the batches that Structured Streaming passes to ``foreachBatch``, without empty ones."""
    found: Batches = []

    def keep(batch: DataFrame, _: int) -> None:
        found.append([tuple(row) for row in batch.collect()])

    writer = df.writeStream.foreachBatch(keep).outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("query", "mode", "ordered"),
    [
        (by_key, "complete", False),
        (by_window, "complete", False),
        (once, "complete", False),
        (top, "complete", True),
        (by_key, "update", False),
        (by_window, "update", False),
    ],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", ""),
)
def test_batches_are_spark_s(
    spark: SparkSession,
    inbox: Inbox,
    checkpoint: Path,
    start_writer: Start,
    query: Callable[[DataFrame], DataFrame],
    mode: str,
    ordered: bool,
) -> None:
    found: Batches = []

    def keep(batch: DataFrame, _: int) -> None:
        found.append([tuple(row) for row in batch.collect()])

    writer = penstock.writeStream(query(inbox.stream(spark))).foreachBatch(keep).outputMode(mode)
    # An epoch per file: only processAllAvailable ends one.
    running = start_writer(writer, checkpointLocation=str(checkpoint), parallelism=2, **{"checkpoint.interval": "10m"})
    for number, rows in enumerate(FILES):
        inbox.add(rows)
        os.utime(inbox.directory / f"in-{number:04d}.parquet", (1_000_000 + number, 1_000_000 + number))
        running.processAllAvailable()
    one_by_one = spark.readStream.schema(inbox.stream(spark).schema).option("maxFilesPerTrigger", 1)
    expected = spark_batches(query(one_by_one.parquet(str(inbox.directory))), mode, checkpoint.parent / "spark")
    if mode == "update":  # a watermark makes Spark run batches without data
        expected = [rows for rows in expected if rows]
    if not ordered:
        found, expected = [sorted(rows) for rows in found], [sorted(rows) for rows in expected]
    assert found == expected


def test_a_memory_table_in_complete_mode_is_replaced_and_whole_again_after_a_kill(
    spark: SparkSession, inbox: Inbox, start_writer: Start
) -> None:
    writer = penstock.writeStream(by_key(inbox.stream(spark)).select("key", "n", "total"))
    query = start_writer(writer.format("memory").queryName("whole").outputMode("complete"), parallelism=2)

    def table() -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in spark.table("whole").collect())

    inbox.add(FILES[0])
    query.processAllAvailable()
    assert table() == [(1, 1, 10), (2, 1, 20), (3, 1, 30)]
    inbox.add([(1, 1, 1.0)])
    query.processAllAvailable()
    assert table() == [(1, 2, 11), (2, 1, 20), (3, 1, 30)], "as many rows as before, and other ones"
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    inbox.add([(3, 3, 1.0)])
    eventually(lambda: query.generation == 2, "the next Generation")
    query.processAllAvailable()
    assert table() == [(1, 2, 11), (2, 1, 20), (3, 2, 33)]


def _sink() -> type[DataSource]:
    """A class that travels by value: workers do not have this module."""

    class Writer(DataSourceStreamWriter):
        def __init__(self, overwrite: bool, path: str) -> None:
            self.overwrite, self.path = overwrite, path

        def write(self, iterator: Any) -> WriterCommitMessage:
            for _ in iterator:
                continue
            return WriterCommitMessage()

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            Path(self.path).write_text(f"overwrite={self.overwrite}")

    class Sink(DataSource):
        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return Writer(overwrite, self.options["path"])

    return Sink


def test_a_python_sink_hears_that_it_overwrites(
    spark: SparkSession, inbox: Inbox, checkpoint: Path, tmp_path: Path, start_writer: Start
) -> None:
    inbox.add(FILES[0])
    writer = penstock.writeStream(by_key(inbox.stream(spark))).format(_sink()).outputMode("complete")
    query = start_writer(writer.option("path", str(tmp_path / "told")), checkpointLocation=str(checkpoint))
    query.processAllAvailable()
    assert (tmp_path / "told").read_text() == "overwrite=True"


def test_the_console_prints_every_batch_whole_and_numbered_from_0(
    spark: SparkSession, inbox: Inbox, start_writer: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = penstock.writeStream(by_key(inbox.stream(spark)).select("key", "n").orderBy("key"))
    query = start_writer(writer.format("console").outputMode("complete"))
    for rows in ([(1, 1, 1.0), (2, 1, 1.0)], [(2, 1, 1.0)]):
        inbox.add(rows)
        query.processAllAvailable()
    printed = capsys.readouterr().out
    assert "Batch: 0" in printed
    assert printed.rstrip().endswith("|  1|  1|\n|  2|  2|\n+---+---+")
    assert "Batch: 1" in printed


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_files_take_only_append_as_spark_says(
    spark: SparkSession, inbox: Inbox, checkpoint: Path, tmp_path: Path, start_writer: Start, mode: str
) -> None:
    out = str(tmp_path / "out")
    message = f"streaming output mode: {mode}. This output mode is not supported in Data Source parquet"
    with pytest.raises(AnalysisException, match=message):
        by_key(inbox.stream(spark)).writeStream.outputMode(mode).start(out, checkpointLocation=str(checkpoint))
    with pytest.raises(NotSupported, match=message):
        start_writer(penstock.writeStream(by_key(inbox.stream(spark))).outputMode(mode).option("path", out))
