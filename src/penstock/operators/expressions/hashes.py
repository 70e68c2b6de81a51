"""Spark's hash functions, shared with the key groups."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.operators.expressions.base import Expression, Mask
from penstock.operators.expressions.vectors import from_vector
from penstock.state.hashing import hash_columns


class XxHash64(Expression):
    """``xxhash64`` with Spark's seed, 42; nulls leave the hash as it is."""

    data_type = pa.int64()
    nullable = False

    def __init__(self, children: Sequence[Expression]) -> None:
        self.children = tuple(children)

    def evaluate(self, batch: pa.RecordBatch, mask: Mask | None = None) -> pa.Array:
        columns = [child.evaluate(batch, mask) for child in self.children]
        return from_vector(hash_columns(columns, batch.num_rows), self.data_type)
