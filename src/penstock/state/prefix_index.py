"""Index of rows by the leading columns of their keys. The rows of one prefix form a linked list of row numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.state.growable_array import GrowableArray
from penstock.state.index import HashIndex
from penstock.state.vector import Rows

U64 = npt.NDArray[np.uint64]

_NONE = -1
_REMOVED = -2
"""Predecessor of a row that is being removed."""
_FEW = 16
"""With fewer lists, following one list after the other is faster than following all of them in parallel."""


class PrefixIndex:
    """Index from hashes of prefixes to rows. The caller must compare the prefixes, because hashes may collide."""

    def __init__(self) -> None:
        self._hashes = GrowableArray(np.uint64)
        self._next = GrowableArray(np.int32)
        self._before = GrowableArray(np.int32)
        self._heads = HashIndex(lambda rows: self._hashes.data[rows])

    def nbytes(self, rows: int) -> int:
        """Return the bytes of memory that this number of rows uses."""
        return 16 * rows + self._heads.nbytes

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows in total."""
        for pages in (self._hashes, self._next, self._before):
            pages.reserve(rows)

    def add(self, rows: Rows, hashes: U64) -> None:
        """Add rows that are not in the index; call ``reserve`` before.

        New rows are inserted after the first row of their list, which stays the first.

        Args:
            rows: the rows.
            hashes: hashes of their prefixes.
        """
        if not len(rows):
            return
        self._hashes.data[rows] = hashes
        order = np.argsort(hashes)
        rows, hashes = rows[order], hashes[order]
        begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
        distinct = hashes[begins]
        firsts, lasts = rows[begins], rows[np.append(begins[1:], len(rows)) - 1]
        following, before = self._next.data, self._before.data
        following[rows[:-1]] = rows[1:]
        before[rows[1:]] = rows[:-1]
        heads = self._find(distinct)
        joined = np.flatnonzero(heads != _NONE)
        new = np.flatnonzero(heads == _NONE)
        before[firsts[new]] = following[lasts[new]] = _NONE
        predecessors, successors = heads[joined], following[heads[joined]]
        following[predecessors], before[firsts[joined]] = firsts[joined], predecessors
        following[lasts[joined]] = successors
        has_successor = successors != _NONE
        before[successors[has_successor]] = lasts[joined][has_successor]
        self._heads.insert(firsts[new], distinct[new])

    def remove(self, rows: Rows) -> None:
        """Remove rows that are in the index. ``rows`` are distinct."""
        following, before = self._next.data, self._before.data
        predecessors, successors = before[rows], following[rows]
        before[rows] = _REMOVED
        skipping = np.flatnonzero(self._are_removed(successors))
        while len(skipping):  # each pass halves the length of a run of removed rows
            onward = following[successors[skipping]]
            successors[skipping] = following[rows[skipping]] = onward
            skipping = skipping[self._are_removed(onward)]
        begins = np.flatnonzero(~self._are_removed(predecessors))  # the first row of each run of removed rows
        predecessors, successors = predecessors[begins], successors[begins]
        later = np.flatnonzero(predecessors != _NONE)
        following[predecessors[later]] = successors[later]
        with_successor = np.flatnonzero(successors != _NONE)
        before[successors[with_successor]] = predecessors[with_successor]
        firsts = predecessors == _NONE
        rows, successors = rows[begins[firsts]], successors[firsts].astype(np.int64)
        hashes, whole = self._hashes.data[rows], successors == _NONE
        self._heads.remove(rows[whole], hashes[whole])
        self._heads.replace(rows[~whole], successors[~whole], hashes[~whole])

    def _are_removed(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return True for the rows that are being removed. ``rows`` may contain ``_NONE``."""
        found: npt.NDArray[np.bool_] = (rows != _NONE) & (self._before.data[rows] == _REMOVED)
        return found

    def find(self, hashes: U64) -> tuple[Rows, Rows]:
        """Return the rows that have one of these distinct hashes, and for each row the index of its hash."""
        found: list[Rows] = []
        owners: list[Rows] = []
        rows, asked = self._find(hashes), np.arange(len(hashes))
        while True:
            present = np.flatnonzero(rows != _NONE)
            rows, asked = rows[present], asked[present]
            if len(rows) < _FEW:
                break
            found.append(rows)
            owners.append(asked)
            rows = self._next.data[rows].astype(np.int64)
        for row, owner in zip(rows.tolist(), asked.tolist(), strict=True):
            chain = self._chain(row)
            found.append(np.array(chain, np.int64))
            owners.append(np.full(len(chain), owner, np.int64))
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(found), np.concatenate(owners)

    def _chain(self, row: int) -> list[int]:
        rows, following = [], self._next.data
        while row != _NONE:
            rows.append(row)
            row = int(following[row])
        return rows

    def _find(self, hashes: U64) -> Rows:
        return self._heads.find(hashes, lambda rows, asked: self._hashes.data[rows] != hashes[asked])
