"""``union`` and ``unionByName``: the rows of each input come over a separate forward edge into one vertex."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.catalyst.trees import JavaTree, arrow_type, children, elements, kind
from penstock.model.job_graph import EdgeKind
from penstock.planner import unsupported
from penstock.planner.builder import Inlet
from penstock.planner.scope import AddTree, BranchPoint, Scope, Step

_WATERMARK = "EventTimeWatermark"


def add_union(scope: Scope, node: JavaTree, add_tree: AddTree, above: Sequence[Step]) -> list[Step]:
    """Compile a ``Union`` with everything below it. Return the remaining steps above it.

    A watermark is generated where a source is read. So each input runs the steps between the union and a watermark
    above it, and the watermark itself. None of these steps lets other rows affect a row: such steps come after an
    exchange, where a watermark is refused. The sources of all inputs then share one event time.

    Raises:
        NotSupported: an input is static or in complete mode, or columns have different types.
    """
    at = next((number for number, step in enumerate(above) if kind(step.node) == _WATERMARK), -1)
    pushed, behind = above[: at + 1], above[at + 1 :]
    first, *others = children(node)
    since = scope.builder.next_vertex()
    add_tree(scope, first, _input_steps(node, first, pushed))
    union_id = scope.builder.operator_id("union")
    branch_points = [_branch_point(scope, node)]
    for number, child in enumerate(others, 1):
        with scope.builder.input(f"{union_id}/input-{number}"):
            add_tree(scope, child, _input_steps(node, child, pushed))
            branch_points.append(_branch_point(scope, node))
    if pushed:
        scope.builder.share_clock(union_id, since)
    spread = {branch_point.position.partitioned_by for branch_point in branch_points}
    keys = next(iter(spread)) if len(spread) == 1 else None
    scope.meet(
        branch_points[0],
        [
            Inlet(branch_point.position, EdgeKind.FORWARD, keys or (), f"{union_id}/input-{number}")
            for number, branch_point in enumerate(branch_points)
        ],
        "Union",
    )
    return list(behind)


def _input_steps(node: JavaTree, child: JavaTree, pushed: Sequence[Step]) -> list[Step]:
    return [Step(node, partial(_take_names, child=child)), *pushed]


def _take_names(scope: Scope, node: JavaTree, child: JavaTree) -> None:
    """Rename the columns of an input to those of the union, by position."""
    if not child.isStreaming():
        raise unsupported.UNION_WITH_STATIC.error("union")
    inputs, outputs = elements(child.output()), elements(node.output())
    for one, other in zip(inputs, outputs, strict=True):
        if arrow_type(one) != arrow_type(other):
            raise unsupported.UNION_TYPES.error(f"union of {one.toString()} and {other.toString()}")
    scope.rename(inputs, outputs, "Project (columns of the union)")


def _branch_point(scope: Scope, node: JavaTree) -> BranchPoint:
    if scope.whole:
        with unsupported.at_node(node):
            raise unsupported.UNION_WHOLE.error("union")
    return scope.branch_point()
