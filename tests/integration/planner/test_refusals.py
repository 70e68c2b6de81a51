"""Everything that is refused: by name, with Spark's plan line and the way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from penstock.errors import ConfigError, NotSupported, NotYet
from penstock.planner import unsupported
from penstock.planner.compiler import compile_plan

pytestmark = pytest.mark.spark

SCHEMA = "ts timestamp, k string, v double, n int"


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    return spark.readStream.schema(SCHEMA).parquet(str(tmp_path_factory.mktemp("in")))


def watermarked(df: DataFrame) -> DataFrame:
    return df.withWatermark("ts", "10 seconds")


def grouped_state(key: Any, frames: Any, state: Any) -> Any:
    return frames


class Remembering(StatefulProcessor):
    def init(self, handle: Any) -> None: ...

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Any:  # noqa: N802 - PySpark's name
        return rows

    def close(self) -> None: ...


Case = tuple[Callable[[DataFrame], DataFrame], type[NotSupported], tuple[str, ...]]

CASES: dict[str, Case] = {
    "dropDuplicates by nothing": (
        lambda df: df.dropDuplicates([]),
        NotSupported,
        ("Deduplicate: Spark's engine does not start", "name the columns"),
    ),
    "dropDuplicates with two event times": (
        lambda df: watermarked(df).withColumn("w", F.window("ts", "1 minute")).dropDuplicates(["w"]),
        NotSupported,
        ("two columns carry the watermark", "Deduplicate [w#", "cast the other one"),
    ),
    "dropDuplicatesWithinWatermark by a window": (
        lambda df: (
            watermarked(df).select("k", F.window("ts", "1 minute").alias("w")).dropDuplicatesWithinWatermark(["k"])
        ),
        NotSupported,
        ("DeduplicateWithinWatermark by w#", "before window()"),
    ),
    "dropDuplicatesWithinWatermark without one": (
        lambda df: df.dropDuplicatesWithinWatermark(["k"]),
        NotSupported,
        ("Spark itself refuses", "without watermark"),
    ),
    "json_tuple": (
        lambda df: df.selectExpr("json_tuple(k, k)"),
        NotSupported,
        ("Generate json_tuple(", "the names must be constants; use get_json_object"),
    ),
    "sort": (lambda df: df.orderBy("k"), NotSupported, ("Sorting is not supported",)),
    "applyInPandas": (
        lambda df: df.groupBy("k").applyInPandas(lambda frame: frame, SCHEMA),
        NotYet,
        ("FlatMapGroupsInPandas", "groupBy().agg()"),
    ),
    "applyInPandasWithState by a map": (
        lambda df: (
            df.withColumn("k", F.expr("array(k)"))
            .groupBy("k")
            .applyInPandasWithState(grouped_state, "k string", "n int", "append", "NoTimeout")
        ),
        NotYet,
        ("grouping by k: such keys", "FlatMapGroupsInPandasWithState", "use a string of it"),
    ),
    "applyInArrow": (
        lambda df: df.groupBy("k").applyInArrow(lambda table: table, SCHEMA),
        NotYet,
        ("FlatMapGroupsInArrow", "groupBy().agg()"),
    ),
    "cogroup": (
        lambda df: df.groupBy("k").cogroup(df.groupBy("k")).applyInPandas(lambda one, other: one, SCHEMA),
        NotYet,
        ("FlatMapCoGroupsInPandas",),
    ),
    "observe": (lambda df: df.observe("seen", F.count("*")), NotYet, ("CollectMetrics seen", "lastProgress")),
    "offset": (lambda df: df.offset(3), NotSupported, ("Offset is not supported",)),
    "rebalance hint": (
        lambda df: df.hint("rebalance", "k"),
        NotSupported,
        ("RebalancePartitions [k#", "repartition(n)"),
    ),
    "row_number": (
        lambda df: df.select(F.expr("row_number() over (partition by k order by n)")),
        NotSupported,
        ("row_number()",),
    ),
    "coalesce": (lambda df: df.coalesce(1), NotSupported, ("coalesce", "Repartition 1, false", "parallelism")),
    "repartitionByRange": (
        lambda df: df.repartitionByRange(2, "k"),
        NotSupported,
        ("repartitionByRange", "use repartition(n, columns)"),
    ),
    "sample": (lambda df: df.sample(0.5, seed=1), NotSupported, ("Sampling is not supported",)),
    "watermark behind an exchange": (
        lambda df: watermarked(df.dropDuplicates(["k"])).groupBy(F.window("ts", "1 minute")).count(),
        NotYet,
        ("withWatermark before operators with state",),
    ),
    "watermark behind a function over partitions": (
        lambda df: watermarked(df.repartition("k").mapInArrow(lambda batches: batches, df.schema)).select("ts"),
        NotYet,
        ("a function over the partitions of repartition(columns)",),
    ),
    "two watermarks": (
        lambda df: watermarked(df).withColumn("t2", F.col("ts")).withWatermark("t2", "5 seconds"),
        NotSupported,
        ("EventTimeWatermark", "one withWatermark"),
    ),
    "session window without a key": (
        lambda df: watermarked(df).groupBy(F.session_window("ts", "1 minute")).count(),
        NotSupported,
        ("session_window", "constant column", "Aggregate ["),
    ),
    "session window with a negated gap": (
        lambda df: watermarked(df).groupBy("k", F.session_window("ts", F.expr("-make_interval(0, n)"))).count(),
        NotSupported,
        ("UnaryMinus", "concat(n, ' seconds')"),
    ),
    "two distinct aggregates of a session": (
        lambda df: (
            watermarked(df)
            .groupBy("k", F.session_window("ts", "1 minute"))
            .agg(F.countDistinct("n"), F.sum_distinct("v"))
        ),
        NotSupported,
        ("session_window", "once for each", "collect_set"),
    ),
    "a filtered distinct aggregate of a session": (
        lambda df: (
            watermarked(df)
            .groupBy("k", F.session_window("ts", "1 minute"))
            .agg(F.expr("count(distinct n) filter (where v > 0)"))
        ),
        NotSupported,
        ("session_window", "once for each", "collect_set"),
    ),
    "mode": (
        lambda df: watermarked(df).groupBy("ts").agg(F.mode("n")),
        NotSupported,
        ("mode(n", "mode(x, true)", "Aggregate ["),
    ),
    "what Spark's optimizer fails on": (
        lambda df: (
            watermarked(df)
            .groupBy("ts")
            .agg(F.expr("listagg(distinct n, ',') within group (order by n)"), F.countDistinct("k"))
        ),
        NotSupported,
        ("optimizer fails", "ClassCastException"),
    ),
    "the best of nothing": (
        lambda df: watermarked(df).groupBy("ts").agg(F.expr("max_by(null, n, 3)")),
        NotSupported,
        ("max_by over null", "cast it"),
    ),
    "a histogram": (
        lambda df: watermarked(df).groupBy("ts").agg(F.expr("histogram_numeric(v, 3)")),
        NotYet,
        ("histogram_numeric(", "HistogramNumeric"),
    ),
    "a sketch that is too exact": (
        lambda df: watermarked(df).groupBy("ts").agg(F.approx_count_distinct("n", 0.001)),
        NotSupported,
        ("approx_count_distinct(n", "count(distinct"),
    ),
    "moments of intervals": (
        lambda df: watermarked(df).groupBy("ts").agg(F.expr("try_sum(ts - timestamp'2024-01-01')")),
        NotYet,
        ("try_sum", "use sum and avg"),
    ),
    "map key": (
        lambda df: watermarked(df).groupBy("ts", F.create_map("k", "n")).count(),
        NotSupported,
        ("map",),
    ),
    "current_timestamp": (
        lambda df: df.select(F.current_timestamp()),
        NotSupported,
        ("current_timestamp()", "Project [current_timestamp()", "udf"),
    ),
    "current_date in a filter": (
        lambda df: df.filter(F.col("ts") > F.current_date()),
        NotSupported,
        ("current_date(",),
    ),
    "now": (lambda df: df.select(F.expr("now()")), NotSupported, ("now()",)),
    "unix_timestamp()": (lambda df: df.select(F.unix_timestamp()), NotSupported, ("current_timestamp()",)),
    "localtimestamp": (lambda df: df.filter("n > hour(localtimestamp())"), NotSupported, ("localtimestamp(",)),
    "rand": (
        lambda df: df.filter(F.rand() > 0.5),
        NotSupported,
        ("rand(", "Filter (rand(", "a restart could not repeat"),
    ),
    "uuid": (lambda df: df.select(F.expr("uuid()")), NotSupported, ("uuid(", "a restart could not repeat")),
    "monotonically_increasing_id": (
        lambda df: df.select(F.monotonically_increasing_id()),
        NotSupported,
        ("monotonically_increasing_id()", "could not repeat"),
    ),
    "spark_partition_id": (
        lambda df: df.select(F.spark_partition_id()),
        NotSupported,
        ("SPARK_PARTITION_ID()", "could not repeat"),
    ),
    "input_file_name": (
        lambda df: df.select(F.input_file_name()),
        NotSupported,
        ("input_file_name()", "could not repeat"),
    ),
    "barrier map": (lambda df: df.mapInArrow(lambda it: it, SCHEMA, barrier=True), NotSupported, ("barrier=True",)),
    "scalar subquery": (
        lambda df: df.filter(F.col("n") > df.sparkSession.range(3).agg(F.max("id")).scalar()),
        NotYet,
        ("scalar-subquery#", "collect() the value first", "Filter ("),
    ),
    "exists": (lambda df: df.filter("exists (select 1 from range(3) where id > 7)"), NotYet, ("exists#", "collect()")),
    "in a subquery": (lambda df: df.filter("n in (select id from range(3))"), NotYet, ("collect() the value first",)),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_plan_is_named_with_its_way_round(stream: DataFrame, name: str) -> None:
    make, error, texts = CASES[name]
    with pytest.raises(NotSupported) as caught:
        compile_plan(make(stream), "append")
    assert isinstance(caught.value, error)
    assert isinstance(caught.value, NotYet) == issubclass(error, NotYet)
    assert "\n  in the plan: " in str(caught.value)
    for text in texts:
        assert text in str(caught.value)


def test_what_the_optimizer_fails_on_is_refused_with_its_words(stream: DataFrame) -> None:
    with pytest.raises(NotSupported, match=r"\[CAST_INVALID_INPUT\].*: Spark's own optimizer fails"):
        compile_plan(stream.selectExpr("cast('x' as int) as constant"), "append")


def test_batch_dataframe_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"start from spark\.readStream"):
        compile_plan(spark.range(3), "append")


def test_something_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="not list"):
        compile_plan([1], "append")  # type: ignore[arg-type]


def test_spark_connect_is_refused_by_name() -> None:
    connect = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})
    with pytest.raises(NotSupported, match="Spark Connect"):
        compile_plan(connect(), "append")


def test_what_spark_refuses_in_complete_mode_is_refused_and_unknown_modes_are(stream: DataFrame) -> None:
    with pytest.raises(NotSupported, match=r"Spark itself refuses.*complete mode.*aggregation"):
        compile_plan(stream, "complete")
    with pytest.raises(NotSupported, match=r"Spark itself refuses.*update mode.*[Ss]ort"):
        compile_plan(stream.groupBy("k").count().orderBy("count"), "update")
    with pytest.raises(ConfigError, match="append, update, complete"):
        compile_plan(stream, "upsert")


def test_several_distinct_columns_need_append_mode_and_what_spark_asks_of_it(stream: DataFrame) -> None:
    counts = stream.groupBy("k").agg(F.countDistinct("n"), F.countDistinct("v"))
    with pytest.raises(NotSupported, match=r"aggregations over aggregations.*append mode alone"):
        compile_plan(counts, "update")
    with pytest.raises(NotSupported, match=r"Spark itself refuses.*append mode.*watermark"):
        compile_plan(counts, "append")
    compile_plan(stream.groupBy("k").agg(F.countDistinct("n"), F.sum_distinct("n")), "update")
    twice = watermarked(stream).groupBy(F.window("ts", "1 minute")).count().groupBy("count").count()
    with pytest.raises(NotSupported, match=r"Spark itself refuses"):
        compile_plan(twice, "update")


def test_a_whole_result_is_not_deduplicated(stream: DataFrame) -> None:
    counts = stream.groupBy("k").count()
    with pytest.raises(NotSupported, match=r"complete mode yields.*in front of the aggregation"):
        compile_plan(counts.dropDuplicates(["count"]), "complete")
    with pytest.raises(NotSupported, match=r"Spark itself refuses.*complete mode"):
        compile_plan(stream.dropDuplicates(["k"]), "complete")
    for mode, df in (("append", stream.distinct()), ("complete", stream.dropDuplicates(["n"]).groupBy("k").count())):
        compile_plan(df, mode)


def test_aggregation_without_watermark_needs_update_mode(stream: DataFrame) -> None:
    with pytest.raises(NotSupported, match=r"Spark itself refuses.*append.*watermark.*use output mode update"):
        compile_plan(stream.groupBy("k").count(), "append")


def test_udf_with_a_broadcast_variable_is_refused(spark: SparkSession, stream: DataFrame) -> None:
    table = spark.sparkContext.broadcast({"a": 1})
    lookup = F.udf(lambda k: table.value.get(k), "int")
    with pytest.raises(NotSupported, match=r"broadcast variable.*from a file"):
        compile_plan(stream.select(lookup("k")), "append")


def test_unknown_reader_options_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"unknown option.*rowspersecund.*rowsPerSecond"):
        compile_plan(spark.readStream.format("rate").option("rowsPerSecund", 1).load(), "append")


def test_grouped_aggregate_udf_is_refused(stream: DataFrame) -> None:
    @F.pandas_udf("double")  # type: ignore[call-overload]
    def mean(values: pd.Series) -> float:
        return float(values.mean())

    with pytest.raises(NotSupported, match="mean"):
        compile_plan(watermarked(stream).groupBy("ts").agg(mean("v")), "append")


def test_the_optimizer_setting_of_the_user_is_put_back(
    stream: DataFrame, spark: SparkSession, spark_conf: Callable[[str, str], None]
) -> None:
    rules = "spark.sql.optimizer.excludedRules"
    compile_plan(stream, "append")
    assert spark.conf.get(rules, None) in (None, "")
    spark_conf(rules, "org.apache.spark.sql.catalyst.optimizer.CollapseProject")
    compile_plan(stream, "append")
    assert spark.conf.get(rules) == "org.apache.spark.sql.catalyst.optimizer.CollapseProject"


def test_documentation_lists_every_refused_node() -> None:
    text = unsupported.documentation()
    assert all(f"| `{name}` |" in text for name in unsupported.NODES)
