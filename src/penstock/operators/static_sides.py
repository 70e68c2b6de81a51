"""Which operators of a graph need rows that the driver reads before it ships it."""

from __future__ import annotations

from penstock.graph.model import JobGraph
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.static_join import StaticJoinSpec
from penstock.operators.static_rows import StaticRows


def static_sides(graph: JobGraph) -> list[StaticRows]:
    """In the graph's order."""
    sides = []
    for spec in (spec for vertex in graph.vertices for spec in vertex.operators):
        if isinstance(spec, StaticJoinSpec):
            sides.append(spec.rows)
        elif isinstance(spec, TransformWithStateSpec) and spec.initial is not None:
            sides.append(spec.initial.rows)
    return sides
