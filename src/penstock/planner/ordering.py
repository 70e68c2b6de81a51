"""``orderBy`` of a whole result in complete mode, and ``limit`` of a whole result or of all rows of a stream."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import JavaTree, elements, kind, label
from penstock.model.job_graph import EdgeKind
from penstock.operators.sort import LimitSpec, SortKey, SortSpec
from penstock.operators.stream_limit import StreamLimitSpec
from penstock.planner import unsupported
from penstock.planner.scope import Scope


def add_sort(scope: Scope, node: JavaTree) -> None:
    """Compile ``orderBy`` and ``sortWithinPartitions``, which are equal because there is one partition."""
    builder = scope.builder
    keys = tuple(_key(scope, order) for order in elements(node.order()))
    builder.add(
        SortSpec(operator_id=builder.operator_id("sort"), name=label(node), output_schema=builder.schema, keys=keys),
        keeps=builder.unchanged(),
    )


def _key(scope: Scope, order: JavaTree) -> SortKey:
    expression = scope.translate(order.child())
    if not _is_sortable(expression.data_type):
        raise unsupported.NESTED_SORT_KEY.error(f"sorting by {order.child().toString()}")
    nulls_first = order.nullOrdering().toString() == "NullsFirst"
    return SortKey(expression, order.direction().toString() == "Ascending", nulls_first)


def _is_sortable(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return all(_is_sortable(field.type) for field in data_type)
    return not pa.types.is_nested(data_type)


def add_limit(scope: Scope, node: JavaTree) -> None:
    """Compile a ``GlobalLimit``; ignore the ``LocalLimit`` below it, which only reduces work for Spark.

    In append mode the rows of all epochs are counted, in one subtask.

    Raises:
        NotSupported: in complete mode, the limit is below the aggregation.
    """
    if kind(node) == "LocalLimit":
        return
    builder = scope.builder
    count = int(node.limitExpr().eval(None))
    if scope.mode == "complete":
        if not scope.whole:
            raise unsupported.LIMIT_BELOW_WHOLE.error("limit")
        whole = LimitSpec(
            operator_id=builder.operator_id("limit"), name=label(node), output_schema=builder.schema, count=count
        )
        builder.add(whole, keeps=builder.unchanged())
        return
    builder.exchange(EdgeKind.HASH)
    limit = StreamLimitSpec(
        operator_id=builder.operator_id("stream-limit"), name=label(node), output_schema=builder.schema, count=count
    )
    builder.add(limit, keeps=builder.unchanged())
