"""Late rows as an output: they are diverted in front of the operator that would drop them."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.model.job_graph import EdgeKind
from penstock.operators.late_rows import LATE_PORT, LateRowsSpec
from penstock.planner.scope import BranchPoint, Scope


def divert_late_rows(scope: Scope, keys: tuple[int, ...], event_time: int) -> None:
    """Send whole rows over the exchange, and divert late rows to a port there.

    Args:
        keys: columns by which the next operator needs its rows partitioned.
        event_time: column that determines if a row is late.
    """
    assert scope.kept is not None
    builder = scope.builder
    if builder.partitioned_by != keys:
        builder.exchange(EdgeKind.HASH, keys)
    builder.add(
        LateRowsSpec(
            operator_id=builder.operator_id("late-rows"),
            name="LateRows",
            output_schema=builder.schema,
            keys=keys,
            event_time=event_time,
            columns=scope.kept,
        ),
        keeps=builder.unchanged(),
    )
    branch_point = scope.branch_point()
    position = replace(
        branch_point.position, schema=pa.schema(list(builder.schema)[: scope.kept]), partitioned_by=None, port=LATE_PORT
    )
    scope.late = BranchPoint(position, branch_point.expr_ids[: scope.kept])
    scope.kept = None
