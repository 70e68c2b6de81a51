"""Functions that keep one row's value: ``first`` and ``last``, ``any_value``, ``min_by`` and ``max_by``.

Rows that are equally good are told apart by when they come, as in Spark: by chance, where there are several subtasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.accumulators.base import Accumulator
from penstock.operators.accumulators.order import ranks
from penstock.operators.aggregate_calls import AggregateCall
from penstock.state.arrays import validity
from penstock.state.vector import Rows, Vector, raw_values


class FirstOrLast(Accumulator):
    """The value, and whether there was one: it may be null. ``parameters``: whether nulls are passed over."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._ignore_nulls] = call.parameters

    def fills(self) -> list[object]:
        return [_nothing(self.call.input_type), 0]

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:
        buffers[1].write()[1][groups] = True

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        [values] = arguments
        counted = np.flatnonzero(validity(values)) if self._ignore_nulls else np.arange(len(groups))
        self._keep(buffers, groups, values, counted)

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        values, was_set = partials
        self._keep(buffers, groups, values, np.flatnonzero(raw_values(was_set)))

    def _keep(self, buffers: Sequence[Vector], groups: Rows, values: pa.Array, counted: Rows) -> None:
        self.begin(buffers, groups)
        was_set, _ = buffers[1].write()
        if self.call.function == "first":
            present, positions = np.unique(groups[counted], return_index=True)
            new = was_set[present] == 0
            present, positions = present[new], positions[new]
        else:
            present, positions = np.unique(groups[counted][::-1], return_index=True)
            positions = len(counted) - 1 - positions
        if len(present):
            buffers[0].set(present, values.take(pa.array(counted[positions])))
            was_set[present] = 1

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)


class Best(Accumulator):
    """``min_by`` and ``max_by``: the value, and what it is judged by."""

    def fills(self) -> list[object]:
        return [_nothing(self.call.input_type), _nothing(self.call.second_type)]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        keep_best(buffers, groups, arguments, self.call.function == "max_by")

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)


def keep_best(buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array], largest: bool) -> None:
    """Of each group keep the row with the largest (or smallest) value in the last column, of equal ones the last; rows
    where it is null do not count.

    Args:
        buffers: one per column.
        groups: by row of the columns.
    """
    rows = np.flatnonzero(validity(columns[-1]))
    if not len(rows):
        return
    candidates = columns[-1].take(pa.array(rows)) if len(rows) < len(groups) else columns[-1]
    present, codes = np.unique(groups[rows], return_inverse=True)
    held = buffers[-1].to_arrow(present)
    order = ranks(pa.concat_arrays([held, candidates.cast(held.type)]))
    before, now = order[: len(present)], order[len(present) :]
    if not largest:
        before, now = np.where(before < 0, np.iinfo(np.int64).min, -before), -now
    sorting = np.lexsort((now, codes.reshape(-1)))  # stable: the last one of a group is its last best
    lasts = sorting[np.append(np.flatnonzero(np.diff(codes.reshape(-1)[sorting])), len(sorting) - 1)]
    better = now[lasts] >= before
    chosen = pa.array(rows[lasts[better]])
    for buffer, column in zip(buffers, columns, strict=True):
        buffer.set(present[better], column.take(chosen))


def _nothing(kind: pa.DataType) -> object:
    """The raw value of a new row."""
    return None if Vector(kind).raw.dtype.kind == "O" else 0
