"""Plans of each node kind, and the graph that comes of them."""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from penstock.connectors.base import Sink, SinkCommitter, SinkWriter
from penstock.model.job_graph import EdgeKind, JobGraph, SinkSpec
from penstock.operators.aggregate.calls import AggregateCall
from penstock.operators.aggregate.final import EventTimeKey, FinalAggregateSpec
from penstock.operators.aggregate.partial import PartialAggregateSpec
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.operators.python.udf_calls import UdfKind
from penstock.operators.watermark import WatermarkSpec
from penstock.planner.compiler import compile_plan
from tests.support.planner.compiled_query import compile_query

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, k string, v double, n int"
TIMESTAMP = pa.timestamp("us", tz="UTC")


class NowhereSink(Sink):
    def describe(self) -> str:
        return "NowhereSink"

    def create_writer(self) -> SinkWriter:
        raise AssertionError("no writer is needed to compile")

    def create_committer(self) -> SinkCommitter:
        raise AssertionError("no committer is needed to compile")


SINK = SinkSpec("sink-0", "Nowhere", NowhereSink())


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema(SCHEMA).parquet(str(tmp_path_factory.mktemp("in")))


def watermarked(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", "10 seconds")


def graph_of(df: DataFrame, mode: str = "append") -> JobGraph:
    graph = compile_query(df, sink=SINK, output_mode=mode, parallelism=3, max_parallelism=64)
    assert (graph.parallelism, graph.max_parallelism) == (3, 64)
    assert graph.vertices[-1].sink is SINK
    assert all(vertex.sink is None for vertex in graph.vertices[:-1])
    assert [vertex.id for vertex in graph.vertices] == list(range(len(graph.vertices)))
    return graph


def chains(graph: JobGraph) -> list[list[str]]:
    """Operator ids by vertex, the source's first."""
    return [
        ([vertex.source.operator_id] if vertex.source else []) + [operator.operator_id for operator in vertex.operators]
        for vertex in graph.vertices
    ]


def operator(graph: JobGraph, operator_id: str) -> Any:
    return next(spec for vertex in graph.vertices for spec in vertex.operators if spec.operator_id == operator_id)


def test_project_and_filter_are_one_chain(stream: DataFrame) -> None:
    graph = graph_of(stream.filter("n > 3").select("k", (F.col("n") + 1).alias("m")))
    assert chains(graph) == [["source-0", "filter-0", "project-0"]]
    assert graph.edges == ()
    assert operator(graph, "project-0").output_schema == pa.schema([("k", pa.string()), ("m", pa.int32())])
    assert graph.vertices[0].name == "FileStreamSource -> Filter -> Project -> Nowhere"
    assert operator(graph, "filter-0").name == "Filter (isnotnull(n) AND (n > 3))"


def test_bare_source(stream: DataFrame) -> None:
    plan = compile_plan(stream, "append")
    assert chains(plan.graph([SINK], 1, 128)) == [["source-0"]]
    assert plan.schema == pa.schema([("ts", TIMESTAMP), ("k", pa.string()), ("v", pa.float64()), ("n", pa.int32())])
    assert "StreamingRelation" in plan.analyzed
    assert "StreamingRelation" in plan.optimized


@pytest.mark.parametrize("name", ["csv", "json"])
def test_text_file_sources(spark: SparkSession, tmp_path: Path, name: str) -> None:
    df = spark.readStream.format(name).schema(SCHEMA).option("maxFilesPerTrigger", 1).load(str(tmp_path))
    source = graph_of(df).vertices[0].source
    assert source is not None
    assert source.source.schema.names == ["ts", "k", "v", "n"]
    assert str(tmp_path) in source.source.describe()


def test_rate_source_takes_its_options(spark: SparkSession) -> None:
    reader = spark.readStream.format("rate").option("rowsPerSecond", 7).option("rampUpTime", "2s")
    graph = graph_of(reader.option("numPartitions", 3).load().select("value"))
    assert chains(graph) == [["source-0", "project-0"]]
    source = graph.vertices[0].source
    assert source is not None
    assert source.source.describe() == "RateStreamV2[rowsPerSecond=7, rampUpTimeSeconds=2, numPartitions=3]"


def test_python_data_source_is_the_users_own_class(spark: SparkSession) -> None:
    class Countdown(DataSource):  # local, so that Spark's workers get it by value
        @classmethod
        def name(cls) -> str:
            return "countdown"

        def schema(self) -> str:
            return "a int, at timestamp"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
            raise AssertionError("the driver only looks whether there is one")

    spark.dataSource.register(Countdown)
    graph = graph_of(spark.readStream.format("countdown").option("From", "3").load())
    source = graph.vertices[0].source
    assert source is not None
    assert source.source.schema == pa.schema([("a", pa.int32()), ("at", TIMESTAMP)])
    assert "countdown" in source.source.describe()


def test_tumbling_window_in_append_mode(stream: DataFrame) -> None:
    counts = watermarked(stream).groupBy(F.window("ts", "1 minute"), "k").agg(F.count("*").alias("c"), F.avg("v"))
    graph = graph_of(counts)
    before, after = chains(graph)
    assert before == ["source-0", "watermark-0", "filter-0", "project-0", "partial-aggregate-0"]
    assert after == ["aggregate-0", "project-1"]
    (edge,) = graph.edges
    assert (edge.kind, edge.key_columns, edge.producer, edge.consumer) == (EdgeKind.HASH, (0, 1), 0, 1)
    assert edge.schema == operator(graph, "partial-aggregate-0").output_schema
    final: FinalAggregateSpec = operator(graph, "aggregate-0")
    assert final.event_time == EventTimeKey(0)
    assert final.mode == "append"
    assert final.key_count == 2
    window = pa.struct([("start", TIMESTAMP), ("end", TIMESTAMP)])
    assert graph.vertices[-1].operators[-1].output_schema == pa.schema(
        [("window", window), ("k", pa.string()), ("c", pa.int64()), ("avg(v)", pa.float64())]
    )


def test_sliding_window_expands(stream: DataFrame) -> None:
    graph = graph_of(watermarked(stream).groupBy(F.window("ts", "1 minute", "20 seconds")).agg(F.max("v")))
    assert "expand-0" in chains(graph)[0]
    assert len(operator(graph, "expand-0").projections) == 3
    uneven = graph_of(watermarked(stream).groupBy(F.window("ts", "1 minute", "25 seconds")).count())
    assert "filter-1" in chains(uneven)[0]


def test_update_mode_by_plain_keys(stream: DataFrame) -> None:
    graph = graph_of(stream.groupBy("k").agg(F.sum("n"), F.min("v"), F.count("n"), F.max("k")), "update")
    final: FinalAggregateSpec = operator(graph, "aggregate-0")
    assert final.event_time is None
    assert final.mode == "update"
    assert [call.function for call in final.calls] == ["sum", "min", "count", "max"]
    partial: PartialAggregateSpec = operator(graph, "partial-aggregate-0")
    assert partial.calls == final.calls
    assert partial.calls[3].ordinal == 0  # max(k) reads the key's column


def test_event_time_itself_as_a_key(stream: DataFrame) -> None:
    graph = graph_of(watermarked(stream).groupBy("k", "ts").count())
    assert operator(graph, "aggregate-0").event_time == EventTimeKey(1)


def test_global_aggregate_hashes_on_no_columns(stream: DataFrame) -> None:
    graph = graph_of(stream.agg(F.count("*")), "update")
    (edge,) = graph.edges
    assert (edge.kind, edge.key_columns) == (EdgeKind.HASH, ())
    assert operator(graph, "aggregate-0").key_count == 0


def test_expressions_around_aggregates(stream: DataFrame) -> None:
    graph = graph_of(
        stream.groupBy((F.col("n") + 1).alias("m")).agg((F.sum("n") + F.count("*") * 2).alias("x")), "update"
    )
    assert graph.vertices[-1].operators[-1].output_schema == pa.schema([("m", pa.int32()), ("x", pa.int64())])
    calls = operator(graph, "aggregate-0").calls
    assert [call.function for call in calls] == ["sum", "count_star"]


def test_filter_after_aggregate_follows_it(stream: DataFrame) -> None:
    counts = watermarked(stream).groupBy(F.window("ts", "1 minute")).count().filter("count > 1")
    assert chains(graph_of(counts))[1][0] == "aggregate-0"
    assert chains(graph_of(counts))[1][-1].startswith("filter-")


def test_ansi_setting_reaches_the_sums(stream: DataFrame, spark_conf: Callable[[str, str], None]) -> None:
    def call() -> AggregateCall:
        graph = graph_of(stream.groupBy("k").agg(F.sum("n")), "update")
        (only,) = operator(graph, "aggregate-0").calls
        assert isinstance(only, AggregateCall)
        return only

    spark_conf("spark.sql.ansi.enabled", "true")
    assert call().ansi
    spark_conf("spark.sql.ansi.enabled", "false")
    assert not call().ansi


def test_sum_of_short_decimals_stays_a_decimal_sum(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.readStream.schema("k string, d decimal(5,2)").parquet(str(tmp_path))
    (call,) = operator(graph_of(df.groupBy("k").agg(F.sum("d")), "update"), "aggregate-0").calls
    assert (call.input_type, call.result_type) == (pa.decimal128(5, 2), pa.decimal128(15, 2))


def test_scalar_udfs_append_columns(stream: DataFrame) -> None:
    plus = F.udf(lambda x, y=0: x + y, "int")

    @F.pandas_udf("double")  # type: ignore[call-overload]
    def twice(values: pd.Series) -> pd.Series:
        return values * 2

    graph = graph_of(stream.filter(plus("n") > 3).select(plus(plus("n"), y=F.lit(5)).alias("a"), twice("v").alias("b")))
    udfs = [spec for spec in graph.vertices[0].operators if isinstance(spec, ScalarUdfSpec)]
    assert [call.name for spec in udfs for call in spec.calls].count("twice") == 1
    assert {call.kind for spec in udfs for call in spec.calls} == {UdfKind.ARROW_PYTHON, UdfKind.PANDAS}
    assert graph.vertices[0].operators[-1].output_schema == pa.schema([("a", pa.int32()), ("b", pa.float64())])


def test_chained_and_named_udf_arguments_are_one_call(stream: DataFrame) -> None:
    minus = F.udf(lambda a, b: a - b, "int")
    double = F.udf(lambda a: 2 * a, "int")
    graph = graph_of(stream.select(double(minus(b=F.col("n"), a=F.lit(10)))))
    (spec,) = [spec for spec in graph.vertices[0].operators if isinstance(spec, ScalarUdfSpec)]
    (call,) = spec.calls
    assert len(call.arguments) == 2
    assert call.keyword_names == ("b", "a")
    assert call.function(b=3, a=10) == 2 * (10 - 3)


def test_map_functions_keep_the_users_function(stream: DataFrame) -> None:
    def tagged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    graph = graph_of(stream.mapInArrow(tagged, "k string, n int").filter("n > 1"))
    assert chains(graph) == [["source-0", "map-0", "filter-0"]]
    spec = operator(graph, "map-0")
    assert spec.function.__name__ == "tagged"
    assert spec.output_schema == pa.schema([("k", pa.string()), ("n", pa.int32())])
    frames = graph_of(stream.mapInPandas(lambda frames: frames, SCHEMA))
    assert type(operator(frames, "map-0")).__name__ == "MapInPandasSpec"


def test_repartition_is_an_exchange(stream: DataFrame) -> None:
    rebalanced = graph_of(stream.repartition(4).select("n"))
    assert [edge.kind for edge in rebalanced.edges] == [EdgeKind.REBALANCE]
    hashed = graph_of(stream.select("n", "k").repartition(4, "k"))
    (edge,) = hashed.edges
    assert (edge.kind, edge.key_columns) == (EdgeKind.HASH, (1,))
    assert chains(hashed)[1] == []
    assert hashed.vertices[1].name == "Nowhere"


def test_repartition_by_an_expression_computes_it_on_the_way(stream: DataFrame) -> None:
    graph = graph_of(stream.select("n", "k").repartition("k", F.col("n") % 2))
    (edge,) = graph.edges
    assert edge.key_columns == (1, 2)
    assert edge.schema.names == ["n", "k", "__key0"]
    assert graph.vertices[-1].operators[-1].output_schema.names == ["n", "k"]


@pytest.mark.parametrize(
    ("plan", "chain"),
    [
        (lambda df: watermarked(df.repartition(3)), ["source-0", "watermark-0"]),
        (lambda df: watermarked(df.repartition("k").repartition(3)), ["source-0", "watermark-0"]),
        (
            lambda df: watermarked(df.repartition(3).mapInArrow(lambda batches: batches, SCHEMA)),
            ["source-0", "map-0", "watermark-0"],
        ),
        (lambda df: watermarked(df.repartition("k")).select("ts"), ["source-0", "watermark-0"]),
        (
            lambda df: watermarked(df.repartition(F.upper("k")).select((F.col("n") + 1).alias("m"), "ts")),
            ["source-0", "project-0", "watermark-0", "project-1"],
        ),
    ],
)
def test_a_watermark_comes_before_the_repartitioning_below_it(stream: DataFrame, plan: Any, chain: list[str]) -> None:
    graph = graph_of(plan(stream))
    assert chains(graph)[0] == chain
    [edge] = graph.edges
    assert edge.timed
    assert [*graph.vertices[-1].operators[-1:], *graph.vertices[0].operators][0].output_schema.names == [
        field.name for field in plan(stream).schema.fields
    ]


def test_watermark_reads_the_event_time_column(stream: DataFrame) -> None:
    graph = graph_of(watermarked(stream.select("k", "ts")))
    spec: WatermarkSpec = operator(graph, "watermark-0")
    assert (spec.column, spec.delay_us) == (1, 10_000_000)


def test_sql_text_compiles_too(spark: SparkSession, stream: DataFrame) -> None:
    stream.createOrReplaceTempView("clicks")
    graph = graph_of(spark.sql("select k, n * 2 as m from clicks as c where n between 1 and 5"))
    assert chains(graph) == [["source-0", "filter-0", "project-0"]]


def ids_of(df: DataFrame) -> list[list[str]]:
    return chains(graph_of(df))


def job(df: DataFrame, limit: int, factor: int) -> DataFrame:
    scale = F.udf(lambda x: x * factor, "int")
    rows = watermarked(df.filter(F.col("n") > limit).withColumn("m", scale("n")))
    return rows.groupBy(F.window("ts", "1 minute"), "k").agg(F.sum("m").alias("s"))


def test_ids_do_not_depend_on_literals_function_bodies_or_paths(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    reader = spark.readStream.schema(SCHEMA)
    one = ids_of(job(reader.parquet(str(tmp_path / "a")), 3, 2))
    assert one == ids_of(job(reader.parquet(str(tmp_path / "b")), 4, 7))
    assert "udf-0" in one[0]


def test_a_new_filter_leaves_the_ids_of_state_alone(stream: DataFrame) -> None:
    def stateful(df: DataFrame) -> list[str]:
        return [
            name for chain in ids_of(df) for name in chain if name.split("-")[0] in ("source", "watermark", "aggregate")
        ]

    before = stateful(job(stream, 3, 2))
    assert before == ["source-0", "watermark-0", "aggregate-0"]
    assert before == stateful(job(stream.filter("k <> 'x'").select("n", "ts", "k"), 3, 2))


def test_edge_schemas_are_the_same_every_time(stream: DataFrame) -> None:
    first, second = (graph_of(job(stream, 3, 2)) for _ in range(2))
    assert [edge.schema for edge in first.edges] == [edge.schema for edge in second.edges]
    assert operator(first, "aggregate-0").state_schemas == operator(second, "aggregate-0").state_schemas


def test_only_the_columns_of_a_parquet_file_that_are_needed_are_read(spark: SparkSession, tmp_path: Path) -> None:
    def columns_read(df: DataFrame, mode: str = "append") -> list[str]:
        source = graph_of(df, mode).vertices[0].source
        assert source is not None
        names: list[str] = source.source.schema.names
        return names

    parquet = spark.readStream.schema(SCHEMA).parquet(str(tmp_path))
    assert columns_read(parquet.filter("n > 1").select("v")) == ["v", "n"]
    assert columns_read(parquet.agg(F.count("*")), "update") == ["ts"]
    assert columns_read(parquet.filter("n > 1")) == ["ts", "k", "v", "n"]
    text = spark.readStream.schema(SCHEMA).csv(str(tmp_path))
    assert columns_read(text.select("v")) == ["ts", "k", "v", "n"]


def test_nondeterministic_functions_of_the_user_run(stream: DataFrame) -> None:
    dice = F.udf(lambda n: n, "int").asNondeterministic()
    (call,) = operator(graph_of(stream.select(dice("n"))), "udf-0").calls
    assert not call.deterministic


def test_a_renamed_window_is_still_closed_by_the_watermark(stream: DataFrame) -> None:
    df = watermarked(stream.withColumnRenamed("ts", "at").select("k", F.col("at").alias("ts")))
    graph = graph_of(df.groupBy("k", F.window("ts", "1 hour").alias("w")).count())
    assert operator(graph, "aggregate-0").event_time == EventTimeKey(1)


def test_the_graph_travels_to_the_slots(stream: DataFrame) -> None:
    graph = graph_of(job(stream, 3, 2))
    copy = cloudpickle.loads(cloudpickle.dumps(graph))
    assert chains(copy) == chains(graph)
    assert copy.edges == graph.edges


@pytest.mark.parametrize(
    ("prepare", "group"),
    [
        (lambda df: df.repartition("k"), ["k"]),
        (lambda df: df.repartition("k", "n"), ["k", "n"]),
        (lambda df: df.repartition("k").filter("n > 0").select(F.col("v").alias("w"), "k", "n"), ["k"]),
    ],
)
def test_rows_that_are_where_their_group_is_are_not_exchanged_again(
    stream: DataFrame, prepare: Callable[[DataFrame], DataFrame], group: list[str]
) -> None:
    graph = graph_of(prepare(stream).groupBy(*group).agg(F.count("*")), "update")
    assert len(graph.edges) == 1
    assert [spec for spec in chains(graph)[1] if "aggregate" in spec] == ["partial-aggregate-0", "aggregate-0"]


@pytest.mark.parametrize(
    ("prepare", "group"),
    [
        (lambda df: df.repartition("n"), ["k"]),
        (lambda df: df.repartition("k"), ["k", "n"]),
        (lambda df: df.repartition("k", "n"), ["n", "k"]),  # another hash, so other key groups
        (lambda df: df.repartition("k").select(F.upper("k").alias("k")), ["k"]),
        (lambda df: df.repartition("k").repartition(2), ["k"]),
        (lambda df: df.repartition(F.upper("k")), ["k"]),
        (lambda df: df.repartition("k").mapInArrow(lambda batches: batches, SCHEMA), ["k"]),
    ],
)
def test_rows_that_may_be_elsewhere_are_exchanged(
    stream: DataFrame, prepare: Callable[[DataFrame], DataFrame], group: list[str]
) -> None:
    graph = graph_of(prepare(stream).groupBy(*group).agg(F.count("*")), "update")
    assert graph.edges[-1].key_columns == tuple(range(len(group)))
    assert chains(graph)[-1][0] == "aggregate-0"


def test_slots_unpickle_a_graph_without_the_modules_of_the_driver(spark: SparkSession, stream: DataFrame) -> None:
    shout = F.udf(lambda text: text.upper(), "string")

    @F.pandas_udf("double")  # type: ignore[call-overload]
    def half(values: pd.Series) -> pd.Series:
        return values / 2

    static = spark.createDataFrame([("a", 1)], "k string, m int")
    df = watermarked(stream).select("ts", shout(shout("k")).alias("k"), half(half("v")).alias("v"))
    df = df.join(static, "k", "left").dropDuplicates(["ts", "k"]).groupBy(F.window("ts", "1 minute"), "k")
    pickled = cloudpickle.dumps(graph_of(df.agg(F.sum("v"), F.collect_set("m"), F.percentile_approx("v", 0.5))))
    driver = ("penstock.catalyst", "penstock.planner", "penstock.api", "penstock.queries", "penstock.coordinator")
    texts = [argument for _, argument, _ in pickletools.genops(pickled) if isinstance(argument, str)]
    assert "penstock.operators.python.composition" in texts
    assert [text for text in texts if text.startswith(driver)] == []
