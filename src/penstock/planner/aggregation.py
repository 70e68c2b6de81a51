"""``groupBy(...).agg(...)``: a partial aggregation per batch, a hash exchange on the keys, the final aggregation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from penstock.catalyst.jvm import java_class
from penstock.catalyst.trees import (
    SESSION_KEY,
    JavaTree,
    elements,
    expr_id,
    has_metadata,
    is_event_time,
    kind,
    label,
    unaliased,
)
from penstock.functions import BoundReference, Expression
from penstock.model.job_graph import EdgeKind
from penstock.operators.aggregate.calls import AggregateCall, partial_schema
from penstock.operators.aggregate.distinct_arguments import DistinctArgumentsSpec
from penstock.operators.aggregate.final import EventTimeKey, FinalAggregateSpec
from penstock.operators.aggregate.partial import PartialAggregateSpec
from penstock.operators.aggregate.session import SessionAggregateSpec
from penstock.planner import unsupported
from penstock.planner.aggregate_functions import distinct_arguments, translate_call
from penstock.planner.late_rows import divert_late_rows
from penstock.planner.panes import by_panes
from penstock.planner.scope import Scope

_REWRITTEN = "gid"
"""Key that Spark's ``RewriteDistinctAggregates`` adds: it says which of several DISTINCT functions a row is for."""


def add_aggregate(scope: Scope, node: JavaTree) -> None:
    """Compile an ``Aggregate`` node.

    Spark's own ``PhysicalAggregation`` splits it into keys, distinct aggregate functions, and results over both.

    Raises:
        NotSupported: an aggregate function or the type of a key is not supported.
    """
    planned = java_class(scope.spark, "org.apache.spark.sql.catalyst.planning.PhysicalAggregation").unapply(node).get()
    grouping, functions, results = elements(planned._1()), elements(planned._2()), elements(planned._3())
    parameters = key_parameters(scope, [unaliased(named) for named in grouping]) | {"output mode": scope.mode}
    argument_texts = tuple(map(scope.definitions.text, functions))
    inputs = _Inputs()
    for named in grouping:
        inputs.add(str(named.name()), _key(scope, named))
    session = _session_key(node, grouping)
    in_session = session is not None
    calls = tuple(translate_call(scope, inputs.find_or_add, function, in_session) for function in functions)
    spread = [index for index in range(len(grouping)) if index != session]
    event_time = None if scope.mode == "complete" else _event_time_key(grouping)  # no group closes, so no row is late
    if scope.kept is not None:
        _divert_late_rows(scope, inputs, event_time, spread)
    distinct = () if in_session else _distinct_arguments(scope, inputs, functions)
    positions = inputs.project(scope)
    calls = tuple(call.remapped(positions.__getitem__) for call in calls)
    keys = tuple(positions[: len(grouping)])
    if distinct:
        calls = _add_distinct(
            scope, keys, tuple(positions[index] for index in distinct), event_time, functions, calls, parameters
        )
    parameters |= _functions(scope, functions)
    _add_operators(scope, node, keys, calls, event_time, session, parameters, argument_texts)
    scope.bind([*map(expr_id, grouping), *(int(function.resultId().id()) for function in functions)])
    scope.project(results, "Project (aggregation result)")


class _Inputs:
    """The columns that the partial aggregation reads: first the keys, then arguments that are not keys."""

    def __init__(self) -> None:
        self._fields: list[pa.Field] = []
        self._expressions: list[Expression] = []

    def add(self, name: str, expression: Expression) -> int:
        """Add a new column and return its position."""
        taken = {field.name for field in self._fields}
        unique = next(text for text in (name, *(f"{name}_{n}" for n in range(len(taken)))) if text not in taken)
        self._fields.append(pa.field(unique, expression.data_type))
        self._expressions.append(expression)
        return len(self._fields) - 1

    def find_or_add(self, name: str, expression: Expression) -> int:
        """Return the position of a column as ``add`` does; a plain column is added only once."""
        if isinstance(expression, BoundReference):
            for position, added in enumerate(self._expressions):
                if isinstance(added, BoundReference) and added.ordinal == expression.ordinal:
                    return position
        return self.add(name, expression)

    def append(self, scope: Scope) -> list[int]:
        """Append the computed columns to the current ones and return the positions of all."""
        before = len(scope.builder.schema)
        computed = [n for n, item in enumerate(self._expressions) if not isinstance(item, BoundReference)]
        if computed:
            fields, expressions = ([items[n] for n in computed] for items in (self._fields, self._expressions))
            scope.append_columns("Project (aggregation input)", fields, expressions)
        for position, number in enumerate(computed, before):
            self._expressions[number] = BoundReference(position, self._fields[number].type)
        return [item.ordinal for item in self._expressions if isinstance(item, BoundReference)]

    def project(self, scope: Scope) -> list[int]:
        """Return the positions of the columns.

        A projection computes them, unless all of them exist already and their names are distinct.
        """
        present = [item.ordinal for item in self._expressions if isinstance(item, BoundReference)]
        names = [scope.builder.schema.field(ordinal).name for ordinal in present]
        if len(present) == len(self._expressions) and len({*names}) == len(names):
            return present
        scope.add_project("Project (aggregation input)", self._fields, self._expressions)
        return list(range(len(self._fields)))


def _divert_late_rows(scope: Scope, inputs: _Inputs, event_time: EventTimeKey | None, spread: Sequence[int]) -> None:
    """Send whole rows over the exchange and divert late rows there, before the partial aggregation.

    Args:
        spread: indices of the keys by which rows are partitioned.
    """
    if event_time is None:
        raise unsupported.LATE_WITHOUT_EVENT_TIME.error("penstock.late")
    columns = inputs.append(scope)
    divert_late_rows(scope, tuple(columns[index] for index in spread), columns[event_time.column])


def key_parameters(scope: Scope, keys: Sequence[JavaTree]) -> dict[str, str]:
    """Return the texts of a state's keys for ``OperatorSpec.parameters``."""
    return {f"key {number}": scope.definitions.text(key) for number, key in enumerate(keys, 1)}


def _functions(scope: Scope, functions: Sequence[JavaTree]) -> dict[str, str]:
    return {f"function {number}": scope.definitions.function(one) for number, one in enumerate(functions, 1)}


def _key(scope: Scope, named: JavaTree) -> Expression:
    expression = scope.translate(unaliased(named))
    if not is_key_type(expression.data_type):
        raise unsupported.NESTED_KEY.error(f"grouping by {named.toString()}")
    return expression


def is_key_type(data_type: pa.DataType, arrays: bool = True) -> bool:
    """Return True if a column of this type can be a key of a state table. ``arrays``: True if arrays are allowed."""
    if pa.types.is_struct(data_type):
        return all(is_key_type(field.type, arrays) for field in data_type)
    if pa.types.is_list(data_type):
        return arrays and is_key_type(data_type.value_type)
    return not pa.types.is_nested(data_type)


def _event_time_key(grouping: Sequence[JavaTree]) -> EventTimeKey | None:
    """Return the key that the watermark closes: a window, or the event time itself. None if there is none."""
    found = [EventTimeKey(position) for position, named in enumerate(grouping) if is_event_time(named)]
    if len(found) > 1:
        raise unsupported.SECOND_EVENT_TIME.error("groupBy")
    return found[0] if found else None


def _session_key(node: JavaTree, grouping: Sequence[JavaTree]) -> int | None:
    """Return the index of the key that is a session window; None if there is none.

    Raises:
        NotSupported: there is no other key; or Spark's optimizer has rewritten DISTINCT functions to an aggregation by
            group and value, which has other sessions than the group.
    """
    found = [index for index, named in enumerate(grouping) if has_metadata(named, SESSION_KEY)]
    if found and len(grouping) == 1:
        raise unsupported.SESSION_OF_ALL.error("session_window")
    if found and kind(node.child()) == "Expand" and any(str(named.name()) == _REWRITTEN for named in grouping):
        raise unsupported.DISTINCT_SESSION.error("session_window")
    return found[0] if found else None


def _distinct_arguments(scope: Scope, inputs: _Inputs, functions: Sequence[JavaTree]) -> tuple[int, ...]:
    """Return the columns of DISTINCT arguments. Spark's optimizer leaves at most one set of them, or rewrites all."""
    found = [function for function in functions if function.isDistinct()]
    sets = [distinct_arguments(scope, inputs.find_or_add, function) for function in found]
    return max(sets, key=len, default=())


def _add_distinct(
    scope: Scope,
    keys: tuple[int, ...],
    arguments: tuple[int, ...],
    event_time: EventTimeKey | None,
    functions: Sequence[JavaTree],
    calls: Sequence[AggregateCall],
    parameters: Mapping[str, str],
) -> tuple[AggregateCall, ...]:
    """Send whole rows over the exchange and mark the first row of each value, which DISTINCT functions use."""
    builder = scope.builder
    complete = scope.mode == "complete"
    if complete:
        builder.exchange(EdgeKind.HASH)
    elif builder.partitioned_by != keys:
        builder.exchange(EdgeKind.HASH, keys)
    names = {*builder.schema.names}
    mark = next(name for name in ("__first", *(f"__first_{n}" for n in range(len(names)))) if name not in names)
    builder.add(
        DistinctArgumentsSpec(
            operator_id=builder.operator_id("distinct"),
            name="DistinctArguments",
            output_schema=builder.schema.append(pa.field(mark, pa.bool_())),
            keys=keys,
            arguments=arguments,
            event_time=None if event_time is None else event_time.column,
            one_subtask=complete,
            parameters=dict(parameters),
        ),
        keeps=builder.unchanged(),
    )
    first = len(builder.schema) - 1
    return tuple(
        replace(call, condition=first) if function.isDistinct() else call
        for function, call in zip(functions, calls, strict=True)
    )


def _add_operators(
    scope: Scope,
    node: JavaTree,
    key_columns: tuple[int, ...],
    calls: tuple[AggregateCall, ...],
    event_time: EventTimeKey | None,
    session: int | None,
    parameters: Mapping[str, str],
    argument_texts: tuple[str, ...],
) -> None:
    builder = scope.builder
    key_count = len(key_columns)
    own_keys = tuple(index for index in range(key_count) if index != session)
    builder.add(
        PartialAggregateSpec(
            operator_id=builder.operator_id("partial-aggregate"),
            name=f"Partial{label(node)}",
            output_schema=partial_schema(builder.schema, key_columns, calls),
            key_columns=key_columns,
            calls=calls,
        ),
        keeps={column: to for to, column in enumerate(key_columns)},
    )
    builder.rewrite(by_panes)
    if scope.mode == "complete":
        builder.exchange(EdgeKind.HASH)
        scope.whole = True
    elif builder.partitioned_by != own_keys:  # like Spark's planner: repartition(k).groupBy(k) has one shuffle
        builder.exchange(EdgeKind.HASH, own_keys)
    results = [pa.field(f"__result{position}", call.result_type) for position, call in enumerate(calls)]
    make = FinalAggregateSpec if session is None else partial(SessionAggregateSpec, session=session)
    builder.add(
        make(
            operator_id=scope.operator_id("aggregate", node),
            name=label(node),
            output_schema=pa.schema([*list(builder.schema)[:key_count], *results]),
            input_schema=builder.schema,
            key_count=key_count,
            calls=calls,
            mode=scope.mode,
            event_time=event_time,
            parameters=parameters,
            argument_texts=argument_texts,
        )
    )
