"""The user's DataFrame as the plan that a checkpoint is compared with: compiled, not started."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.connectors.noop import NoopSink
from penstock.errors import NotSupported
from penstock.model.job_graph import JobGraph, OperatorSpec, SinkSpec, SourceSpec
from penstock.planner.compiler import compile_plan, sink_id

_SINK = SinkSpec(sink_id(0), "Sink", NoopSink())
"""Stands for whichever the query is started with: a snapshot without commits says nothing of it but its id."""


def graph_of(df: DataFrame, output_mode: str, parallelism: int, max_parallelism: int) -> JobGraph:
    """See ``compile_plan`` for what is raised.

    Raises:
        NotSupported: besides, there are several sources.
    """
    graph = compile_plan(df, output_mode).graph([_SINK], parallelism, max_parallelism)
    sources = [vertex.source.name for vertex in graph.vertices if vertex.source is not None]
    if len(sources) > 1:
        raise NotSupported(
            f"the DataFrame reads {len(sources)} sources ({', '.join(sources)}), and positions come over and go back "
            "of one only; move queries of one source each, or start the one with several of them anew"
        )
    return graph


def source_of(graph: JobGraph) -> SourceSpec:
    """The only one, see ``graph_of``."""
    [source] = [vertex.source for vertex in graph.vertices if vertex.source is not None]
    return source


def with_state(graph: JobGraph) -> list[tuple[int, OperatorSpec]]:
    """The operators that keep keyed state, each with its vertex."""
    return [(vertex.id, spec) for vertex in graph.vertices for spec in vertex.operators if spec.state_schemas]
