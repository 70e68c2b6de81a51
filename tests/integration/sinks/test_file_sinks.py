"""File sinks end to end: what Spark's readers and Spark's own sink say about them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import ConfigError, NotSupported
from tests.support.queries.query_running import Inbox, Start

pytestmark = pytest.mark.spark

ROWS = [(1, 10, 0.5), (2, -20, 86_400.25), (3, 30, 1e9), (4, 10, 2e9)]


def shaped(spark: SparkSession, inbox: Inbox) -> DataFrame:
    """A column per type that directories are named after, and awkward texts."""
    return inbox.stream(spark).selectExpr(
        "key",
        "at",
        "CASE key WHEN 1 THEN 'a/b=c' WHEN 2 THEN '' WHEN 3 THEN 'é %\"' END AS p",
        "CAST(at AS DATE) day",
        "CAST(value AS DOUBLE) / 3 AS part",
        "CAST(value AS DECIMAL(9, 3)) AS price",
        "key > 2 AS late",
        "at AS moment",
    )


def directories(out: Path) -> list[str]:
    found = []
    for directory, _, names in os.walk(out):
        relative = os.path.relpath(directory, out)
        if not relative.startswith(("_", ".")) and any(name.startswith("part-") for name in names):
            found.append(relative)
    return sorted(found)


@pytest.mark.parametrize(
    ("kind", "by"), [("json", ("P", "day", "moment")), ("csv", ("part", "price", "late")), ("parquet", ("p",))]
)
def test_partitions_are_those_of_sparks_own_sink(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start, kind: str, by: tuple[str, ...]
) -> None:
    inbox.add(ROWS)
    df = shaped(spark, inbox)
    query = start(df, format=kind, partitionBy=list(by), path=str(out))
    query.processAllAvailable()
    query.stop()
    theirs = tmp_path / "sparks"
    writer = (
        df.writeStream.format(kind).partitionBy(*by).option("checkpointLocation", str(tmp_path / "spark-checkpoint"))
    )
    writer.trigger(availableNow=True).start(str(theirs)).awaitTermination()
    assert directories(out) == directories(theirs)
    shutil.rmtree(theirs / "_spark_metadata")  # so that both are read alike, by what the directories hold
    read = spark.read.format(kind).schema(df.schema)
    ours = read.load(str(out)).select(df.columns).orderBy("key").collect()
    assert ours == read.load(str(theirs)).select(df.columns).orderBy("key").collect()
    assert [row["key"] for row in ours] == [1, 2, 3, 4]


def test_kept_rows_are_visible_at_the_end_and_in_one_file(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    query = start(
        inbox.stream(spark).selectExpr("CAST(key AS STRING)"), format="text", path=str(out), rollInterval="1h"
    )
    for key in range(4):
        inbox.add([(key, 0, 0.0)])
        query.processAllAvailable()
        assert directories(out) == []
    query.stop()
    assert len(list(out.glob("part-*"))) == 1
    assert sorted(row[0] for row in spark.read.text(str(out)).collect()) == ["0", "1", "2", "3"]


def test_what_spark_refuses_is_refused(spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path) -> None:
    df = inbox.stream(spark)

    def refused(error: type[Exception], match: str, **settings: Any) -> None:
        settings = {"path": str(out), "checkpointLocation": str(tmp_path / "c"), "format": "csv", **settings}
        with pytest.raises(error, match=match):
            penstock.writeStream(df).start(**settings)
        assert not out.exists()

    refused(ConfigError, "partitionBy names column nope", partitionBy="nope")
    refused(ConfigError, "names all columns", partitionBy=["key", "value", "at"])
    refused(ConfigError, "names column KEY twice", partitionBy=["key", "KEY"])
    refused(NotSupported, "partitionBy is for the file sinks", partitionBy="key", format="noop", path=None)
    refused(NotSupported, "output mode: update", format="json", outputMode="update")
    refused(NotSupported, "exactly one string column, not key int64", format="text")
    refused(
        ConfigError,
        "unknown option colour. Options of the csv sink: .*compression.*rollInterval",
        colour="red",
    )
    refused(ConfigError, "compression='lzo' of the csv sink", compression="lzo")
    with pytest.raises(PySparkException, match="ALL_PARTITION_COLUMNS_NOT_ALLOWED"):
        df.writeStream.partitionBy("key", "value", "at").option("checkpointLocation", str(tmp_path / "d")).start(
            str(out / "spark")
        ).awaitTermination()
