"""A query begins on Spark's engine and goes on in Penstock: together they emit what Spark alone does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from tests.support.spark_import.spark_runs import Arrivals, OnSpark, latest, on_penstock, same

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def every_function(df: DataFrame) -> DataFrame:
    """Return all functions over columns of several types; ``again`` shares its sum."""
    return df.agg(
        F.count("*").alias("n"),
        F.count("amount").alias("known"),
        F.sum("amount").alias("total"),
        F.sum("small").alias("small"),
        F.sum("price").alias("price"),
        F.sum("wide").alias("wide"),
        F.sum("ratio").alias("ratio"),
        F.avg("amount").alias("mean"),
        F.avg("small").alias("mean_small"),
        F.avg("price").alias("mean_price"),
        F.avg("wide").alias("mean_wide"),
        F.min("at").alias("first"),
        F.max("user").alias("last_user"),
        F.max("ratio").alias("most"),
        (F.sum("amount") + 1).alias("again"),
    )


def windowed(df: DataFrame) -> DataFrame:
    at = df.withWatermark("at", "10 seconds")
    return every_function(at.groupBy(F.window("at", "10 seconds"), "user"))


def by_user(df: DataFrame) -> DataFrame:
    return every_function(df.groupBy("user"))


def of_all(df: DataFrame) -> DataFrame:
    return every_function(df.groupBy())


def test_windows_are_emitted_by_either_engine_and_never_by_both(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in put")
    df = windowed(arrivals.stream(spark))
    arrivals.add((1, "a", 1), (2, "b", 2), (3, None, None), (11, "a", 7))
    arrivals.add((14, "a", 3), (15, "b", None), (31, "a", 5), (33, "c", 6), (9, "a", 4), (32, "c", None))
    on_spark = OnSpark(tmp_path / "spark", "append")
    assert {row[0].start.second for row in on_spark.run(df)} == {0, 10}
    taken = penstock.importSparkCheckpoint(df, str(on_spark.checkpoint), str(tmp_path / "moved"), parallelism=2)
    assert (taken.batch, taken.planned, taken.watermark_ms, taken.state_rows) == (2, None, 23_000, 2)
    assert CliRunner().invoke(app, ["snapshot", "verify", taken.location]).exit_code == 0
    arrivals.add((12, "a", 1000), (28, "b", 9), (34, "a", 1))  # the first one's window was emitted
    arrivals.add((52, "a", 2), (53, None, 3), (71, "b", 4))
    after = on_penstock(df, tmp_path / "moved", "append")
    assert {row[0].start.second for row in after} == {20, 30, 50}
    assert same(after, on_spark.run(df))


def test_what_a_planned_batch_had_read_is_read_again_where_that_is_asked_for(
    spark: SparkSession, spark_conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    """Late for its watermark, and not for that of the batch before, by which Spark drops; state from RocksDB, with the
    names that checkpoints of format 2 give their files; the log of files compacted at the planned batch."""
    spark_conf("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    spark_conf("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    spark_conf("spark.sql.streaming.fileSource.log.compactInterval", "3")
    arrivals = Arrivals(tmp_path / "in")
    df = windowed(arrivals.stream(spark))
    arrivals.add((1, "a", 7), (25, "b", 2))
    arrivals.add((43, "c", 6), (44, "a", 1))
    arrivals.add((3, "a", 1000), (24, "b", 5), (45, "a", 2))
    on_spark = OnSpark(tmp_path / "spark", "append")
    assert len(on_spark.run(df, fail_at=2)) == 1
    assert (on_spark.checkpoint / "sources/0/2.compact").exists()
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    spark.conf.unset("spark.sql.streaming.stateStore.checkpointFormatVersion")
    taken = penstock.importSparkCheckpoint(
        df, str(on_spark.checkpoint), str(tmp_path / "moved"), parallelism=1, planned="again"
    )
    assert (taken.batch, taken.planned, taken.watermark_ms) == (1, 2, 34_000)
    after = on_penstock(df, tmp_path / "moved", "append")
    assert [(row[0].start.second, row[1], row[4]) for row in after] == [(20, "b", 7)]
    assert same(after, on_spark.run(df))


def test_updates_go_on_with_the_groups_that_change(spark: SparkSession, tmp_path: Path) -> None:
    """The parallelism differs from that of the snapshot."""
    arrivals = Arrivals(tmp_path / "in")
    df = by_user(arrivals.stream(spark))
    arrivals.add((1, "a", 1), (2, "b", 2), (3, None, 3), (4, "e", None))
    on_spark = OnSpark(tmp_path / "spark", "update")
    assert len(on_spark.run(df)) == 4
    penstock.importSparkCheckpoint(
        df, str(on_spark.checkpoint), str(tmp_path / "moved"), outputMode="update", parallelism=1
    )
    arrivals.add((5, "a", 5), (6, None, 6), (7, "d", 7), (8, "e", 8))
    after = latest(on_penstock(df, tmp_path / "moved", "update"), 1)
    assert set(after) == {("a",), (None,), ("d",), ("e",)}
    assert after == latest(on_spark.run(df), 1)


def test_one_group_of_everything_goes_on_in_complete_mode(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = of_all(arrivals.stream(spark))
    arrivals.add((1, "a", 1), (2, "b", 2))
    on_spark = OnSpark(tmp_path / "spark", "complete")
    on_spark.run(df)
    penstock.importSparkCheckpoint(
        df, str(on_spark.checkpoint), str(tmp_path / "moved"), outputMode="complete", parallelism=2
    )
    arrivals.add((5, "z", None), (6, None, 6))
    assert on_penstock(df, tmp_path / "moved", "complete")[-1:] == on_spark.run(df)


def test_files_that_only_spark_reads_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """CSV records over several lines: files go through the Spark source bridge."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one.csv").write_text('1,"a\nb"\n2,c\n')
    df = spark.readStream.schema("n bigint, s string").option("multiLine", True).csv(str(tmp_path / "in"))
    on_spark = OnSpark(tmp_path / "spark", "append")
    assert len(on_spark.run(df)) == 2
    penstock.importSparkCheckpoint(df, str(on_spark.checkpoint), str(tmp_path / "moved"), parallelism=1)
    (tmp_path / "in/two.csv").write_text('3,"d\ne"\n')
    assert on_penstock(df, tmp_path / "moved", "append", parallelism=1) == [(3, "d\ne")]
    written = penstock.exportSparkOffsets(df, str(tmp_path / "moved"), str(tmp_path / "back"))
    assert written.files == 2
    assert OnSpark(tmp_path / "back", "append").run(df) == []
