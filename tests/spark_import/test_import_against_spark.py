"""A query begins on Spark's engine and goes on in Penstock: together they emit what Spark alone does."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from spark_runs import Arrivals, OnSpark, Shape, latest, on_penstock

import penstock

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def every_function(df: DataFrame) -> DataFrame:
    """What Penstock computes, over columns of several types; ``again`` shares its sum."""
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


FIRST = [
    [(1, "a", 1), (2, "b", 2), (3, None, None), (11, "a", 7)],
    [(14, "a", 3), (15, "b", None), (16, "b", None), (9, "a", 4)],
    [(31, "a", 5), (33, "c", 6)],  # the watermark comes to 23: windows up to 20 are closed
    [(12, "a", 1000), (34, "c", None), (29, "b", 8)],  # the first row is late by a whole window
]
REST = [
    [(13, "b", 1000), (28, "a", 9), (36, "a", 1)],  # late again; still open
    [(52, "a", 2), (53, None, 3)],
    [(71, "b", 4), (72, "a", 5)],
]


def test_windows_are_emitted_once_each_by_either(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in put")
    df = windowed(arrivals.stream(spark))
    arrivals.add_all(FIRST)
    before = OnSpark(tmp_path / "spark", "append").run(df)
    taken = penstock.importSparkCheckpoint(df, str(before.checkpoint), str(tmp_path / "moved"), parallelism=2)
    assert taken.planned is None and taken.state_rows > 0 and taken.watermark_ms == 24_000
    arrivals.add_all(REST)
    after = on_penstock(df, tmp_path / "moved", "append")
    whole = OnSpark(tmp_path / "whole", "append").run(df)
    assert before.rows and after
    assert sorted(map(repr, before.rows + after)) == sorted(map(repr, whole.rows))
