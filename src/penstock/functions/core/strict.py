"""Functions that return null if any argument is null, as most of Catalyst's do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.fast_path import FastPath, with_exact_values
from penstock.functions.core.ragged import as_type
from penstock.functions.core.vectors import all_valid, intersect_masks, valid_rows


class Strict(Expression):
    """Function that is null where an argument is null.

    The children are evaluated in order, each only at rows where the earlier ones are not null, as in Spark.

    Args:
        children: the arguments, in evaluation order.
        data_type: the result's type.
        nullable: False if no argument is ever null and the function never returns null.
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
            rows = intersect_masks(rows, valid_rows(array))
            arrays.append(array)
        return self.compute(arrays, rows)

    @abstractmethod
    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        """Return the result at ``rows``, where every argument is selected and not null; null elsewhere in the mask."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.children))})"


class ScalarFunction(Strict):
    """Python function of single values, computed once per distinct row of arguments.

    Args:
        function: a module-level function or a partial of one. If it returns None, the result is null or an error.
        children: the arguments, in evaluation order.
        data_type: the result's type.
        nullable: False if no argument is ever null and the function never returns None.
        fast_path: computes whole columns where it can.
        error: creates the exception for an argument whose result is None. Without it the result is null.
    """

    def __init__(
        self,
        function: Callable[..., object],
        children: Sequence[Expression],
        data_type: pa.DataType,
        nullable: bool = True,
        fast_path: FastPath | None = None,
        error: Callable[[object], EvaluationError] | None = None,
    ) -> None:
        super().__init__(children, data_type, nullable)
        self.function = function
        self.fast_path = fast_path
        self.error = error

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        result = None if self.fast_path is None else self.fast_path(*arrays, rows, self.data_type)
        function = self.function if self.error is None else self._result_or_error
        return with_exact_values(result, function, arrays, self.data_type, rows)

    def _result_or_error(self, value: object) -> object:
        result = self.function(value)
        if result is None and self.error is not None:
            raise self.error(value)
        return result


class Eager(Strict):
    """Strict function that evaluates all arguments, even at rows where an earlier one is null."""

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = [child.evaluate(batch, mask) for child in self.children]
        return self.compute(arrays, all_valid(arrays, mask))


ArrayFunction = Callable[[list[pa.Array], Mask | None, pa.DataType], pa.Array]
"""Function of the arguments, the selected rows and the result's type. The result is null outside these rows."""


class VectorFunction(Strict):
    """Function of whole arrays.

    Args:
        function: a module-level function or a partial of one.
        children: the arguments, in evaluation order.
        data_type: the result's type.
        nullable: False if the result is never null.
        null_tolerant: positions of arguments for which null is a value like any other.
    """

    def __init__(
        self,
        function: ArrayFunction,
        children: Sequence[Expression],
        data_type: pa.DataType,
        nullable: bool = True,
        null_tolerant: tuple[int, ...] = (),
    ) -> None:
        super().__init__(children, data_type, nullable)
        self.function = function
        self.null_tolerant = null_tolerant

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        arrays = []
        rows = mask
        for position, child in enumerate(self.children):
            array = as_type(child.evaluate(batch, rows), child.data_type)
            if position not in self.null_tolerant:
                rows = intersect_masks(rows, valid_rows(array))
            arrays.append(array)
        return self.compute(arrays, rows)

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return self.function(arrays, rows, self.data_type)
