"""Detection of late rows, by key group: after a rescale a key group may be closed beyond the subtask's own watermark.

Spark's rule (``WatermarkSupport``): a row is late if its event time, or the end of its window, is at or below the
watermark. A row without an event time is never late.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.key_groups import owned_range
from penstock.model.plain import Plain
from penstock.operators.base import ScalarPart
from penstock.state.hashing import groups_of


def event_times(column: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return event times in microseconds since 1970, and a mask of the rows that have one.

    Args:
        column: timestamps, or window structs; of a struct the ``end`` counts, as in Spark.
    """
    times = column.flatten()[1] if pa.types.is_struct(column.type) else column
    if not times.null_count:
        return times.view(pa.int64()).to_numpy(), np.ones(len(times), np.bool_)
    return times.view(pa.int64()).fill_null(0).to_numpy(), times.is_valid().to_numpy(zero_copy_only=False)


Moments = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min

CLOSED = "closed"
"""Name of the scalar that stores ``ClosedGroups.ranges``."""


class ClosedGroups:
    """Watermarks that earlier owners of this subtask's key groups had reached.

    They are kept until the subtask's own watermark has reached all of them.
    """

    def __init__(self, subtask: int, parallelism: int, max_parallelism: int) -> None:
        self._max_parallelism = max_parallelism
        self._first, self._last = owned_range(subtask, parallelism, max_parallelism)
        self._reached: Moments | None = None  # by key group; None if no key group is ahead of the watermark

    def restore(self, parts: Sequence[ScalarPart]) -> None:
        """Restore the ranges that the snapshot's subtasks stored, limited to the key groups of this subtask."""
        for part in parts:
            self._take_over(part.scalars.get(CLOSED, []), part.first, part.last)

    def _take_over(self, ranges: Plain, first: int, last: int) -> None:
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

    def find_late_rows(
        self, watermark_us: int | None, keys: Sequence[pa.Array], event_time: pa.Array
    ) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the late rows; None if there are none.

        Args:
            watermark_us: current watermark of the subtask; None if it has none yet.
            keys: key columns of the rows.
            event_time: event times of the rows: timestamps, or window structs.
        """
        closed = self._closed_until(watermark_us, keys, len(event_time))
        if closed is None:
            return None
        times, known = event_times(event_time)
        late: npt.NDArray[np.bool_] = known & (times <= closed)
        return late if late.any() else None

    def _closed_until(self, watermark_us: int | None, keys: Sequence[pa.Array], rows: int) -> Moments | int | None:
        """Return the time up to which the groups of these rows are closed.

        The result is one time per row, one time for all rows, or None if no group is closed.
        """
        self._drop_passed(watermark_us)
        if self._reached is None:
            return watermark_us
        closed: Moments = self._reached[groups_of(keys, rows, self._max_parallelism)]
        return closed if watermark_us is None else np.maximum(closed, watermark_us)

    def ranges(self, watermark_us: int | None) -> list[Plain]:
        """Return ``[first, last, closed until]`` for each range of key groups (both inclusive) with closed groups."""
        self._drop_passed(watermark_us)
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

    def _drop_passed(self, watermark_us: int | None) -> None:
        """Forget the watermarks of earlier owners when this subtask's watermark has reached all of them."""
        if self._reached is not None and watermark_us is not None and int(self._reached.max()) <= watermark_us:
            self._reached = None
