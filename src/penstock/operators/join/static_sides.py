"""Static rows that the driver must read before it sends a graph to the slots."""

from __future__ import annotations

from collections.abc import Collection

from penstock.model.job_graph import JobGraph
from penstock.operators.join.static_join import StaticJoinSpec
from penstock.operators.join.static_rows import StaticRows
from penstock.operators.stateful.declaration import StatefulDeclaration


def static_sides(graph: JobGraph, restored_operators: Collection[str] = ()) -> list[StaticRows]:
    """Return the static rows of a graph's operators, in the order of the graph.

    ``restored_operators``: ids of operators that start from a snapshot and therefore need no initial state.
    """
    sides = []
    for spec in (spec for vertex in graph.vertices for spec in vertex.operators):
        if isinstance(spec, StaticJoinSpec):
            sides.append(spec.rows)
        elif isinstance(spec, StatefulDeclaration) and spec.initial is not None:
            sides += [spec.initial.rows] if spec.operator_id not in restored_operators else []
    return sides
