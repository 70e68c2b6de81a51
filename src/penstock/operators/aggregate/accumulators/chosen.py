"""Functions that keep one row's value: ``first`` and ``last``, ``any_value``, ``min_by`` and ``max_by``.

Rows that are equally good are told apart by when they come, as in Spark: by chance, where there are several subtasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.order import last_bests, ranks
from penstock.operators.aggregate.calls import AggregateCall
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
    judged = columns[-1] if len(rows) == len(groups) else columns[-1].take(pa.array(rows))
    present, owners = _present(groups[rows])
    best = last_bests(judged, owners, len(present), largest)
    held = buffers[-1].to_arrow(present)
    order = ranks(pa.concat_arrays([held, judged.take(pa.array(best)).cast(held.type)]))
    before, now = order[: len(present)], order[len(present) :]
    better = (before < 0) | ((now >= before) if largest else (now <= before))
    chosen = pa.array(rows[best[better]])
    for buffer, column in zip(buffers, columns, strict=True):
        buffer.set(present[better], column.take(chosen))


def _present(groups: Rows) -> tuple[Rows, Rows]:
    """Each group that occurs once, and where among these the one of every element is."""
    most = int(groups.max()) + 1
    if most > 2 * len(groups):  # few of many: sorting these is less than looking at all
        present, places = np.unique(groups, return_inverse=True)
        return present, places.reshape(-1)
    occurs = np.zeros(most, np.bool_)
    occurs[groups] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[groups]


def _nothing(kind: pa.DataType) -> object:
    """The raw value of a new row."""
    return None if Vector(kind).raw.dtype.kind == "O" else 0
