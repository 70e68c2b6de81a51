"""Joins with static sides: the operators give what Spark's own batch join gives, and what is refused says so."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.config import parse_options
from penstock.errors import ConfigError, DataError, NotSupported
from penstock.model.job_graph import JobGraph, SinkSpec
from penstock.planner.compiler import compile_outputs, compile_plan
from penstock.planner.static_join import read_static_sides
from tests.integration.planner.test_equals_spark import (
    SCHEMA,
    assert_equals_spark,
    make_rows,
    multiset,
    run,
    watermarked,
)
from tests.integration.planner.test_graph_shape import SINK
from tests.support.planner.compiled_query import compile_query

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Plan = Callable[[DataFrame, DataFrame], DataFrame]

NAMES = {
    "k": pa.array(["a", "b", "b", "", None, "zz"], pa.string()),
    "v": pa.array([0.0, float("nan"), -2.25, 1e10, None, 7.0], pa.float64()),
    "n": pa.array([1, -3, None, 12, 5, 2], pa.int64()),
    "d": pa.array(
        [Decimal("1.000"), Decimal("-55.120"), None, Decimal("3.141"), Decimal(0), Decimal(7)], pa.decimal128(9, 3)
    ),
    "f": pa.array([True, False, None, True, False, None], pa.bool_()),
    "name": pa.array(["A", "B1", "B2", "empty", "none", None], pa.string()),
}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return make_rows()


@pytest.fixture(scope="module")
def names(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = tmp_path_factory.mktemp("names")
    pq.write_table(pa.table(NAMES), path / "part-0.parquet")
    return spark.read.parquet(str(path))


@pytest.fixture(scope="module")
def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).parquet(str(folder))


PLANS: dict[str, Plan] = {
    "inner": lambda df, s: df.join(s, "k"),
    "inner with the stream on the right": lambda df, s: s.join(df, "k"),
    "left": lambda df, s: df.join(s, "k", "left"),
    "right": lambda df, s: s.join(df, "k", "right"),
    "right, all columns": lambda df, s: s.join(df, s.k == df.k, "right"),
    "semi": lambda df, s: df.join(s, "k", "left_semi"),
    "anti": lambda df, s: df.join(s, "k", "left_anti"),
    "doubles": lambda df, s: df.join(s.select("v", "name"), "v", "left"),
    "int with long": lambda df, s: df.join(s.select("n", "name"), df.n == s.n, "left"),
    "decimals of two scales": lambda df, s: df.join(s.select("d", "name"), df.d == s.d, "left"),
    "booleans": lambda df, s: df.join(s.select("f", "name"), "f"),
    "dates": lambda df, s: df.withColumn("day", F.to_date("ts")).join(
        s.select(F.expr("date'2024-03-09' + cast(n as int)").alias("day"), "name"), "day", "left"
    ),
    "two keys": lambda df, s: df.join(s, ["k", "f"], "left"),
    "null-safe": lambda df, s: df.join(s.select(F.col("k").alias("sk"), "name"), df.k.eqNullSafe(F.col("sk")), "left"),
    "structs": lambda df, s: df.join(
        s.select(F.struct("k", "f").alias("sk"), "name"), F.struct(df.k, df.f) == F.col("sk"), "left_anti"
    ),
    "arrays": lambda df, s: df.join(
        s.select(F.array("k", F.col("f").cast("string")).alias("sk"), "name"),
        F.array(df.k, df.f.cast("string")) == F.col("sk"),
        "left",
    ),
    "computed keys": lambda df, s: df.join(s.select("n", "name"), df.n % 5 == s.n + 1),
    "with a condition": lambda df, s: df.join(s, (df.k == s.k) & (df.n > s.n), "left"),
    "semi with a condition": lambda df, s: df.join(s, (df.k == s.k) & (df.n > s.n), "left_semi"),
    "anti with a condition": lambda df, s: df.join(s, (df.k == s.k) & (df.n > s.n), "left_anti"),
    "right with a condition": lambda df, s: s.join(df, (df.k == s.k) & (df.n > s.n), "right"),
    "condition on the stream alone": lambda df, s: df.join(s, (df.k == s.k) & (df.n > 0), "left"),
    "by no key": lambda df, s: df.join(s, df.n > s.n, "left").select(df.k, df.n, "name"),
    "cross": lambda df, s: df.crossJoin(s.select("name")).select("name", "n"),
    "cross, and nothing of either": lambda df, s: df.crossJoin(s).select(F.lit(1).alias("one")),
    "outer by a condition on nothing": lambda df, s: df.join(s.where("n > 100"), F.lit(True), "left").select(
        "ts", "name"
    ),
    "several in a row": lambda df, s: (
        df.filter("n > 0")
        .join(s.select("k", "name"), "k")
        .withColumn("m", F.col("n") % 3)
        .join(s.select(F.col("n").alias("m"), F.col("name").alias("other")), "m", "left")
        .filter("name <> 'B1'")
    ),
    "with itself under another name": lambda df, s: (
        df.alias("x")
        .join(s.alias("y"), F.col("x.k") == F.col("y.k"))
        .join(s.alias("z"), F.col("x.n") == F.col("z.n"), "left")
        .select("x.k", F.col("y.name").alias("a"), F.col("z.name").alias("b"))
    ),
    "a static side that Spark computes": lambda df, s: df.join(
        s.join(s.groupBy("k").agg(F.countDistinct("name").alias("c")), "k")
        .filter(F.col("n") > F.rand(3) * 0)
        .select("k", "c"),
        "k",
    ),
    "no static row": lambda df, s: df.join(s.where("name = 'nobody'"), "k", "left").select("k", "name", df.n),
    "hints": lambda df, s: df.hint("shuffle_hash").join(F.broadcast(s), "k"),
    "a user's function in between": lambda df, s: df.join(s.select("k", "name"), "k").select(
        F.udf(lambda k, name: f"{k}/{name}")("k", "name").alias("t")
    ),
    "a user's function as a condition": lambda df, s: df.join(
        s, (df.k == s.k) & F.udf(lambda one, two: one is not None and one > (two or 0), "boolean")(df.n, s.n)
    ),
    "aggregated": lambda df, s: (
        watermarked(df)
        .join(s.select("k", "name"), "k")
        .groupBy(F.window("ts", "1 minute"), "name")
        .agg(F.count("*"), F.sum("n"))
    ),
    "aggregated, stream on the right": lambda df, s: (
        s.select("k", "name")
        .join(watermarked(df), "k", "right")
        .groupBy("name", F.window("ts", "1 minute"))
        .agg(F.max("n"))
    ),
    "watermark behind the join": lambda df, s: (
        watermarked(s.select("k", "name").join(df, "k")).groupBy(F.window("ts", "1 minute")).count()
    ),
    "behind the aggregation": lambda df, s: (
        watermarked(df).groupBy(F.window("ts", "1 minute"), "k").count().join(s.select("k", "name"), "k", "left")
    ),
    "counted": lambda df, s: watermarked(df).crossJoin(s).groupBy(F.window("ts", "1 hour")).count(),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PLANS)
def test_a_join_equals_spark(spark: SparkSession, folder: Path, rows: pa.Table, names: DataFrame, name: str) -> None:
    assert_equals_spark(spark, folder, rows, lambda df: PLANS[name](df, names))


def test_spark_s_filters_by_the_other_side_are_left_out(
    spark: SparkSession, stream: DataFrame, spark_conf: Callable[[str, str], None]
) -> None:
    """These settings make Spark filter the stream by a Bloom filter of the static side, a subquery."""
    spark_conf("spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold", "0")
    spark_conf("spark.sql.autoBroadcastJoinThreshold", "-1")
    some = spark.range(50).filter("id > 3").withColumnRenamed("id", "n")
    assert "Join Inner" in compile_plan(stream.join(some, "n"), "append").optimized


def test_what_outputs_share_of_a_join_is_done_once(stream: DataFrame, names: DataFrame) -> None:
    some = names.select("k", "name")
    joined = some.join(stream, some.k == stream.k, "right")
    outputs = [(joined, "append"), (joined.where("n > 0"), "append"), (joined.groupBy("name").count(), "update")]
    plan = compile_outputs(outputs)
    sinks = [SinkSpec(f"sink-{number}", "Nowhere", SINK.sink) for number in range(len(outputs))]
    ids = [spec.operator_id for vertex in plan.graph(sinks, 2, 128).vertices for spec in vertex.operators]
    assert [name for name in ids if "join" in name] == ["join-0"]
    assert [schema.names for schema in plan.schemas] == [df.columns for df, _ in outputs]


def test_an_output_may_have_the_join_for_itself(stream: DataFrame, names: DataFrame) -> None:
    some = names.select("k", "name")
    plan = compile_outputs([(stream.select("k", "n"), "append"), (some.join(stream, "k", "right"), "append")])
    sinks = [SinkSpec(f"sink-{number}", "Nowhere", SINK.sink) for number in range(2)]
    specs = [spec for vertex in plan.graph(sinks, 2, 128).vertices for spec in vertex.operators]
    [join] = [spec for spec in specs if spec.operator_id == "output-1/join-0"]
    read_static_sides(plan.graph(sinks, 2, 128), 1 << 20)
    assert join.rows.batch.column(0).to_pylist() == ["a", "b", "b", "", "zz"]  # type: ignore[attr-defined]


def test_late_rows_of_an_aggregation_of_a_join(stream: DataFrame, names: DataFrame) -> None:
    grouped = names.groupBy("k").agg(F.max("name").alias("name"))
    joined = grouped.join(watermarked(stream), "k")
    counts = joined.groupBy(F.window("ts", "1 minute"), "name").count()
    plan = compile_outputs([(counts, "append"), (penstock.late(counts), "append")])
    assert plan.schemas[1].names == penstock.late(counts).columns
    with pytest.raises(ConfigError, match="needs a DataFrame that drops late rows"):
        penstock.late(joined)  # the static side's aggregation drops nothing


def test_a_name_passes_over_the_join(stream: DataFrame, names: DataFrame) -> None:
    source = graph_of(penstock.named(names.join(stream, "k"), "clicks")).vertices[0].source
    assert source is not None
    assert source.operator_id == "clicks"


def test_only_what_the_join_needs_is_read(spark: SparkSession, stream: DataFrame, names: DataFrame) -> None:
    graph = graph_of(stream.join(names, "k").select(stream.n, "name"))
    source, join = graph.vertices[0].source, static_of(graph)
    assert source is not None
    assert source.source.schema.names == ["k", "n"]
    assert join.rows.schema.names == ["k", "name"]


def graph_of(df: DataFrame) -> JobGraph:
    return compile_query(df, sink=SINK, output_mode="append", parallelism=1, max_parallelism=128)


def static_of(graph: JobGraph) -> Any:
    return next(spec for vertex in graph.vertices for spec in vertex.operators if spec.operator_id == "join-0")


def test_nothing_is_read_before_it_is_asked_for(spark: SparkSession, stream: DataFrame) -> None:
    broken = spark.range(3).select(F.udf(lambda n: 1 // 0, "bigint")("id").alias("n"))
    graph = graph_of(stream.join(broken, "n"))
    with pytest.raises(DataError, match=r"cannot read .*ZeroDivisionError"):
        read_static_sides(graph, 1 << 20)


def test_a_static_side_that_is_too_large_is_named(spark: SparkSession, stream: DataFrame) -> None:
    graph = graph_of(stream.join(spark.range(100_000).withColumnRenamed("id", "n"), "n"))
    with pytest.raises(
        NotSupported, match=r"static side of Join Inner.*Range.*join\.maxStaticBytes \(0\.5 MiB\).*raise"
    ):
        read_static_sides(graph, 1 << 19)
    read_static_sides(graph, 1 << 20)


def test_the_limit_is_an_option() -> None:
    assert parse_options({"join.maxstaticbytes": "8m"}).join_max_static_bytes == 8 << 20
    with pytest.raises(ConfigError, match="at most 1g"):
        parse_options({"join.maxStaticBytes": "2g"})


def test_times_of_the_static_side_are_instants(
    spark: SparkSession, folder: Path, rows: pa.Table, spark_conf: Callable[[str, str], None]
) -> None:
    spark_conf("spark.sql.session.timeZone", "America/New_York")
    static = spark.sql("select timestamp'2024-03-09 18:00:00' as t, timestamp_ntz'2024-03-10 02:30:00' as local")
    assert_equals_spark(
        spark,
        folder,
        rows,
        lambda df: df.join(static, F.date_trunc("hour", "ts") == F.col("t")).select("ts", "t", "local"),
    )


def test_in_update_and_complete_mode(spark: SparkSession, folder: Path, rows: pa.Table, names: DataFrame) -> None:
    def plan(df: DataFrame) -> DataFrame:
        return df.groupBy("k").count().join(names.select("k", "name"), "k")

    expected = multiset(plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow())
    streamed = plan(spark.readStream.schema(SCHEMA).parquet(str(folder)))
    for mode in ("update", "complete"):
        found, _ = run(streamed, rows, mode)
        assert expected <= multiset(found)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda df, s: df.join(s, "k", "right"), "Spark itself refuses"),
        (lambda df, s: df.join(s, "k", "full"), "Spark itself refuses"),
        (lambda df, s: s.join(df, "k", "left_anti"), "Spark itself refuses"),
    ],
)
def test_other_joins_are_refused(stream: DataFrame, names: DataFrame, make: Plan, text: str) -> None:
    with pytest.raises(NotSupported, match=text) as caught:
        compile_plan(make(stream, names), "append")
    assert "in the plan: " in str(caught.value)
