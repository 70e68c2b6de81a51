"""Sort and limit of the complete result at the end of an epoch. All rows come to one subtask.

Neither operator has state: the rows are received and emitted within one ``finish_epoch`` of the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Expression
from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator

_EMIT_ROWS = 8192
"""Rows per emitted batch."""


@dataclass(frozen=True)
class SortKey:
    """Sort expression and direction, like Catalyst's ``SortOrder``.

    Strings are ordered by their bytes and structs field by field. NaN is larger than every number; -0.0 equals 0.0.
    """

    expression: Expression
    ascending: bool
    nulls_first: bool


@dataclass(frozen=True, kw_only=True)
class SortSpec(OperatorSpec):
    """Specification of a sort of the rows of each epoch. The sort is stable."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    keys: tuple[SortKey, ...]

    def create(self) -> Operator:
        return SortOperator(self)


class SortOperator(Operator):
    """Stable sort. It collects the rows of an epoch and yields them when the epoch ends."""

    def __init__(self, spec: SortSpec) -> None:
        self._spec = spec
        self._batches: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._batches.append(batch)
        return iter(())

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        if not self._batches:
            return
        rows = pa.Table.from_batches(self._batches, self._spec.output_schema).combine_chunks()
        self._batches = []
        [batch] = rows.to_batches()
        codes: list[npt.NDArray[np.int64]] = []
        for key in self._spec.keys:
            codes += _codes(key.expression.evaluate(batch), key.ascending, key.nulls_first)
        order = np.lexsort(codes[::-1]) if codes else np.arange(batch.num_rows)
        for start in range(0, len(order), _EMIT_ROWS):
            yield batch.take(pa.array(order[start : start + _EMIT_ROWS]))


def _codes(array: pa.Array, ascending: bool, nulls_first: bool) -> list[npt.NDArray[np.int64]]:
    """Return arrays of numbers, the most significant one first, that sort in the order of the values."""
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_struct(array.type):
        # Within a struct a null field is the smallest value, independently of ``nulls_first``.
        codes = [] if valid.all() else [_with_null_codes(np.zeros(len(array), np.int64), valid, nulls_first)]
        for child in array.flatten():
            codes += _codes(child, ascending, nulls_first=ascending)
        return codes
    ranks = pc.rank(array, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return [_with_null_codes(ranks if ascending else -ranks, valid, nulls_first)]


def _with_null_codes(
    codes: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_], nulls_first: bool
) -> npt.NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    return np.where(valid, codes, limits.min if nulls_first else limits.max)


@dataclass(frozen=True, kw_only=True)
class LimitSpec(OperatorSpec):
    """Specification of a limit: the first ``count`` rows of each epoch."""

    operator_id: str
    name: str
    output_schema: pa.Schema
    count: int

    def create(self) -> Operator:
        return LimitOperator(self)


class LimitOperator(Operator):
    """Limit of the rows of each epoch."""

    def __init__(self, spec: LimitSpec) -> None:
        self._count = spec.count
        self._left = spec.count

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = batch.slice(0, self._left)
        self._left -= rows.num_rows
        if rows.num_rows:
            yield rows

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        self._left = self._count
        return iter(())
