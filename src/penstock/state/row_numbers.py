"""Allocation of row numbers to new keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.state.vector import Rows

_MIN_SLAB = 4
_MAX_SLAB = 1024
_SLABS = 16
"""A slab has at most 1 / 16 of the average number of rows in a key group, so that few numbers stay unused."""


class RowNumbers:
    """Allocator of row numbers.

    It reuses numbers of removed rows first. New numbers are allocated in slabs of one key group, so that the rows of a
    key group are adjacent in memory.

    Attributes:
        size: upper bound (exclusive) of the allocated numbers.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.size = 0
        self._next = np.zeros(max_parallelism, np.int64)  # next number in the newest slab, by key group
        self._end = np.zeros(max_parallelism, np.int64)
        self._free: list[Rows] = []

    def free(self, rows: Rows) -> None:
        """Free the numbers of removed rows."""
        self._free.append(rows)

    def restart(self, size: int, free: Rows) -> None:
        """Start again with all numbers below ``size`` in use, except ``free``."""
        self.size = size
        self._next[:] = self._end[:] = 0
        self._free = [free] if len(free) else []

    def take(self, groups: npt.NDArray[np.int16]) -> Rows:
        """Allocate a row number for each new key. ``groups``: key groups of the keys."""
        chosen, missing = [np.zeros(0, np.int64)], len(groups)
        while self._free and missing:
            last = self._free.pop()
            if len(last) > missing:
                self._free.append(last[missing:])
            chosen.append(last[:missing])
            missing -= len(chosen[-1])
        if missing:
            chosen.append(self._new(groups[len(groups) - missing :]))
        return np.concatenate(chosen)

    def append(self, count: int) -> Rows:
        """Allocate consecutive numbers for new keys. The keys should be sorted by key group."""
        rows = np.arange(self.size, self.size + count)
        self.size += count
        return rows

    def _new(self, groups: npt.NDArray[np.int16]) -> Rows:
        counts = np.bincount(groups, minlength=len(self._next))
        left = self._end - self._next
        lacking = np.maximum(counts - left, 0)
        slab = max(_MIN_SLAB, min(_MAX_SLAB, self.size // (_SLABS * len(self._next))))
        room = -(-lacking // slab) * slab
        starts = self.size + np.cumsum(room) - room
        order = np.argsort(groups, kind="stable")
        by_group = groups[order]
        nth = np.arange(len(groups)) - (np.cumsum(counts) - counts)[by_group]
        rows = np.empty(len(groups), np.int64)
        beyond = nth - left[by_group]
        rows[order] = np.where(beyond < 0, self._next[by_group] + nth, starts[by_group] + beyond)
        self.size += int(room.sum())
        begun = lacking > 0
        self._next = np.where(begun, starts + lacking, self._next + counts)
        self._end = np.where(begun, starts + room, self._end)
        return rows
