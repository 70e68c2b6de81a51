"""Vector: raw values and validity of one column for some rows, in the form in which operators compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.arrays import (
    decimal_ints,
    decimal_words,
    fixed_values,
    from_decimal_ints,
    from_decimal_words,
    from_fixed,
    plain_objects,
    storage_dtype,
    validity,
)

LONG_DECIMAL_PRECISION = 18
"""Largest precision of decimals whose unscaled values fit into 64 bits."""

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Vector:
    """Values and validity by row.

    Raw values of fixed-width types have the ``storage_dtype``. Decimals of up to 18 digits are unscaled int64 values;
    longer decimals are unscaled Python ints. Values of all other types are Python objects (see ``plain_objects``).
    Lists, and arrays from ``of``, are converted to raw values on demand.

    Args:
        kind: the Arrow type.
        fill: initial raw value of new rows, which are null until they are made valid.

    Attributes:
        kind: the Arrow type.
        size: number of rows in use.
        is_unchanged: True if the values came from a table and were not opened for writing.
    """

    def __init__(self, kind: pa.DataType, fill: object = 0) -> None:
        self.kind = kind
        self.size = 0
        self._fill = fill
        self._data: npt.NDArray[Any] = np.empty(0, raw_dtype(kind))
        self._valid: Mask | None = np.zeros(0, np.bool_)  # None: all values are valid
        # The same values as an array. If it is set, the raw values may be missing.
        self._array: pa.Array | None = pa.array([], kind) if pa.types.is_list(kind) else None
        self.is_unchanged = False

    @classmethod
    def over(cls, kind: pa.DataType, data: npt.NDArray[Any], valid: Mask | None, fill: object = 0) -> Vector:
        """Create a vector of raw values without a copy. ``valid``: None if all are valid."""
        vector = cls(kind, fill)
        vector.size, vector._data, vector._valid, vector._array = len(data), data, valid, None
        return vector

    @classmethod
    def of(cls, array: pa.Array, fill: object = 0, is_unchanged: bool = False) -> Vector:
        """Create a vector of an array whose raw values are Python objects."""
        vector = cls(array.type, fill)
        vector._become(array)
        vector.is_unchanged = is_unchanged
        return vector

    @property
    def raw(self) -> npt.NDArray[Any]:
        """Raw values, including spare ones after ``size``."""
        self._make_raw()
        return self._data

    def _make_raw(self) -> None:
        if self._array is not None and len(self._data) < self.size:
            self._data, self._valid = raw_values(self._array), validity(self._array)
            self._data[~self._valid] = self._fill

    def _become(self, array: pa.Array) -> None:
        self.size, self._array, self.is_unchanged = len(array), array, False
        self._data = self._data[:0]

    def extend(self, count: int) -> None:
        """Append null rows."""
        if self._array is not None:
            self._become(pa.concat_arrays([self._array, pa.nulls(count, self.kind)]))
            return
        size = self.size + count
        if size > len(self._data):
            data = np.full(max(size, 2 * len(self._data)), self._fill, self._data.dtype)
            valid = np.zeros(len(data), np.bool_)
            data[: self.size] = self._data[: self.size]
            valid[: self.size] = self.read()[1]
            self._data, self._valid = data, valid
        self.size = size

    def read(self) -> tuple[npt.NDArray[Any], Mask]:
        """Return raw values and validity, read-only."""
        self._make_raw()
        if self._valid is None:
            self._valid = np.ones(self.size, np.bool_)
        return self._data[: self.size], self._valid[: self.size]

    def write(self) -> tuple[npt.NDArray[Any], Mask]:
        """Return raw values and validity for changes in place."""
        found = self.read()
        self._array, self.is_unchanged = None, False
        return found

    def select(self, rows: Rows) -> Vector:
        """Return a new vector of some rows."""
        if self._array is not None:
            return Vector.of(self._array.take(pa.array(rows)), self._fill)
        data, valid = self.read()
        return Vector.over(self.kind, data[rows], valid[rows], self._fill)

    def copy(self) -> Vector:
        """Return a copy that can be changed."""
        if self._array is not None:
            return Vector.of(self._array, self._fill)
        data, valid = self.read()
        return Vector.over(self.kind, data.copy(), valid.copy(), self._fill)

    def set(self, rows: Rows, values: pa.Array) -> None:
        """Overwrite distinct rows with the values of an array."""
        if self._array is not None:
            sources = np.arange(self.size)
            if np.array_equal(rows, sources):
                self._become(values)
                return
            sources[rows] = np.arange(self.size, self.size + len(rows))
            self._become(pa.concat_arrays([self._array, values]).take(pa.array(sources)))
            return
        data, valid = self.write()
        known = validity(values)
        data[rows[known]] = raw_values(values)[known]
        valid[rows] = known

    def to_array(self) -> pa.Array:
        """Convert all rows to an array."""
        if self._array is not None:
            return self._array
        return arrow_of(self._data[: self.size], None if self._valid is None else self._valid[: self.size], self.kind)

    def to_arrow(self, rows: Rows) -> pa.Array:
        if self._array is not None:
            return self._array.take(pa.array(rows))
        valid = None if self._valid is None else self._valid[: self.size][rows]
        return arrow_of(self._data[: self.size].take(rows), valid, self.kind)


def raw_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Return the numpy dtype of raw values of a type."""
    if pa.types.is_decimal128(kind) and kind.precision <= LONG_DECIMAL_PRECISION:
        return np.dtype(np.int64)
    return storage_dtype(kind) or np.dtype(object)


def raw_values(array: pa.Array) -> npt.NDArray[Any]:
    """Return the raw values of an Arrow array; arbitrary for null rows."""
    kind = array.type
    if pa.types.is_decimal128(kind):
        return decimal_words(array)[0].view(np.int64) if raw_dtype(kind).kind != "O" else decimal_ints(array)
    fixed = fixed_values(array)
    if fixed is not None:
        return fixed
    return np.fromiter(plain_objects(array), object, len(array))


def arrow_of(data: npt.NDArray[Any], valid: Mask | None, kind: pa.DataType) -> pa.Array:
    """Create an array from raw values: the inverse of ``raw_values``. ``valid``: None if all are valid."""
    if pa.types.is_decimal128(kind):
        if data.dtype.kind != "O":
            return from_decimal_words(data.view(np.uint64), data >> 63, valid, kind)
        return from_decimal_ints(data, valid, kind)
    if data.dtype.kind != "O":
        return from_fixed(data, valid, kind)
    if valid is not None:
        objects = np.full(len(data), None, object)
        objects[valid] = data[valid]
        data = objects
    return pa.array(data.tolist(), kind)
