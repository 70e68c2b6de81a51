"""Job graphs of deduplications: keys, event time, exchanges, names, late rows, and vertices that outputs share."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import ConfigError, NotSupported
from penstock.model.job_graph import JobGraph
from penstock.operators.deduplicate import DeduplicateSpec
from penstock.operators.late_rows import LateRowsSpec
from tests.integration.planner.test_several_outputs_shape import edges, graph_of, shape

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def raw(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    directory = str(tmp_path_factory.mktemp("in"))
    return spark.readStream.schema("key bigint, value bigint, at timestamp, extra string").parquet(directory)


def marked(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", "5 seconds")


def specs(graph: JobGraph, kind: Any = DeduplicateSpec) -> list[Any]:
    return [spec for vertex in graph.vertices for spec in vertex.operators if isinstance(spec, kind)]


def test_keys_and_event_time_are_columns_of_the_rows(raw: DataFrame) -> None:
    for df, keys, event_time, delay_us in (
        (raw.dropDuplicates(["value", "key"]), ("value", "key"), None, None),
        (marked(raw).dropDuplicates(["key"]), ("key",), "at", None),
        (marked(raw).dropDuplicates(["key", "at"]), ("key", "at"), "at", None),
        (marked(raw).dropDuplicatesWithinWatermark(["key"]), ("key",), "at", 5_000_000),
        (marked(raw).dropDuplicatesWithinWatermark(["key"]).select("key"), ("key",), "at", 5_000_000),
        (marked(raw).dropDuplicates(["key"]).select("key"), ("key",), None, None),  # pruned, as by Spark
        (raw.select("key", "extra").distinct(), ("key", "extra"), None, None),
    ):
        [spec] = specs(graph_of(df))
        names = spec.output_schema.names
        assert {names[position] for position in spec.keys} == set(keys)
        assert (None if spec.event_time is None else names[spec.event_time]) == event_time
        assert spec.delay_us == delay_us


def test_rows_are_exchanged_once_for_one_key(raw: DataFrame) -> None:
    twice = marked(raw).dropDuplicates(["key"]).repartition("key").dropDuplicatesWithinWatermark(["key"])
    counted = raw.repartition("key").dropDuplicates(["key"]).groupBy("key").count()
    assert [kind for _, _, kind, _, _ in edges(graph_of(twice))] == ["hash", "hash"], "the one that was asked for"
    graph = graph_of((counted, "update"))
    assert shape(graph)[1].startswith("deduplicate-0")
    assert [kind for _, _, kind, _, _ in edges(graph)] == ["hash"]


def test_a_name_survives_what_the_optimizer_does(raw: DataFrame) -> None:
    named = penstock.named(raw.withColumn("twice", F.col("value") * 2).dropDuplicates(["key"]), "seen")
    within = penstock.named(marked(raw).select("*", "key").dropDuplicatesWithinWatermark(["value"]), "recent")
    assert [spec.operator_id for spec in specs(graph_of(named.where("twice > 2").select("twice")))] == ["seen"]
    assert [spec.operator_id for spec in specs(graph_of(within.select("extra")))] == ["recent"]


def test_an_output_without_the_watermark_of_another_one_has_no_late_rows(raw: DataFrame) -> None:
    plain, timed = raw.dropDuplicates(["key"]), marked(raw).dropDuplicates(["value"])
    assert [spec.event_time is None for spec in specs(graph_of(plain, timed))] == [True, False]
    assert [spec.event_time is None for spec in specs(graph_of(timed, plain))] == [False, True]
    shared = marked(raw)
    both = graph_of(shared.dropDuplicates(["key"]), shared.dropDuplicates(["value"]))
    assert [spec.event_time is None for spec in specs(both)] == [False, False]


def test_outputs_share_a_deduplication(raw: DataFrame) -> None:
    seen = marked(raw).dropDuplicates(["key", "at"])
    graph = graph_of(seen, (seen.groupBy("extra").count(), "update"))
    assert len(specs(graph)) == 1
    assert shape(graph)[:2] == ["source-0 watermark-0", "deduplicate-0 sink-0"]


def test_late_rows_leave_in_front_of_it(raw: DataFrame) -> None:
    seen = marked(raw).select("key", "value", "at").dropDuplicatesWithinWatermark(["value"])
    graph = graph_of(seen.select("key", "at"), penstock.late(seen))
    [late], [spec] = specs(graph, LateRowsSpec), specs(graph)
    assert [spec.output_schema.names[position] for position in spec.keys] == ["value"]
    assert [late.output_schema.names[position] for position in late.keys] == ["value"]
    assert late.output_schema.names[late.event_time] == "at"
    assert ("late", "forward") in {(port, kind) for _, _, kind, port, _ in edges(graph)}
    again = seen.dropDuplicates(["key"])
    both = graph_of(again, penstock.late(again), penstock.late(seen))
    assert [one.keys for one in specs(both, LateRowsSpec)] == [one.keys for one in specs(both)]
    assert len(specs(both)) == 2


def test_late_rows_that_nobody_drops_are_refused(raw: DataFrame) -> None:
    plain = raw.dropDuplicates(["key"])
    with pytest.raises(NotSupported, match="no row of this deduplication is ever late"):
        graph_of(plain, penstock.late(plain))
    with pytest.raises(ConfigError, match="has to run in the same query"):
        graph_of(raw, penstock.late(marked(raw).dropDuplicates(["key"])))
    with pytest.raises(ConfigError, match="that drops late rows"):
        penstock.late(marked(raw))
