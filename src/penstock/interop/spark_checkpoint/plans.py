"""Compilation of the user's DataFrame to a plan, which is compared with a checkpoint."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.connectors.noop import NoopSink
from penstock.errors import NotSupported
from penstock.model.job_graph import JobGraph, OperatorSpec, SinkSpec, SourceSpec
from penstock.planner.compiler import compile_plan, sink_id

_SINK = SinkSpec(sink_id(0), "Sink", NoopSink())
"""Placeholder for the query's sink: a snapshot without commits has only the id of its sink."""


def graph_of(df: DataFrame, output_mode: str, parallelism: int, max_parallelism: int) -> JobGraph:
    """Compile a DataFrame with one source.

    Raises:
        NotSupported: there are several sources; or see ``compile_plan``.
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
    """Return the only source, see ``graph_of``."""
    [source] = [vertex.source for vertex in graph.vertices if vertex.source is not None]
    return source


def stateful_operators(graph: JobGraph) -> list[tuple[int, OperatorSpec]]:
    """Return the operators with keyed state, and their vertices."""
    return [(vertex.id, spec) for vertex in graph.vertices for spec in vertex.operators if spec.state_schemas]
