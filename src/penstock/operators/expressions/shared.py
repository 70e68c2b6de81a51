"""Common subexpressions, evaluated once per batch: ``window()`` is lowered to eight times the same arithmetic."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.operators.expressions.base import BoundReference, Expression, Literal, Mask
from penstock.operators.expressions.lambdas import Body
from penstock.operators.expressions.zones import Zone
from penstock.state.arrays import plain_objects


class Shared(Expression):
    """Remembers what its child gave for the last batch. One thread only."""

    def __init__(self, child: Expression) -> None:
        self.child = child
        self.data_type = child.data_type
        self.nullable = child.nullable
        self._batch: pa.RecordBatch | None = None
        self._mask: Mask | None = None
        self._result: pa.Array | None = None

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        # What held for all rows holds for some of them.
        if self._result is None or batch is not self._batch or (self._mask is not None and mask is not self._mask):
            self._result = self.child.evaluate(batch, mask)
            self._batch, self._mask = batch, mask
        return self._result

    def forget(self) -> None:
        """Let go of the batch."""
        self._batch = self._mask = self._result = None


class Repeated(Literal):
    """A constant of fixed width, whose array is made anew only for more rows than ever. One thread only."""

    def __init__(self, literal: Literal) -> None:
        vars(self).update(vars(literal))
        self._array: pa.Array | None = None

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        if self._array is None or len(self._array) < batch.num_rows:
            self._array = super().evaluate(batch)
        return self._array.slice(0, batch.num_rows)


class SharedExpressions:
    """Expressions over the same batches, with everything that occurs in them more than once wrapped, and constants.

    Expressions are equal if they are of one class and their attributes are: constants of a plain type by type and
    value, anything that is not known to be comparable only if it is the same object. So nothing is taken for another;
    something equal may stay apart.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        drawn = _Drawing()
        roots = [drawn.interned(expression) for expression in expressions]
        self._shared: list[Shared] = []
        self._expressions = drawn.wrapped(roots, self._shared)

    def evaluate(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """One array per expression, as each by itself gives it. Raises what they raise."""
        try:
            return [expression.evaluate(batch) for expression in self._expressions]
        finally:
            for shared in self._shared:
                shared.forget()


class _Drawing:
    """The trees with equal parts drawn together."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Expression] = {}

    def interned(self, expression: Expression) -> Expression:
        """The expression that stands for all that equal this one."""
        drawn = _rebuilt(expression, self.interned)
        key = (type(drawn), tuple((name, _token(value)) for name, value in vars(drawn).items()))
        return self._known.setdefault(key, drawn)

    def wrapped(self, roots: Sequence[Expression], shared: list[Shared]) -> list[Expression]:
        """The roots with what several parents have in ``Shared``; these are appended to ``shared``."""
        uses = Counter(map(id, roots))
        for expression in self._known.values():
            uses.update(id(child) for child in _children(expression))
        done: dict[int, Expression] = {}

        def wrap(expression: Expression) -> Expression:
            if id(expression) not in done:
                made = _rebuilt(expression, wrap)
                if isinstance(made, Literal):
                    made = Repeated(made) if pa.types.is_primitive(made.data_type) else made
                elif uses[id(expression)] > 1 and not isinstance(made, BoundReference | Body):
                    made = Shared(made)
                    shared.append(made)
                done[id(expression)] = made
            return done[id(expression)]

        return [wrap(root) for root in roots]


def _rebuilt(expression: Expression, change: Any) -> Expression:
    """A copy with every child changed."""

    def walk(value: Any) -> Any:
        if isinstance(value, Expression):
            return change(value)
        return tuple(map(walk, value)) if type(value) is tuple else value

    made = copy.copy(expression)
    vars(made).update({name: walk(value) for name, value in vars(expression).items()})
    return made


def _children(expression: Expression) -> Iterator[Expression]:
    """As often as it has them."""
    waiting = list(vars(expression).values())
    for value in waiting:
        if isinstance(value, Expression):
            yield value
        elif type(value) is tuple:
            waiting.extend(value)


def _token(value: Any) -> Hashable:
    """Equal for equal attributes; see ``SharedExpressions``."""
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
        return pa.Scalar, value.type, repr(plain_objects(pa.repeat(value, 1)))  # tells 0.0 from -0.0
    return object, id(value)
