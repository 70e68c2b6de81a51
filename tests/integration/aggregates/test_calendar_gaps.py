"""Timestamps plus calendar intervals, as the gaps of session windows are: equal to Spark across a change of clocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.support.aggregates.aggregate_kit import SCHEMA, Job, assert_same_rows, compiled

pytestmark = pytest.mark.spark

GAPS = [
    "make_interval(0, 1, 0, 0, 0)",
    "make_interval(1, -2, 0, 1, 9)",
    "make_interval(0, 0, 0, 1, 0)",
    "make_interval(0, 0, 0, 0, 24)",
    "make_interval(0, 0, 0, -1, 33, 0, 0.000001)",
    "make_interval(0, 0, 0, 0, 0)",
    "case when b then make_interval(0, 1) when b is null then make_interval(0, 0, 0, 1) end",
    "if(b, make_interval(0, 0, 0, 0, 9), make_interval(0, 11, 0, 29))",
    "cast(concat(i % 40, ' days ', g, ' hours') as interval)",
    "cast(text as interval)",
    "coalesce(make_interval(0, 0, 0, g), cast(concat(i % 99, ' hours') as interval), make_interval(0, 7))",
    "make_interval(g, i % 5, 0, i % 30, 0, l % 99, e)",
    "case when b then cast(concat(g, ' month') as interval) else make_interval(0, 0, 0, g) end",
]


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_sums_equal_spark(
    spark: SparkSession, spark_conf: Callable[[str, str], None], folder: Path, rows: pa.Table, ansi: str
) -> None:
    spark_conf("spark.sql.session.timeZone", "America/New_York")  # clocks change half a day behind the rows
    spark_conf("spark.sql.ansi.enabled", ansi)

    def plan(df: DataFrame) -> DataFrame:
        return df.selectExpr("ts", "b", *(f"ts + {gap} as r{number}" for number, gap in enumerate(GAPS)))

    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    job = Job(compiled(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), "append"))
    job.feed(rows.select(job.schema.names).cast(job.schema).to_batches())
    job.close()
    zoned = [column.cast(pa.timestamp("us", "UTC")) if n != 1 else column for n, column in enumerate(expected.columns)]
    assert_same_rows(pa.Table.from_batches(job.output), pa.table(zoned, expected.schema.names), 2)
