"""``toTable``: Spark's tables, each epoch exactly once; what Spark says of tables that do not fit."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.connectors.spark import table_sink
from penstock.errors import ConfigError, NotSupported, ResourceError
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually

pytestmark = pytest.mark.spark

Start = Callable[..., StreamingQuery]


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    yield "penstock_out"
    spark.sql("DROP VIEW IF EXISTS penstock_view")
    spark.sql("DROP TABLE IF EXISTS penstock_out")


@pytest.fixture
def to_table(checkpoint: Path, table: str) -> Iterator[Start]:
    """``to_table(df, **options)`` as the writer's ``toTable``; stopped at the end."""
    queries: list[StreamingQuery] = []

    def start(df: DataFrame, name: str = table, **options: Any) -> StreamingQuery:
        settings = {"checkpointLocation": str(checkpoint), "parallelism": 2, "checkpoint.interval": "200ms"}
        query = penstock.writeStream(df).toTable(name, **(settings | options))
        queries.append(query)
        return query

    yield start
    for query in queries:
        query.stop()


def rows(first: int, last: int) -> list[tuple[int, int, float]]:
    return [(number, number % 3, float(number)) for number in range(first, last)]


def content(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.table(table).select("key", "value").collect())


def test_a_missing_table_is_made_partitioned_and_filled_once_over_a_kill_and_a_crash_amid_renames(
    spark: SparkSession, inbox: Inbox, table: str, to_table: Start, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    df = inbox.stream(spark)
    inbox.add(rows(0, 10))
    query = to_table(df, partitionBy="value", **{"restart.attempts": 1})
    query.processAllAvailable()
    assert spark.catalog.getTable(table).tableType == "MANAGED"
    assert spark.table(table).columns == ["key", "at", "value"]
    assert content(spark, table) == [(n, n % 3) for n in range(10)]
    assert spark.table(table).where("key = 4").first()["at"] == datetime.fromtimestamp(4)

    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    inbox.add([(10, None, 10.0), *rows(11, 20)])  # type: ignore[list-item]
    eventually(lambda: query.generation == 2, "the next Generation")
    query.processAllAvailable()

    renamed = []
    real = os.rename

    def rename(source: Any, target: Any) -> None:
        renamed.append(target)
        if len(renamed) >= 3:  # the directory, one file, and then
            raise OSError("the disk went away")
        real(source, target)

    monkeypatch.setattr(table_sink.os, "rename", rename)
    inbox.add(rows(20, 30))
    with pytest.raises(
        StreamingQueryException, match=r"table penstock_out in \S+, epoch \d+: OSError: the disk went away"
    ):
        query.awaitTermination(60)
    monkeypatch.undo()
    spark.catalog.refreshTable(table)
    assert 19 < len(content(spark, table)) < 30, "some of it is visible"

    query = to_table(df, partitionBy="value")
    inbox.add(rows(30, 40))
    query.processAllAvailable()
    query.stop()
    expected = [(n, n % 3) for n in range(40) if n != 10]
    assert sorted(row for row in _rows(spark, table) if row[1] is not None) == expected
    assert [row for row in _rows(spark, table) if row[1] is None] == [(10, None)]
    assert len(spark.sql(f"SHOW PARTITIONS {table}").collect()) == 4
    assert not list((checkpoint / "staged").rglob("*.parquet"))


def _rows(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.table(table).select("key", "value").collect()]


@pytest.mark.parametrize("provider", ["orc", "csv"])
def test_rows_go_by_name_into_a_table_that_is_there_as_insert_into_casts_them(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, table: str, to_table: Start, provider: str
) -> None:
    where = tmp_path / "external dir"
    spark.sql(f"CREATE TABLE {table} (extra string, value int, key decimal(20,2)) USING {provider} LOCATION '{where}'")
    spark.sql(f"INSERT INTO {table} VALUES ('mine', 1, 2.50)")
    inbox.add([(1, 10, 1.0), (2, 20, 2.0)])
    query = to_table(inbox.stream(spark).select("key", "value"), format=provider)
    query.processAllAvailable()
    query.stop()
    expected = [("mine", 1, "2.50"), (None, 10, "1.00"), (None, 20, "2.00")]
    assert sorted(((e, v, str(k)) for e, v, k in spark.table(table).collect()), key=repr) == sorted(expected, key=repr)
    assert list(where.glob("part-*-e*")), "names say the epoch"


def test_what_does_not_fit_is_refused_at_start_in_spark_s_words(
    spark: SparkSession, inbox: Inbox, table: str, to_table: Start
) -> None:
    df = inbox.stream(spark).select("key", "value")

    def refused(error: type[Exception], match: str, **options: Any) -> None:
        with pytest.raises(error, match=match):
            to_table(df, **options)

    refused(NotSupported, "a table of provider delta cannot be repeated safely", format="delta")
    refused(NotSupported, "update.*not supported in Data Source parquet", outputMode="update")
    refused(NotSupported, "catalog other", name="other.db.t")
    refused(ConfigError, "not a table's name", name="a b c")
    refused(ConfigError, "partitionBy column nothing", partitionBy="nothing")
    refused(ResourceError, "free", parallelism=4)
    assert not spark.catalog.tableExists(table), "a refusal leaves nothing"

    spark.sql("CREATE TEMP VIEW penstock_view AS SELECT 1 AS key")
    refused(NotSupported, "view", name="penstock_view")
    spark.sql(f"CREATE TABLE {table} (key array<int>, value bigint) USING parquet PARTITIONED BY (value)")
    refused(ConfigError, r"source\(orc\) is different from the table penstock_out's data source provider\(parquet\)",
            format="orc")  # fmt: skip
    refused(ConfigError, r"partitioned by \['value'\], not by \['key'\]", partitionBy="key")
    refused(ConfigError, "INCOMPATIBLE_DATA_FOR_TABLE.*key")


def test_a_bucketed_table_is_refused(spark: SparkSession, inbox: Inbox, table: str, to_table: Start) -> None:
    spark.sql(f"CREATE TABLE {table} (key bigint) USING parquet CLUSTERED BY (key) INTO 2 BUCKETS")
    with pytest.raises(NotSupported, match="bucketed"):
        to_table(inbox.stream(spark).select("key"))


def test_a_table_at_a_path_holds_what_spark_s_own_to_table_would(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, table: str, to_table: Start
) -> None:
    inbox.add(rows(0, 10))
    query = to_table(inbox.stream(spark), path=str(tmp_path / "mine"))
    query.processAllAvailable()
    query.stop()
    try:
        theirs = inbox.stream(spark).writeStream.trigger(availableNow=True)
        theirs.option("checkpointLocation", str(tmp_path / "theirs")).toTable("spark_out").awaitTermination()
        assert spark.table(table).schema == spark.table("spark_out").schema
        assert sorted(spark.table(table).collect()) == sorted(spark.table("spark_out").collect())
    finally:
        spark.sql("DROP TABLE IF EXISTS spark_out")
    assert spark.catalog.getTable(table).tableType == "EXTERNAL"
