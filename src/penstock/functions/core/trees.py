"""Operations on expression trees: children, copies with other children, and equality."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.functions.core.base import Expression, Literal
from penstock.functions.core.size_limits import sizing_children
from penstock.functions.core.zones import Zone
from penstock.state.arrays import plain_objects


class Interned:
    """Set of distinct expressions: equal expressions become one object.

    Expressions are equal if their classes and their attributes are equal. Constants of plain types are compared by type
    and value. A value without a known comparison equals only itself. Different expressions are never merged, but equal
    ones may stay separate.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Expression] = {}

    def __call__(self, expression: Expression) -> Expression:
        """Return the one expression that represents all that equal this one."""
        interned = rebuilt(expression, self)
        key = (type(interned), tuple((name, _token(value)) for name, value in vars(interned).items()))
        return self._known.setdefault(key, interned)

    def __iter__(self) -> Iterator[Expression]:
        """Iterate over all interned expressions, including subexpressions."""
        return iter(self._known.values())


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return a copy with ``change`` applied to every child."""

    def walk(value: Any) -> Any:
        if isinstance(value, Expression):
            return change(value)
        return tuple(map(walk, value)) if type(value) is tuple else value

    made = copy.copy(expression)
    vars(made).update({name: walk(value) for name, value in vars(expression).items()})
    return made


def children_of(expression: Expression) -> Iterator[Expression]:
    """Yield the children of an expression, each as often as it occurs."""
    pending = list(vars(expression).values())
    for value in pending:
        if isinstance(value, Expression):
            yield value
        elif type(value) is tuple:
            pending.extend(value)


def grows_by_value(expressions: Iterable[Expression]) -> bool:
    """Return True if the size of a result depends on a value that is not constant, as in ``sequence(1, n)``."""
    return any(_is_sized_by_value(one) or grows_by_value(children_of(one)) for one in expressions)


def _is_sized_by_value(expression: Expression) -> bool:
    children = getattr(expression, "children", ())
    sizing = sizing_children(getattr(expression, "function", None))
    return any(not isinstance(children[at], Literal) for at in sizing if at < len(children))


def _token(value: Any) -> Hashable:
    """Return a key that is equal for equal attributes; see ``Interned``."""
    if isinstance(value, Expression):
        return id(value)
    if type(value) is tuple:
        return tuple(map(_token, value))
    if value is None or isinstance(value, bool | int | str | bytes | Enum | pa.DataType):
        return type(value), value
    if isinstance(value, partial):
        return partial, _token(value.func), _token(value.args), _token(tuple(sorted(value.keywords.items())))
    if isinstance(value, Zone):
        return Zone, value.name
    if isinstance(value, pa.Scalar):
        return pa.Scalar, value.type, repr(plain_objects(pa.repeat(value, 1)))  # distinguishes 0.0 from -0.0
    return object, id(value)
