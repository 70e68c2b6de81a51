"""``dropDuplicates`` and ``dropDuplicatesWithinWatermark`` begin on Spark's engine and go on in Penstock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.errors import NotSupported
from tests.integration.spark_import.test_import_against_spark import ROCKSDB
from tests.integration.spark_import.test_import_refusals import refusal
from tests.support.spark_import.spark_runs import Arrivals, OnSpark, on_penstock, same

BEFORE = [
    [(21, "a", 1), (22, "b", 2), (22, None, 2), (24, "a", None)],
    [(23, "a", 1), (31, "c", 3), (21, "b", 2)],
    [(34, "b", 2), (30, "d", 4), (25, None, 5)],  # event time is at 24 s then
]
AFTER = [
    [(25, "e", 7), (24, "late", 1), (28, "a", 1), (31, "c", 9), (26, "f", 1), (31, "c", 3), (45, "g", 1)],
    [],  # so that Spark judges the next ones by what the ones before say
    [(36, "a", 1), (29, "d", 4), (36, "a", 1), (39, "c", 3), (45, "g", 1)],
    [],
    [(35, "late", 1), (60, "b", 2), (47, "d", 6), (42, "g", 1), (61, None, 2)],
]


def timed(df: DataFrame) -> DataFrame:
    return df.select("at", "user", "amount", F.col("ratio") * 0 - 0.0).withWatermark("at", "10 seconds")


def within(df: DataFrame) -> DataFrame:
    return timed(df).dropDuplicatesWithinWatermark(["user"])


def with_time(df: DataFrame) -> DataFrame:
    return timed(df).select("*", F.struct("user", "amount").alias("who")).dropDuplicates(["at", "who"])


def for_ever(df: DataFrame) -> DataFrame:
    return df.select("user", "ratio", "wide").dropDuplicates(["ratio", "user", "wide"])


def counted(df: DataFrame) -> DataFrame:
    """Two operators with state."""
    return timed(df).dropDuplicates(["user", "at"]).groupBy(F.window("at", "5 seconds")).agg(F.sum("amount"))


def both(
    spark: SparkSession,
    folder: Path,
    plan: Callable[[DataFrame], DataFrame],
    rows: int,
    parallelism: int,
    started_with: int = 1,
    files: int = 3,
) -> None:
    """Together they emit what Spark alone does. ``rows``: of state that are taken over; ``files``: so many follow, each
    in a run of its own, as only the watermark of a run before is sure to be there in front of a late row."""
    arrivals = Arrivals(folder / "in put")
    df = plan(arrivals.stream(spark))
    arrivals.add_all(BEFORE)
    on_spark = OnSpark(folder / "spark", "append")
    before = on_spark.run(df)
    taken = penstock.importSparkCheckpoint(df, str(on_spark.checkpoint), str(folder / "moved"), parallelism=parallelism)
    assert taken.state_rows == rows
    after = []
    for batch in AFTER[:files]:
        arrivals.add(*batch)
        if batch:
            after += on_penstock(df, folder / "moved", "append", started_with)
    assert after
    assert same(after, on_spark.run(df)), (before, after)


def test_keys_expire_when_spark_would_have_let_them(spark: SparkSession, tmp_path: Path) -> None:
    both(spark, tmp_path, within, 5, 2, files=5)


def test_keys_with_an_event_time_come_from_rocksdb_too(
    spark: SparkSession, spark_conf: Callable[[str, str], None], tmp_path: Path
) -> None:
    spark_conf("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    both(spark, tmp_path, with_time, 4, 1)


def test_keys_without_a_watermark_stay_known(spark: SparkSession, tmp_path: Path) -> None:
    both(spark, tmp_path, for_ever, 7, 1, started_with=2, files=1)


def test_a_deduplication_in_front_of_an_aggregation_comes_with_it(spark: SparkSession, tmp_path: Path) -> None:
    both(spark, tmp_path, counted, 7, 2)


def test_another_deduplication_is_told_by_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in")
    arrivals.add((1, "a", 2), (2, "a", 4))
    df = arrivals.stream(spark)
    on_spark = OnSpark(tmp_path / "spark", "append")
    on_spark.run(df.dropDuplicates(["user"]))
    for other, text in (
        (df.dropDuplicates(["amount"]), "keys: Spark's are (string), not (int64)"),
        (within(df), "state: Spark has dedupe, the DataFrame dedupeWithinWatermark"),
        (df.select("user"), "state/0 (dedupe): the DataFrame has none"),
    ):
        assert text in refusal(other, on_spark.checkpoint, tmp_path / "new", NotSupported)
    with pytest.raises(NotSupported, match="Spark has dedupe, the DataFrame stateStoreSave, dedupe"):
        penstock.importSparkCheckpoint(
            df.dropDuplicates(["user"]).groupBy("user").count(),
            str(on_spark.checkpoint),
            str(tmp_path / "new"),
            outputMode="update",
        )
