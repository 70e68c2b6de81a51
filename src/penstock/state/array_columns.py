"""Columns of values by row number: rows refer to the Arrow arrays with which they were added.

Strings, lists and structs never become Python objects. An array is kept as long as a row refers to it. Rows that were
written together are mostly removed together, which costs nothing. When less than half of the stored values are in use,
sparse arrays are rewritten without unused values. Small arrays are merged, like the components of an LSM tree (O'Neil
et al. 1996). Therefore neither removed rows nor small batches take more than twice the necessary memory.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.growable_array import GrowableArray
from penstock.state.vector import Rows

_NOWHERE = 0
_FULL = 1 << 14
"""Parts with at least this many rows are not merged."""
_FEW = 7
"""Maximum number of small parts that are not merged yet."""
_FULL_BYTES = 64 << 20
"""Limit for the bytes of merged parts, far below the limit of 32-bit offsets."""


@dataclass(eq=False)
class _Part:
    """Rows whose values are in the same arrays.

    Attributes:
        first: position of its first row; row ``rows[i]`` has position ``first + i`` while this part has its values.
        rows: row numbers.
        arrays: values of the rows, by column.
        nbytes: memory of the part.
        used: number of rows whose values are still in this part.
    """

    first: int
    rows: npt.NDArray[np.int32]
    arrays: list[pa.Array]
    nbytes: int
    used: int


class ArrayColumns:
    """Columns of any types.

    ``take`` may be called on another thread, with the lock, while rows are written to. Its result for these rows is
    arbitrary.

    Args:
        kinds: types of the columns.
        lock: held while parts are rewritten. Rewriting also moves rows that are not being written to.
    """

    def __init__(self, kinds: Sequence[pa.DataType], lock: threading.Lock) -> None:
        self._kinds = list(kinds)
        self._lock = lock
        self._positions = GrowableArray(np.int64)
        self._end = _NOWHERE + 1
        self._parts: tuple[_Part, ...] = ()  # by ascending ``first``; the tuple is replaced, because readers hold it

    @property
    def nbytes(self) -> int:
        """Memory in use, in bytes."""
        return sum(part.nbytes for part in self._parts) + self._positions.data.nbytes

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows in total."""
        self._positions.reserve(rows)

    def put(self, rows: Rows, arrays: Sequence[pa.Array]) -> None:
        """Overwrite these rows, which are distinct."""
        if not len(rows):
            return
        self.forget(rows)
        self._append(rows, [pa.concat_arrays([array]) for array in arrays])  # copies, since arrays may be slices
        self._tidy()

    def forget(self, rows: Rows) -> None:
        """Forget the values of rows. Rows without values are allowed."""
        positions = self._positions.data[rows]
        positions = positions[positions != _NOWHERE]
        if not len(positions):
            return
        self._positions.data[rows] = _NOWHERE
        forgotten_counts = np.bincount(self._locate(self._parts, positions)[0], minlength=len(self._parts))
        for part, count in zip(self._parts, forgotten_counts.tolist(), strict=True):
            part.used -= count
        self._drop_unused()

    def _drop_unused(self) -> None:
        """Drop unused parts and rewrite sparse ones. Rows removed in the order of their insertion are not rewritten."""
        if not all(part.used for part in self._parts):
            self._parts = tuple(part for part in self._parts if part.used)
        if 2 * sum(part.used for part in self._parts) < sum(len(part.rows) for part in self._parts):
            for part in self._parts:
                if 2 * part.used < len(part.rows):
                    self._rewrite([part])
            self._tidy()

    def take(self, column: int, rows: Rows) -> pa.Array:
        """Return the values of rows in one column; null for rows without a value."""
        positions, parts = self._positions.data[rows], self._parts
        missing = positions == _NOWHERE
        if missing.all() or not parts:
            return pa.nulls(len(rows), self._kinds[column])
        numbers, offsets = self._locate(parts, positions)
        if missing.any():
            indices = np.cumsum(~missing) - 1
            return self._take(column, parts, numbers[~missing], offsets[~missing]).take(pa.array(indices, mask=missing))
        return self._take(column, parts, numbers, offsets)

    @staticmethod
    def _take(column: int, parts: Sequence[_Part], numbers: npt.NDArray[np.integer], offsets: Rows) -> pa.Array:
        first = int(numbers[0])
        if (numbers == first).all():
            return parts[first].arrays[column].take(pa.array(offsets))
        order = np.argsort(numbers, kind="stable")
        cuts = np.append(np.flatnonzero(np.diff(numbers[order], prepend=-1)), len(order))
        pieces = [
            parts[numbers[order[start]]].arrays[column].take(pa.array(offsets[order[start:stop]]))
            for start, stop in pairwise(cuts.tolist())
        ]
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(back))

    @staticmethod
    def _locate(parts: Sequence[_Part], positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.integer], Rows]:
        """Return for each position the number of its part and the index in this part; arbitrary if no part has it."""
        firsts = np.array([part.first for part in parts], np.int64)
        sizes = np.array([len(part.rows) for part in parts], np.int64)
        numbers = np.maximum(np.searchsorted(firsts, positions, side="right") - 1, 0)
        offsets = np.clip(positions - firsts[numbers], 0, sizes[numbers] - 1)
        return numbers.astype(np.min_scalar_type(len(parts))), offsets

    def _append(self, rows: Rows, arrays: list[pa.Array]) -> None:
        nbytes = sum(array.nbytes for array in arrays) + 4 * len(rows)
        part = _Part(self._end, rows.astype(np.int32), arrays, nbytes, len(rows))
        self._end += len(rows)
        self._parts = (*self._parts, part)
        self._positions.data[rows] = np.arange(part.first, self._end)

    def _tidy(self) -> None:
        """Merge the small parts at the end if there are many, so that a row is rewritten O(log n) times."""
        together, rows, nbytes = 0, 0, 0
        for part in reversed(self._parts):
            nbytes += part.nbytes
            if together and (len(part.rows) >= min(_FULL, 2 * rows) or nbytes > _FULL_BYTES):
                break
            together, rows = together + 1, rows + len(part.rows)
        if together > _FEW:
            self._rewrite(self._parts[-together:])

    def _rewrite(self, parts: Sequence[_Part]) -> None:
        """Merge the used rows of some parts into one part at the end. Each part must have used rows."""
        rows, columns = [], []
        for part in parts:
            used = np.flatnonzero(self._positions.data[part.rows] == np.arange(part.first, part.first + len(part.rows)))
            rows.append(part.rows[used].astype(np.int64))
            columns.append([array.take(pa.array(used)) for array in part.arrays])
        arrays = [pa.concat_arrays(list(pieces)) for pieces in zip(*columns, strict=True)]
        with self._lock:
            self._parts = tuple(part for part in self._parts if part not in parts)
            self._append(np.concatenate(rows), arrays)
