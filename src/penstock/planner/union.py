"""``union`` and ``unionByName``: each input's rows come over a forward edge of its own, into one vertex."""

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
    """Compile a ``Union`` with everything below it; gives back what is left of the steps above.

    A watermark is generated where a source is read. So what is between the union and a watermark above it is run by
    each input, the watermark included: nothing of it changes rows by what other rows there are (what does comes behind
    an exchange, where a watermark is refused). The inputs' sources then have their event time in common.

    Raises:
        NotSupported: a static input, one in complete mode, or columns of other types.
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
    """An input's columns become the union's: they match by position."""
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
