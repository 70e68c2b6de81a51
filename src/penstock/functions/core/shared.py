"""Evaluation of common subexpressions once per batch.

For example, Spark lowers ``window()`` to eight copies of the same arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.functions.collections.lambdas import Body
from penstock.functions.core.base import BoundReference, Expression, Literal, Mask
from penstock.functions.core.size_limits import BatchTooLarge, apply_divisible_limits
from penstock.functions.core.trees import Interned, children_of, rebuilt


class Shared(Expression):
    """Expression that caches the result of its child for the last batch. Not thread-safe."""

    def __init__(self, child: Expression) -> None:
        self.child = child
        self.data_type = child.data_type
        self.nullable = child.nullable
        self._batch: pa.RecordBatch | None = None
        self._mask: Mask | None = None
        self._result: pa.Array | None = None

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        # A cached result for all rows is also valid for a subset of them.
        if self._result is None or batch is not self._batch or (self._mask is not None and mask is not self._mask):
            self._result = self.child.evaluate(batch, mask)
            self._batch, self._mask = batch, mask
        return self._result

    def forget(self) -> None:
        """Release the cached batch, mask and result."""
        self._batch = self._mask = self._result = None


class CachedLiteral(Literal):
    """Constant of fixed width with a cached array, which grows to the largest batch so far. Not thread-safe."""

    def __init__(self, literal: Literal) -> None:
        vars(self).update(vars(literal))
        self._array: pa.Array | None = None

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        if self._array is None or len(self._array) < batch.num_rows:
            self._array = super().evaluate(batch)
        return self._array.slice(0, batch.num_rows)


class SharedExpressions:
    """Expressions over the same batches, with a cache for each subexpression that occurs more than once.

    ``Interned`` decides whether two subexpressions are equal. Constants are cached too.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        interned = Interned()
        roots = [interned(expression) for expression in expressions]
        self._shared: list[Shared] = []
        self._expressions = _wrapped(roots, interned, self._shared)

    def evaluate_in_parts(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, list[pa.Array]]]:
        """Yield the batch and its arrays, as ``evaluate`` returns them.

        If the arrays of the whole batch would exceed a limit (``apply_divisible_limits``), yield slices of the batch in
        order, each with its arrays.
        """
        arrays = self._evaluate_within_limits(batch)
        if arrays is not None:
            yield batch, arrays
            return
        middle = batch.num_rows // 2
        yield from self.evaluate_in_parts(batch.slice(0, middle))
        yield from self.evaluate_in_parts(batch.slice(middle))

    def evaluate_concatenated(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Evaluate in parts if necessary and return the concatenated arrays.

        This suits expressions with large intermediate values and small results, such as conditions.
        """
        parts = [arrays for _, arrays in self.evaluate_in_parts(batch)]
        return parts[0] if len(parts) == 1 else [pa.concat_arrays(each) for each in zip(*parts, strict=True)]

    def _evaluate_within_limits(self, batch: pa.RecordBatch) -> list[pa.Array] | None:
        if batch.num_rows < 2:
            return self.evaluate(batch)
        try:
            with apply_divisible_limits():
                return self.evaluate(batch)
        except BatchTooLarge:
            return None

    def evaluate(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return one array per expression. An error of an expression propagates."""
        try:
            return [expression.evaluate(batch) for expression in self._expressions]
        finally:
            for shared in self._shared:
                shared.forget()


def _wrapped(roots: Sequence[Expression], interned: Interned, shared: list[Shared]) -> list[Expression]:
    """Return the roots with each subexpression of several parents wrapped in ``Shared``.

    The ``Shared`` expressions are appended to ``shared``.
    """
    uses = Counter(map(id, roots))
    for expression in interned:
        uses.update(id(child) for child in children_of(expression))
    done: dict[int, Expression] = {}

    def wrap(expression: Expression) -> Expression:
        if id(expression) not in done:
            made = rebuilt(expression, wrap)
            if isinstance(made, Literal):
                made = CachedLiteral(made) if pa.types.is_primitive(made.data_type) else made
            elif uses[id(expression)] > 1 and not isinstance(made, BoundReference | Body):
                made = Shared(made)
                shared.append(made)
            done[id(expression)] = made
        return done[id(expression)]

    return [wrap(root) for root in roots]
