"""A growable column of a keyed table that is shared with snapshots and copied on the first write after one."""

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
    storage_dtype,
    validity,
)

_MIN_CAPACITY = 256
_LONG_DECIMAL_PRECISION = 18
_OBJECT_BYTES = 48
"""A rough size of one Python int or short string, for the state's size in bytes."""

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Vector:
    """Values and validity by row.

    Fixed-width types are kept as in ``storage_dtype``, decimals of up to 18 digits as unscaled int64, longer decimals
    as Python ints (unscaled), strings and binaries as Python objects.

    Attributes:
        kind: the Arrow type.
        size: rows in use.
    """

    def __init__(self, kind: pa.DataType, fill: object = 0) -> None:
        """``fill``: the raw value that new rows start with; they are null until made valid."""
        self.kind = kind
        self.size = 0
        self._fill = fill
        self._data: npt.NDArray[Any] = np.full(_MIN_CAPACITY, fill, raw_dtype(kind))
        self._valid: Mask = np.zeros(_MIN_CAPACITY, np.bool_)
        self._shared = False

    @property
    def nbytes(self) -> int:
        per_row = self._data.itemsize + 1 + (_OBJECT_BYTES if self._data.dtype.kind == "O" else 0)
        return self.size * per_row

    @property
    def raw(self) -> npt.NDArray[Any]:
        """Raw values with the spare room behind ``size``; rows that no snapshot has seen may be written to."""
        return self._data

    def extend(self, count: int) -> None:
        """Append null rows. Rows of a snapshot are not touched, so nothing is copied but to grow."""
        size = self.size + count
        if size > len(self._data):
            data = np.full(max(size, 2 * len(self._data)), self._fill, self._data.dtype)
            valid = np.zeros(len(data), np.bool_)
            data[: self.size] = self._data[: self.size]
            valid[: self.size] = self._valid[: self.size]
            self._data, self._valid, self._shared = data, valid, False
        self.size = size

    def read(self) -> tuple[npt.NDArray[Any], Mask]:
        """Raw values and validity, not to be written to."""
        return self._data[: self.size], self._valid[: self.size]

    def write(self) -> tuple[npt.NDArray[Any], Mask]:
        """Raw values and validity to be changed in place, copied first if a snapshot shares them."""
        if self._shared:
            self._data, self._valid, self._shared = self._data.copy(), self._valid.copy(), False
        return self._data[: self.size], self._valid[: self.size]

    def capture(self) -> tuple[npt.NDArray[Any], Mask]:
        """As ``read``, and the two arrays never change again."""
        self._shared = True
        return self.read()

    def select(self, rows: Rows) -> Vector:
        """A new vector of these rows."""
        chosen = Vector(self.kind, self._fill)
        chosen.extend(len(rows))
        chosen._data[: len(rows)] = self._data[rows]
        chosen._valid[: len(rows)] = self._valid[rows]
        return chosen

    def set(self, rows: Rows, values: pa.Array) -> None:
        """Overwrite rows, each named once at most, with the values of an array."""
        data, valid = self.write()
        known = validity(values)
        data[rows[known]] = raw_values(values)[known]
        valid[rows] = known

    def to_arrow(self, rows: Rows) -> pa.Array:
        data, valid = self.read()
        return arrow_of(data[rows], valid[rows], self.kind)


def raw_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy dtype of a vector of ``kind``."""
    if pa.types.is_decimal128(kind) and kind.precision <= _LONG_DECIMAL_PRECISION:
        return np.dtype(np.int64)
    return storage_dtype(kind) or np.dtype(object)


def raw_values(array: pa.Array) -> npt.NDArray[Any]:
    """An Arrow array in the raw form of a vector of its type; arbitrary at null rows."""
    kind = array.type
    if pa.types.is_decimal128(kind):
        return decimal_words(array)[0].view(np.int64) if raw_dtype(kind).kind != "O" else decimal_ints(array)
    fixed = fixed_values(array)
    if fixed is not None:
        return fixed
    objects = np.empty(len(array), object)
    objects[:] = array.to_pylist()
    return objects


def arrow_of(data: npt.NDArray[Any], valid: Mask, kind: pa.DataType) -> pa.Array:
    """The inverse of ``raw_values``."""
    if pa.types.is_decimal128(kind):
        if data.dtype.kind != "O":
            return from_decimal_words(data.view(np.uint64), data >> 63, valid, kind)
        return from_decimal_ints(data, valid, kind)
    if data.dtype.kind != "O":
        return from_fixed(data, valid, kind)
    return pa.array(data.tolist(), kind, mask=~valid)
