"""What can be asked of an array: an element by position, its size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.expressions import failures
from penstock.operators.expressions.base import Expression, Mask
from penstock.operators.expressions.strict import Strict
from penstock.operators.expressions.vectors import first, select, to_vector


class GetItem(Strict):
    """``array[index]``, zero-based; outside it raises under ANSI and is null otherwise."""

    def __init__(self, array: Expression, index: Expression, ansi: bool) -> None:
        super().__init__((array, index), array.data_type.value_type)
        self.ansi = ansi

    def compute(self, arrays: list[pa.Array], rows: Mask | None) -> pa.Array:
        lists, index = arrays[0], to_vector(arrays[1]).astype(np.int64)
        offsets = to_vector(lists.offsets).astype(np.int64)
        sizes = np.diff(offsets)
        outside = select(rows, (index < 0) | (index >= sizes))
        if self.ansi and outside.any():
            row = first(outside)
            raise failures.array_index(index[row], sizes[row])
        usable = select(rows, ~outside)
        return lists.values.take(pa.array(offsets[:-1] + index, mask=~usable))


class Size(Expression):
    """``size`` of an array: null of null, or -1 in Spark's legacy form."""

    data_type = pa.int32()

    def __init__(self, child: Expression, null_is_minus_one: bool) -> None:
        self.child = child
        self.null_is_minus_one = null_is_minus_one
        self.nullable = child.nullable and not null_is_minus_one

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        sizes = pc.list_value_length(self.child.evaluate(batch, mask))
        return pc.fill_null(sizes, -1) if self.null_is_minus_one else sizes
