"""Job graphs of sliding windows: those aggregated by pane, and those with each row put into its windows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.planner.compiler import CompiledPlan, compile_outputs, compile_plan

pytestmark = pytest.mark.spark


def even() -> Column:
    return F.window("ts", "1 minute", "20 seconds")


def uneven() -> Column:
    return F.window("ts", "1 minute", "25 seconds", "3 seconds")


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = str(tmp_path_factory.mktemp("in"))
    rows = spark.readStream.schema("ts timestamp, k string, v double, n int, a array<int>").parquet(folder)
    return rows.withWatermark("ts", "10 seconds")


def of_kinds(plan: CompiledPlan, vertex: int = 0) -> list[str]:
    """Ids of the vertex's operators behind the watermark and the filter of null event times."""
    ids = [spec.operator_id for spec in plan.pipeline.vertices[vertex].operators]
    return ids[2:] if vertex == 0 else ids


def named(plan: CompiledPlan, operator_id: str) -> Any:
    specs = [spec for vertex in plan.pipeline.vertices for spec in vertex.operators]
    return next(spec for spec in specs if spec.operator_id == operator_id)


def test_partial_rows_are_expanded(stream: DataFrame) -> None:
    plan = compile_plan(stream.groupBy(even(), "k").agg(F.sum("v"), F.expr("count(*) filter (where n > 3)")), "append")
    assert of_kinds(plan) == ["panes-0", "partial-aggregate-0", "expand-0", "merge-partials-0"]
    assert named(plan, "panes-0").output_schema.names[0] == "__pane"
    assert named(plan, "partial-aggregate-0").output_schema.names[:2] == ["__pane", "k"]
    assert len(named(plan, "expand-0").projections) == 3
    assert named(plan, "merge-partials-0").output_schema == plan.pipeline.edges[0].schema
    assert of_kinds(plan, 1) == ["aggregate-0", "project-1"]


def test_a_filter_says_which_windows_hold_all_of_a_pane(stream: DataFrame) -> None:
    plan = compile_plan(stream.groupBy(uneven()).agg(F.sum(F.col("v") * 2)), "append")
    pushed = ["panes-0", "panes-filter-0", "partial-aggregate-0", "expand-0", "filter-1", "merge-partials-0"]
    assert of_kinds(plan) == pushed
    assert named(plan, "partial-aggregate-0").output_schema.names[:4] == ["__pane", "__in_0", "__in_1", "__in_2"]


def test_columns_are_computed_once(stream: DataFrame) -> None:
    """Rows are read by their columns where these are there: the argument is a key as well."""
    plan = compile_plan(
        stream.groupBy(even(), "k", (F.col("n") % 3).alias("m")).agg(F.max("k"), F.count("k")), "append"
    )
    assert len(named(plan, "panes-0").output_schema) == 3


def test_sliding_windows_of_sliding_windows(stream: DataFrame) -> None:
    chained = stream.groupBy(even().alias("w"), "k").count().groupBy(F.window("w", "4 minutes", "2 minutes"))
    plan = compile_plan(chained.agg(F.sum("count")), "append")
    assert [vertex.operators[-1].operator_id for vertex in plan.pipeline.vertices[:2]] == [
        "merge-partials-0",
        "merge-partials-1",
    ]


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_in_every_output_mode(stream: DataFrame, mode: str) -> None:
    assert "panes-0" in of_kinds(compile_plan(stream.groupBy(even()).count(), mode))


AS_BEFORE = {
    "the start of the window is aggregated": lambda df: (
        df.select(even().alias("w"), "ts").groupBy("w").agg(F.max(F.expr("ts - w.start")))
    ),
    "a key is made of the window and of columns": lambda df: (
        df.select(even().alias("w"), "k", "v").groupBy("w", F.struct("w", "k").alias("s")).agg(F.sum("v"))
    ),
    "a function of the user's is in between": lambda df: (
        df.groupBy(even(), F.udf(str.upper, "string")("k").alias("u")).agg(F.sum("v"))
    ),
    "a lambda is in between": lambda df: df.groupBy(even()).agg(F.sum(F.expr("size(filter(a, x -> x > n))"))),
    "DISTINCT": lambda df: df.groupBy(even(), "k").agg(F.count_distinct("n")),
    "DISTINCT of several": lambda df: df.groupBy(even(), "k").agg(F.count_distinct("n"), F.count_distinct("v")),
    "order counts, and a pane is in parts": lambda df: df.groupBy(uneven(), "k").agg(F.first("n")),
    "a key is computed of windows that are kept": lambda df: (
        df.select(uneven().alias("w")).groupBy("w", F.expr("100 / unix_seconds(w.start)")).count()
    ),
    "grouping sets": lambda df: df.select(even().alias("w"), "k", "n").groupingSets(
        [("w", "k"), ("w",)], "w", "k"
    ).agg(F.sum("n")),
}  # fmt: skip


@pytest.mark.parametrize("why", AS_BEFORE)
def test_windows_are_known_to_the_aggregation(stream: DataFrame, why: str) -> None:
    plan = compile_plan(AS_BEFORE[why](stream), "append")
    ids = [spec.operator_id for vertex in plan.pipeline.vertices for spec in vertex.operators]
    assert not [operator_id for operator_id in ids if operator_id.startswith(("panes", "merge"))]
    assert ids.index("expand-0") < ids.index("partial-aggregate-0")


def test_late_rows_as_an_output_are_whole_rows(stream: DataFrame) -> None:
    counts = stream.groupBy(even()).count()
    plan = compile_outputs([(counts, "append"), (penstock.late(counts), "append")])
    ids = [spec.operator_id for vertex in plan.pipeline.vertices for spec in vertex.operators]
    assert ids.index("expand-0") < ids.index("late-rows-0") < ids.index("partial-aggregate-0")
    assert "panes-0" not in ids


def test_tumbling_windows_have_no_panes(stream: DataFrame) -> None:
    assert "panes-0" not in of_kinds(compile_plan(stream.groupBy(F.window("ts", "1 minute")).count(), "append"))
