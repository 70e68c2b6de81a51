"""``try_...`` around anything: null where the child raises."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.base import Expression, Mask


class GenerationSlots(Expression):
    """Null at the rows at which the child raises, which are found by halving."""

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
