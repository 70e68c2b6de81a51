"""Several analyzed plans as one tree: shared nodes occur once, from the source up, then the nodes of each output.

Plans of DataFrames that are derived from one DataFrame share its nodes and attribute ids. The tree is made from
analyzed plans, because the optimizer would move filters and columns of one output into the shared part. Then each
segment is optimized separately, over a leaf that represents the segment below (``optimize_tree``). Columns of the leaf
that no segment above needs are pruned from the segment below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.catalyst.jvm import java_class, java_seq
from penstock.catalyst.trees import JavaTree, children, elements, expr_id, kind, preorder
from penstock.errors import ConfigError
from penstock.planner import unsupported
from penstock.planner.conf import optimize
from penstock.planner.marks import is_late_of, late_of, name_key, names_in
from penstock.planner.pruning import needed_columns
from penstock.planner.stream_line import put_on, stream_line, streams_below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WATERMARK = "EventTimeWatermark"
_MEETING = ("Union", "Join")
"""Nodes at which streams meet. Outputs may share them."""


@dataclass(frozen=True)
class Line:
    """Analyzed plan of one output: its nodes from the source up.

    If several streams meet, the first node is the union or join where they do, and includes everything below it.
    """

    output: int
    mode: str
    nodes: tuple[JavaTree, ...]


@dataclass
class Segment:
    """Nodes that the same outputs share.

    Attributes:
        nodes: analyzed nodes, from the source's side up.
        mode: output mode of the first of these outputs. If it aggregates, all of them have this mode.
        outputs: outputs whose rows are the rows of the top node.
        above: segments that read the rows of the top node.
        late: segments over the late rows that the first node drops, which is an aggregation or deduplication.
        watermark_nodes: watermark of one segment above, with the projections below it. These nodes run here, with the
            source. They add columns and drop none.
        reads_watermark: True for the segment above that the watermark belongs to. The others do not get the columns of
            ``watermark_nodes``.
        names: names of nodes of this segment, by ``name_key``.
        optimized: root of the optimized plan. Its leaf is the source, or represents the segment below.
    """

    nodes: list[JavaTree]
    mode: str
    outputs: list[int] = field(default_factory=list)
    above: list[Segment] = field(default_factory=list)
    late: list[Segment] = field(default_factory=list)
    watermark_nodes: list[JavaTree] = field(default_factory=list)
    reads_watermark: bool = False
    names: dict[str, str] = field(default_factory=dict)
    optimized: JavaTree = None

    @property
    def owner(self) -> int:
        """Number of the first output that uses this segment. New outputs at the end do not change it."""
        return min([*self.outputs, *(segment.owner for segment in self.above)])

    @property
    def has_watermark(self) -> bool:
        """True if ``withWatermark`` is in this segment of its plans."""
        return self.reads_watermark or any(kind(node) == _WATERMARK for node in self.all_nodes)

    @property
    def all_nodes(self) -> list[JavaTree]:
        """Nodes of the segment, including those below its first node if streams meet there."""
        below = list(preorder(self.nodes[0])) if self.nodes and len(streams_below(self.nodes[0])) > 1 else []
        return [*below[:0:-1], *self.nodes]

    @property
    def everywhere(self) -> list[Segment]:
        """This segment and all segments that depend on it."""
        return [self, *(one for part in (*self.above, *self.late) for one in part.everywhere)]


def plan_tree(plans: Sequence[tuple[JavaTree, str]]) -> Segment:
    """Return the tree of these analyzed plans, each given with its output mode.

    Raises:
        NotSupported: an output reads a union or join of streams that not all outputs share.
        ConfigError: the plans have no common source, late rows are an output without the operator that drops them, one
            operator has two names, or two operators have the same name.
    """
    if len(plans) == 1:
        return _alone(*plans[0])
    lines = [Line(output, mode, _line(plan)) for output, (plan, mode) in enumerate(plans)]
    marks = {line.output: mark for line in lines if (mark := _late_mark(line)) is not None}
    main = [line for line in lines if line.output not in marks]
    if not main:
        raise _late_alone()
    late_operators = [late_of(lines[output].nodes[at]) or "" for output, at in marks.items()]
    for line in main[1:]:
        if not line.nodes[0].equals(main[0].nodes[0]):
            for meeting in (node for one in (main[0], line) if children(node := one.nodes[0])):
                with unsupported.at_node(meeting):
                    raise unsupported.OUTPUTS_OF_SEVERAL_STREAMS.error(f"outputs {main[0].output} and {line.output}")
            raise ConfigError(
                f"outputs {main[0].output} and {line.output} have no source in common: derive both from one DataFrame, "
                "or start a query for each"
            )
    root = _segment(main, 0, late_operators)
    for output, at in marks.items():
        _attach_late(root, lines[output], at)
    _move_watermark(root)
    _give_names(root, plans)
    return root


def _alone(plan: JavaTree, mode: str) -> Segment:
    """Return the segment of a single output. Its analyzed plan need not be a line, only its optimized one."""
    root = Segment(list(preorder(plan))[::-1], mode, [0])
    if any(late_of(node) is not None for node in root.nodes):
        raise _late_alone()
    _give_names(root, [(plan, mode)])
    return root


def _line(plan: JavaTree) -> tuple[JavaTree, ...]:
    nodes = stream_line(plan)
    if children(nodes[-1]) and kind(nodes[-1]) not in _MEETING:
        with unsupported.at_node(nodes[-1]):
            raise unsupported.unsupported_node(nodes[-1])
    return tuple(reversed(nodes))


def _late_mark(line: Line) -> int | None:
    return next((at for at, node in enumerate(line.nodes) if late_of(node) is not None), None)


def _late_alone() -> ConfigError:
    return ConfigError(
        "late rows are those that an aggregation or deduplication drops, so it has to run in the same query: "
        "penstock.start([writer of df, writer of penstock.late(df)])"
    )


def _segment(lines: Sequence[Line], begin: int, late_operators: Sequence[str]) -> Segment:
    """Return the segment that these lines share from node ``begin`` on, with the segments above it.

    An operator whose late rows are an output begins a segment, because its input rows must stay whole. An aggregation
    that outputs need in two output modes is not shared. Neither is one in complete mode: the whole result must reach
    its sink within the epoch, without an edge on which a checkpoint could split it.
    """
    end = begin + 1
    while all(len(line.nodes) > end for line in lines) and _together(lines, end):
        if _cut(lines[0].nodes[end], late_operators):
            break
        end += 1
    segment = Segment(list(lines[0].nodes[begin:end]), lines[0].mode)
    left = []
    for line in lines:
        if len(line.nodes) == end:
            segment.outputs.append(line.output)
        else:
            left.append(line)
    while left:
        group = [line for line in left if _together([left[0], line], end)]
        left = [line for line in left if line not in group]
        segment.above.append(_segment(group, end, late_operators))
    return segment


def _together(lines: Sequence[Line], at: int) -> bool:
    """Return True if the nodes of all lines at this index are the same."""
    first = lines[0]
    aggregates = kind(first.nodes[at]) == "Aggregate"
    return all(
        line.nodes[at].equals(first.nodes[at]) and (not aggregates or line.mode == first.mode != "complete")
        for line in lines[1:]
    )


def _cut(node: JavaTree, late_operators: Sequence[str]) -> bool:
    return any(is_late_of(node, one) for one in late_operators)


def _attach_late(root: Segment, line: Line, at: int) -> None:
    """Attach the part of a line from its mark on to the segment that begins with the operator of the mark."""
    meant = late_of(line.nodes[at]) or ""
    for segment in root.everywhere:
        first = segment.nodes[0]
        if is_late_of(first, meant):
            segment.late.append(Segment(list(line.nodes[at:]), line.mode, [line.output]))
            return
    raise _late_alone()


def _move_watermark(root: Segment) -> None:
    """Move a watermark from above the first branch to the source, with the projections that compute its column.

    A watermark changes no row. Outputs that do not need it ignore the watermark and the added columns.
    """
    if root.has_watermark:
        return
    for branch in root.above:
        kinds = [kind(node) for node in branch.nodes]
        at = kinds.index(_WATERMARK) if _WATERMARK in kinds else None
        if at is not None and {*kinds[:at]} <= {"Project", "SubqueryAlias"}:
            root.watermark_nodes, branch.nodes = branch.nodes[: at + 1], branch.nodes[at + 1 :]
            branch.reads_watermark = True
            root.above += [Segment([], root.mode, [output]) for output in root.outputs]
            root.outputs = []
            return


def _give_names(root: Segment, plans: Sequence[tuple[JavaTree, str]]) -> None:
    nodes = [(node, segment) for segment in root.everywhere for node in segment.all_nodes]
    taken: dict[str, JavaTree] = {}
    for plan, _ in plans:
        for target, name in names_in(plan):
            if not target.equals(taken.get(name, target)):
                raise ConfigError(f"two operators are called {name!r}; give one of them another name")
            taken[name] = target
            for segment in (segment for node, segment in nodes if node.equals(target)):
                given = segment.names.setdefault(name_key(target), name)
                if given != name:
                    raise ConfigError(f"one operator is called {given!r} and {name!r}; take one name")


def optimize_tree(spark: SparkSession, root: Segment) -> None:
    """Optimize every segment, from the outputs down, because the segments above determine the columns needed below."""
    _optimize(spark, root, None)


def _optimize(spark: SparkSession, segment: Segment, leaf: JavaTree | None) -> list[JavaTree]:
    """Optimize a segment and those above it, and return the leaf's attributes that they need.

    ``leaf``: represents the segment below; None if the plan has its own leaf.
    """
    tree = segment.nodes[-1] if leaf is None else _over(spark, leaf, segment.nodes)
    plain: list[JavaTree] = elements(tree.output())
    for node in segment.watermark_nodes:
        tree = _widened(spark, tree, node)
    output: list[JavaTree] = elements(tree.output())
    needed: set[int] = set()
    for above in segment.above:
        read = elements(segment.watermark_nodes[-1].output()) if above.reads_watermark else plain
        for branch in (above, *above.late):
            needed.update(map(expr_id, _optimize(spark, branch, _stand_in(spark, output, read))))
    pruned = [attribute for attribute in output if expr_id(attribute) in needed]
    if not segment.outputs and len(pruned) < len(output):
        tree = _project(spark, pruned, tree)
    segment.optimized = optimize(spark, tree)
    *nodes, last = stream_line(segment.optimized)
    return needed_columns(elements(last.output()), nodes[::-1])


def _widened(spark: SparkSession, tree: JavaTree, node: JavaTree) -> JavaTree:
    """Add a watermark node or its projection to the plan, and keep all columns of the plan."""
    if kind(node) == "SubqueryAlias":
        return tree
    if kind(node) != "Project":
        return _over(spark, tree, [node])
    existing_ids = {expr_id(attribute) for attribute in elements(tree.output())}
    more = [named for named in elements(node.projectList()) if expr_id(named) not in existing_ids]
    return _project(spark, [*elements(tree.output()), *more], tree)


def _over(spark: SparkSession, leaf: JavaTree, nodes: Sequence[JavaTree]) -> JavaTree:
    tree = leaf
    for node in nodes:
        tree = put_on(spark, node, tree)
    return tree


def _stand_in(spark: SparkSession, output: Sequence[JavaTree], read: Sequence[JavaTree]) -> JavaTree:
    """Return a leaf with the attributes ``output``, as a streaming source: the optimizer knows nothing about its rows.

    If the plan above may use only the attributes ``read``, a projection is added.
    """
    relation = spark.readStream.format("rate").load()._jdf.queryExecution().analyzed()
    fields = {str(name): getattr(relation, str(name))() for name in elements(relation.productElementNames().toSeq())}
    leaf = relation.copy(*(fields | {"output": java_seq(spark, output)}).values())
    return leaf if len(read) == len(output) else _project(spark, read, leaf)


def _project(spark: SparkSession, named: Sequence[JavaTree], tree: JavaTree) -> JavaTree:
    return java_class(spark, "org.apache.spark.sql.catalyst.plans.logical.Project")(java_seq(spark, named), tree)
