"""Joins of two streams: hash edges on the keys bring both to one operator, which keeps rows until they expire.

Rows expire by Spark's rules (``StreamingSymmetricHashJoinHelper``). If a key is an event time, a row expires when the
watermark has passed it. If the rest of the condition bounds the event times, a row expires when it can find no partner
any more; Spark's own ``StreamingJoinHelper`` computes this bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import (
    JavaTree,
    arrow_type,
    attributes_in,
    children,
    data_type_json,
    elements,
    expr_id,
    is_event_time,
    kind,
    label,
    option,
    preorder,
)
from penstock.functions import BoundReference
from penstock.model.job_graph import EdgeKind
from penstock.operators.join.side_state import ExpiryBound, JoinSide
from penstock.operators.join.stream_join import StreamJoinKind, StreamJoinSpec
from penstock.planner import unsupported
from penstock.planner.aggregation import is_key_type
from penstock.planner.builder import Inlet
from penstock.planner.join_condition import Equality, Sides, all_of, conjuncts_of, reads_only
from penstock.planner.scope import AddTree, BranchPoint, Scope, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEPT = {
    "Inner": (False, False),
    "Cross": (False, False),
    "LeftOuter": (True, False),
    "RightOuter": (False, True),
    "FullOuter": (True, True),
    "LeftSemi": (False, False),
}
"""Spark's join type -> for each side, True if its rows are emitted even without a partner."""

_MICROS_PER_MILLI = 1_000
_DAY_US = 86_400_000_000
_LONGER_DAY_US = 2 * _DAY_US
"""Additional time that rows are kept if a bound has days. Spark counts a day as 24 hours, but a day may have 25, and
the days before and after it are shifted. If a country moves across the date line, the shift is a whole day."""
_MOMENT_MS = 10_000_000_000_000
"""Watermark for which Spark computes the expiry. It is so far from 1970 that no result is negative. Event time is only
added to and subtracted from, so the result moves with the watermark one to one."""


def add_stream_join(scope: Scope, node: JavaTree, add_tree: AddTree, above: Sequence[Step]) -> list[Step]:
    """Compile a ``Join`` of two streams with everything below it. Return the steps above, which come after it.

    Raises:
        NotSupported: there is no equality between the sides, or a join type, expression or type is not supported.
    """
    left, right = children(node)
    with unsupported.at_node(node):
        parts = _taken_apart(scope, node)
    add_tree(scope, left)
    join_id = scope.builder.operator_id("stream-join")
    with unsupported.at_node(node):
        one = _add_side(scope, parts, 0, f"{join_id}/left")
    with scope.builder.input(f"{join_id}/right"):
        add_tree(scope, right)
        with unsupported.at_node(node):
            other = _add_side(scope, parts, 1, f"{join_id}/right")
    with unsupported.at_node(node):
        _add_join(scope, parts, join_id, (one, other))
    return list(above)


@dataclass(frozen=True)
class _Parts:
    """A join's type and condition.

    Attributes:
        own: for each side, the conjuncts that read only this side.
        pairs: all conjuncts other than those and the keys.
    """

    node: JavaTree
    join: str
    keys: list[Equality]
    own: tuple[list[JavaTree], list[JavaTree]]
    pairs: list[JavaTree]

    @property
    def timed_key(self) -> int | None:
        """Index of the first key with the watermark on the left side, else on the right side; None if there is none."""
        for side in (0, 1):
            for number, key in enumerate(self.keys):
                if is_event_time((key.first, key.second)[side]):
                    return number
        return None


@dataclass(frozen=True)
class _Input:
    """A compiled side. The ``branch_point`` does not include the computed keys, which follow the columns."""

    branch_point: BranchPoint
    inlet: Inlet
    side: JoinSide


def _taken_apart(scope: Scope, node: JavaTree) -> _Parts:
    join = kind(node.joinType())
    if join not in _KEPT:
        raise unsupported.STREAM_JOIN_TYPE.error(f"{join} join")
    outputs = [{expr_id(each): at for at, each in enumerate(elements(side.output()))} for side in children(node)]
    sides = Sides(outputs[0], outputs[1], scope.conf)
    found = [(conjunct, sides.equality(conjunct)) for conjunct in conjuncts_of(node)]
    keys = [key for _, key in found if key is not None and is_key_type(arrow_type(key.first))]
    rest = [conjunct for conjunct, key in found if key not in keys]
    if not keys:
        raise unsupported.STREAM_JOIN_KEYS.error(f"{join} join")
    left, right = ([each for each in rest if reads_only(each, side)] for side in outputs)
    return _Parts(node, join, keys, (left, right), [each for each in rest if each not in (*left, *right)])


def _add_side(scope: Scope, parts: _Parts, number: int, exchange_id: str) -> _Input:
    """Add the operators in front of the exchange for the side that was compiled last."""
    if scope.whole:
        raise unsupported.STREAM_JOIN_WHOLE.error(f"{parts.join} join")
    branch_point = scope.branch_point()
    keys = _key_columns(scope, [(key.first, key.second)[number] for key in parts.keys])
    plan = children(parts.node)[number]
    timed = next((each for each in elements(plan.output()) if is_event_time(each)), None) if scope.timed else None
    event_time = None if timed is None else scope.ordinals[expr_id(timed)]
    bound = None
    if scope.timed and parts.timed_key is not None:
        bound = ExpiryBound(keys[parts.timed_key], 0)
    elif event_time is not None:
        offset_us = _offset_us(scope.spark, parts, number, expr_id(timed))
        bound = None if offset_us is None else ExpiryBound(event_time, offset_us)
    schema = scope.builder.schema
    if bound is not None and bound.column not in keys and pa.types.is_struct(schema.field(bound.column).type):
        raise unsupported.STREAM_JOIN_WINDOW.error(f"{parts.join} join")
    side = JoinSide(
        schema=schema,
        width=len(branch_point.expr_ids),
        keys=keys,
        is_preserved=_KEPT[parts.join][number],
        event_time=event_time,
        bound=bound,
        condition=all_of([scope.translate(each) for each in parts.own[number]]) if parts.own[number] else None,
    )
    return _Input(branch_point, Inlet(scope.builder.current_position(), EdgeKind.HASH, keys, exchange_id), side)


def _key_columns(scope: Scope, keys: Sequence[JavaTree]) -> tuple[int, ...]:
    """Return the positions of the keys. Computed keys are appended to the columns."""
    translated = [scope.translate(key) for key in keys]
    computed = [item for item in translated if not isinstance(item, BoundReference)]
    positions = iter(range(len(scope.builder.schema), len(scope.builder.schema) + len(computed)))
    if computed:
        fields = [pa.field(f"__key{number}", item.data_type) for number, item in enumerate(computed)]
        scope.append_columns("Project (join keys)", fields, computed)
    return tuple(item.ordinal if isinstance(item, BoundReference) else next(positions) for item in translated)


def _offset_us(spark: SparkSession, parts: _Parts, number: int, event_time: int) -> int | None:
    """Return the offset from the watermark, in microseconds, at which rows of a side expire; None if they never do.

    A negative offset keeps rows after the watermark has passed them. Only comparisons of the side's plain event time
    with the other side count. Spark also counts others: with "v > 5" of one side it would keep rows forever. With times
    that have no watermark, and with casts to seconds and dates, it would drop rows that still have partners.
    """
    plans = children(parts.node)
    own = {expr_id(each) for each in elements(plans[number].output())}
    bounding = [
        each
        for each in parts.pairs
        if {*map(expr_id, attributes_in(each))} & own == {event_time}
        and not any(kind(part) == "Cast" and attributes_in(part) for part in preorder(each))
    ]
    if not bounding:
        return None
    both, some = java_class(spark, "org.apache.spark.sql.catalyst.expressions.And"), java_class(spark, "scala.Some")
    condition = reduce(lambda one, other: both(one, other), bounding)
    side, other = (plans[which].outputSet() for which in (number, 1 - number))
    until = option(
        java_class(spark, "org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper").getStateValueWatermark(
            side, other, some(condition), some(_MOMENT_MS)
        )
    )
    if until is None:
        return None
    offset_us = (int(until) - _MOMENT_MS) * _MICROS_PER_MILLI
    days = any(_has_days(literal) for each in bounding for literal in preorder(each))
    return offset_us if not days or _is_fixed(spark) else offset_us - _LONGER_DAY_US


def _has_days(expression: JavaTree) -> bool:
    """Return True for an interval of days, whose length depends on the session's time zone."""
    if kind(expression) != "Literal" or "interval" not in data_type_json(expression):
        return False
    value = expression.value()
    return abs(value) >= _DAY_US if isinstance(value, int) else value is not None and int(value.days) != 0


def _is_fixed(spark: SparkSession) -> bool:
    """Return True if all days of the session's time zone have 24 hours."""
    zone = spark._jsparkSession.sessionState().conf().sessionLocalTimeZone()
    rules = java_class(spark, "org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(zone).getRules()
    return bool(rules.isFixedOffset())


def _add_join(scope: Scope, parts: _Parts, join_id: str, inputs: tuple[_Input, _Input]) -> None:
    left, right = inputs
    semi = parts.join == "LeftSemi"
    sides = Sides(_ordinals(left.branch_point), _ordinals(right.branch_point), scope.conf)
    results = [left] if semi else [left, right]
    spec = StreamJoinSpec(
        operator_id=join_id,
        name=label(parts.node),
        output_schema=pa.schema([field for one in results for field in list(one.side.schema)[: one.side.width]]),
        kind=StreamJoinKind.SEMI if semi else StreamJoinKind.PAIRS,
        sides=(left.side, right.side),
        null_safe=tuple(key.null_safe for key in parts.keys),
        condition=sides.pair_condition(parts.pairs),
        parameters=_parameters(scope, parts),
    )
    scope.meet(left.branch_point, [left.inlet, right.inlet])
    # Right rows without a partner have null left columns. Without such rows the left side's partitioning remains.
    scope.builder.add(spec, {} if right.side.is_preserved else {column: column for column in range(left.side.width)})
    scope.bind([identity for one in results for identity in one.branch_point.expr_ids])


def _parameters(scope: Scope, parts: _Parts) -> dict[str, str]:
    """Return the parameters for ``OperatorSpec``. The condition includes the time range of partners."""
    text = scope.definitions.text
    keys = {
        f"key {number}": f"{text(key.first)} {'<=>' if key.null_safe else '='} {text(key.second)}"
        for number, key in enumerate(parts.keys, 1)
    }
    condition = scope.definitions.conjunction([*parts.own[0], *parts.own[1], *parts.pairs])
    return keys | {"join type": parts.join, "condition": condition}


def _ordinals(branch_point: BranchPoint) -> dict[int, int]:
    found: dict[int, int] = {}
    for position, identity in enumerate(branch_point.expr_ids):
        found.setdefault(identity, position)
    return found
