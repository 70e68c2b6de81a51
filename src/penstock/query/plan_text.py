"""A JobGraph as text, for ``query.explain()``."""

from __future__ import annotations

from penstock.graph.model import Edge, JobGraph, Vertex


def explain_graph(graph: JobGraph, extended: bool = False) -> str:
    """One paragraph per vertex in topological order: its operators, first to last, and the edges that leave it."""
    lines = [f"== Penstock job graph: {len(graph.vertices)} vertices x {graph.parallelism} slots =="]
    for vertex in graph.vertices:
        lines += _vertex_lines(vertex, extended)
        lines += [_edge_line(edge, extended) for edge in graph.outputs(vertex.id)]
    return "\n".join(lines)


def _vertex_lines(vertex: Vertex, extended: bool) -> list[str]:
    lines = [f"Vertex {vertex.id}: {vertex.name}"]
    if vertex.source:
        lines.append(f"  {vertex.source.name}  [{vertex.source.operator_id}]  {vertex.source.source.describe()}")
    for operator in vertex.operators:
        lines.append(f"  {operator.name}  [{operator.operator_id}]")
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
