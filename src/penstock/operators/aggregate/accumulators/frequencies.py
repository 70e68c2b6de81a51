"""Functions of value frequencies: ``percentile``, ``median``, ``percentile_cont``, ``percentile_disc``, ``mode``.

As in Spark, a group stores each distinct value with its count. The results are exact and equal Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.errors import EvaluationError
from penstock.functions.core.ranks import ranks
from penstock.operators.aggregate.accumulators.base import Accumulator, Doubles, doubles
from penstock.operators.aggregate.accumulators.lists import flattened, store_lists, stored_lists, with_stored_lists
from penstock.operators.aggregate.accumulators.quantiles import percentile_results
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import plain_objects, validity
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.vector import Rows, Vector, raw_values


class Frequencies(Accumulator):
    """Counts of values. Buffers: the distinct values, and their counts.

    An optional second argument gives the frequency with which a row's value counts.
    """

    def initial_values(self) -> list[object]:
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
        added = [self._kept(values.filter(pa.array(counted))), pa.array(amounts[counted])]
        store_lists(buffers, *merge_equal_values(*with_stored_lists(buffers, groups[counted], added)))

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        """Append the lists. Equal values are merged only when a list's length has doubled, not for every batch."""
        held, counts = (buffer.write()[0] for buffer in buffers)
        crowded = []
        columns = (plain_objects(partial) for partial in partials)
        for group, more, amounts in zip(groups.tolist(), *columns, strict=True):
            if more is None:
                continue
            if held[group] is None:
                held[group], counts[group] = more, amounts
                continue
            before = len(held[group])
            held[group], counts[group] = held[group] + more, counts[group] + amounts
            if (before + len(more)).bit_length() > before.bit_length():
                crowded.append(group)
        for buffer, partial in zip(buffers, partials, strict=True):
            buffer.write()[1][groups[validity(partial)]] = True
        if crowded:
            store_lists(buffers, *merge_equal_values(*stored_lists(buffers, np.unique(crowded))))

    def _kept(self, values: pa.Array) -> pa.Array:
        return values

    def _ordered(self, buffers: Sequence[Vector], rows: Rows) -> tuple[Rows, pa.Array, Rows, Rows]:
        """Return the owners, values, counts and ranks of all values of these rows.

        An owner is an index into ``rows``; owners ascend.
        """
        owners, columns = flattened(np.arange(len(rows)), [buffer.to_arrow(rows) for buffer in buffers])
        owners, [values, counts] = merge_equal_values(owners, columns)
        return owners, values, raw_values(counts), ranks(values)


class Percentile(Frequencies):
    """Exact percentiles.

    ``parameters``: the percentages; True if values are sorted in descending order; and the result at a position between
    two values: interpolated (``between``), the ``next`` value, or the ``last`` value before the position.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._percentages, self._descending, self._between = call.parameters

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        owners, values, counts, order = self._ordered(buffers, rows)
        sizes = np.bincount(owners, minlength=len(rows))
        sorting = np.lexsort((-order if self._descending else order, owners))
        numbers, counts = doubles(values)[sorting], counts[sorting]
        found: list[list[float] | None] = []
        for begin, end in pairwise([0, *np.cumsum(sizes).tolist()]):
            if begin == end or not self._percentages:
                found.append(None)
            else:
                until = np.cumsum(counts[begin:end])
                found.append([self._at(numbers[begin:end], until, percentage) for percentage in self._percentages])
        return percentile_results(found, self.call.result_type)

    def _at(self, numbers: Doubles, until: Rows, percentage: float) -> float:
        """Return a percentile like Spark's ``getPercentile``. ``until``: cumulative counts of the numbers."""
        total = int(until[-1])
        if self._between == "next":
            return float(numbers[np.searchsorted(until, int(np.ceil(total * percentage)))])
        position = (total - 1) * percentage
        below, above = int(np.floor(position)), int(np.ceil(position))
        low, high = (float(numbers[np.searchsorted(until, index + 1)]) for index in (below, above))
        if below == above or low == high or self._between == "last":
            return low
        with np.errstate(all="ignore"):  # no warnings for infinities
            return low + (position - below) * (high - low)


class Mode(Frequencies):
    """``mode``: the most frequent value.

    ``parameters``: True if the smallest of several most frequent values is the result, False for the largest.
    """

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        [self._least] = call.parameters

    def _kept(self, values: pa.Array) -> pa.Array:
        return normalize_floats(values)

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        owners, values, counts, order = self._ordered(buffers, rows)
        sizes = np.bincount(owners, minlength=len(rows))
        sorting = np.lexsort((-order if self._least else order, counts, owners))
        some = sizes > 0
        lasts = np.cumsum(sizes)[some] - 1
        chosen = np.zeros(len(rows), np.int64)
        chosen[some] = sorting[lasts]
        return values.take(pa.array(chosen, mask=~some)).cast(self.call.result_type)


def merge_equal_values(owners: Rows, columns: Sequence[pa.Array]) -> tuple[Rows, list[pa.Array]]:
    """Merge equal values of an owner and add up their counts. Return the owners, ascending, and the columns."""
    values, counts = columns
    codes, first = group_rows([pa.array(owners), values], len(owners))
    totals = np.zeros(len(first), np.int64)
    np.add.at(totals, codes, raw_values(counts))
    order = np.argsort(owners[first], kind="stable")
    chosen = first[order]
    return owners[chosen], [values.take(pa.array(chosen)), pa.array(totals[order])]


def _negative(frequency: int) -> EvaluationError:
    return EvaluationError(
        f"[NEGATIVE_VALUES_IN_FREQUENCY_EXPRESSION] Found the negative value in the frequency of a percentile: "
        f"{frequency}L, but expected a positive integral value. SQLSTATE: 22003"
    )
