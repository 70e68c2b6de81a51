"""The value columns of a table by row number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.pages import Pages, taken
from penstock.state.vector import Mask, Rows, Vector, raw_dtype, raw_values

_OBJECT_BYTES = 48
"""A rough size of one Python int or short string, for the state's size in bytes."""


class ValueColumns:
    """Raw values as in a ``Vector``, and a byte per row that tells nulls in those columns that ever had one.

    Rows hold anything until ``put``. ``take`` may be called on another thread while rows are written to (not during
    ``reserve``): what it gives for these is arbitrary.
    """

    def __init__(self, fields: Sequence[pa.Field], fills: Sequence[object]) -> None:
        self._kinds = [field.type for field in fields]
        self._fills = list(fills)
        self._data = [Pages(raw_dtype(kind)) for kind in self._kinds]
        self._nulls: list[Pages | None] = [None] * len(self._kinds)
        self._rows = 0

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def row_bytes(self) -> int:
        """An estimate of what a row takes."""
        fixed = sum(data.itemsize + (_OBJECT_BYTES if data.data.dtype.kind == "O" else 0) for data in self._data)
        return fixed + sum(1 for nulls in self._nulls if nulls is not None)

    def reserve(self, rows: int) -> None:
        """Make room for so many rows."""
        self._rows = max(rows, self._rows)
        for pages in (*self._data, *self._nulls):
            if pages is not None:
                pages.reserve(self._rows)

    def new(self, count: int) -> list[Vector]:
        """What new rows begin as."""
        vectors = [Vector(kind, fill) for kind, fill in zip(self._kinds, self._fills, strict=True)]
        for vector in vectors:
            vector.extend(count)
        return vectors

    def take(self, rows: Rows) -> list[Vector]:
        """Copies of these rows."""
        return [self.take_one(position, rows) for position in range(len(self))]

    def take_one(self, position: int, rows: Rows) -> Vector:
        """A copy of these rows' values in one column."""
        nulls = self._nulls[position]
        valid: Mask | None = None if nulls is None else nulls.data.take(rows) == 0
        return Vector.over(self._kinds[position], self._data[position].data.take(rows), valid, self._fills[position])

    def read_one(self, position: int, rows: Rows) -> Vector:
        """As ``take_one``, not to be written to."""
        nulls = self._nulls[position]
        valid: Mask | None = None if nulls is None else taken(nulls.data, rows) == 0
        return Vector.over(self._kinds[position], taken(self._data[position].data, rows), valid)

    def loaded(self, arrays: Sequence[pa.Array]) -> list[Vector]:
        """The values of new rows, to be put and nothing else: as far as it goes not copied."""
        vectors = self.new(0)
        for position, array in enumerate(arrays):
            if array.null_count:
                vectors[position].extend(len(array))
                vectors[position].set(np.arange(len(array)), array)
            else:
                vectors[position] = Vector.over(self._kinds[position], raw_values(array), None)
        return vectors

    def put(self, rows: Rows | slice, vectors: Sequence[Vector], count: int) -> None:
        """Overwrite these rows, each named once, with the first ``count`` of each vector; they fit: see ``reserve``."""
        for position, vector in enumerate(vectors):
            data, valid = vector.read()
            data, valid = data[:count], valid[:count]
            self._data[position].data[rows] = data
            nulls = self._nulls[position]
            if nulls is None and not valid.all():
                nulls = Pages(np.uint8)
                nulls.reserve(self._rows)
                self._nulls[position] = nulls
            if nulls is not None:
                nulls.data[rows] = ~valid

    def column(self, position: int) -> Pages:
        """The raw values of one column, to be looked through."""
        return self._data[position]

    def read_words(self, position: int, rows: int) -> tuple[npt.NDArray[Any], Mask | None]:
        """The raw values of the first ``rows`` rows in one column; and where they are not null (None: everywhere)."""
        nulls = self._nulls[position]
        return self._data[position].data[:rows], None if nulls is None else nulls.data[:rows] == 0

    def forget(self, rows: Rows) -> None:
        """These rows are gone: let go of what they refer to."""
        for pages in self._data:
            if pages.data.dtype.kind == "O":
                pages.data[rows] = None
