"""Job graphs of several DataFrames: shared vertices and separate ones."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import NotSupported
from penstock.model.job_graph import EdgeKind, JobGraph, SinkSpec
from penstock.planner.compiler import compile_outputs, sink_id
from tests.integration.planner.test_graph_shape import NowhereSink

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def raw(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    directory = str(tmp_path_factory.mktemp("in"))
    return spark.readStream.schema("key bigint, value bigint, at timestamp, extra string").parquet(directory)


def graph_of(*outputs: DataFrame | tuple[DataFrame, str]) -> JobGraph:
    """Every output is in append mode unless it says otherwise; its sink is checked to get its columns."""
    pairs = [output if isinstance(output, tuple) else (output, "append") for output in outputs]
    plan = compile_outputs(pairs)
    assert [schema.names for schema in plan.schemas] == [df.columns for df, _ in pairs]
    sinks = [SinkSpec(sink_id(number), f"Nowhere{number}", NowhereSink()) for number in range(len(pairs))]
    return plan.graph(sinks, 2, 128)


def shape(graph: JobGraph) -> list[str]:
    """Each vertex: its operators' ids, and the sink's."""
    return [
        " ".join(spec.operator_id for spec in (v.source, *v.operators, v.sink) if spec is not None)
        for v in graph.vertices
    ]


def edges(graph: JobGraph) -> list[tuple[int, int, str, str, str]]:
    return [(e.producer, e.consumer, e.kind.value, e.port, e.exchange_id) for e in graph.edges]


def totals(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.sum("value").alias("total"))


def test_what_is_computed_in_front_of_the_fork_is_computed_once(raw: DataFrame) -> None:
    parsed = raw.withColumn("twice", F.col("value") * 2)
    graph = graph_of(parsed.where("value > 3").select("key", "twice"), (parsed.groupBy("key").count(), "update"))
    assert shape(graph) == [
        "source-0 project-0",
        "filter-0 project-1 sink-0",
        "output-1/project-0 output-1/partial-aggregate-0",
        "output-1/aggregate-0 output-1/project-1 sink-1",
    ]
    assert edges(graph) == [
        (0, 1, "forward", "", "forward-0"),
        (0, 2, "forward", "", "output-1/forward-0"),
        (2, 3, "hash", "", "output-1/exchange-0"),
    ]
    assert graph.edges[0].schema.names == ["key", "value", "twice"], "what nobody needs is not read"
    source = graph.vertices[0].source
    assert source is not None
    assert source.source.schema.names == ["key", "value"]


def test_another_output_renames_nobody(raw: DataFrame) -> None:
    alone = {s.operator_id: s.state_schemas for v in graph_of(totals(raw)).vertices for s in v.operators}
    graph = graph_of(totals(raw), raw.select("key"), raw.where("key = 1"))
    together = {s.operator_id: s.state_schemas for v in graph.vertices for s in v.operators}
    assert {i: s for i, s in together.items() if s} == {i: s for i, s in alone.items() if s}
    more = graph_of(totals(raw), raw.select("key"), raw.where("key = 1"), raw.select("extra"))
    assert [line for line in shape(more) if "sink-3" not in line] == shape(graph)


def test_an_output_that_is_the_common_part_ends_in_its_vertex(raw: DataFrame) -> None:
    graph = graph_of((raw.groupBy("key").count(), "update"), raw, raw)
    assert shape(graph)[0] == "source-0 sink-1"
    assert "sink-2" in shape(graph), "another one with the same rows gets a vertex of its own"


def test_a_watermark_behind_the_fork_is_generated_before_the_repartitioning_in_front_of_it(raw: DataFrame) -> None:
    shared = raw.repartition(F.upper("extra"))
    graph = graph_of(shared.select("key", "value"), totals(shared))
    assert shape(graph)[:2] == ["source-0 watermark-0 project-0", "project-1 project-2"]
    assert [edge.kind for edge in graph.edges[:2]] == [EdgeKind.HASH, EdgeKind.FORWARD]


def test_a_watermark_behind_the_fork_is_generated_in_front_of_it(raw: DataFrame) -> None:
    parsed = raw.withColumn("at", F.col("at") + F.expr("interval 1 hour"))
    graph = graph_of(raw, totals(parsed))
    assert shape(graph)[0] == "source-0 project-0 watermark-0"
    forwarded = [edge.schema.names for edge in graph.edges if edge.kind is EdgeKind.FORWARD]
    assert forwarded == [["key", "value", "at", "extra", "at"]] * 2
    assert shape(graph)[-1] == "project-1 sink-0", "which leaves out what it has not asked for"
    with pytest.raises(NotSupported, match="derive all of them from the DataFrame that withWatermark returns"):
        graph_of(raw, totals(raw.where("value > 1")))
    with pytest.raises(NotSupported, match="one watermark"):
        graph_of(totals(raw), raw.withWatermark("at", "1 hour"))


def test_an_aggregation_is_shared_by_outputs_of_one_mode(raw: DataFrame) -> None:
    sums = raw.groupBy("key").agg(F.sum("value").alias("total"))
    graph = graph_of((sums.select("key"), "update"), (sums.where("total > 3"), "update"), (sums, "update"))
    assert shape(graph) == [
        "source-0 partial-aggregate-0",
        "aggregate-0 project-0 sink-2",
        "project-1 sink-0",
        "output-1/filter-0 sink-1",
    ]
    windows = totals(raw)
    graph = graph_of(windows, (windows, "update"))
    assert shape(graph)[0] == "source-0 watermark-0 filter-0 project-0"
    assert sum("partial" in line for line in shape(graph)) == 2


def test_late_rows_leave_in_front_of_the_partial_aggregation(raw: DataFrame) -> None:
    windows = totals(raw)
    late = penstock.late(windows)
    assert late.columns == ["window", "key", "value", "at", "extra"]
    graph = graph_of(windows.select("key", "total"), late.select("key", "extra"), late)
    assert shape(graph) == [
        "source-0 watermark-0 filter-0 project-0",
        "late-rows-0 partial-aggregate-0 aggregate-0 project-1 sink-0",
        "output-1/project-0 sink-1",
        "sink-2",
    ]
    assert edges(graph) == [
        (0, 1, "hash", "", "exchange-0"),
        (1, 2, "forward", "late", "output-1/forward-0"),
        (1, 3, "forward", "late", "output-2/forward-0"),
    ]
    without = graph_of(windows.select("key", "total"))
    states = [
        {s.operator_id: s.state_schemas for v in g.vertices for s in v.operators if s.state_schemas}
        for g in (graph, without)
    ]
    assert states[0] == states[1], "late rows may be asked for later on"
    pruned = graph_of(windows, late.select("extra"))
    assert pruned.edges[0].schema.names == ["window", "key", "value", "extra"], "what nobody needs stays at home"


def test_late_rows_beside_computed_keys_and_other_outputs(raw: DataFrame) -> None:
    marked = raw.withWatermark("at", "5 seconds")
    counts = marked.groupBy(F.window("at", "10 seconds", "5 seconds"), (F.col("key") % 3).alias("third")).count()
    graph = graph_of(counts.where("third = 1"), penstock.late(counts), marked.select("extra"))
    [hashed] = [edge for edge in graph.edges if edge.kind is EdgeKind.HASH]
    alone = [edge for edge in graph_of(counts.where("third = 1")).edges if edge.kind is EdgeKind.HASH]
    names = [[edge.schema.names[position] for position in edge.key_columns] for edge in (hashed, *alone)]
    assert names[0] == names[1], "or the state would have another schema"
    assert [edge.schema.names for edge in graph.edges if edge.port] == [penstock.late(counts).columns]


def test_names_replace_positions(raw: DataFrame) -> None:
    named = penstock.named(totals(penstock.named(raw, "orders")), "by-key")
    assert shape(graph_of(named.where("total > 1").select("key")))[0].startswith("orders ")
    graph = graph_of(named.where("total > 1"), named.select("key"))
    assert shape(graph)[1].startswith("by-key ")
    assert shape(graph)[0].startswith("orders watermark-0")


def test_a_with_clause_is_for_one_output(raw: DataFrame) -> None:
    raw.createOrReplaceTempView("events")
    text = "WITH big AS (SELECT key, value FROM events WHERE value > 3) SELECT key FROM big WHERE key > 1"
    df = raw.sparkSession.sql(text)
    assert shape(graph_of(df)) == ["source-0 filter-0 project-0 sink-0"]
    with pytest.raises(NotSupported, match=r"WithCTE: several outputs do not share a WITH clause"):
        graph_of(df, raw.select("key"))
