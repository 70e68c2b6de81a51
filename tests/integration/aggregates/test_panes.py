"""Sliding windows are aggregated by pane: what comes of a batch is what an ``Expand`` of every row gives, and results
equal Spark's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from penstock.model.job_graph import JobGraph
from penstock.operators.aggregate.partial import MergePartialsSpec, PartialAggregateSpec
from penstock.operators.expand import ExpandSpec
from tests.support.aggregates.aggregate_kit import SCHEMA, Plan, assert_same_rows, compiled, run, watermarked

pytestmark = pytest.mark.spark

EVEN = "window(ts, '10 minutes', '2 minutes')"
UNEVEN = "window(ts, '10 minutes', '3 minutes 20 seconds', '17 seconds')"
SHIFTED = "window(ts, '90 seconds', '30 seconds', '7 seconds')"
MANY = """count(*), count(i), sum(i), sum(dec), sum(big), try_sum(l), avg(d), avg(dec), min(text), max(st), max(ts),
    bit_xor(l), stddev(e), kurtosis(e), corr(e, g), approx_count_distinct(i), bitmap_or_agg(raw),
    sum(i) filter (where g > 1), avg(e) filter (where ts > timestamp '2024-03-09 22:10:00' and b)"""
TALLIES = "percentile(i, 0.4, g), mode(g, true), sort_array(collect_set(l)), percentile_approx(i, 0.5)"
"""Of which a batch's rows are merged differently, to the same results."""
BY_ORDER = """first(l), last(text, true), collect_list(i), array_agg(text), min_by(l, i), max_by(text, ts, 2),
    listagg(text, ',') within group (order by ts desc)"""
LATER = "w.start >= timestamp '2024-03-09 22:30:00'"
SINCE = "greatest(0, unix_seconds(ts) - unix_seconds(timestamp '2024-03-09 22:30:00') + 1)"
"""Zero in front of the windows that ``LATER`` keeps."""
HUGE = f"if({SINCE} = 0, 9223372036854775807, 1)"
"""Of which no two can be added up there."""


def grouped(aggregates: str, window: str, *keys: str, where: str = "true") -> Plan:
    def plan(df: DataFrame) -> DataFrame:
        rows = watermarked(df).withColumn("huge", F.expr(HUGE)).select(F.expr(window).alias("w"), "*").where(where)
        return df.sparkSession.sql(
            f"select {', '.join(('w', *keys))}, {aggregates} from {{rows}} group by {', '.join(('w', *keys))}",
            rows=rows,
        )

    return plan


PLANS: dict[str, tuple[int, Plan]] = {
    "the slide divides the length": (2, grouped(MANY, EVEN, "k")),
    "it does not": (2, grouped(MANY, UNEVEN, "k")),
    "without other keys": (1, grouped("count(*), sum(i), avg(e), min(d), max(d)", SHIFTED)),
    "computed keys": (3, grouped("count(*), sum(g * 2), max(d)", UNEVEN, "g % 2", "struct(k, d > 1)")),
    "no functions": (2, grouped("1 as one", UNEVEN, "k")),
    "doubles as keys": (2, grouped("count(*), min(d)", EVEN, "f")),
    "in order": (2, grouped(BY_ORDER, EVEN, "k")),
    "tallies": (2, grouped(TALLIES, EVEN, "k")),
    "uneven tallies": (2, grouped(TALLIES, UNEVEN, "k")),
    "some of the windows": (2, grouped(f"count(*), sum(huge), sum(10 div {SINCE})", EVEN, "k", where=LATER)),
    "some of the uneven windows": (2, grouped(f"count(*), sum(10 div {SINCE})", UNEVEN, "k", where=LATER)),
}


@pytest.fixture
def expanded(monkeypatch: pytest.MonkeyPatch) -> Callable[[DataFrame], JobGraph]:
    """Compiles as if there were no panes."""

    def graph(stream: DataFrame) -> JobGraph:
        with monkeypatch.context() as patched:
            patched.setattr("penstock.planner.aggregation.by_panes", lambda operators, _: operators)
            return compiled(stream, "append")

    return graph


def partial_rows(graph: JobGraph, rows: pa.Table) -> Iterator[pa.Table]:
    """Return the output of the first vertex, batch by batch."""
    source = graph.vertices[0].source
    assert source is not None
    schema = source.source.schema
    operators = [spec.create() for spec in graph.vertices[0].operators]
    for batch in rows.select(schema.names).cast(schema).to_batches(max_chunksize=97):
        made = [batch]
        for operator in operators:
            made = [out for each in made for out in operator.process(each)]
        yield pa.Table.from_batches(made, graph.edges[0].schema)


def has_panes(graph: JobGraph) -> bool:
    kinds = [type(spec) for spec in graph.vertices[0].operators]
    assert kinds.count(ExpandSpec) == kinds.count(PartialAggregateSpec) == 1
    return kinds.index(PartialAggregateSpec) < kinds.index(ExpandSpec) and kinds[-1] is MergePartialsSpec


def stream_of(spark: SparkSession, folder: Path, plan: Plan) -> DataFrame:
    return plan(spark.readStream.schema(SCHEMA).parquet(str(folder)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", PLANS)
def test_batches_yield_what_their_rows_do(
    spark: SparkSession, folder: Path, rows: pa.Table, expanded: Callable[[DataFrame], JobGraph], name: str
) -> None:
    keys, plan = PLANS[name]
    stream = stream_of(spark, folder, plan)
    by_pane, by_row = compiled(stream, "append"), expanded(stream)
    assert has_panes(by_pane)
    assert not has_panes(by_row)
    for found, expected in zip(partial_rows(by_pane, rows), partial_rows(by_row, rows), strict=True):
        if "tallies" in name:
            found, expected = found.select([*range(keys)]), expected.select([*range(keys)])
        assert_same_rows(found, expected, keys)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", [name for name in PLANS if name != "in order"])
def test_results_equal_spark(spark: SparkSession, folder: Path, rows: pa.Table, name: str) -> None:
    """But for the order of rows, which Spark does not keep where there are many groups."""
    keys, plan = PLANS[name]
    found, job = run(stream_of(spark, folder, plan), rows)
    assert_same_rows(found, plan(spark.read.schema(SCHEMA).parquet(str(folder))).toArrow(), keys)
    assert found.num_rows > 2
    assert job.late == job.held == 0


@pytest.mark.parametrize("name", ["the slide divides the length", "it does not"])
def test_state_and_exchange_are_as_without_panes(
    spark: SparkSession, folder: Path, rows: pa.Table, expanded: Callable[[DataFrame], JobGraph], name: str
) -> None:
    """A snapshot of either restores into the other."""
    stream = stream_of(spark, folder, PLANS[name][1])
    by_pane, by_row = compiled(stream, "append"), expanded(stream)
    assert by_pane.edges == by_row.edges
    [kept], [as_ever] = (
        [spec for spec in graph.vertices[1].operators if spec.state_schemas] for graph in (by_pane, by_row)
    )
    assert kept == as_ever
