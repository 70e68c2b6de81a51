"""``applyInPandasWithState``: the operator of ``transformWithState``, its processor calls the user's function."""

from __future__ import annotations

import json

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from penstock.frontend import refusals
from penstock.frontend.aggregation import is_key_type
from penstock.frontend.catalyst import JavaTree, arrow_schema, arrow_type, children, elements, is_event_time, kind
from penstock.frontend.functions import load_function
from penstock.frontend.scope import Scope
from penstock.frontend.stateful import declared_state, needed_once
from penstock.graph.model import EdgeKind
from penstock.operators.stateful.group_state import GroupStateProcessor, Shipped
from penstock.operators.stateful.spec import TransformWithStateSpec
from penstock.operators.stateful.variables import TimeMode

_TIMEOUTS = {
    "NoTimeout": GroupStateTimeout.NoTimeout,
    "ProcessingTimeTimeout": GroupStateTimeout.ProcessingTimeTimeout,
    "EventTimeTimeout": GroupStateTimeout.EventTimeTimeout,
}
"""Catalyst's objects."""


def add_group_state(scope: Scope, node: JavaTree) -> None:
    """Compile a ``FlatMapGroupsInPandasWithState`` node.

    Raises:
        NotSupported: the type of a key or of the state is refused.
    """
    builder = scope.builder
    grouping = elements(node.groupingAttributes())
    arguments = children(node.functionExpr())
    for attribute in grouping:
        if not is_key_type(arrow_type(attribute), arrays=False):
            raise refusals.NESTED_KEY.error(f"grouping by {attribute.name()}")
    positions = needed_once(scope, [*grouping, *arguments])
    keys, data = tuple(positions[: len(grouping)]), tuple(positions[len(grouping) :])
    event_times = [at for at, one in zip(positions, [*grouping, *arguments], strict=True) if is_event_time(one)]
    timeout = _TIMEOUTS[kind(node.timeout())]
    by_event_time = timeout == GroupStateTimeout.EventTimeTimeout
    time_mode = TimeMode.EVENT_TIME if by_event_time else TimeMode.PROCESSING_TIME
    function = load_function(node.functionExpr())
    schema = StructType.fromJson(json.loads(node.stateType().json()))
    columns = [str(attribute.name()) for attribute in arguments]
    processor = GroupStateProcessor(function, schema, timeout, bool(event_times), columns)
    pickled = CloudPickleSerializer().dumps((Shipped(processor).call,))  # before ``init`` gives it a handle
    operator_id = scope.operator_id("group-state", node)
    name = f"ApplyInPandasWithState ({node.functionExpr().name()})"
    if builder.partitioned_by != keys:
        builder.exchange(EdgeKind.HASH, keys)
    builder.add(
        TransformWithStateSpec(
            operator_id=operator_id,
            name=name,
            output_schema=arrow_schema(elements(node.output())),
            input_schema=builder.schema,
            keys=keys,
            data=data,
            pickled=pickled,
            pandas=True,
            narrow=True,
            time_mode=time_mode,
            variables=declared_state(scope.spark, processor, time_mode, f"{operator_id} ({name})"),
            event_time=event_times[0] if event_times and by_event_time else None,
            settings=scope.python_settings,
        )
    )
    scope.bind_output(elements(node.output()))
