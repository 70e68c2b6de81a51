"""Common subexpressions, evaluated once per batch: ``window()`` is lowered to eight times the same arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.functions.collections.lambdas import Body
from penstock.functions.core.base import BoundReference, Expression, Literal, Mask
from penstock.functions.core.size_limits import BatchTooLarge, apply_divisible_limits
from penstock.functions.core.trees import Interned, children_of, rebuilt


class Shared(Expression):
    """Expression that caches its child's result for the last batch. One thread only."""

    def __init__(self, child: Expression) -> None:
        self.child = child
        self.data_type = child.data_type
        self.nullable = child.nullable
        self._batch: pa.RecordBatch | None = None
        self._mask: Mask | None = None
        self._result: pa.Array | None = None

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        # A result for all rows is valid for some of them.
        if self._result is None or batch is not self._batch or (self._mask is not None and mask is not self._mask):
            self._result = self.child.evaluate(batch, mask)
            self._batch, self._mask = batch, mask
        return self._result

    def forget(self) -> None:
        """Let go of the batch."""
        self._batch = self._mask = self._result = None


class CachedLiteral(Literal):
    """A constant of fixed width, whose array is made anew only for more rows than ever. One thread only."""

    def __init__(self, literal: Literal) -> None:
        vars(self).update(vars(literal))
        self._array: pa.Array | None = None

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        if self._array is None or len(self._array) < batch.num_rows:
            self._array = super().evaluate(batch)
        return self._array.slice(0, batch.num_rows)


class SharedExpressions:
    """Expressions over the same batches, with everything that occurs in them more than once (``Interned`` tells what is
    equal) wrapped, and constants."""

    def __init__(self, expressions: Sequence[Expression]) -> None:
        interned = Interned()
        roots = [interned(expression) for expression in expressions]
        self._shared: list[Shared] = []
        self._expressions = _wrapped(roots, interned, self._shared)

    def evaluate_in_parts(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, list[pa.Array]]]:
        """Yield the batch and its arrays, as ``evaluate`` returns them; or parts of the batch, in order, each with its
        arrays, if those of the whole batch would be too much (``room``)."""
        arrays = self._evaluate_within_limits(batch)
        if arrays is not None:
            yield batch, arrays
            return
        middle = batch.num_rows // 2
        yield from self.evaluate_in_parts(batch.slice(0, middle))
        yield from self.evaluate_in_parts(batch.slice(middle))

    def evaluate_concatenated(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return what ``evaluate`` returns, for expressions that use much and give little, such as conditions."""
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
        """One array per expression, as each by itself gives it. Raises what they raise."""
        try:
            return [expression.evaluate(batch) for expression in self._expressions]
        finally:
            for shared in self._shared:
                shared.forget()


def _wrapped(roots: Sequence[Expression], interned: Interned, shared: list[Shared]) -> list[Expression]:
    """The roots with what several parents have in ``Shared``; these are appended to ``shared``."""
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
