"""Compiler of streaming DataFrames to a JobGraph: checks, Spark's optimizer, then one plan node after the other.

The optimized plan is a line of nodes from the source up to the root; the static sides of joins are not part of it. Each
node adds operators to the current vertex. An exchange ends the vertex::

    Source -> Filter -> Project -> PartialAggregate  ==hash==>  Aggregate -> Project -> Sink

At a union or a join of streams, the lines of all inputs are compiled one after the other. They meet in a new vertex,
which has an edge from each input (``union``, ``stream_join``).

Several outputs are lines with a common beginning (``plan_tree``). The vertex ends where they part. Operators of only
one output run after forward edges, in the same slot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import (
    JavaTree,
    arrow_field,
    arrow_schema,
    children,
    elements,
    expr_id,
    kind,
    label,
)
from penstock.functions.core.conf import SessionConf
from penstock.model.job_graph import JobGraph, SinkSpec, SourceSpec
from penstock.operators.expand import ExpandSpec
from penstock.operators.filter import FilterSpec
from penstock.operators.python.map_function import MapInArrowSpec, MapInPandasSpec
from penstock.operators.python.scalar_udf import ScalarUdfSpec
from penstock.operators.watermark import WatermarkSpec
from penstock.planner import unsupported
from penstock.planner.aggregation import add_aggregate
from penstock.planner.builder import Pipeline
from penstock.planner.checks import check_by_spark, check_dataframe, check_expressions, check_output_mode
from penstock.planner.conf import largest_watermark_rules, python_settings, session_conf
from penstock.planner.deduplication import add_deduplicate
from penstock.planner.exchange import add_repartition, add_repartition_by_expression, watermark_first
from penstock.planner.generate import add_generate
from penstock.planner.group_state import add_group_state
from penstock.planner.marks import analyzed
from penstock.planner.ordering import add_limit, add_sort
from penstock.planner.plan_tree import Segment, optimize_tree, plan_tree
from penstock.planner.python_functions import load_function, udf_call
from penstock.planner.scope import Scope, Step
from penstock.planner.sources import columns_to_read, create_source, fields_to_read
from penstock.planner.stateful import add_event_time_column, add_transform_with_state
from penstock.planner.static_join import add_static_join
from penstock.planner.stream_join import add_stream_join
from penstock.planner.stream_line import stream_line, streams_below
from penstock.planner.union import add_union

_RELATIONS = ("StreamingRelation", "StreamingRelationV2")
_ONCE = {"EventTimeWatermark": unsupported.SECOND_WATERMARK, "Aggregate": unsupported.SECOND_AGGREGATION}
_REPEATED_IN_APPEND = "Aggregate"
_MICROS_PER_MILLI = 1_000


def sink_id(output: int) -> str:
    """Return the operator id of an output's sink."""
    return f"sink-{output}"


@dataclass(frozen=True)
class CompiledPlan:
    """Compiled DataFrames, one output each, without sinks and parallelism.

    Attributes:
        pipeline: vertices and edges without sinks.
        output_modes: output mode of each output.
        analyzed: text of Spark's analyzed plans.
        optimized: text of Spark's optimized plans, from which the operators were made.
    """

    pipeline: Pipeline
    output_modes: tuple[str, ...]
    analyzed: str
    optimized: str

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """Schemas of the rows that reach the sinks, by output."""
        return tuple(end.schema for end in self.pipeline.ends)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the only output."""
        [schema] = self.schemas
        return schema

    def graph(self, sinks: Sequence[SinkSpec], parallelism: int, max_parallelism: int) -> JobGraph:
        """Return the graph with one sink per output; raise ConfigError if two operators have the same id."""
        return self.pipeline.graph(sinks, parallelism, max_parallelism)


def compile_outputs(
    outputs: Sequence[tuple[DataFrame, str]], regexp_max_length: int = SessionConf.regexp_max_length
) -> CompiledPlan:
    """Check and compile streaming DataFrames to one job. Nothing is started and no file is accessed.

    Nodes that the analyzed plans share, from the source on, are compiled once.

    Args:
        outputs: pairs of DataFrame and output mode.
        regexp_max_length: see ``Options``.

    Raises:
        ConfigError: a value is not a streaming DataFrame, an output mode is unknown, there is no common source, a name
            is given twice, or late rows are an output without the operator that drops them.
        NotSupported: a plan has an unsupported part. The message has Spark's plan line and the workaround.
    """
    plans = [_checked(df, output_mode) for df, output_mode in outputs]
    spark = outputs[0][0].sparkSession
    tree = plan_tree(plans)
    optimize_tree(spark, tree)
    conf = replace(session_conf(spark), regexp_max_length=regexp_max_length)
    scope = Scope(spark, conf, python_settings(spark), tree.mode)
    scope.builder.output = tree.owner
    _add_segment(scope, tree, frozenset(), False)
    if largest_watermark_rules(spark):
        scope.builder.share_all_clocks()
    return CompiledPlan(
        scope.builder.build(),
        tuple(mode for _, mode in plans),
        "\n".join(str(plan.treeString()) for plan, _ in plans),
        "\n".join(str(segment.optimized.treeString()) for segment in tree.everywhere),
    )


def compile_plan(df: DataFrame, output_mode: str) -> CompiledPlan:
    """Compile a single DataFrame; see ``compile_outputs``."""
    return compile_outputs([(df, output_mode)])


def _checked(df: DataFrame, output_mode: str) -> tuple[JavaTree, str]:
    check_dataframe(df)
    mode = check_output_mode(output_mode)
    plan = analyzed(df)
    check_expressions(df.sparkSession, plan)
    check_by_spark(df.sparkSession, plan, mode)
    return plan, mode


def _add_segment(scope: Scope, segment: Segment, below: frozenset[str], timed: bool) -> None:
    """Add the segment's own operators, then the segments above it and those over its late rows.

    Args:
        below: kinds of the nodes below.
        timed: ``Scope.timed`` of the segment below.
    """
    is_root = not below
    below |= _check(segment.optimized, below, segment.mode)
    scope.mode, scope.names, scope.whole = segment.mode, segment.names, False
    scope.timed = timed = timed or segment.has_watermark
    scope.kept = len(scope.builder.schema) if segment.late else None
    if is_root:
        _add_tree(scope, segment.optimized)
    else:
        scope.run(_steps(stream_line(segment.optimized)[:-1]))
    late = scope.late
    scope.late = None
    _add_consumers(scope, segment, below, timed)
    for branch in segment.late:
        assert late is not None
        scope.branch(late, branch.owner)
        _add_segment(scope, branch, below, timed)


def _add_consumers(scope: Scope, segment: Segment, below: frozenset[str], timed: bool) -> None:
    """Add the consumers of a segment's rows.

    A single consumer is added to the same vertex, several after forward edges. The first output that ends here has its
    sink in the vertex itself.
    """
    if not segment.outputs and len(segment.above) == 1:
        _add_segment(scope, segment.above[0], below, timed)
        return
    branch_point = scope.branch_point()
    for number, output in enumerate(segment.outputs):
        if number:
            scope.branch(branch_point, output)
        scope.builder.end(output)
    for branch in segment.above:
        scope.branch(branch_point, branch.owner)
        _add_segment(scope, branch, below, timed)


def _check(root: JavaTree, above: Collection[str], mode: str) -> set[str]:
    """Check a plan and return the kinds of its nodes together with ``above``.

    The check ends at the sources or at the leaf that represents the plan below. Static sides are not checked.

    Raises:
        NotSupported: a node is not supported, there are two watermarks in one line, or two aggregations in another mode
            than append.
    """
    seen = {*above}
    streams: list[JavaTree] = []
    for node in stream_line(root):
        name, streams = kind(node), streams_below(node)
        allowed: Collection[str] = _ADD if children(node) else _RELATIONS
        with unsupported.at_node(node):
            if name not in (_ADD_SEVERAL if len(streams) > 1 else allowed):
                raise unsupported.unsupported_node(node)
            if name in seen and name in _ONCE and not (name == _REPEATED_IN_APPEND and mode == "append"):
                raise _ONCE[name].error(name)
        seen.add(name)
    return seen.union(*(_check(stream, seen, mode) for stream in streams))


def _add_tree(scope: Scope, root: JavaTree, on_top: Sequence[Step] = ()) -> None:
    """Compile the plan from its sources up to ``root``, then the steps ``on_top`` in order."""
    *above, last = stream_line(root)
    steps = [*_steps(above), *on_top]
    if len(streams_below(last)) > 1:
        steps = _ADD_SEVERAL[kind(last)](scope, last, _add_tree, steps)
    else:
        with unsupported.at_node(last):
            _add_source(scope, last, above[::-1])
        steps = watermark_first(steps)
    scope.run(steps)


def _steps(above: Sequence[JavaTree]) -> list[Step]:
    """Return the steps for the nodes above a leaf. In ``above`` the nearest node is the last, as in a plan."""
    return [Step(node, _ADD[kind(node)]) for node in reversed(above)]


def _add_source(scope: Scope, node: JavaTree, above: list[JavaTree]) -> None:
    columns = columns_to_read(node, above)
    scope.fields = fields_to_read(node, above) if scope.kept is None else {}
    source = create_source(scope.spark, node, columns, scope.fields)
    scope.builder.source(SourceSpec(scope.operator_id("source", node), source.describe(), source))
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
    for attribute, alternatives in zip(output, zip(*projections, strict=True), strict=True):
        scope.definitions.define(attribute, *alternatives)
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
    marks = java_class(scope.spark, "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark")
    delay_ms = int(marks.getDelayMs(node.delay()))
    builder = scope.builder
    if builder.behind_exchange:
        raise unsupported.WATERMARK_BEHIND_EXCHANGE.error("withWatermark")
    builder.add(
        WatermarkSpec(
            operator_id=builder.operator_id("watermark"),
            name=f"Watermark ({node.eventTime().name()}, {node.delay().toString()})",
            output_schema=builder.schema,
            column=scope.ordinals[expr_id(node.eventTime())],
            delay_us=delay_ms * _MICROS_PER_MILLI,
            parameters={"event time": scope.definitions.columns(node.eventTime())},
        ),
        keeps=builder.unchanged(),
    )
    builder.timed = True


def _add_udfs(scope: Scope, node: JavaTree) -> None:
    """Add an operator that appends one column per call, like Spark's own node."""
    calls = tuple(udf_call(udf, scope.ordinals, scope.conf) for udf in elements(node.udfs()))
    results = elements(node.resultAttrs())
    for attribute, udf in zip(results, elements(node.udfs()), strict=True):
        scope.definitions.define(attribute, udf)
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
    """Add a vectorized function over whole batches. It sees the column names of its input."""
    if node.isBarrier() or node.profile().isDefined():
        raise unsupported.SCHEDULED_MAP.error(kind(node))
    function = node.functionExpr()
    output = elements(node.output())
    make = MapInArrowSpec if kind(node) == "MapInArrow" else MapInPandasSpec
    scope.builder.add(
        make(
            operator_id=scope.operator_id("map", node),
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
    "Generate": add_generate,
    "EventTimeWatermark": _add_watermark,
    "ArrowEvalPython": _add_udfs,
    "BatchEvalPython": _add_udfs,
    "MapInArrow": _add_map,
    "MapInPandas": _add_map,
    "Aggregate": add_aggregate,
    "Deduplicate": add_deduplicate,
    "DeduplicateWithinWatermark": add_deduplicate,
    "TransformWithStateInPySpark": add_transform_with_state,
    "FlatMapGroupsInPandasWithState": add_group_state,
    "UpdateEventTimeWatermarkColumn": add_event_time_column,
    "Join": add_static_join,
    "Repartition": add_repartition,
    "RepartitionByExpression": add_repartition_by_expression,
    "Sort": add_sort,
    "GlobalLimit": add_limit,
    "LocalLimit": add_limit,
}

_ADD_SEVERAL = {"Union": add_union, "Join": add_stream_join}
"""Compilers of nodes with several streams below them."""
