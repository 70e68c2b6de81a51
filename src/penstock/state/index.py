"""A hash index from key words to row numbers: open addressing with linear probing, a whole batch per numpy pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.state.keys import Words

_EMPTY = -1
_REMOVED = -2
_MIN_CAPACITY = 1024
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def mix(words: Sequence[Words]) -> npt.NDArray[np.uint64]:
    """A cheap hash of each row's words. Stays inside the process: stored data never depends on it."""
    hashes = np.zeros(len(words[0]), np.uint64)
    for word in words:
        hashes ^= word.view(np.uint64)
        hashes *= _MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
    return hashes


class HashIndex:
    """Maps distinct keys to row numbers. The keys themselves are kept by the caller, at those rows.

    At most half of the slots are in use or were, so a probe ends after a few steps.
    """

    def __init__(self, expected: int = 0) -> None:
        capacity = _MIN_CAPACITY
        while capacity < 4 * expected:
            capacity *= 2
        self._slots = np.full(capacity, _EMPTY, np.int64)
        self._mask = np.uint64(capacity - 1)
        self._used = 0

    @property
    def nbytes(self) -> int:
        return self._slots.nbytes

    def has_room(self, more: int) -> bool:
        """Whether ``more`` keys can be inserted; otherwise build a larger index."""
        return 2 * (self._used + more) <= len(self._slots)

    def find(self, words: Sequence[Words], stored: Sequence[Words]) -> Words:
        """The row of every key, or -1. ``stored`` are the words by row number."""
        positions = mix(words) & self._mask
        rows: Words = self._slots[positions]
        wrong = self._mismatch(rows, words, stored)
        searching = np.flatnonzero(wrong & (rows != _EMPTY))
        rows[wrong] = -1
        positions = positions[searching]
        while len(searching):
            positions = (positions + np.uint64(1)) & self._mask
            candidates = self._slots[positions]
            wrong = self._mismatch(candidates, [word[searching] for word in words], stored)
            rows[searching[~wrong]] = candidates[~wrong]
            onward = wrong & (candidates != _EMPTY)
            searching, positions = searching[onward], positions[onward]
        return rows

    @staticmethod
    def _mismatch(rows: Words, words: Sequence[Words], stored: Sequence[Words]) -> npt.NDArray[np.bool_]:
        wrong = rows < 0
        for word, known in zip(words, stored, strict=True):
            wrong |= known[rows] != word  # a negative row reads some other row and is wrong already
        return wrong

    def insert(self, rows: Words, words: Sequence[Words]) -> None:
        """Add keys that are distinct and absent. Needs ``has_room(len(rows))``."""
        positions = mix(words) & self._mask
        self._used += len(rows)
        while len(rows):
            free = self._slots[positions] < 0
            self._slots[positions[free]] = rows[free]  # where two want one slot the last gets it, the other moves on
            lost = self._slots[positions] != rows
            rows, positions = rows[lost], (positions[lost] + np.uint64(1)) & self._mask

    def remove(self, rows: Words, words: Sequence[Words]) -> None:
        """Forget keys that are present at ``rows``. Their slots stay used until a new index is built."""
        positions = mix(words) & self._mask
        while len(rows):
            there = self._slots[positions] == rows
            self._slots[positions[there]] = _REMOVED
            rows, positions = rows[~there], (positions[~there] + np.uint64(1)) & self._mask
