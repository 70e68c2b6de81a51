"""Job graphs of plans with several streams: vertices with several inputs, stable ids, watermarks."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import NotSupported
from penstock.interop.spark_checkpoint.plans import graph_of as graph_for_checkpoints
from penstock.model.job_graph import JobGraph
from penstock.operators.join.side_state import ExpiryBound
from penstock.operators.join.stream_join import StreamJoinSpec
from penstock.operators.watermark import WatermarkSpec
from tests.integration.planner.test_several_outputs_shape import edges, graph_of, shape

pytestmark = pytest.mark.spark

SCHEMA = "k bigint, v bigint, at timestamp, x double, another timestamp"
SECOND = 1_000_000
MILLI = 1_000


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[DataFrame]:
    return [spark.readStream.schema(SCHEMA).parquet(str(tmp_path_factory.mktemp(name))) for name in "abc"]


def timed(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", "10 seconds")


def renamed(df: DataFrame) -> DataFrame:
    return timed(df).select([F.col(name).alias(f"r_{name}") for name in df.columns])


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy(F.window("at", "10 seconds"), "k").count()


def clocks(graph: JobGraph) -> list[str]:
    return [vertex.source.clock for vertex in graph.vertices if vertex.source is not None]


def join_of(graph: JobGraph) -> StreamJoinSpec:
    [spec] = [spec for v in graph.vertices for spec in v.operators if isinstance(spec, StreamJoinSpec)]
    return spec


def test_a_union_has_an_edge_from_each_input(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    graph = graph_of(a.where("v > 1").union(b.select("k", "k", "at", "x", "another")))
    assert shape(graph) == [
        "source-0 filter-0",
        "union-0/input-1/source-0 union-0/input-1/project-0 union-0/input-1/project-1",
        "sink-0",
    ]
    assert edges(graph) == [
        (0, 2, "forward", "", "union-0/input-0"),
        (1, 2, "forward", "", "union-0/input-1"),
    ]
    assert {tuple(edge.schema.names) for edge in graph.edges} == {("k", "v", "at", "x", "another")}, (
        "they match by position"
    )
    assert graph.vertices[2].name.startswith("Union")


def test_a_vertex_behind_an_exchange_is_not_the_next_source(streams: list[DataFrame]) -> None:
    """Nothing is between the exchanges and the union: rows of the first stream are not to pass the second source's
    vertex, too, on their way."""
    a, b, _ = streams
    graph = graph_of(a.repartition(3).union(b.repartition("k")))
    assert [sum(edge.producer == vertex.id for edge in graph.edges) for vertex in graph.vertices] == [1, 1, 1, 1, 0]
    assert [(edge.producer, edge.consumer, edge.kind.value) for edge in graph.edges] == [
        (0, 1, "rebalance"),
        (2, 3, "hash"),
        (1, 4, "forward"),
        (3, 4, "forward"),
    ]


def test_an_input_more_renames_nobody(streams: list[DataFrame]) -> None:
    a, b, c = streams
    two = graph_of(timed(a).union(timed(b).dropDuplicates(["k", "at"])))
    three = graph_of(timed(a).union(timed(b).dropDuplicates(["k", "at"])).union(timed(c).dropDuplicates(["k", "at"])))
    assert set(" ".join(shape(two)).split()) < set(" ".join(shape(three)).split())
    assert {edge.exchange_id for edge in two.edges} < {edge.exchange_id for edge in three.edges}


def test_inputs_that_are_spread_alike_stay_so(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    alike = [timed(df).select("k", "at").dropDuplicates(["k", "at"]) for df in (a, b)]
    graph = graph_of(alike[0].union(alike[1]).dropDuplicates(["k", "at"]))
    assert [edge.kind.value for edge in graph.edges] == ["hash", "hash", "forward", "forward"]
    assert [edge.key_columns for edge in graph.edges[2:]] == [(0, 1), (0, 1)]
    graph = graph_of(alike[0].union(timed(b).select("k", "at")).dropDuplicates(["k", "at"]))
    assert [edge.kind.value for edge in graph.edges] == ["hash", "forward", "forward", "hash"]
    assert [edge.key_columns for edge in graph.edges[1:3]] == [(), ()]


def test_a_watermark_above_a_union_is_generated_by_each_input(streams: list[DataFrame]) -> None:
    a, b, c = streams
    united = a.union(b.union(c).where("x > 1")).withColumn("at", F.col("at") + F.expr("INTERVAL 1 SECOND"))
    graph = graph_of(counted(timed(united.where("v > 1"))))
    generating = [v.id for v in graph.vertices for spec in v.operators if isinstance(spec, WatermarkSpec)]
    assert generating == [v.id for v in graph.vertices if v.source is not None], "where the source is read"
    assert len(generating) == 3
    assert all(edge.timed for edge in graph.edges)
    assert clocks(graph) == ["union-0"] * 3, "and is one for all"
    assert clocks(graph_of(timed(a).union(timed(b)))) == ["", ""]
    deeper = timed(a.union(b).where("v > 1")).select("k").union(c.select("k"))
    assert clocks(graph_of(deeper)) == ["union-0", "union-0", ""]


def test_an_input_without_a_watermark_is_known_as_such(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    graph = graph_of(counted(timed(a).union(b)))
    assert [(edge.exchange_id, edge.timed) for edge in graph.edges] == [
        ("union-0/input-0", True),
        ("union-0/input-1", False),
        ("exchange-0", True),
    ]


def test_each_source_has_its_own_name(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    graph = graph_of(penstock.named(a, "orders").union(penstock.named(b, "returns")))
    assert shape(graph)[:2] == ["orders", "returns"]
    assert shape(graph_of(a.union(penstock.named(b, "returns"))))[:2] == ["source-0", "returns"]


def test_outputs_share_a_union_as_a_whole(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    united = a.union(b)
    graph = graph_of(united.where("v > 1"), counted(timed(united)), united)
    assert shape(graph)[:3] == [
        "source-0 watermark-0",
        "union-0/input-1/source-0 union-0/input-1/watermark-0",
        "",
    ]
    assert [edge.producer for edge in graph.edges] == [0, 1, 2, 2, 4, 2]
    with pytest.raises(NotSupported, match="outputs 0 and 1: outputs of one query that read several streams"):
        graph_of(united, a)


@pytest.mark.parametrize("which", ["static", "complete", "types", "behind", "twice"])
def test_unions_that_are_refused(spark: SparkSession, streams: list[DataFrame], which: str) -> None:
    a, b, _ = streams
    static = spark.createDataFrame([(1, 2, None, 1.0, None)], SCHEMA)
    refused = {
        "static": (a.union(static), "append", "streaming and batch"),
        "complete": (a.groupBy("k").count().union(b.groupBy("k").count()), "complete", "whole result again and again"),
        "types": (
            a.select(F.struct(F.col("k").alias("one")).alias("s")).union(
                b.select(F.struct(F.col("k").alias("two")).alias("s"))
            ),
            "append",
            "differ in type",
        ),
        "behind": (counted(timed(a.union(b).dropDuplicates(["k"]))), "append", "a watermark is generated where"),
        "twice": (counted(timed(timed(a).union(b))), "append", "one withWatermark"),
    }
    df, mode, message = refused[which]
    with pytest.raises(NotSupported, match=message):
        graph_of((df, mode))


def test_positions_of_several_sources_do_not_come_from_or_go_to_spark(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    with pytest.raises(NotSupported, match=r"reads 2 sources .*positions come over and go back of one only"):
        graph_for_checkpoints(a.union(b), "append", 1, 128)


def test_a_limit_counts_in_one_subtask(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    graph = graph_of(a.union(b).limit(5))
    assert shape(graph)[-2:] == ["", "stream-limit-0 sink-0"], "what Spark limits in front of the union is no help here"
    assert edges(graph)[-1] == (2, 3, "hash", "", "exchange-0")
    assert graph.edges[-1].key_columns == ()
    whole = graph_of((a.union(b).groupBy("k").count().limit(5), "complete"))
    assert shape(whole)[-1] == "aggregate-0 project-0 limit-0 sink-0"
    with pytest.raises(NotSupported, match="limit: in complete mode Spark's engine takes so many rows of every"):
        graph_of((a.limit(5).groupBy("k").count(), "complete"))


def test_plain_sql_over_views_of_streams(spark: SparkSession, streams: list[DataFrame]) -> None:
    a, b, _ = streams
    timed(a).createOrReplaceTempView("clicks")
    timed(b).createOrReplaceTempView("views")
    united = spark.sql("SELECT k, v FROM clicks WHERE v > 1 UNION ALL SELECT k, v * 2 FROM views")
    assert edges(graph_of(united))[-1] == (1, 2, "forward", "", "union-0/input-1")
    text = "SELECT c.k, w.v FROM clicks c JOIN views w ON c.k = w.k AND w.at BETWEEN c.at - INTERVAL 5 SECOND AND c.at"
    graph = graph_of(spark.sql(text))
    assert edges(graph) == [
        (0, 2, "hash", "", "stream-join-0/left"),
        (1, 2, "hash", "", "stream-join-0/right"),
    ]


def test_a_join_takes_from_spark_how_long_rows_wait(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    between = "k = r_k AND r_at > at - INTERVAL 5 SECONDS AND r_at <= at + INTERVAL 2 MINUTES"
    left, right = join_of(graph_of(timed(a).join(renamed(b), F.expr(between)))).sides
    assert left.bound == ExpiryBound(2, -120 * SECOND - MILLI)
    assert right.bound == ExpiryBound(2, -5 * SECOND)
    assert (left.event_time, right.event_time) == (2, 2)
    left, right = join_of(graph_of(timed(a).join(renamed(b), F.expr("r_at = at AND k = r_k")))).sides
    assert (left.keys, left.bound, right.bound) == ((2, 0), ExpiryBound(2, 0), ExpiryBound(2, 0))
    for one, other in ((timed(a), timed(b)), (a, timed(b)), (a, b)):
        assert {side.bound for side in join_of(graph_of(one.join(other, "k"))).sides} == {None}
    left, right = join_of(
        graph_of(timed(a).join(renamed(b), F.expr("k = r_k AND at > r_at + INTERVAL 1 SECOND")))
    ).sides
    assert (left.bound, right.bound) == (ExpiryBound(2, SECOND), None), "a row on the left waits for nothing to come"


def test_what_a_join_keeps_is_what_it_needs(streams: list[DataFrame]) -> None:
    a, b, _ = streams
    near = "r_at BETWEEN at AND at + INTERVAL 1 MINUTE"
    outer = timed(a).join(renamed(b), F.expr(f"k = r_k AND {near} AND v > 1 AND r_v < 7"), "left")
    spec = join_of(graph_of(outer.select("k", "x", "r_x")))
    left, right = spec.sides
    assert (left.is_preserved, right.is_preserved) == (True, False)
    assert (left.condition is None, right.condition is None) == (False, True), "Spark filters the right side before"
    assert left.table_schema.names == ["k", "__row", "v", "at", "x", "__matched"], "a key is there once"
    assert spec.state_keys == {"left": 2, "right": 2}
    computed = join_of(
        graph_of(timed(a).drop("another").join(renamed(b), F.expr(f"x = r_x AND k + 1 = r_k AND {near}")))
    )
    left, right = computed.sides
    assert left.schema.names[left.width :] == ["__key0", "__key1"], "Spark normalises doubles"
    assert (left.keys, right.keys, computed.null_safe) == ((4, 5), (5, 0), (False, False))
    assert left.table_schema.names == ["__key0", "__key1", "__row", "k", "v", "at", "x"]


@pytest.mark.parametrize(
    ("condition", "offset_us"),
    [
        ("at >= r_at", -MILLI),
        ("r_at - INTERVAL 90 SECONDS < at AND at > r_at - INTERVAL 1 MINUTE", -90 * SECOND),
        ("at > r_at - INTERVAL 1 MINUTE AND v > 5 AND v > r_v", -60 * SECOND),
        ("at > r_at - INTERVAL 2 HOURS", -7200 * SECOND),
        ("at > r_at - INTERVAL 3 DAYS", -5 * 86_400 * SECOND),
        ("CAST(at AS BIGINT) >= CAST(r_at AS BIGINT)", None),
        ("CAST(CAST(at AS DATE) AS TIMESTAMP) > r_at", None),
        ("another > r_at", None),
        ("at > r_another", None),
        ("at < r_at", None),
        ("at > r_at OR v > 5", None),
    ],
)
def test_only_what_cannot_lose_a_pair_lets_rows_be_forgotten(
    spark: SparkSession, streams: list[DataFrame], condition: str, offset_us: int | None
) -> None:
    a, b, _ = streams
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        left, _ = join_of(graph_of(timed(a).join(renamed(b), F.expr(f"k = r_k AND ({condition})")))).sides
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert (None if left.bound is None else left.bound.offset_us) == offset_us


@pytest.mark.parametrize("which", ["keys", "anti", "update", "outer", "window"])
def test_joins_that_are_refused(streams: list[DataFrame], which: str) -> None:
    a, b, _ = streams
    one, other = timed(a), renamed(b)
    w, r_w = (
        df.withColumn(f"{p}w", F.window(f"{p}at", "5 seconds")).drop(f"{p}at") for df, p in ((one, ""), (other, "r_"))
    )
    refused = {
        "keys": (one.join(other, F.expr("k < r_k")), "two streams are joined by equalities between them"),
        "anti": (one.join(other, F.expr("k = r_k"), "left_anti"), "Spark itself refuses"),
        "outer": (one.join(other, F.expr("k = r_k"), "left"), "Spark itself refuses"),
        "window": (w.join(r_w, F.expr("k = r_k AND r_w > w")), "a window that is no key of the join"),
    }
    df, message = refused.get(which, (one.join(other, F.expr("k = r_k"), "left"), "in Update output mode"))
    with pytest.raises(NotSupported, match=message):
        graph_of((df, "update" if which == "update" else "append"))
