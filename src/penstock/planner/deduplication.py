"""``dropDuplicates`` and ``dropDuplicatesWithinWatermark``: the first row of each key passes."""

from __future__ import annotations

import pyarrow as pa

from penstock.catalyst.trees import (
    WATERMARK_KEY,
    JavaTree,
    arrow_type,
    elements,
    expr_id,
    is_event_time,
    kind,
    label,
)
from penstock.model.job_graph import EdgeKind
from penstock.operators.deduplicate import DeduplicateSpec
from penstock.planner import unsupported
from penstock.planner.aggregation import is_key_type, key_parameters
from penstock.planner.late_rows import divert_late_rows
from penstock.planner.scope import Scope

_MICROS_PER_MILLI = 1_000


def add_deduplicate(scope: Scope, node: JavaTree) -> None:
    """Compile a ``Deduplicate`` or ``DeduplicateWithinWatermark`` node.

    The column that carries the watermark decides which rows are late, if it is still in the plan. It need not be a key.

    Raises:
        NotSupported: there are no keys, the type of a key is not supported, the input is an aggregation in complete
            mode, the event time is not unique, or it is a window (``dropDuplicatesWithinWatermark``).
    """
    if scope.whole:
        raise unsupported.DEDUPLICATE_WHOLE.error(kind(node))
    keys = elements(node.keys())
    if not keys:
        raise unsupported.DEDUPLICATE_NOTHING.error(kind(node))
    for key in keys:
        if not is_key_type(arrow_type(key)):
            raise unsupported.NESTED_KEY.error(f"dropping duplicates by {key.toString()}")
    event_time = _event_time(node) if scope.timed else None
    parameters = key_parameters(scope, keys)
    if scope.kept is not None:
        if event_time is None:
            raise unsupported.LATE_WITHOUT_WATERMARK.error("penstock.late")
        divert_late_rows(scope, _positions(scope, keys), scope.ordinals[expr_id(event_time)])
        scope.project(elements(node.child().output()), "Project (deduplication input)")
    builder = scope.builder
    positions = _positions(scope, keys)
    if builder.partitioned_by != positions:
        builder.exchange(EdgeKind.HASH, positions)
    builder.add(
        DeduplicateSpec(
            operator_id=scope.operator_id("deduplicate", node),
            name=label(node),
            output_schema=builder.schema,
            keys=positions,
            event_time=None if event_time is None else scope.ordinals[expr_id(event_time)],
            delay_us=_delay_us(node, event_time),
            parameters=parameters,
        ),
        keeps=builder.unchanged(),
    )


def _positions(scope: Scope, keys: list[JavaTree]) -> tuple[int, ...]:
    return tuple(scope.ordinals[expr_id(key)] for key in keys)


def _event_time(node: JavaTree) -> JavaTree | None:
    """Return the input column that carries the watermark.

    As in Spark, only columns of the optimized plan count. It does not have columns that no node reads.
    """
    found = {expr_id(attribute): attribute for attribute in elements(node.child().output()) if is_event_time(attribute)}
    if len(found) > 1:
        raise unsupported.DEDUPLICATE_EVENT_TIMES.error(kind(node))
    return next(iter(found.values()), None)


def _delay_us(node: JavaTree, event_time: JavaTree | None) -> int | None:
    if kind(node) != "DeduplicateWithinWatermark":
        return None
    assert event_time is not None  # Spark's own check requires a watermark
    if pa.types.is_struct(arrow_type(event_time)):
        raise unsupported.DEDUPLICATE_WITHIN_WINDOW.error(f"{kind(node)} by {event_time.toString()}")
    return int(event_time.metadata().getLong(WATERMARK_KEY)) * _MICROS_PER_MILLI
