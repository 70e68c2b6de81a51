"""How far event time has closed the groups of each key group, beyond the subtask's own watermark."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.graph.keygroups import owned_range
from penstock.operators.base import Plain
from penstock.state.hashing import groups_of

Moments = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min

CLOSED = "closed"
"""The scalar that holds the ranges."""


class ClosedGroups:
    """Of one subtask: what those had reached that had its key groups before, as long as its watermark has not."""

    def __init__(self, subtask: int, parallelism: int, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._first, self._last = owned_range(subtask, parallelism, max_parallelism)
        self._reached: Moments | None = None  # by key group; None: nothing beyond the watermark

    def restore(self, ranges: Plain, first: int, last: int) -> None:
        """Take over ``ranges`` of a snapshot, as far as they are of key groups ``[first, last]``."""
        assert isinstance(ranges, list)
        for entry in ranges:
            assert isinstance(entry, list)
            low, high, reached_us = (int(number) for number in entry)  # type: ignore[arg-type]
            low, high = max(low, first), min(high, last)
            if low <= high:
                if self._reached is None:
                    self._reached = np.full(self._max_parallelism, _NEVER, np.int64)
                part = self._reached[low : high + 1]
                np.maximum(part, reached_us, out=part)

    def until(self, watermark_us: int | None, keys: Sequence[pa.Array], rows: int) -> Moments | int | None:
        """Up to when the groups of these rows are closed: by row, or of all of them, or None if no group is.

        Args:
            watermark_us: the one that the subtask has advanced to.
            keys: the rows' key columns.
            rows: their number.
        """
        self._pass(watermark_us)
        if self._reached is None:
            return watermark_us
        closed: Moments = self._reached[groups_of(keys, rows, self._max_parallelism)]
        return closed if watermark_us is None else np.maximum(closed, watermark_us)

    def ranges(self, watermark_us: int | None) -> list[Plain]:
        """``[first key group, last, closed until]`` of every range of key groups in which something is closed."""
        self._pass(watermark_us)
        if self._reached is None:
            return [] if watermark_us is None else [[self._first, self._last, watermark_us]]
        reached = self._reached[self._first : self._last + 1]
        if watermark_us is not None:
            reached = np.maximum(reached, watermark_us)
        edges = [0, *(np.flatnonzero(np.diff(reached)) + 1).tolist(), len(reached)]
        return [
            [self._first + low, self._first + high - 1, int(reached[low])]
            for low, high in pairwise(edges)
            if reached[low] != _NEVER
        ]

    def _pass(self, watermark_us: int | None) -> None:
        """Forget what the watermark has reached as well."""
        if self._reached is not None and watermark_us is not None and int(self._reached.max()) <= watermark_us:
            self._reached = None
