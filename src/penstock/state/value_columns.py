"""Value columns of a table by row number."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.array_columns import ArrayColumns
from penstock.state.growable_array import GrowableArray, gathered
from penstock.state.vector import Mask, Rows, Vector, raw_dtype, raw_values

_OBJECT_BYTES = 48
"""Rough size of a Python int or short string, to estimate the size of the state."""


class ValueColumns:
    """Value columns: raw values as in a ``Vector``. A column has one additional byte per row after it had a null.

    Columns whose raw values are Python objects may be ``ArrayColumns`` instead. Before ``put``, a row has arbitrary
    values, or null in ``ArrayColumns``. ``take`` may be called on another thread while rows are written, but not during
    ``reserve``. Its result for these rows is arbitrary.

    Args:
        fields: the columns.
        initial_values: initial raw values of new rows, by column.
        arrays_under: lock with which other threads read ``ArrayColumns``. None: use Python objects instead.
    """

    def __init__(
        self, fields: Sequence[pa.Field], initial_values: Sequence[object], arrays_under: threading.Lock | None = None
    ) -> None:
        self._kinds = [field.type for field in fields]
        self._initial_values = list(initial_values)
        self._array_numbers: dict[int, int] = {}
        self._arrays: ArrayColumns | None = None
        if arrays_under is not None and (held := _numbered(self._kinds)):
            self._array_numbers, self._arrays = held, ArrayColumns([self._kinds[at] for at in held], arrays_under)
        self._data = {
            at: GrowableArray(raw_dtype(kind)) for at, kind in enumerate(self._kinds) if at not in self._array_numbers
        }
        self._nulls: dict[int, GrowableArray] = {}
        self._rows = 0

    def __len__(self) -> int:
        return len(self._kinds)

    def nbytes(self, rows: int) -> int:
        """Estimate the bytes of memory that this number of rows uses."""
        kinds = [data.data.dtype for data in self._data.values()]
        fixed = sum(kind.itemsize + (_OBJECT_BYTES if kind.kind == "O" else 0) for kind in kinds)
        return (fixed + len(self._nulls)) * rows + (0 if self._arrays is None else self._arrays.nbytes)

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` rows in total."""
        self._rows = max(rows, self._rows)
        for pages in (*self._data.values(), *self._nulls.values()):
            pages.reserve(self._rows)
        if self._arrays is not None:
            self._arrays.reserve(self._rows)

    def new(self, count: int) -> list[Vector]:
        """Return the initial values of new rows."""
        vectors = [Vector(kind, fill) for kind, fill in zip(self._kinds, self._initial_values, strict=True)]
        for vector in vectors:
            vector.extend(count)
        return vectors

    def take(self, rows: Rows) -> list[Vector]:
        """Copy the values of rows."""
        return [self.take_one(position, rows) for position in range(len(self))]

    def take_one(self, position: int, rows: Rows) -> Vector:
        """Copy the values of rows in one column."""
        if position in self._array_numbers:
            return self._array_vector(position, rows)
        nulls = self._nulls.get(position)
        valid: Mask | None = None if nulls is None else nulls.data.take(rows) == 0
        return Vector.over(
            self._kinds[position], self._data[position].data.take(rows), valid, self._initial_values[position]
        )

    def read_one(self, position: int, rows: Rows) -> Vector:
        """Return the values of rows in one column, read-only."""
        if position in self._array_numbers:
            return self._array_vector(position, rows)
        nulls = self._nulls.get(position)
        valid: Mask | None = None if nulls is None else gathered(nulls.data, rows) == 0
        return Vector.over(self._kinds[position], gathered(self._data[position].data, rows), valid)

    def _array_vector(self, position: int, rows: Rows) -> Vector:
        assert self._arrays is not None
        return Vector.of(
            self._arrays.take(self._array_numbers[position], rows), self._initial_values[position], is_unchanged=True
        )

    def loaded(self, arrays: Sequence[pa.Array]) -> list[Vector]:
        """Convert arrays to values of new rows, which may only be passed to ``put``. Copies only if necessary."""
        return [self._loaded_one(position, array) for position, array in enumerate(arrays)]

    def _loaded_one(self, position: int, array: pa.Array) -> Vector:
        if position in self._array_numbers:
            return Vector.of(array)
        if not array.null_count:
            return Vector.over(self._kinds[position], raw_values(array), None)
        vector = Vector(self._kinds[position], self._initial_values[position])
        vector.extend(len(array))
        vector.set(np.arange(len(array)), array)
        return vector

    def put(self, rows: Rows | slice, vectors: Sequence[Vector], count: int) -> None:
        """Overwrite distinct rows with the first ``count`` values of each vector; call ``reserve`` before."""
        for position, pages in self._data.items():
            data, valid = vectors[position].read()
            data, valid = data[:count], valid[:count]
            pages.data[rows] = data
            nulls = self._nulls.get(position)
            if nulls is None and not valid.all():
                nulls = GrowableArray(np.uint8)
                nulls.reserve(self._rows)
                self._nulls[position] = nulls
            if nulls is not None:
                nulls.data[rows] = ~valid
        held = [vectors[position] for position in self._array_numbers]
        if self._arrays is not None and not all(vector.is_unchanged for vector in held):
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            self._arrays.put(numbers, [vector.to_array().slice(0, count) for vector in held])

    def column(self, position: int) -> GrowableArray:
        """Return the raw values of one column."""
        return self._data[position]

    def read_words(self, position: int, rows: int) -> tuple[npt.NDArray[Any], Mask | None]:
        """Return the raw values of the first ``rows`` rows in a column, and a mask of those not null (None: all)."""
        nulls = self._nulls.get(position)
        return self._data[position].data[:rows], None if nulls is None else nulls.data[:rows] == 0

    def forget(self, rows: Rows) -> None:
        """Release the values of removed rows."""
        for pages in self._data.values():
            if pages.data.dtype.kind == "O":
                pages.data[rows] = None
        if self._arrays is not None:
            self._arrays.forget(rows)


def _numbered(kinds: Sequence[pa.DataType]) -> dict[int, int]:
    """Assign numbers to the columns whose raw values are Python objects. Return the numbers by position."""
    positions = [position for position, kind in enumerate(kinds) if raw_dtype(kind).kind == "O"]
    return {position: number for number, position in enumerate(positions)}
