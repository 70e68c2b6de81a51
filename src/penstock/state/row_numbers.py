"""Which row number a new key gets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.state.vector import Rows

_MIN_SLAB = 4
_MAX_SLAB = 1024
_SLABS = 16
"""A slab is at most this part of what a key group holds on average: so little is the room that waits in vain."""


class RowNumbers:
    """Numbers of removed rows first. New ones come in slabs of one key group each, so that what is read by key group
    lies together in memory.

    Attributes:
        size: numbers that were handed out are below.
    """

    def __init__(self, max_parallelism: int) -> None:
        self.size = 0
        self._next = np.zeros(max_parallelism, np.int64)  # of the newest slab, by key group
        self._end = np.zeros(max_parallelism, np.int64)
        self._free: list[Rows] = []

    def free(self, rows: Rows) -> None:
        """These rows were removed."""
        self._free.append(rows)

    def restart(self, size: int, free: Rows) -> None:
        """Numbers below ``size`` are in use, but for these."""
        self.size = size
        self._next[:] = self._end[:] = 0
        self._free = [free] if len(free) else []

    def take(self, groups: npt.NDArray[np.int16]) -> Rows:
        """A row for each new key, given their key groups."""
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
        """The next numbers, for new keys that come by key group already."""
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
