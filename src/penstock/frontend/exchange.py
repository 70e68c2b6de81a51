"""Repartitioning: the user's own exchanges. The number of partitions is ignored, as parallelism rules.

A whole result (complete mode) stays where it is: behind an exchange a checkpoint could hold a part of it.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.frontend import refusals
from penstock.frontend.catalyst import JavaTree, elements, kind
from penstock.frontend.scope import Scope
from penstock.graph.model import EdgeKind
from penstock.operators.expressions import BoundReference


def add_repartition(scope: Scope, node: JavaTree) -> None:
    """``repartition(n)``; ``coalesce(n)`` is refused."""
    if not node.shuffle():
        raise refusals.COALESCE.error("coalesce")
    if scope.whole:
        return
    scope.builder.exchange(EdgeKind.REBALANCE)


def add_repartition_by_expression(scope: Scope, node: JavaTree) -> None:
    """``repartition(n, columns)``: computed keys travel as columns of their own and are dropped behind the edge."""
    keys = elements(node.partitionExpressions())
    if any(kind(key) == "SortOrder" for key in keys):
        raise refusals.RANGE_PARTITIONING.error("repartitionByRange")
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
