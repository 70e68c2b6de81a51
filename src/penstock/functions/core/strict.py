"""Functions that give null when any argument is null: most of Catalyst's."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import Quick, settled
from penstock.functions.core.ragged import as_type
from penstock.functions.core.vectors import all_valid, both, valid_rows


class Strict(Expression):
    """Evaluates its children in order, each only at rows where those before it were not null, as Spark does.

    Args:
        children: the arguments, in evaluation order.
        data_type: the result's type.
        nullable: False if neither an argument nor the function itself gives null.
    """

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType, nullable: bool = True) -> None:
        self.children = tuple(children)
        self.data_type = data_type
        self.nullable = nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = []
        rows = mask
        for child in self.children:
            array = child.evaluate(batch, rows)
            rows = both(rows, valid_rows(array))
            arrays.append(array)
        return self.compute(arrays, rows)

    @abstractmethod
    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        """The result at ``rows``, where every argument is selected and not null; null elsewhere within the mask."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.children))})"


class Mapped(Strict):
    """A Python function of distinct argument values. ``function`` must be a module-level function or a partial."""

    def __init__(
        self,
        function: Callable[..., object],
        children: Sequence[Expression],
        data_type: pa.DataType,
        nullable: bool = True,
        quick: Quick | None = None,
    ) -> None:
        super().__init__(children, data_type, nullable)
        self.function = function
        self.quick = quick

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        answer = None if self.quick is None else self.quick(*arrays, rows, self.data_type)
        return settled(answer, self.function, arrays, self.data_type, rows)


class Eager(Strict):
    """A strict function whose arguments are all evaluated, even at rows where an earlier one is null."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = [child.evaluate(batch, mask) for child in self.children]
        return self.compute(arrays, all_valid(arrays, mask))


class Fallible(Strict):
    """A Python function of one argument's distinct values that gives None where it has no answer.

    Args:
        function: a module-level function or a partial of one.
        error: makes the exception that names the value, raised under ANSI mode; without one the result is null.
    """

    def __init__(
        self,
        function: Callable[..., object],
        child: Expression,
        data_type: pa.DataType,
        error: Callable[[object], EvaluationError] | None,
        quick: Quick | None = None,
    ) -> None:
        super().__init__((child,), data_type)
        self.function = function
        self.error = error
        self.quick = quick

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        answer = None if self.quick is None else self.quick(arrays[0], rows, self.data_type)
        return settled(answer, self._apply, arrays, self.data_type, rows)

    def _apply(self, value: object) -> object:
        result = self.function(value)
        if result is None and self.error is not None:
            raise self.error(value)
        return result


ArrayFunction = Callable[[list[pa.Array], Mask | None, pa.DataType], pa.Array]
"""The arguments, the rows at which all of them are wanted, and the result's type -> the result, null elsewhere."""


class Vectorised(Strict):
    """A function of whole arrays.

    Args:
        function: a module-level function or a partial of one.
        lenient: positions of arguments of which null is a value like any other.
    """

    def __init__(
        self,
        function: ArrayFunction,
        children: Sequence[Expression],
        data_type: pa.DataType,
        nullable: bool = True,
        lenient: tuple[int, ...] = (),
    ) -> None:
        super().__init__(children, data_type, nullable)
        self.function = function
        self.lenient = lenient

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = []
        rows = mask
        for position, child in enumerate(self.children):
            array = as_type(child.evaluate(batch, rows), child.data_type)
            if position not in self.lenient:
                rows = both(rows, valid_rows(array))
            arrays.append(array)
        return self.compute(arrays, rows)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return self.function(arrays, rows, self.data_type)
