"""Functions that select values of rows: ``min`` and ``max``, ``first`` and ``last``, ``min_by`` and ``max_by``.

Ties are decided by the order of arrival, as in Spark. With several subtasks, that order is undefined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.functions.core.ranks import Ranks, ranks
from penstock.operators.aggregate.accumulators.base import Accumulator, valid_values
from penstock.operators.aggregate.accumulators.lists import flattened, store_lists, with_stored_lists
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import fixed_values, validity
from penstock.state.vector import Rows, Vector, arrow_of, raw_dtype, raw_values


class FirstOrLast(Accumulator):
    """``first`` and ``last``. Buffers: the value, and a flag that is set if there was a value, which may be null.

    ``parameters``: True if nulls are skipped.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._ignore_nulls] = call.parameters

    def initial_values(self) -> list[object]:
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


class BestRow(Accumulator):
    """``min_by`` and ``max_by``. Buffers: the value, and its ordering value."""

    def initial_values(self) -> list[object]:
        return [_nothing(self.call.input_type), _nothing(self.call.second_type)]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        keep_best(buffers, groups, arguments, self.call.function == "max_by")

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)


def keep_best(buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array], largest: bool) -> None:
    """Keep for each group the row with the largest (or smallest) value in the last column. The last row wins a tie.

    Rows where that value is null do not count.

    Args:
        buffers: one per column.
        groups: group of each row of the columns.
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
    better = (before == 0) | ((now >= before) if largest else (now <= before))
    chosen = pa.array(rows[best[better]])
    for buffer, column in zip(buffers, columns, strict=True):
        buffer.set(present[better], column.take(chosen))


def _present(groups: Rows) -> tuple[Rows, Rows]:
    """Return the distinct groups, and for each element the position of its group among these."""
    most = int(groups.max()) + 1
    if most > 2 * len(groups):  # few of many groups occur: sorting is cheaper than scanning all groups
        present, indices = np.unique(groups, return_inverse=True)
        return present, indices.reshape(-1)
    occurs = np.zeros(most, np.bool_)
    occurs[groups] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[groups]


def _nothing(kind: pa.DataType) -> object:
    """Return the raw value of a new row."""
    return None if Vector(kind).raw.dtype.kind == "O" else 0


class Extreme(Accumulator):
    """``min`` and ``max``, to which ``bool_and``, ``bool_or``, ``every``, ``some`` and ``any`` are mapped."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._max = call.function == "max"

    def initial_values(self) -> list[object]:
        dtype = raw_dtype(self.call.input_type)
        if dtype.kind == "O":
            return [None]
        if dtype.kind == "f":  # NaN is the largest value; fmin returns it only if there is no other value
            return [-np.inf if self._max else np.nan]
        return [np.iinfo(dtype).min if self._max else np.iinfo(dtype).max]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        [values] = arguments
        if raw_dtype(self.call.input_type).kind == "O":
            keep_best(buffers, groups, [values], self._max)
            return
        groups, raw = valid_values(groups, values)
        data, valid = buffers[0].write()
        smaller = np.fmin if data.dtype.kind == "f" else np.minimum
        with np.errstate(invalid="ignore"):  # no warning for NaN, which is an ordinary value
            (np.maximum if self._max else smaller).at(data, groups, raw)
        valid[groups] = True

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self.add(buffers, groups, partials)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        data, valid = buffers[0].read()
        return arrow_of(data[rows], valid[rows], self.call.result_type)


class BestRows(Accumulator):
    """``max_by(x, y, k)`` and ``min_by(x, y, k)``: the values of the k best rows, the best first.

    Buffers: the values, and their ordering values. Of rows with equal ordering values, earlier rows come first.

    ``parameters``: k, the number of rows that are kept.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._most] = call.parameters

    def initial_values(self) -> list[object]:
        return [None, None]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known = validity(arguments[1])
        self._keep(buffers, groups[known], [argument.filter(pa.array(known)) for argument in arguments])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        self._keep(buffers, *flattened(groups, partials))

    def _keep(self, buffers: Sequence[Vector], groups: Rows, columns: Sequence[pa.Array]) -> None:
        owners, columns = with_stored_lists(buffers, groups, columns)
        order = ranks(columns[1])
        sorting = np.lexsort((-order if self.call.function == "max_by_k" else order, owners))
        owners = owners[sorting]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        rank_in_group = np.arange(len(owners)) - np.repeat(begins, np.diff(begins, append=len(owners)))
        kept = rank_in_group < self._most
        chosen = pa.array(sorting[kept])
        store_lists(buffers, owners[kept], [column.take(chosen) for column in columns])

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        return buffers[0].to_arrow(rows).cast(self.call.result_type)


def last_bests(array: pa.Array, owners: Rows, count: int, largest: bool) -> Rows:
    """Return the position of each owner's largest (or smallest) value; of equal values, the last position.

    Values are ordered as by ``ranks``.

    Args:
        array: at least one value of each owner; a null is less than any value.
        owners: owner of each value, in ``[0, count)``.
    """
    positions = _bests(array, owners, count, largest)
    lasts = np.zeros(count, np.int64)
    lasts[owners[positions]] = positions  # the last assignment to an index wins
    return lasts


def _bests(array: pa.Array, owners: Rows, count: int, largest: bool) -> Rows:
    """Return the positions of all values that equal the best value of their owner.

    Structs are compared field by field. After the first field, few rows are usually left.
    """
    positions = np.arange(len(array))
    if array.null_count:
        positions = _extreme(validity(array).astype(np.int64), owners, count, largest)
    if not pa.types.is_struct(array.type):
        numbers = _numbers(_at(array, positions))
        return positions[_extreme(numbers, owners[positions], count, largest)]
    for field in array.flatten():
        if len(positions) == count:
            break
        positions = positions[_bests(_at(field, positions), owners[positions], count, largest)]
    return positions


def _at(array: pa.Array, positions: Rows) -> pa.Array:
    return array if len(positions) == len(array) else array.take(pa.array(positions))


def _numbers(array: pa.Array) -> Ranks:
    """Return numbers that order values that are not null as ``ranks`` does. All nulls get the same number.

    Integers, dates and times are used as they are.
    """
    values = fixed_values(array)
    if values is None or values.dtype.kind == "f":
        return ranks(array)
    return np.where(validity(array), values, 0) if array.null_count else values.astype(np.int64)


def _extreme(numbers: Ranks, owners: Rows, count: int, largest: bool) -> Rows:
    """Return the positions of the numbers that equal the largest (or smallest) number of their owner."""
    bounds = np.iinfo(np.int64)
    best = np.full(count, bounds.min if largest else bounds.max)
    (np.maximum if largest else np.minimum).at(best, owners, numbers)
    return np.flatnonzero(numbers == best[owners])
