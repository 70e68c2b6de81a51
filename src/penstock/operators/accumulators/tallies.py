"""Functions of how often each value comes: ``percentile``, ``median``, ``percentile_cont``, ``percentile_disc`` and
``mode``. A group keeps each different value with its count, as Spark does, and so gives Spark's very results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.operators.accumulators.answers import answers
from penstock.operators.accumulators.base import Accumulator
from penstock.operators.accumulators.order import ranks
from penstock.operators.accumulators.value_lists import hold, sizes_of, unrolled, with_held
from penstock.operators.aggregate_calls import AggregateCall
from penstock.state.arrays import decimal_ints, validity
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.vector import Rows, Vector, raw_values

Doubles = npt.NDArray[np.float64]


class Tally(Accumulator):
    """Two buffers: the different values, and how often each came. A second argument says how often a row counts."""

    def fills(self) -> list[object]:
        return [None, None]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        values, *frequencies = arguments
        counted = validity(values)
        amounts = np.ones(len(values), np.int64)
        for frequency in frequencies:
            counted = counted & validity(frequency)
            amounts = raw_values(frequency).astype(np.int64)
            if (amounts[counted] < 0).any():
                raise _negative(int(amounts[counted].min()))
            counted = counted & (amounts != 0)
        self._count(buffers, groups[counted], values.filter(pa.array(counted)), amounts[counted])

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        owners, [values, counts] = unrolled(groups, partials)
        self._count(buffers, owners, values, raw_values(counts))

    def _count(self, buffers: Sequence[Vector], groups: Rows, values: pa.Array, amounts: Rows) -> None:
        if not len(groups):
            return
        owners, [values, counts] = with_held(buffers, groups, [self._kept(values), pa.array(amounts)])
        codes, first = group_rows([pa.array(owners), values], len(owners))
        totals = np.zeros(len(first), np.int64)
        np.add.at(totals, codes, raw_values(counts))
        order = np.argsort(owners[first], kind="stable")
        hold(buffers, owners[first][order], [values.take(pa.array(first[order])), pa.array(totals[order])])

    def _kept(self, values: pa.Array) -> pa.Array:
        return values

    def _ordered(self, buffers: Sequence[Vector], rows: Rows) -> tuple[Rows, pa.Array, Rows, Rows]:
        """How many values each of these groups has; all of them, group by group, with their counts and their ranks."""
        values, counts = (buffer.to_arrow(rows) for buffer in buffers)
        sizes = sizes_of(values)
        _, [values, counts] = unrolled(np.arange(len(rows)), [values, counts])
        return sizes, values, raw_values(counts), ranks(values)


class Percentile(Tally):
    """``parameters``: the percentages, whether values descend, and how what lies between two values is found:
    ``between`` them, at the ``next`` or at the ``last`` one."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._percentages, self._descending, self._between = call.parameters

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        sizes, values, counts, order = self._ordered(buffers, rows)
        owners = np.repeat(np.arange(len(rows)), sizes)
        sorting = np.lexsort((-order if self._descending else order, owners))
        numbers, counts = _doubles(values)[sorting], counts[sorting]
        found: list[list[float] | None] = []
        for begin, end in pairwise([0, *np.cumsum(sizes).tolist()]):
            if begin == end or not self._percentages:
                found.append(None)
            else:
                until = np.cumsum(counts[begin:end])
                found.append([self._at(numbers[begin:end], until, percentage) for percentage in self._percentages])
        return answers(found, self.call.result_type)

    def _at(self, numbers: Doubles, until: Rows, percentage: float) -> float:
        """Spark's ``getPercentile``. ``until``: how many values there are up to each number."""
        total = int(until[-1])
        if self._between == "next":
            return float(numbers[np.searchsorted(until, int(np.ceil(total * percentage)))])
        position = (total - 1) * percentage
        below, above = int(np.floor(position)), int(np.ceil(position))
        low, high = (float(numbers[np.searchsorted(until, place + 1)]) for place in (below, above))
        if below == above or low == high or self._between == "last":
            return low
        with np.errstate(all="ignore"):  # infinities
            return low + (position - below) * (high - low)


class Mode(Tally):
    """The value that comes most often. ``parameters``: whether the least of several is given, otherwise the largest."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._least] = call.parameters

    def _kept(self, values: pa.Array) -> pa.Array:
        return normalize_floats(values)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        sizes, values, counts, order = self._ordered(buffers, rows)
        owners = np.repeat(np.arange(len(rows)), sizes)
        sorting = np.lexsort((-order if self._least else order, counts, owners))
        some = sizes > 0
        lasts = np.cumsum(sizes)[some] - 1
        chosen = np.zeros(len(rows), np.int64)
        chosen[some] = sorting[lasts]
        return values.take(pa.array(chosen, mask=~some)).cast(self.call.result_type)


def _doubles(values: pa.Array) -> Doubles:
    """The nearest double of each."""
    if pa.types.is_decimal128(values.type):
        unit = 10**values.type.scale
        return np.array([value / unit for value in decimal_ints(values).tolist()], np.float64)
    return raw_values(values).astype(np.float64)


def _negative(frequency: int) -> EvaluationError:
    return EvaluationError(
        f"[NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION] Found the negative value in the frequency of a percentile: "
        f"{frequency}L, but expected a positive integral value. SQLSTATE: 22003"
    )
