"""Sliding windows by pane: rows are aggregated by pane first, and only the partial rows are assigned to windows.

Spark compiles a sliding window to an ``Expand`` with one projection for each window that a row may be in. All
projections compute start and end from one number, the start of the row's *pane*, where the latest of its windows
begins. So all rows of a pane are in the same windows, and one partial row can be assigned to these windows instead of
all rows::

    Expand -> [Filter] -> Project* -> PartialAggregate

becomes, with the same rows of a batch at its end::

    Project (panes) -> PartialAggregate -> Expand -> [Filter] -> MergePartials

There is a filter if the slide does not divide the length: then the oldest windows contain only the beginning of a pane.
In this case rows are also grouped by the filter's result for each window.

This module has no notion of time. A pane is the largest expression that fully determines the keys which differ between
projections. The arguments of functions must not differ between projections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.functions import BoundReference, Expression
from penstock.functions.collections.lambdas import Body
from penstock.functions.core.trees import Interned, children_of, rebuilt
from penstock.functions.logic.logic import CaseWhen, Or
from penstock.model.job_graph import OperatorSpec
from penstock.operators.aggregate.calls import FUNCTIONS, Family, partial_schema
from penstock.operators.aggregate.partial import MergePartialsSpec, PartialAggregateSpec
from penstock.operators.expand import ExpandSpec
from penstock.operators.filter import FilterSpec
from penstock.operators.project import ProjectSpec

_BY_ORDER = (Family.FIRST, Family.MIN_MAX_BY, Family.MIN_MAX_BY_K, Family.LISTS, Family.LISTAGG)
"""Functions whose result depends on the order of rows. Partial rows of a window and key are in the order of panes, like
the rows of an ``Expand``. But partial rows of one pane that differ in the filter's results are in arbitrary order."""

Path = Sequence[Expression]
"""Expressions of columns over the input of the ``Expand``, for one of its projections. Equal expressions are the same
object."""


@dataclass(frozen=True)
class _Tail:
    """The last operators of a chain.

    Attributes:
        fields: the columns that the aggregation reads.
        paths: the expressions of these columns, by projection.
        conditions: the filter's conditions, by projection; empty without a filter.
    """

    expand: ExpandSpec
    filter: FilterSpec | None
    aggregate: PartialAggregateSpec
    fields: pa.Schema
    paths: Sequence[Path]
    conditions: Sequence[Expression]


def by_panes(operators: Sequence[OperatorSpec], operator_id: Callable[[str], str]) -> Sequence[OperatorSpec]:
    """Return the operators with the final partial aggregation moved in front of the ``Expand``.

    Return them unchanged if there is no ``Expand``, or if the aggregation depends on a row's window.

    Args:
        operators: a chain that ends with a partial aggregation.
        operator_id: returns a new operator id for a kind.
    """
    positions = [position for position, spec in enumerate(operators) if isinstance(spec, ExpandSpec)]
    tail = _tail(operators[positions[-1] :]) if positions else None
    pane = None if tail is None else _pane(tail)
    if tail is None or pane is None:
        return operators
    return [*operators[: positions[-1]], *_pushed(tail, pane, operator_id)]


def _tail(operators: Sequence[OperatorSpec]) -> _Tail | None:
    """Return the operators from the ``Expand`` on.

    Return None if there are other operators among them, or if it matters for which rows an expression is computed. In
    front of a filter these are all rows; after it, only the rows in windows.
    """
    expand, *between, aggregate = operators
    kept = between.pop(0) if between and isinstance(between[0], FilterSpec) else None
    projects = [spec for spec in between if isinstance(spec, ProjectSpec)]
    assert isinstance(expand, ExpandSpec)
    assert kept is None or isinstance(kept, FilterSpec)
    assert isinstance(aggregate, PartialAggregateSpec)
    if len(projects) < len(between) or any(map(_has_lambda, _expressions(expand, kept, projects))):
        return None
    interned = Interned()
    paths: list[Path] = [[interned(item) for item in projection] for projection in expand.projections]
    if kept is not None and any(_is_computed(item) and not _varies(paths, n) for n, item in enumerate(paths[0])):
        return None
    conditions = [] if kept is None else [interned(_over(path, kept.condition)) for path in paths]
    for project in projects:
        paths = [[interned(_over(path, item)) for item in project.expressions] for path in paths]
        if kept is not None and any(_is_computed(e) and _varies(paths, n) for n, e in enumerate(project.expressions)):
            return None
    return _Tail(expand, kept, aggregate, [expand, *projects][-1].output_schema, paths, conditions)


def _pane(tail: _Tail) -> Expression | None:
    """Return the expression that is equal for rows of the same windows.

    None if there is no such expression, or if rows of the same windows must be distinguished.
    """
    calls = tail.aggregate.calls
    if any(
        _varies(tail.paths, position)
        for call in calls
        for position in (*call.arguments, call.condition)
        if position >= 0
    ):
        return None
    if tail.filter is not None and any(FUNCTIONS[call.function] in _BY_ORDER for call in calls):
        return None
    keys = [path[key] for key in tail.aggregate.key_columns if _varies(tail.paths, key) for path in tail.paths]
    for part in (part for key in keys[:1] for part in _parts(key)):
        if pa.types.is_integer(part.data_type) and _is_computed(part) and all(_reads_by(key, part) for key in keys):
            return part
    return None


class _Inputs:
    """Columns that rows are grouped by and aggregated over.

    For rows outside all windows only the conditions are computed.

    Attributes:
        of_windows: by projection, the column that is True if a row is in that window; empty if rows are in all windows.
    """

    def __init__(self, pane: Expression, conditions: Sequence[Expression]) -> None:
        self.fields: list[pa.Field] = []
        self.expressions: list[Expression] = []
        self._positions: dict[int, int] = {}
        self._guard: Expression | None = None
        self.add(pa.field("__pane", pane.data_type), pane)
        self.of_windows = [self.add(pa.field(f"__in_{n}", pa.bool_()), item) for n, item in enumerate(conditions)]
        if conditions:
            self._guard = _any_of(self.expressions[1:])

    def add(self, field: pa.Field, expression: Expression) -> int:
        """Return the ordinal of the added column."""
        position = self._positions.setdefault(id(expression), len(self.fields))
        if position == len(self.fields):
            if self._guard is not None and _is_computed(expression):
                expression = CaseWhen([(self._guard, expression)], None, expression.data_type)
            self.fields.append(field)
            self.expressions.append(expression)
        return position


def _pushed(tail: _Tail, pane: Expression, operator_id: Callable[[str], str]) -> Iterator[OperatorSpec]:
    """Yield the new operators in the order of the data flow."""
    inputs = _Inputs(pane, tail.conditions)

    def position_of(column: int) -> int:
        return inputs.add(tail.fields.field(column), tail.paths[0][column])

    keys = {key: position_of(key) for key in tail.aggregate.key_columns if not _varies(tail.paths, key)}
    grouped = tuple(dict.fromkeys([0, *inputs.of_windows, *keys.values()]))
    calls = tuple(call.remapped(position_of) for call in tail.aggregate.calls)
    schema = pa.schema(inputs.fields)
    yield ProjectSpec(
        operator_id=operator_id("panes"),
        name="Project (panes)",
        output_schema=schema,
        expressions=tuple(inputs.expressions),
    )
    if inputs.of_windows:
        flags = [BoundReference(flag, pa.bool_()) for flag in dict.fromkeys(inputs.of_windows)]
        yield FilterSpec(
            operator_id=operator_id("panes-filter"),
            name="Filter (in a window)",
            output_schema=schema,
            condition=_any_of(flags),
        )
    by_pane = PartialAggregateSpec(
        operator_id=tail.aggregate.operator_id,
        name=f"{tail.aggregate.name} by panes",
        output_schema=partial_schema(schema, grouped, calls),
        key_columns=grouped,
        calls=calls,
    )
    yield by_pane
    references = [BoundReference(position, field.type) for position, field in enumerate(by_pane.output_schema)]
    at = {column: references[position] for position, column in enumerate(grouped)}

    def projection(number: int) -> Iterator[Expression]:
        path = tail.paths[number]
        for key in tail.aggregate.key_columns:
            yield at[keys[key]] if key in keys else _with(path[key], pane, at[0])
        yield from references[len(grouped) :]
        yield from (at[column] for column in inputs.of_windows[number : number + 1])

    yield from _into_windows(
        tail, [tuple(projection(n)) for n in range(len(tail.paths))], operator_id("merge-partials")
    )


def _into_windows(tail: _Tail, projections: Sequence[tuple[Expression, ...]], merge_id: str) -> Iterator[OperatorSpec]:
    """Yield the operators that convert partial rows of panes to partial rows of windows."""
    schema = tail.aggregate.output_schema
    keys = len(tail.aggregate.key_columns)
    wider = schema if tail.filter is None else schema.append(pa.field("__in", pa.bool_()))
    yield replace(tail.expand, output_schema=wider, projections=tuple(projections))
    if tail.filter is not None:
        yield replace(tail.filter, output_schema=wider, condition=BoundReference(len(schema), pa.bool_()))
    yield MergePartialsSpec(
        operator_id=merge_id,
        name=f"MergePartials [{', '.join(schema.names[:keys])}]",
        output_schema=schema,
        key_count=keys,
        calls=tail.aggregate.calls,
    )


def _expressions(expand: ExpandSpec, kept: FilterSpec | None, projects: Sequence[ProjectSpec]) -> Iterator[Expression]:
    for each in (*expand.projections, *(project.expressions for project in projects)):
        yield from each
    if kept is not None:
        yield kept.condition


def _parts(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all its descendants, parents first."""
    yield expression
    for child in children_of(expression):
        yield from _parts(child)


def _has_lambda(expression: Expression) -> bool:
    """Return True if the expression refers to lambda variables."""
    return any(isinstance(part, Body) for part in _parts(expression))


def _any_of(conditions: Sequence[Expression]) -> Expression:
    """Build the disjunction as a shallow tree, because there may be hundreds of windows."""
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return Or(_any_of(conditions[:half]), _any_of(conditions[half:]))


def _is_computed(expression: Expression) -> bool:
    return not isinstance(expression, BoundReference)


def _varies(paths: Sequence[Path], position: int) -> bool:
    """Return True if a column depends on the projection."""
    return any(path[position] is not paths[0][position] for path in paths)


def _reads_by(expression: Expression, part: Expression) -> bool:
    """Return True if the expression depends on a row only through this part."""
    if expression is part:
        return True
    return _is_computed(expression) and all(_reads_by(child, part) for child in children_of(expression))


def _over(columns: Path, expression: Expression) -> Expression:
    """Return the expression with references replaced by the expressions of their columns."""
    if isinstance(expression, BoundReference):
        return columns[expression.ordinal]
    return rebuilt(expression, lambda child: _over(columns, child))


def _with(expression: Expression, part: Expression, instead: Expression) -> Expression:
    """Return the expression with a part of it replaced."""
    return instead if expression is part else rebuilt(expression, lambda child: _with(child, part, instead))
