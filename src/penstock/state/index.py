"""Hash index from key hashes to row numbers. It processes a whole batch per numpy pass, and it grows incrementally.

It uses linear hashing (Litwin 1980) over segments: the low bits of a hash select the segment; its high bits select the
slot in the segment at which linear probing starts. To grow, segments are split in turn, a few with each insertion, so
that no insertion is slow. The keys of a split segment stay in it or move to the new segment.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from penstock.state.growable_array import GrowableArray
from penstock.state.vector import Mask, Rows

U64 = npt.NDArray[np.uint64]

_BITS = 12
_SEGMENT = 1 << _BITS
_LOAD = 0.35
"""Limit for the average fraction of slots that are or were in use. Segments that are not split yet may have up to twice
this fraction."""
_CROWDED = int(0.9 * _SEGMENT)
"""Limit for the slots of one segment that are or were in use."""
_AT_ONCE = 64
"""Number of segments that are split or cleaned in one pass."""
_REMOVED = -1


class HashIndex:
    """Index from distinct keys to row numbers. The caller stores the keys at these rows.

    Args:
        hashes_of: returns the hashes of the keys at some rows.
    """

    def __init__(self, hashes_of: Callable[[Rows], U64]) -> None:
        self._hashes_of = hashes_of
        self._slots = GrowableArray(np.int32)  # a row number + 1; 0 where a slot is empty
        self._slots.reserve(_SEGMENT)
        self._segments = 1
        self._level = 0  # there are 2 ** level segments, plus those that were split off in this round
        self._used = np.zeros(1, np.int64)  # by segment, the number of slots that are or were in use
        self._cleaned = 0
        self._live = 0

    @property
    def nbytes(self) -> int:
        return 4 * _SEGMENT * self._segments

    def find(self, hashes: U64, differ: Callable[[Rows, Rows], Mask]) -> Rows:
        """Return the row of each key; -1 for absent keys.

        Args:
            hashes: hashes of the keys.
            differ: returns True where the key of a row differs from the key at a position of ``hashes``.
        """
        found = np.full(len(hashes), -1, np.int64)
        positions = self._positions(hashes)
        searching = np.arange(len(hashes))
        slots = self._slots.data
        while len(searching):
            entries = slots[positions]
            held = np.flatnonzero(entries > 0)
            rows, asked = entries[held].astype(np.int64) - 1, searching[held]
            right = ~differ(rows, asked)
            found[asked[right]] = rows[right]
            onward = entries != 0
            onward[held[right]] = False
            searching, positions = searching[onward], _next(positions[onward])
        return found

    def insert(self, rows: Rows, hashes: U64, expected: int = 0) -> None:
        """Add keys that are distinct and absent. ``hashes_of`` must already support their rows.

        Args:
            rows: rows of the keys.
            hashes: hashes of the keys.
            expected: number of keys that will be added, including these. Room is made for all of them.
        """
        self._make_room(hashes, max(expected, len(hashes)))
        self._live += len(rows)
        self._fill_slots(rows, hashes)

    def remove(self, rows: Rows, hashes: U64) -> None:
        """Remove the keys at ``rows``. Their slots stay in use until their segment is cleaned."""
        self._live -= len(rows)
        self._slots.data[self._slots_of(rows, hashes)] = _REMOVED

    def replace(self, rows: Rows, others: Rows, hashes: U64) -> None:
        """Move the keys at ``rows`` to the rows ``others``."""
        self._slots.data[self._slots_of(rows, hashes)] = others + 1

    def _slots_of(self, rows: Rows, hashes: U64) -> Rows:
        """Return the slots of the keys at ``rows``."""
        found = positions = self._positions(hashes)
        searching, entries = np.arange(len(rows)), rows + 1
        while len(searching := searching[elsewhere := self._slots.data[positions] != entries]):
            entries, positions = entries[elsewhere], _next(positions[elsewhere])
            found[searching] = positions
        return found

    def _segments_of(self, hashes: U64) -> Rows:
        chosen: Rows = hashes.view(np.int64) & ((2 << self._level) - 1)
        chosen[chosen >= self._segments] -= 1 << self._level
        return chosen

    def _positions(self, hashes: U64) -> Rows:
        positions = self._segments_of(hashes) << _BITS
        positions |= (hashes >> np.uint64(64 - _BITS)).view(np.int64)
        return positions

    def _fill_slots(self, rows: Rows, hashes: U64) -> None:
        slots, positions, entries = self._slots.data, self._positions(hashes), (rows + 1).astype(np.int32)
        taken = [np.zeros(0, np.int64)]
        while len(entries):
            before = slots[positions]
            free = before <= 0
            slots[positions[free]] = entries[free]  # if two keys compete for a slot the last one gets it
            won = slots[positions] == entries
            taken.append(positions[won & (before == 0)])
            lost = np.flatnonzero(~won)
            entries, positions = entries[lost], _next(positions[lost])
        self._used += np.bincount(np.concatenate(taken) >> _BITS, minlength=self._segments)

    def _make_room(self, hashes: U64, more: int) -> None:
        while int(self._used.sum()) + more > self._limit:
            if self._live + more > 0.75 * self._limit:
                missing_segments = (self._live + more) / (_LOAD * _SEGMENT) - self._segments
                self._split(max(1, min(_AT_ONCE, int(missing_segments) + 1)))
            else:
                self._clean()
        while self._is_crowded(hashes):  # only crafted keys cause this
            self._split(_AT_ONCE)

    @property
    def _limit(self) -> float:
        return _LOAD * _SEGMENT * self._segments

    def _is_crowded(self, hashes: U64) -> bool:
        coming = np.bincount(self._segments_of(hashes), minlength=self._segments)
        return bool((self._used + coming).max() > _CROWDED)

    def _split(self, count: int) -> None:
        """Split the next segments, at most ``count``."""
        first = self._segments - (1 << self._level)
        count = min(count, (2 << self._level) - self._segments)
        rows = self._take_rows(first, count)
        self._segments += count
        self._slots.reserve(_SEGMENT * self._segments)
        self._used = np.concatenate([self._used, np.zeros(count, np.int64)])
        if self._segments == 2 << self._level:
            self._level += 1
        self._fill_slots(rows, self._hashes_of(rows))

    def _clean(self) -> None:
        """Make slots of removed keys empty again, in some segments."""
        if self._cleaned >= self._segments:
            self._cleaned = 0
        count = min(_AT_ONCE, self._segments - self._cleaned)
        rows = self._take_rows(self._cleaned, count)
        self._cleaned += count
        self._fill_slots(rows, self._hashes_of(rows))

    def _take_rows(self, first: int, count: int) -> Rows:
        """Empty some segments, and return their rows."""
        slots = self._slots.data[first * _SEGMENT : (first + count) * _SEGMENT]
        rows = slots[slots > 0].astype(np.int64) - 1
        slots[:] = 0
        self._used[first : first + count] = 0
        return rows


def _next(positions: Rows) -> Rows:
    """Return the next slots, cyclically within their segments."""
    following: Rows = (positions & -_SEGMENT) | ((positions + 1) & (_SEGMENT - 1))
    return following
