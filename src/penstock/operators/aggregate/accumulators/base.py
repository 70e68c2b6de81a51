"""Aggregate functions over groups of rows: add raw values, merge partial results, give the final result.

The buffers are ``Vector``s, one per field of ``AggregateCall.buffer_fields``; the same code fills the short-lived
ones of a partial aggregation and the ones of a keyed state table. Only the rows that are given are written to.
Semantics are Catalyst's: nulls are ignored, NaN is the largest double, integer sums are longs, decimals are exact.

What a buffer holds is never changed in place but replaced: a snapshot may refer to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.operators.aggregate.calls import AggregateCall
from penstock.state.arrays import validity
from penstock.state.ordering import order_by
from penstock.state.vector import Rows, Vector, raw_values

Doubles = npt.NDArray[np.float64]
_EXACT_LONG = 1 << 53
"""All longs up to this one are exact as doubles, and so are the powers of ten of a long decimal's scale."""


class Accumulator(ABC):
    """One aggregate function; holds no rows itself.

    Attributes:
        keeps_arrays: buffers that would be Python objects are better kept as arrays: see ``TableSpec``.
    """

    keeps_arrays = False

    def __init__(self, call: AggregateCall) -> None:
        self.call = call

    def initial_values(self) -> list[object]:
        """The raw values that new rows of the buffers start with."""
        return [0] * len(self.call.buffer_fields(0))

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:  # noqa: B027 - null may be what there is to say
        """Mark these groups as present, even if none of their rows counts."""

    @abstractmethod
    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        """Add one row of argument values per element of ``groups`` (row numbers of the buffers, repeated at will)."""

    def partial(self, groups: Rows, count: int, arguments: Sequence[pa.Array]) -> list[pa.Array] | None:
        """Return the buffers of ``count`` new groups as columns, if that is possible without buffers; None otherwise.

        The result is what ``add`` makes of such buffers. Every group is present.
        """
        return None

    @abstractmethod
    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        """Merge one partial result per element of ``groups``."""

    @abstractmethod
    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        """The final results of these rows."""


def valid_values(groups: Rows, values: pa.Array) -> tuple[Rows, npt.NDArray[Any]]:
    """Groups and raw values where the value is not null."""
    raw = raw_values(values)
    if not values.null_count:
        return groups, raw
    known = validity(values)
    return groups[known], raw[known]


def doubles(values: pa.Array) -> Doubles:
    """The nearest double of each number; days and microseconds are numbers, too. Arbitrary at null rows."""
    raw = raw_values(values)
    if not pa.types.is_decimal128(values.type):
        return raw.astype(np.float64)
    unit = 10**values.type.scale
    if raw.dtype.kind != "O" and np.abs(raw).max(initial=0) <= _EXACT_LONG:
        return np.asarray(raw / float(unit))
    return np.array([value / unit for value in raw.tolist()], np.float64)


def distinct_group_rounds(groups: Rows) -> Iterator[Rows]:
    """Yield the positions of ``groups`` in parts within which no group repeats.

    Each group's positions come in their order.
    """
    order = order_by(groups)
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    turns = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    for turn in range(int(turns.max()) + 1 if len(turns) else 0):
        yield order[turns == turn]
