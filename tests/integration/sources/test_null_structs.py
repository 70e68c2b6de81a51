"""Structs that are null in some rows, with fields that are never null: every sink takes them, as Spark's do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from tests.support.queries.query_running import Inbox, Start

pytestmark = pytest.mark.spark

COLUMNS = ["key", "CASE WHEN key <> 2 THEN named_struct('x', 1) END AS s", "array(named_struct('x', 1), NULL) AS l"]


@pytest.mark.parametrize("kind", ["memory", "foreachBatch", "parquet", "rolled", "json", "table"])
def test_they_come_as_spark_has_them(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start_writer: Start, kind: str
) -> None:
    inbox.add([(1, 10, 0.5), (2, 20, 1.5), (3, 30, 2.5)])
    rows = spark.read.parquet(str(inbox.directory)).selectExpr(*COLUMNS)
    df = inbox.stream(spark).selectExpr(*COLUMNS)
    got: list[Any] = []
    writer = penstock.writeStream(df).option("checkpointLocation", str(tmp_path / "c")).queryName("null_structs")
    if kind == "foreachBatch":
        writer = writer.foreachBatch(lambda batch, number: got.extend(batch.collect()))
    elif kind == "memory":
        writer = writer.format("memory")
    elif kind != "table":
        writer = writer.format("json" if kind == "json" else "parquet").option("path", str(out))
    if kind == "rolled":
        writer = writer.option("rollInterval", "1h")
    try:
        query = writer.toTable("null_structs_table") if kind == "table" else start_writer(writer)
        query.processAllAvailable()
        query.stop()
        if kind == "memory":
            got = spark.table("null_structs").collect()
        elif kind == "table":
            got = spark.table("null_structs_table").collect()
        elif kind != "foreachBatch":
            got = (
                spark.read.schema(rows.schema).format("json" if kind == "json" else "parquet").load(str(out)).collect()
            )
    finally:
        spark.sql("DROP TABLE IF EXISTS null_structs_table")
    assert sorted(got) == sorted(rows.collect())
