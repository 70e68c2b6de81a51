"""The value columns of a table by row number."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.held_values import HeldValues
from penstock.state.pages import Pages, taken
from penstock.state.vector import Mask, Rows, Vector, raw_dtype, raw_values

_OBJECT_BYTES = 48
"""A rough size of one Python int or short string, for the state's size in bytes."""


class ValueColumns:
    """Raw values as in a ``Vector``, and a byte per row that tells nulls in those columns that ever had one. Those that
    would be Python objects may be ``HeldValues`` instead.

    Rows hold anything until ``put``, ``HeldValues`` null. ``take`` may be called on another thread while rows are
    written to (not during ``reserve``): what it gives for these is arbitrary.
    """

    def __init__(
        self, fields: Sequence[pa.Field], fills: Sequence[object], arrays_under: threading.Lock | None = None
    ) -> None:
        """``arrays_under``: what would be Python objects is not; and other threads read with this lock."""
        self._kinds = [field.type for field in fields]
        self._fills = list(fills)
        self._held_at: dict[int, int] = {}
        self._held: HeldValues | None = None
        if arrays_under is not None and (held := _numbered(self._kinds)):
            self._held_at, self._held = held, HeldValues([self._kinds[at] for at in held], arrays_under)
        self._data = {at: Pages(raw_dtype(kind)) for at, kind in enumerate(self._kinds) if at not in self._held_at}
        self._nulls: dict[int, Pages] = {}
        self._rows = 0

    def __len__(self) -> int:
        return len(self._kinds)

    def nbytes(self, rows: int) -> int:
        """An estimate of the memory in use for so many rows."""
        kinds = [data.data.dtype for data in self._data.values()]
        fixed = sum(kind.itemsize + (_OBJECT_BYTES if kind.kind == "O" else 0) for kind in kinds)
        return (fixed + len(self._nulls)) * rows + (0 if self._held is None else self._held.nbytes)

    def reserve(self, rows: int) -> None:
        """Make room for so many rows."""
        self._rows = max(rows, self._rows)
        for pages in (*self._data.values(), *self._nulls.values()):
            pages.reserve(self._rows)
        if self._held is not None:
            self._held.reserve(self._rows)

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
        if position in self._held_at:
            return self._held_one(position, rows)
        nulls = self._nulls.get(position)
        valid: Mask | None = None if nulls is None else nulls.data.take(rows) == 0
        return Vector.over(self._kinds[position], self._data[position].data.take(rows), valid, self._fills[position])

    def read_one(self, position: int, rows: Rows) -> Vector:
        """As ``take_one``, not to be written to."""
        if position in self._held_at:
            return self._held_one(position, rows)
        nulls = self._nulls.get(position)
        valid: Mask | None = None if nulls is None else taken(nulls.data, rows) == 0
        return Vector.over(self._kinds[position], taken(self._data[position].data, rows), valid)

    def _held_one(self, position: int, rows: Rows) -> Vector:
        assert self._held is not None
        return Vector.of(self._held.take(self._held_at[position], rows), self._fills[position], is_held=True)

    def loaded(self, arrays: Sequence[pa.Array]) -> list[Vector]:
        """The values of new rows, to be put and nothing else: as far as it goes not copied."""
        return [self._loaded_one(position, array) for position, array in enumerate(arrays)]

    def _loaded_one(self, position: int, array: pa.Array) -> Vector:
        if position in self._held_at:
            return Vector.of(array)
        if not array.null_count:
            return Vector.over(self._kinds[position], raw_values(array), None)
        vector = Vector(self._kinds[position], self._fills[position])
        vector.extend(len(array))
        vector.set(np.arange(len(array)), array)
        return vector

    def put(self, rows: Rows | slice, vectors: Sequence[Vector], count: int) -> None:
        """Overwrite these rows, each named once, with the first ``count`` of each vector; they fit: see ``reserve``."""
        for position, pages in self._data.items():
            data, valid = vectors[position].read()
            data, valid = data[:count], valid[:count]
            pages.data[rows] = data
            nulls = self._nulls.get(position)
            if nulls is None and not valid.all():
                nulls = Pages(np.uint8)
                nulls.reserve(self._rows)
                self._nulls[position] = nulls
            if nulls is not None:
                nulls.data[rows] = ~valid
        held = [vectors[position] for position in self._held_at]
        if self._held is not None and not all(vector.is_held for vector in held):
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            self._held.put(numbers, [vector.to_array().slice(0, count) for vector in held])

    def column(self, position: int) -> Pages:
        """The raw values of one column, to be looked through."""
        return self._data[position]

    def read_words(self, position: int, rows: int) -> tuple[npt.NDArray[Any], Mask | None]:
        """The raw values of the first ``rows`` rows in one column; and where they are not null (None: everywhere)."""
        nulls = self._nulls.get(position)
        return self._data[position].data[:rows], None if nulls is None else nulls.data[:rows] == 0

    def forget(self, rows: Rows) -> None:
        """These rows are gone: let go of what they refer to."""
        for pages in self._data.values():
            if pages.data.dtype.kind == "O":
                pages.data[rows] = None
        if self._held is not None:
            self._held.forget(rows)


def _numbered(kinds: Sequence[pa.DataType]) -> dict[int, int]:
    """The positions of those whose raw values are Python objects, and their numbers among these."""
    positions = [position for position, kind in enumerate(kinds) if raw_dtype(kind).kind == "O"]
    return {position: number for number, position in enumerate(positions)}
