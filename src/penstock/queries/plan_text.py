"""A dataflow as text: ``query.explain()``, and ``penstock.explain(df)`` without a query."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.errors import NotSupported
from penstock.model.job_graph import Edge, JobGraph, Vertex
from penstock.planner.compiler import compile_plan
from penstock.spark.errors import pysparks_refusals


@pysparks_refusals()
def explain(df: DataFrame, outputMode: str = "append", extended: bool = False) -> None:  # noqa: N803 - PySpark's name
    """Print the dataflow of a streaming DataFrame: vertices with their operators, their state, and the edges.

    For each operator this includes what it keeps and for how long. If Penstock does not support the plan, print the
    plan node, the reason and the workaround instead. Nothing is started and no file is accessed.

    Args:
        outputMode: output mode of the planned query: ``append``, ``update`` or ``complete``.
        extended: also print the schemas of operators, states and edges.

    Raises:
        ConfigError: not a streaming DataFrame, or an unknown output mode.
    """
    try:
        pipeline = compile_plan(df, outputMode).pipeline
    except NotSupported as error:
        print(f"== Penstock does not run this plan ==\n{error}")
        return
    heading = f"== Penstock dataflow: {_counted(len(pipeline.vertices))}, {outputMode} mode =="
    print("\n".join([heading, *_paragraphs(pipeline.vertices, pipeline.edges, extended)]))


def explain_graph(graph: JobGraph, extended: bool = False) -> str:
    """Return one paragraph per vertex in topological order: its operators in order, and the edges that leave it."""
    heading = f"== Penstock job graph: {_counted(len(graph.vertices))} x {graph.parallelism} slots =="
    return "\n".join([heading, *_paragraphs(graph.vertices, graph.edges, extended)])


def _counted(vertices: int) -> str:
    return "1 vertex" if vertices == 1 else f"{vertices} vertices"


def _paragraphs(vertices: Sequence[Vertex], edges: Sequence[Edge], extended: bool) -> list[str]:
    lines = []
    for vertex in vertices:
        lines += _vertex_lines(vertex, extended)
        lines += [_edge_line(edge, extended) for edge in edges if edge.producer == vertex.id]
    return lines


def _vertex_lines(vertex: Vertex, extended: bool) -> list[str]:
    lines = [f"Vertex {vertex.id}: {vertex.name}"]
    if vertex.source:
        lines.append(f"  {vertex.source.name}  [{vertex.source.operator_id}]  {vertex.source.source.describe()}")
    for operator in vertex.operators:
        lines.append(f"  {operator.name}  [{operator.operator_id}]")
        if operator.keeps:
            lines.append(f"    keeps {operator.keeps}")
        if extended:
            lines.append(f"    out: {', '.join(f'{field.name} {field.type}' for field in operator.output_schema)}")
            for table, schema in operator.state_schemas.items():
                lines.append(f"    state {table}: {', '.join(f'{field.name} {field.type}' for field in schema)}")
    if vertex.sink:
        lines.append(f"  {vertex.sink.name}  [{vertex.sink.operator_id}]  {vertex.sink.sink.describe()}")
    return lines


def _edge_line(edge: Edge, extended: bool) -> str:
    keys = f"({', '.join(edge.schema.field(position).name for position in edge.key_columns)})"
    port = f" of {edge.port}" if edge.port else ""
    line = f"  --{edge.kind.value}{keys if edge.key_columns else port}--> vertex {edge.consumer}"
    return line + (f"  [{', '.join(f'{field.name} {field.type}' for field in edge.schema)}]" if extended else "")
