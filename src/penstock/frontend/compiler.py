"""From a streaming DataFrame to a JobGraph: checks, Spark's optimizer, then one node after the other.

The optimised plan is a line from the source up to the root (a node with two inputs is refused). Each node adds
operators to the current vertex; an exchange ends it::

    Source -> Filter -> Project -> PartialAggregate  ==hash==>  Aggregate -> Project -> Sink
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.frontend import refusals
from penstock.frontend.aggregation import add_aggregate
from penstock.frontend.builder import Pipeline
from penstock.frontend.catalyst import (
    SESSION_KEY,
    JavaTree,
    arrow_field,
    arrow_schema,
    children,
    elements,
    expr_id,
    has_metadata,
    kind,
    label,
    preorder,
)
from penstock.frontend.checks import check_by_spark, check_dataframe, check_expressions, check_output_mode
from penstock.frontend.conf import optimize, python_settings, session_conf
from penstock.frontend.exchange import add_repartition, add_repartition_by_expression
from penstock.frontend.functions import load_function, udf_call
from penstock.frontend.scope import Scope
from penstock.frontend.sources import columns_to_read, create_source
from penstock.graph.model import JobGraph, SinkSpec, SourceSpec
from penstock.operators.expand import ExpandSpec
from penstock.operators.filter import FilterSpec
from penstock.operators.map_function import MapInArrowSpec, MapInPandasSpec
from penstock.operators.scalar_udf import ScalarUdfSpec
from penstock.operators.watermark import WatermarkSpec

SINK_ID = "sink-0"

_RELATIONS = ("StreamingRelation", "StreamingRelationV2")
_ONCE = {"EventTimeWatermark": refusals.SECOND_WATERMARK, "Aggregate": refusals.SECOND_AGGREGATION}
_MICROS_PER_MILLI = 1_000


@dataclass(frozen=True)
class CompiledPlan:
    """What a DataFrame compiles to; the sink and the parallelism are still free.

    Attributes:
        pipeline: vertices and edges up to the sink.
        output_mode: ``append`` or ``update``.
        analyzed: Spark's analysed plan, as text.
        optimized: Spark's optimised plan, as text: what the operators were made from.
    """

    pipeline: Pipeline
    output_mode: str
    analyzed: str
    optimized: str

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows that reach the sink."""
        return self.pipeline.schema

    def graph(self, sink: SinkSpec, parallelism: int, max_parallelism: int) -> JobGraph:
        return self.pipeline.graph(sink, parallelism, max_parallelism)


def compile_plan(df: DataFrame, output_mode: str) -> CompiledPlan:
    """Check and compile a streaming DataFrame. Nothing is started and no file is touched.

    Raises:
        ConfigError: not a streaming DataFrame, or an unknown output mode.
        NotSupported: the plan holds something that is refused; the message has Spark's plan line and the way round.
    """
    check_dataframe(df)
    mode = check_output_mode(output_mode)
    spark = df.sparkSession
    analyzed = df._jdf.queryExecution().analyzed()
    check_expressions(analyzed)
    check_by_spark(spark, analyzed, mode)
    optimized = optimize(spark, analyzed)
    scope = Scope(spark, session_conf(spark), python_settings(spark), mode)
    *above, relation = _line(optimized)
    with refusals.at_node(relation):
        _add_source(scope, relation, above[::-1])
    for node in reversed(above):
        with refusals.at_node(node):
            _ADD[kind(node)](scope, node)
    return CompiledPlan(scope.builder.build(), mode, str(analyzed.treeString()), str(optimized.treeString()))


def compile_query(
    df: DataFrame, *, sink: SinkSpec, output_mode: str, parallelism: int, max_parallelism: int
) -> JobGraph:
    """``compile_plan`` and the graph with its sink in one call."""
    return compile_plan(df, output_mode).graph(sink, parallelism, max_parallelism)


def _line(root: JavaTree) -> list[JavaTree]:
    """The plan's nodes from the root to the source.

    Raises:
        NotSupported: a node is not compiled, or two watermarks or aggregations are stacked.
    """
    nodes = list(preorder(root))
    seen: set[str] = set()
    for node in nodes:
        name = kind(node)
        with refusals.at_node(node):
            if name not in (_ADD if children(node) else _RELATIONS) or len(children(node)) > 1:
                raise refusals.refuse_node(node)
            if name in seen and name in _ONCE:
                raise _ONCE[name].error(name)
            if name == "Aggregate" and any(
                has_metadata(key, SESSION_KEY) for key in elements(node.groupingExpressions())
            ):
                raise refusals.SESSION_WINDOW.error("session_window")
        seen.add(name)
    return nodes


def _add_source(scope: Scope, node: JavaTree, above: list[JavaTree]) -> None:
    columns = columns_to_read(node, above)
    source = create_source(scope.spark, node, columns)
    scope.builder.source(SourceSpec(scope.builder.operator_id("source"), source.describe(), source))
    scope.bind_output(columns)


def _add_project(scope: Scope, node: JavaTree) -> None:
    scope.project(elements(node.projectList()), label(node))


def _add_filter(scope: Scope, node: JavaTree) -> None:
    condition = scope.translate(node.condition())
    builder = scope.builder
    builder.add(
        FilterSpec(
            operator_id=builder.operator_id("filter"),
            name=label(node),
            output_schema=builder.schema,
            condition=condition,
        ),
        keeps=builder.unchanged(),
    )


def _add_expand(scope: Scope, node: JavaTree) -> None:
    output = elements(node.output())
    projections = [elements(projection) for projection in elements(node.projections())]
    scope.builder.add(
        ExpandSpec(
            operator_id=scope.builder.operator_id("expand"),
            name=f"Expand (x{len(projections)})",
            output_schema=arrow_schema(output),
            projections=tuple(tuple(scope.translate(item) for item in projection) for projection in projections),
        )
    )
    scope.bind_output(output)


def _add_watermark(scope: Scope, node: JavaTree) -> None:
    logical = scope.spark._jvm.org.apache.spark.sql.catalyst.plans.logical
    delay_ms = int(logical.EventTimeWatermark.getDelayMs(node.delay()))
    builder = scope.builder
    if builder.behind_exchange:
        raise refusals.WATERMARK_BEHIND_EXCHANGE.error("withWatermark")
    builder.add(
        WatermarkSpec(
            operator_id=builder.operator_id("watermark"),
            name=f"Watermark ({node.eventTime().name()}, {node.delay().toString()})",
            output_schema=builder.schema,
            column=scope.ordinals[expr_id(node.eventTime())],
            delay_us=delay_ms * _MICROS_PER_MILLI,
        ),
        keeps=builder.unchanged(),
    )


def _add_udfs(scope: Scope, node: JavaTree) -> None:
    """Appends one column per call, as Spark's own node does."""
    calls = tuple(udf_call(udf, scope.ordinals, scope.conf) for udf in elements(node.udfs()))
    results = elements(node.resultAttrs())
    scope.builder.add(
        ScalarUdfSpec(
            operator_id=scope.builder.operator_id("udf"),
            name=f"Udf ({', '.join(call.name for call in calls)})",
            output_schema=pa.schema([*scope.builder.schema, *map(arrow_field, results)]),
            calls=calls,
            settings=scope.python_settings,
        ),
        keeps=scope.builder.unchanged(),
    )
    scope.bind_more(results)


def _add_map(scope: Scope, node: JavaTree) -> None:
    """A vectorised function over whole batches; it sees the input's column names."""
    if node.isBarrier() or node.profile().isDefined():
        raise refusals.SCHEDULED_MAP.error(kind(node))
    function = node.functionExpr()
    output = elements(node.output())
    make = MapInArrowSpec if kind(node) == "MapInArrow" else MapInPandasSpec
    scope.builder.add(
        make(
            operator_id=scope.builder.operator_id("map"),
            name=f"{kind(node)} ({function.name()})",
            output_schema=arrow_schema(output),
            function=load_function(function),
            input_schema=scope.builder.schema,
            settings=scope.python_settings,
        )
    )
    scope.bind_output(output)


_ADD: dict[str, Callable[[Scope, JavaTree], None]] = {
    "Project": _add_project,
    "Filter": _add_filter,
    "Expand": _add_expand,
    "EventTimeWatermark": _add_watermark,
    "ArrowEvalPython": _add_udfs,
    "BatchEvalPython": _add_udfs,
    "MapInArrow": _add_map,
    "MapInPandas": _add_map,
    "Aggregate": add_aggregate,
    "Repartition": add_repartition,
    "RepartitionByExpression": add_repartition_by_expression,
}
