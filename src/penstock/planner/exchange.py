"""Repartitioning: exchanges that the user requests. The number of partitions is ignored; the parallelism applies.

The whole result of complete mode is not repartitioned: after an exchange a checkpoint could contain a part of it. An
exchange below ``withWatermark`` is moved after it, because watermarks are generated at the source.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, elements, kind
from penstock.functions import BoundReference
from penstock.model.job_graph import EdgeKind
from penstock.planner import unsupported
from penstock.planner.scope import Scope, Step

_WATERMARK = "EventTimeWatermark"
_BY_COLUMNS = "RepartitionByExpression"
_EXCHANGES = ("Repartition", _BY_COLUMNS)
_COLUMNS_STAY = frozenset({"Project", "Filter", "ArrowEvalPython", "BatchEvalPython"})
"""Nodes that process each row independently of its subtask, and whose dropped columns can be kept."""
_ROW_BY_ROW = _COLUMNS_STAY | {"Expand", "Generate", "MapInArrow", "MapInPandas", "Join", "Union"}


def watermark_first(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with the watermark, and the steps that it needs, moved in front of the repartitioning below it.

    Rows do not depend on their subtask, and Spark's watermark covers all rows together. So only the subtask that
    processes a row changes. Steps that cannot be moved stay.
    """
    at = next((number for number, step in enumerate(steps) if kind(step.node) == _WATERMARK), 0)
    exchanges = [number for number, step in enumerate(steps[:at]) if kind(step.node) in _EXCHANGES]
    if not exchanges:
        return [*steps]
    first, last, watermark = exchanges[0], steps[exchanges[-1]], steps[at]
    between = [step for step in steps[first:at] if kind(step.node) not in _EXCHANGES]
    by_columns = kind(last.node) == _BY_COLUMNS and last.node.partitionExpressions().nonEmpty()
    if not {kind(step.node) for step in between} <= (_COLUMNS_STAY if by_columns else _ROW_BY_ROW):
        return [*steps]
    moved = [*between, watermark, last]
    if by_columns:
        moved = [Step(last.node, _keep_columns), *moved, Step(watermark.node, _drop_columns)]
    return [*steps[:first], *moved, *steps[at + 1 :]]


def _keep_columns(scope: Scope, node: JavaTree) -> None:
    """Keep all columns in later projections until ``_drop_columns``, because the exchange needs its keys."""
    scope.kept = len(scope.builder.schema)


def _drop_columns(scope: Scope, node: JavaTree) -> None:
    scope.kept = None
    scope.project(elements(node.output()), "Project (drop partition keys)")


def add_repartition(scope: Scope, node: JavaTree) -> None:
    """Compile ``repartition(n)``; refuse ``coalesce(n)``."""
    if not node.shuffle():
        raise unsupported.COALESCE.error("coalesce")
    if scope.whole:
        return
    scope.builder.exchange(EdgeKind.REBALANCE)


def add_repartition_by_expression(scope: Scope, node: JavaTree) -> None:
    """Compile ``repartition(n, columns)``. Computed keys become columns that are dropped after the edge."""
    keys = elements(node.partitionExpressions())
    if any(kind(key) == "SortOrder" for key in keys):
        raise unsupported.RANGE_PARTITIONING.error("repartitionByRange")
    if scope.whole:
        return
    if not keys:
        scope.builder.exchange(EdgeKind.REBALANCE)
        return
    before = scope.builder.schema
    passed = [BoundReference(position, field.type) for position, field in enumerate(before)]
    translated = [scope.translate(key) for key in keys]
    computed = [item for item in translated if not isinstance(item, BoundReference)]
    if computed:
        fields = [pa.field(f"__key{position}", item.data_type) for position, item in enumerate(computed)]
        scope.add_project("Project (partition keys)", [*before, *fields], [*passed, *computed])
    positions = iter(range(len(before), len(before) + len(computed)))
    columns = tuple(item.ordinal if isinstance(item, BoundReference) else next(positions) for item in translated)
    scope.builder.exchange(EdgeKind.HASH, columns)
    if computed:
        scope.add_project("Project (drop partition keys)", list(before), passed)
