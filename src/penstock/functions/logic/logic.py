"""Boolean logic, null tests and conditionals.

These expressions select the rows at which their children are evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import EvaluationError
from penstock.functions.core.base import Expression, Mask
from penstock.functions.core.ragged import as_type
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import from_vector, select, to_vector


def is_true(array: pa.Array) -> Mask:
    """Return a mask of the true values; null counts as false."""
    return to_vector(array)


def any_selected(rows: Mask | None) -> bool:
    return rows is None or bool(rows.any())


class And(Expression):
    """Three-valued ``and``. The right side is not evaluated where the left side is false."""

    data_type = pa.bool_()

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left = left
        self.right = right
        self.nullable = left.nullable or right.nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left = self.left.evaluate(batch, mask)
        open_rows = select(mask, is_true(pc.fill_null(left, True)))
        if not open_rows.any():
            return left
        return pc.and_kleene(left, self.right.evaluate(batch, open_rows))


class Or(Expression):
    """Three-valued ``or``. The right side is not evaluated where the left side is true."""

    data_type = pa.bool_()

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left = left
        self.right = right
        self.nullable = left.nullable or right.nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left = self.left.evaluate(batch, mask)
        open_rows = select(mask, ~is_true(left))
        if not open_rows.any():
            return left
        return pc.or_kleene(left, self.right.evaluate(batch, open_rows))


class Not(Strict):
    """``not``. Null stays null."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return pc.invert(arrays[0])


class IsNull(Expression):
    """``is null``, or ``is not null`` if ``negated``."""

    data_type = pa.bool_()
    nullable = False

    def __init__(self, child: Expression, negated: bool) -> None:
        self.child = child
        self.negated = negated

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        array = self.child.evaluate(batch, mask)
        return pc.is_valid(array) if self.negated else pc.is_null(array)


class IsNaN(Expression):
    """``isnan``, which is false for null."""

    data_type = pa.bool_()
    nullable = False

    def __init__(self, child: Expression) -> None:
        self.child = child

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        return pc.fill_null(pc.is_nan(self.child.evaluate(batch, mask)), False)


class CaseWhen(Expression):
    """``case when``, ``if`` and ``nullif``. Each branch is evaluated only at the rows that reach it."""

    def __init__(
        self,
        branches: Sequence[tuple[Expression, Expression]],
        otherwise: Expression | None,
        data_type: pa.DataType,
        nullable: bool = True,
    ) -> None:
        self.branches = tuple(branches)
        self.otherwise = otherwise
        self.data_type = data_type
        self.nullable = nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        out: pa.Array | None = None
        rows = mask
        for condition, value in self.branches:
            if not any_selected(rows):
                break
            holds = is_true(condition.evaluate(batch, rows))
            taken = select(rows, holds)
            if taken.any():
                out = _merge(out, as_type(value.evaluate(batch, taken), self.data_type), taken)
                rows = select(rows, ~holds)
        if self.otherwise is not None and any_selected(rows):
            everywhere = np.ones(batch.num_rows, np.bool_) if rows is None else rows
            out = _merge(out, as_type(self.otherwise.evaluate(batch, rows), self.data_type), everywhere)
        return pa.nulls(batch.num_rows, self.data_type) if out is None else out


def _merge(out: pa.Array | None, values: pa.Array, taken: Mask) -> pa.Array:
    if taken.all():
        return values
    return pc.if_else(pa.array(taken), values, pa.scalar(None, values.type) if out is None else out)


class Coalesce(Expression):
    """``coalesce``: the first non-null child. Each child is evaluated only where all earlier ones are null."""

    def __init__(self, children: Sequence[Expression], data_type: pa.DataType | None = None) -> None:
        self.children = tuple(children)
        self.data_type = children[0].data_type if data_type is None else data_type
        self.nullable = all(child.nullable for child in children)

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        out = as_type(self.children[0].evaluate(batch, mask), self.data_type)
        for child in self.children[1:]:
            if out.null_count == 0:
                break
            missing = is_true(pc.is_null(out))
            rows = select(mask, missing)
            if rows.any():
                out = pc.if_else(pa.array(rows), as_type(child.evaluate(batch, rows), self.data_type), out)
        return out


class NaNvl(Expression):
    """``nanvl``: the right side where the left side is NaN. The right side is evaluated only there."""

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left = left
        self.right = right
        self.data_type = left.data_type
        self.nullable = left.nullable or right.nullable

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left = self.left.evaluate(batch, mask)
        rows = select(mask, is_true(pc.is_nan(left)))
        return pc.if_else(pa.array(rows), self.right.evaluate(batch, rows), left) if rows.any() else left


class NormalizeFloat(Strict):
    """Floats with one bit pattern for NaN and one for zero, so that equal keys are equal bytes."""

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        values = to_vector(arrays[0])
        plain = np.where(np.isnan(values), values.dtype.type(np.nan), values + values.dtype.type(0))
        return from_vector(plain, self.data_type, rows)


class RaiseError(Expression):
    """``raise_error``. It ends the query with the message of the first selected row."""

    nullable = True

    def __init__(self, message: Expression, data_type: pa.DataType) -> None:
        self.message = message
        self.data_type = data_type

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        rows = np.arange(batch.num_rows) if mask is None else np.flatnonzero(mask)
        if len(rows):
            text = self.message.evaluate(batch, mask)[int(rows[0])].as_py()
            raise EvaluationError(f"[USER_RAISED_EXCEPTION] {'null' if text is None else text}")
        return pa.nulls(batch.num_rows, self.data_type)


class TryEval(Expression):
    """The child's value, or null at rows where the child raises. These rows are found by bisection."""

    nullable = True

    def __init__(self, child: Expression) -> None:
        self.child = child
        self.data_type = child.data_type

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        try:
            return self.child.evaluate(batch, mask)
        except EvaluationError:
            if batch.num_rows == 1:
                return pa.nulls(1, self.data_type)
        middle = batch.num_rows // 2
        halves = [
            self.evaluate(batch.slice(start, length), None if mask is None else mask[start : start + length])
            for start, length in ((0, middle), (middle, batch.num_rows - middle))
        ]
        return pa.concat_arrays(halves)
