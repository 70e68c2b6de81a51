"""Growable numpy array that grows without a copy and uses memory only for pages that were written."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MIN_ITEMS = 64
_MAPPED_BYTES = 1 << 20
"""Minimum size of an array that has its own memory mapping."""
_HUGE_BYTES = 8 << 20
"""Minimum size of an array that uses huge pages. In smaller arrays they would waste memory."""


def gathered(data: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return ``data[rows]``, read-only. Arrow gathers twice as fast as numpy. ``rows`` must be in range."""
    if data.dtype.kind == "O":
        return data.take(rows)
    found: npt.NDArray[Any] = pc.take(pa.array(data), pa.array(rows), boundscheck=False).to_numpy()
    return found


class GrowableArray:
    """Growable array of items of one type. New items are zero (None in an array of objects).

    Large arrays are private memory mappings: the system moves their pages when they grow, and pages that were not
    written take no memory. A reader on another thread must hold the lock that the owner holds during ``reserve``.

    Attributes:
        data: all items, including spare ones at the end. ``reserve`` replaces the array.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._dtype = np.dtype(dtype)
        self._mapping: mmap.mmap | None = None
        self.data: npt.NDArray[Any] = self._allocated(_MIN_ITEMS)

    @property
    def itemsize(self) -> int:
        return self._dtype.itemsize

    def reserve(self, items: int) -> None:
        """Make room for ``items`` items in total."""
        held = len(self.data)
        if items <= held:
            return
        items = max(items, held + held // 2)
        nbytes = items * self._dtype.itemsize
        if self._dtype.kind == "O" or nbytes < _MAPPED_BYTES:
            self._copy_to(self._allocated(items))
        elif self._mapping is None or not self._resize(self._mapping, nbytes):
            mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            _advise(mapping, nbytes)
            self._copy_to(np.frombuffer(mapping, self._dtype))
            self._mapping = mapping

    def _allocated(self, items: int) -> npt.NDArray[Any]:
        return np.empty(items, object) if self._dtype.kind == "O" else np.zeros(items, self._dtype)

    def _copy_to(self, larger: npt.NDArray[Any]) -> None:
        larger[: len(self.data)] = self.data
        self.data = larger

    def _resize(self, mapping: mmap.mmap, nbytes: int) -> bool:
        """Resize the mapping. Return False if it must be copied instead: views of it exist, or the system refuses."""
        self.data = self._allocated(0)
        try:
            mapping.resize(nbytes)
        except (BufferError, OSError, SystemError):
            self.data = np.frombuffer(mapping, self._dtype)
            return False
        _advise(mapping, nbytes)
        self.data = np.frombuffer(mapping, self._dtype)
        return True


def _advise(mapping: mmap.mmap, nbytes: int) -> None:
    if nbytes >= _HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
