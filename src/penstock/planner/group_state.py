"""``applyInPandasWithState``: the operator of ``transformWithState`` whose processor calls the user's function."""

from __future__ import annotations

import json

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from penstock.catalyst.trees import JavaTree, children, elements, kind
from penstock.operators.stateful.declaration import RowForm
from penstock.operators.stateful.group_state import GroupStateProcessor, PickledProcessor
from penstock.operators.stateful.variables import TimeMode
from penstock.planner.python_functions import load_function
from penstock.planner.scope import Scope
from penstock.planner.stateful import add_processor, grouped_columns

_TIMEOUTS = {
    "NoTimeout": GroupStateTimeout.NoTimeout,
    "ProcessingTimeTimeout": GroupStateTimeout.ProcessingTimeTimeout,
    "EventTimeTimeout": GroupStateTimeout.EventTimeTimeout,
}
"""Time-outs by the names of Catalyst's objects."""


def add_group_state(scope: Scope, node: JavaTree) -> None:
    """Compile a ``FlatMapGroupsInPandasWithState`` node.

    Raises:
        NotSupported: the type of a key or of the state is not supported.
    """
    grouping, arguments = elements(node.groupingAttributes()), children(node.functionExpr())
    columns = grouped_columns(scope, [*grouping, *arguments], len(grouping))
    timeout = _TIMEOUTS[kind(node.timeout())]
    function = load_function(node.functionExpr())
    schema = StructType.fromJson(json.loads(node.stateType().json()))
    names = [str(attribute.name()) for attribute in arguments]
    processor = GroupStateProcessor(function, schema, timeout, columns.event_time is not None, names)
    by_event_time = timeout == GroupStateTimeout.EventTimeTimeout
    add_processor(
        scope,
        node,
        columns,
        ("group-state", f"ApplyInPandasWithState ({node.functionExpr().name()})"),
        processor,
        pickled=CloudPickleSerializer().dumps((PickledProcessor(processor).call,)),
        form=RowForm.NARROW_FRAMES,
        time_mode=TimeMode.EVENT_TIME if by_event_time else TimeMode.PROCESSING_TIME,
        parameters={"timeout": kind(node.timeout())},
    )
