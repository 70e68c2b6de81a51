"""Comparisons in Spark's order: NaN equals NaN and is the greatest, -0.0 equals 0.0, strings compare as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Expression, Literal, Mask, repeated
from penstock.functions.core.ragged import as_type
from penstock.functions.core.ranks import among, common_ranks, ranks
from penstock.functions.core.strict import Strict
from penstock.functions.core.vectors import from_vector, intersect_masks, select, to_vector, valid_rows

_ARROW = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}


def compare(symbol: str, left: pa.Array, right: pa.Array | pa.Scalar) -> pa.Array:
    """Return a boolean array that is null where either side is null."""
    if pa.types.is_nested(left.type) or pa.types.is_null(left.type):
        return _compare_nested(symbol, left, right if isinstance(right, pa.Array) else repeated(right, len(left)))
    result = _ARROW[symbol](left, right)
    if not pa.types.is_floating(left.type):
        return result
    right = right if isinstance(right, pa.Array) else pa.repeat(right, len(left))
    nan_left, nan_right = np.isnan(to_vector(left)), np.isnan(to_vector(right))
    if not (nan_left.any() or nan_right.any()):
        return result
    # A NaN is treated as greater than infinity, which gives Spark's order. Other values are not affected.
    ranks = {
        "=": nan_left & nan_right,
        "<": ~nan_left & nan_right,
        "<=": nan_right,
        ">": nan_left & ~nan_right,
        ">=": nan_left,
    }[symbol]
    return pc.if_else(pa.array(nan_left | nan_right), pc.if_else(pc.is_valid(result), pa.array(ranks), result), result)


def _compare_nested(symbol: str, left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare structs and arrays in Spark's order, which differs from Arrow's."""
    ranks = common_ranks(left, right)
    return from_vector(_NUMPY[symbol](*ranks), pa.bool_(), (ranks[0] > 0) & (ranks[1] > 0))


_NUMPY: dict[str, Callable[..., Mask]] = {
    "=": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


class Comparison(Strict):
    """``=``, ``<``, ``<=``, ``>`` and ``>=`` of two values of one type."""

    def __init__(self, symbol: str, left: Expression, right: Expression, nullable: bool = True) -> None:
        super().__init__((left, right), pa.bool_(), nullable)
        self.symbol = symbol

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left, right = self.children
        values = left.evaluate(batch, mask)
        if isinstance(right, Literal):
            return compare(self.symbol, values, right.scalar)
        return compare(self.symbol, values, right.evaluate(batch, intersect_masks(mask, valid_rows(values))))

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        return compare(self.symbol, arrays[0], arrays[1])


class NullSafeEqual(Expression):
    """``<=>``: true where both sides are null, false where only one is null."""

    data_type = pa.bool_()
    nullable = False

    def __init__(self, left: Expression, right: Expression) -> None:
        self.left = left
        self.right = right

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        left, right = self.left.evaluate(batch, mask), self.right.evaluate(batch, mask)
        if left.null_count == 0 and right.null_count == 0:
            return compare("=", left, right)
        nulls = pc.and_(pc.is_null(left), pc.is_null(right))
        return pc.or_(nulls, pc.fill_null(compare("=", left, right), False))


class InList(Expression):
    """``value IN (...)``: null where no element equals the value, and the value or an element is null.

    Elements are evaluated in order, each only at rows where no earlier element matched.
    """

    data_type = pa.bool_()

    def __init__(self, value: Expression, elements: Sequence[Expression]) -> None:
        self.value = value
        self.elements = tuple(elements)
        self.nullable = value.nullable or any(element.nullable for element in elements)

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        values = self.value.evaluate(batch, mask)
        valid = valid_rows(values)
        valid = np.ones(len(values), np.bool_) if valid is None else valid
        open_rows = select(mask, valid)
        matched = np.zeros(len(values), np.bool_)
        unknown = np.zeros(len(values), np.bool_)
        for element in self.elements:
            equal = compare("=", values, element.evaluate(batch, open_rows))
            matched |= open_rows & to_vector(equal)
            unknown |= open_rows & to_vector(pc.is_null(equal))
            open_rows = open_rows & ~matched
        return pa.array(matched, mask=~valid | (unknown & ~matched))


class InSet(Expression):
    """``value IN (constants)``, with one lookup per batch."""

    data_type = pa.bool_()

    def __init__(self, value: Expression, constants: pa.Array) -> None:
        self.value = value
        self.has_null = constants.null_count > 0
        self.constants = constants.drop_null()
        self.nullable = value.nullable or self.has_null

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        values = self.value.evaluate(batch, mask)
        if pa.types.is_nested(values.type):
            found = pa.array(self._find_nested(values))
        elif pa.types.is_floating(values.type):
            found = pa.array(self._find_floats(values))
        else:
            found = pc.is_in(values, self.constants)
        if self.has_null:
            found = pc.if_else(found, found, pa.scalar(None, pa.bool_()))
        return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_())) if values.null_count else found

    def _find_nested(self, values: pa.Array) -> Mask:
        codes = ranks(pa.concat_arrays([values, as_type(self.constants, values.type)]))
        return among(codes[: len(values)], codes[len(values) :])

    def _find_floats(self, values: pa.Array) -> Mask:
        vector, constants = to_vector(values), to_vector(self.constants)
        nan = np.isnan(constants)
        found: Mask = np.isin(vector, constants[~nan])
        return found | np.isnan(vector) if nan.any() else found


class Extreme(Expression):
    """``greatest`` (``>``) and ``least`` (``<``). Nulls are skipped, and the first of equal values is kept."""

    def __init__(self, symbol: str, children: Sequence[Expression], data_type: pa.DataType) -> None:
        self.symbol = symbol
        self.children = tuple(children)
        self.data_type = data_type
        self.nullable = all(child.nullable for child in children)

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        best, *others = [as_type(child.evaluate(batch, mask), self.data_type) for child in self.children]
        for array in others:
            better = pc.fill_null(compare(self.symbol, array, best), False)
            better = pc.or_(better, pc.and_(pc.is_null(best), pc.is_valid(array)))
            best = pc.if_else(better, array, best)
        return best
