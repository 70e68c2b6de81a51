"""The oracle: a compiled graph's operators give what Spark gives for the same DataFrame as a batch."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import DoubleType, IntegerType, LongType

from penstock.catalyst.trees import kind
from penstock.planner.static_join import read_static_sides
from tests.integration.planner.test_graph_shape import SINK
from tests.support.planner.compiled_query import compile_query
from tests.support.planner.graph_runner import GraphRunner
from tests.support.same_rows import canonical
from tests.support.same_rows import multiset as exactly

pytestmark = pytest.mark.spark
register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import test modules

SCHEMA = "ts timestamp, k string, v double, n int, d decimal(7,2), f boolean"
ROWS = 2_000
BATCH_ROWS = 150
START = datetime(2024, 3, 9, 22, 0, tzinfo=UTC)

Plan = Callable[[DataFrame], DataFrame]


def make_rows() -> pa.Table:
    """Event times rise with a jitter of 5 s; every other column holds nulls, and doubles hold -0.0 and NaN."""
    random = np.random.default_rng(7)

    def nullable(values: list[Any]) -> list[Any]:
        return [None if hole else value for value, hole in zip(values, random.random(ROWS) < 0.1, strict=True)]

    jitter = random.uniform(-2.5, 2.5, ROWS)
    times = [START + timedelta(seconds=i * 3.7 + jitter[i]) for i in range(ROWS)]
    doubles = random.choice([0.0, -0.0, math.nan, 1.5, -2.25, 1e10, math.inf], ROWS).tolist()
    columns = {
        "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        "k": pa.array(nullable(random.choice(["a", "b", "", "ß", "a b"], ROWS).tolist()), pa.string()),
        "v": pa.array(nullable(doubles), pa.float64()),
        "n": pa.array(nullable(random.integers(-50, 50, ROWS).tolist()), pa.int32()),
        "d": pa.array(
            nullable([Decimal(int(x)) / 100 for x in random.integers(-9999, 9999, ROWS)]), pa.decimal128(7, 2)
        ),
        "f": pa.array(nullable((random.random(ROWS) < 0.5).tolist()), pa.bool_()),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return make_rows()


multiset = partial(exactly, digits=9)


def run(stream: DataFrame, rows: pa.Table, mode: str) -> tuple[pa.Table, GraphRunner]:
    graph = compile_query(stream, sink=SINK, output_mode=mode, parallelism=1, max_parallelism=128)
    read_static_sides(graph, 1 << 20)
    source = graph.vertices[0].source
    assert source is not None
    schema = source.source.schema
    runner = GraphRunner(graph)
    batches = rows.select(schema.names).cast(schema).to_batches(max_chunksize=BATCH_ROWS)
    half = len(batches) // 2
    runner.run(batches[:half])
    runner.run(batches[half:])
    runner.drain()
    runner.close()
    assert all(batch.schema == runner.output[0].schema for batch in runner.output)
    return pa.Table.from_batches(runner.output), runner


def assert_equals_spark(spark: SparkSession, folder: Path, rows: pa.Table, plan: Plan, mode: str = "append") -> None:
    expected = plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow()
    assert expected.num_rows > 0
    actual, runner = run(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), rows, mode)
    assert actual.schema.names == expected.schema.names
    assert multiset(actual) == multiset(expected)
    assert runner.counter("rows_dropped_late") == 0


def watermarked(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", "10 seconds")


@F.pandas_udf(DoubleType())  # type: ignore[call-overload]
def twice(values: pd.Series) -> pd.Series:
    return values * 2


@F.pandas_udf(LongType())  # type: ignore[call-overload]
def running_length(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for batch in batches:
        yield batch.fillna("").str.len()


@F.arrow_udf(IntegerType())  # type: ignore[misc]
def negated(values: pa.Array) -> pa.Array:
    return pa.compute.negate(values)


def describe(k, n=None):  # no hints: PySpark would take them for an Arrow function's and warn
    return f"{k}/{n}"


def doubled_text(text):
    return text + text


def tagged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column(1), batch.column(0)], names=["key", "at"])


def positive(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame[frame["n"] > 0].assign(half=lambda rows: rows["n"] / 2)[["half", "ts"]]


APPEND: dict[str, Plan] = {
    "filter and project": lambda df: df.filter("n > 3 and (f or k is null)").select(
        "k", (F.col("n") * 2 + 1).alias("m"), F.when(F.col("n") != 0, 100 / F.col("n")).alias("q")
    ),
    "struct and back": lambda df: df.select(F.struct("k", "n").alias("s"), "n").filter("n > 0").select("s", "s.k"),
    "no columns to read": lambda df: df.select(F.lit(1).alias("one")),
    "same column twice": lambda df: df.select("k", "n", F.col("n").alias("n2")),
    "udf in select and filter": lambda df: df.filter(F.udf(describe)("k") != "a/None").select(
        F.udf(describe)("k", "n").alias("t"), "n"
    ),
    "udf by name": lambda df: df.select(F.udf(describe)(n=F.col("n"), k=F.lit("x")).alias("t")),
    "udf of a udf": lambda df: df.select(F.udf(doubled_text)(F.udf(describe)("k", "n")).alias("t")),
    "pickled udf": lambda df: df.select(F.udf(describe, useArrow=False)("k", "n").alias("t")),
    "pandas udf": lambda df: df.select(twice("v").alias("w"), twice(twice("v")).alias("x")),
    "iterator pandas udf": lambda df: df.select("k", running_length("k").alias("l")),
    "arrow udf": lambda df: df.select(negated("n").alias("m")),
    "mapInArrow": lambda df: df.select("ts", "k").mapInArrow(tagged, "key string, at timestamp"),
    "mapInPandas": lambda df: df.mapInPandas(positive, "half double, ts timestamp").filter("half > 3"),
    "repartition": lambda df: df.repartition(3, "k", F.col("n") % 3).filter("n > 0").repartition(2).select("k", "v"),
    "watermark behind repartition": lambda df: (
        watermarked(df.repartition(F.upper("k")).filter("n > 0").select("ts", (F.col("n") * 2).alias("m"), "d"))
        .groupBy(F.window("ts", "1 minute"))
        .agg(F.count("*"), F.sum("m"), F.max("d"))
    ),
    "watermark behind a repartitioned function": lambda df: (
        df.repartition(2)
        .mapInArrow(tagged, "key string, at timestamp")
        .withWatermark("at", "0 seconds")
        .groupBy(F.window("at", "1 minute"), "key")
        .count()
    ),
    "tumbling window": lambda df: (
        watermarked(df)
        .groupBy(F.window("ts", "1 minute"), "k")
        .agg(F.count("*"), F.sum("v"), F.avg("n"), F.min("d"), F.max("k"))
    ),
    "bounds of a window": lambda df: (
        watermarked(df)
        .groupBy(F.window("ts", "1 minute", startTime="7 seconds"))
        .agg(F.count("n").alias("c"))
        .select("window.start", F.col("window.end").alias("stop"), "c")
    ),
    "sliding window": lambda df: watermarked(df).groupBy("k", F.window("ts", "1 minute", "20 seconds")).agg(F.sum("d")),
    "uneven sliding window": lambda df: watermarked(df).groupBy(F.window("ts", "1 minute", "25 seconds")).count(),
    "event time as key": lambda df: (
        watermarked(df.withColumn("ts", F.date_trunc("minute", "ts"))).groupBy("ts", "f").agg(F.avg("d"))
    ),
    "having": lambda df: watermarked(df).groupBy(F.window("ts", "1 minute")).count().filter("count > 15"),
    "drop duplicates": lambda df: df.select("k", "f", "n").dropDuplicates(),
    "select distinct windows": lambda df: df.sparkSession.sql(
        "select distinct window(ts, '1 minute') as w, k from {df}", df=watermarked(df)
    ),
    "udf around a window": lambda df: (
        watermarked(df)
        .groupBy(F.window("ts", "2 minutes"), F.udf(describe)("k").alias("t"))
        .agg(F.sum(twice("n")).alias("s"))
    ),
}

UPDATE: dict[str, Plan] = {
    "double keys": lambda df: df.groupBy("v").agg(F.count("*"), F.sum("n")),
    "struct keys": lambda df: df.groupBy(F.struct("k", "f").alias("s")).agg(F.max("v"), F.min("v")),
    "computed keys": lambda df: df.groupBy((F.col("n") % 3).alias("r"), F.col("n") % 2).agg(F.max("ts"), F.min("f")),
    "where the groups are already": lambda df: df.repartition("k", "v").filter("n > 0").groupBy("k", "v").count(),
    "no keys": lambda df: df.agg(F.count("*"), F.count("k"), F.sum("d"), F.avg("d"), F.max("ts")),
    "select distinct": lambda df: df.sparkSession.sql("select distinct v, k from {df}", df=df),
    "no aggregates": lambda df: df.groupBy("k", "f").agg(F.lit(1).alias("one")),
    "expressions over aggregates": lambda df: df.groupBy("k").agg(
        (F.sum("n") + F.count("*") * 2).alias("x"), (F.max("n") - F.min("n")).alias("spread")
    ),
}


@pytest.mark.parametrize("name", APPEND)
def test_append_mode_equals_spark(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    assert_equals_spark(spark, folder, rows, APPEND[name])


@pytest.mark.parametrize("name", UPDATE)
def test_last_updates_equal_spark(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    plan = UPDATE[name]
    expected = multiset(plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow())
    updates, _ = run(plan(spark.readStream.schema(SCHEMA).parquet(str(folder))), rows, "update")
    assert sum(multiset(updates).values()) > sum(expected.values())  # two epochs: most groups changed in both
    assert last_per_key(updates, keys_of(plan, spark, folder)) == expected


def keys_of(plan: Plan, spark: SparkSession, folder: Path) -> int:
    """Return the number of leading key columns: those of ``groupBy``, or all of ``select distinct``."""
    grouped = plan(spark.read.schema(SCHEMA).parquet(str(folder)))._jdf.queryExecution().analyzed()
    return int(grouped.output().size() if kind(grouped) == "Distinct" else grouped.groupingExpressions().size())


def last_per_key(updates: pa.Table, keys: int) -> Counter[Any]:
    columns = [[canonical(value, 9) for value in column.to_pylist()] for column in updates.columns]
    latest = {row[:keys]: row for row in zip(*columns, strict=True)}
    return Counter(latest.values())


def test_session_time_zone_reaches_expressions_and_functions(
    spark: SparkSession, folder: Path, rows: pa.Table, spark_conf: Callable[[str, str], None]
) -> None:
    spark_conf("spark.sql.session.timeZone", "America/New_York")  # the rows cross the change of clocks of 2024-03-10
    hour_of = F.udf(lambda at: at.hour, "int")
    assert_equals_spark(
        spark, folder, rows, lambda df: df.select("ts", F.hour("ts").alias("h"), hour_of("ts").alias("h2"))
    )
