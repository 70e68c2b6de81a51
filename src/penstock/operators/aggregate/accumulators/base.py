"""Aggregate functions over groups of rows: add raw values, merge partial results, return the final result.

The buffers are ``Vector``s, one per field of ``AggregateCall.buffer_fields``. The same code fills the temporary buffers
of a partial aggregation and those of a keyed state table. Only the given rows of the buffers are written.
The semantics are Catalyst's: nulls are ignored, NaN is the largest double, integer sums are longs, decimals are exact.

An object in a buffer is never changed in place but replaced, because a snapshot may refer to it.
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
"""Doubles represent all longs up to this one exactly, and also the powers of ten for the scale of such a decimal."""


class Accumulator(ABC):
    """Aggregate function. It does not hold the buffers itself.

    Attributes:
        keeps_arrays: True if the table should store buffers as Arrow arrays instead of Python objects; see
            ``TableSpec``.
    """

    keeps_arrays = False

    def __init__(self, call: AggregateCall) -> None:
        self.call = call

    def initial_values(self) -> list[object]:
        """Return the initial raw value of each buffer."""
        return [0] * len(self.call.buffer_fields(0))

    def begin(self, buffers: Sequence[Vector], groups: Rows) -> None:  # noqa: B027 - null may be what there is to say
        """Mark these groups as present, even if none of their rows counts."""

    @abstractmethod
    def add(self, buffers: Sequence[Vector], groups: Rows, arguments: Sequence[pa.Array]) -> None:
        """Add one row of argument values per element of ``groups``: row numbers of the buffers, which may repeat."""

    def partial(self, groups: Rows, count: int, arguments: Sequence[pa.Array]) -> list[pa.Array] | None:
        """Return the buffer columns of ``count`` new groups, if they can be computed directly; None otherwise.

        The result equals that of ``add`` on new buffers. Every group must be present in ``groups``.
        """
        return None

    @abstractmethod
    def merge(self, buffers: Sequence[Vector], groups: Rows, partials: Sequence[pa.Array]) -> None:
        """Merge one partial result per element of ``groups``."""

    @abstractmethod
    def result(self, buffers: Sequence[Vector], rows: Rows) -> pa.Array:
        """Return the final results of these rows of the buffers."""


def valid_values(groups: Rows, values: pa.Array) -> tuple[Rows, npt.NDArray[Any]]:
    """Return the groups and raw values of the rows where the value is not null."""
    raw = raw_values(values)
    if not values.null_count:
        return groups, raw
    known = validity(values)
    return groups[known], raw[known]


def doubles(values: pa.Array) -> Doubles:
    """Return the nearest double of each value; arbitrary for nulls. Dates and times count as days or microseconds."""
    raw = raw_values(values)
    if not pa.types.is_decimal128(values.type):
        return raw.astype(np.float64)
    unit = 10**values.type.scale
    if raw.dtype.kind != "O" and np.abs(raw).max(initial=0) <= _EXACT_LONG:
        return np.asarray(raw / float(unit))
    return np.array([value / unit for value in raw.tolist()], np.float64)


def distinct_group_rounds(groups: Rows) -> Iterator[Rows]:
    """Yield the positions of ``groups`` in parts, such that no group repeats within a part.

    The positions of each group come in ascending order.
    """
    order = order_by(groups)
    begins = np.flatnonzero(np.diff(groups[order], prepend=-1))
    turns = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order)))
    for turn in range(int(turns.max()) + 1 if len(turns) else 0):
        yield order[turns == turn]
