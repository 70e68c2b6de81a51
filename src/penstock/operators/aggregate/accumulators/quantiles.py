"""``percentile_approx``: the quantile summary of Greenwald and Khanna, queried as in Spark.

See "Space-efficient online computation of quantile summaries", 2001.

A sample represents ``width`` values: its own and smaller ones. The uncertainty of its rank is ``slack``. The summary of
a batch is exact. Merging and thinning keep ``width + slack`` within twice the error that the accuracy allows, so that
every result is within that error. Few values are never thinned out; the results then equal Spark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregate.accumulators.base import Accumulator, Doubles, doubles
from penstock.operators.aggregate.accumulators.lists import by_group
from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import storage_dtype, validity
from penstock.state.vector import Rows, Vector

_ROOM = 4096
"""Number of samples up to which a summary is never thinned out. The limit is ``4 * accuracy`` if that is larger."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Summary:
    """Samples in ascending order. ``least`` and ``most``: smallest and largest possible rank of each, from 1."""

    values: Doubles
    least: Longs
    most: Longs

    @property
    def count(self) -> int:
        return int(self.least[-1]) if len(self.least) else 0

    @classmethod
    def exact(cls, values: Doubles) -> Summary:
        """Return the exact summary of these values."""
        ranks = np.arange(1, len(values) + 1)
        return cls(values[np.argsort(_order(values), kind="stable")], ranks, ranks)

    @classmethod
    def stored(cls, values: list[float] | None, widths: list[int] | None, slacks: list[int] | None) -> Summary:
        """Return the summary from the result of ``buffers``. Without widths and slacks, the samples are all values."""
        samples = np.array(values or [], np.float64)
        if widths is None:
            return cls.exact(samples)
        least = np.cumsum(np.array(widths, np.int64))
        return cls(samples, least, least + np.array(slacks, np.int64))

    def buffers(self) -> tuple[list[float], list[int] | None, list[int] | None]:
        """Return the values, widths and slacks. Widths and slacks are None if the summary is exact."""
        widths, slacks = np.diff(self.least, prepend=0), self.most - self.least
        if len(widths) == self.count and not slacks.any():
            return self.values.tolist(), None, None
        return self.values.tolist(), widths.tolist(), slacks.tolist()

    def merged(self, other: Summary) -> Summary:
        """Return the summary of the values of both summaries.

        The rank of a sample increases by at least the rank of the last smaller sample of the other summary. It
        increases by less than the rank of the first larger sample of the other summary.
        """
        mine, others = _order(self.values), _order(other.values)
        parts = [
            _shifted(self, other, np.searchsorted(others, mine, "left")),
            _shifted(other, self, np.searchsorted(mine, others, "right")),
        ]
        values = np.concatenate([self.values, other.values])
        order = np.argsort(np.concatenate([mine, others]), kind="stable")
        least, most = (np.concatenate(pair)[order] for pair in zip(*parts, strict=True))
        return Summary(values[order], least, most)

    def thinned(self, accuracy: int) -> Summary:
        """Return a summary with as few samples as the accuracy allows, including the first and the last sample."""
        uncertain = 2 * self.count // accuracy
        kept, last = [0], len(self.values) - 1
        while kept[-1] < last:
            reach = int(np.searchsorted(self.most, self.least[kept[-1]] + uncertain, "right")) - 1
            kept.append(min(max(reach, kept[-1] + 1), last))
        return Summary(self.values[kept], self.least[kept], self.most[kept])

    def quantiles(self, percentages: Sequence[float], accuracy: int) -> list[float]:
        """Return the values at these percentages (0 to 1), like Spark's ``QuantileSummaries.query``."""
        error = 1.0 / accuracy
        widths = np.diff(self.least, prepend=0)
        allowed = int((widths + self.most - self.least).max()) // 2
        found = []
        for percentage in percentages:
            if percentage <= error or len(self.values) == 1:
                found.append(float(self.values[0]))
            elif percentage >= 1 - error:
                found.append(float(self.values[-1]))
            else:
                rank = int(np.ceil(percentage * self.count))
                near = (self.most - allowed <= rank) & (rank <= self.least + allowed)
                near[-1] = True
                found.append(float(self.values[int(np.argmax(near))]))
        return found


class Quantiles(Accumulator):
    """``percentile_approx``. ``parameters``: the percentages and the accuracy."""

    def __init__(self, call: AggregateCall) -> None:
        super().__init__(call)
        self._percentages, self._accuracy = call.parameters
        self._room = max(_ROOM, 4 * self._accuracy)

    def initial_values(self) -> list[object]:
        return [None, None, None]

    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        known = validity(arguments[0])
        numbers = pa.array(doubles(arguments[0])[known])
        for group, values in by_group(groups[known], numbers):
            self._keep(buffers, group, Summary.exact(np.array(values, np.float64)))

    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        columns = [partial.to_pylist() for partial in partials]
        for group, values, widths, slacks in zip(groups.tolist(), *columns, strict=True):
            self._keep(buffers, group, Summary.stored(values, widths, slacks))

    def _keep(self, buffers: Sequence[Vector], group: int, more: Summary) -> None:
        held = [buffer.read()[0][group] for buffer in buffers]
        summary = more if held[0] is None else Summary.stored(*held).merged(more)
        if len(summary.values) > self._room:
            summary = summary.thinned(self._accuracy)
        for buffer, column in zip(buffers, summary.buffers(), strict=True):
            data, valid = buffer.write()
            data[group] = column
            valid[group] = column is not None

    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        columns = [buffer.read()[0][rows].tolist() for buffer in buffers]
        found: list[list[float] | None] = []
        for held in zip(*columns, strict=True):
            summary = Summary.stored(*held)
            found.append(summary.quantiles(self._percentages, self._accuracy) if summary.count else None)
        return percentile_results(found, self.call.result_type)


def _shifted(samples: Summary, other: Summary, before: Longs) -> tuple[Longs, Longs]:
    """Return the smallest and largest ranks of the samples in the merged summary.

    ``before``: by sample, the number of samples of the other summary that precede it.
    """
    least = np.concatenate([[0], other.least])[before]
    most = np.concatenate([other.most - 1, [other.count]])[before]
    return samples.least + least, samples.most + most


def _order(values: Doubles) -> Longs:
    """Return longs that sort as Java's doubles do: -0.0 before 0.0, NaN last."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def percentile_results(found: Sequence[Sequence[float] | None], result_type: pa.DataType) -> pa.Array:
    """Return the percentiles of each group as an array of Spark's result type; None gives null.

    If the type is an array, a group's result has all of its percentiles. Otherwise it is the only percentile.
    """
    if not pa.types.is_list(result_type):
        return _percentile_array(
            [None if numbers is None else _percentile_value(numbers[0], result_type) for numbers in found], result_type
        )
    kind = result_type.value_type
    offsets = pa.array(np.cumsum([0, *(len(numbers or ()) for numbers in found)]), pa.int32())
    values = _percentile_array([_percentile_value(number, kind) for numbers in found for number in numbers or ()], kind)
    mask = pa.array([numbers is None for numbers in found])
    return pa.ListArray.from_arrays(offsets, values, pa.list_(result_type.value_field), mask=mask)


def _percentile_value(number: float, kind: pa.DataType) -> Any:
    """Convert a double to a value of the result's type."""
    if pa.types.is_decimal128(kind):
        return Decimal(repr(number)).quantize(Decimal(1).scaleb(-kind.scale))
    return number if pa.types.is_floating(kind) else int(number)


def _percentile_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal128(kind) or pa.types.is_floating(kind):
        return pa.array(values, kind)
    dtype = storage_dtype(kind)
    assert dtype is not None
    whole = pa.array(values, pa.from_numpy_dtype(dtype))
    return whole if whole.type == kind else whole.view(kind)
