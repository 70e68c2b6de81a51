"""Texts in a form for NumPy: one array of bytes, and the offset of each text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import Vector

Bytes = npt.NDArray[np.uint8]

MAX_BYTES = 2**31 - 1
"""Maximum number of bytes of all texts of one batch: Arrow's offsets have 32 bits."""
_ASCII = 128


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the position of each text (or binary) in the data buffer, and the end of the last one."""
    if len(array) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, count=len(array) + array.offset + 1)[array.offset :]


def bytes_of(array: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """Return the bytes of the texts, without gaps, and the offsets in them. The arrays must not be modified."""
    offsets = offsets_of(array)
    begin, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    if data is None or begin == end:
        return np.zeros(0, np.uint8), offsets - offsets[0]
    return np.frombuffer(data, np.uint8, count=end - begin, offset=begin), offsets - offsets[0]


def texts_of(data: Bytes, offsets: Vector, data_type: pa.DataType, rows: Mask | None = None) -> pa.Array:
    """Return an array from bytes and offsets, the inverse of ``bytes_of``; null outside ``rows``."""
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(data_type, len(offsets) - 1, buffers)


def beyond_ascii(array: pa.Array) -> Mask | None:
    """Return a mask of the texts with a non-ASCII byte; None if all are ASCII. The mask is arbitrary at nulls."""
    data, _ = bytes_of(array)
    if len(data) == 0 or data.max() < _ASCII:
        return None
    found: Mask = pc.fill_null(pc.invert(pc.string_is_ascii(array)), True).to_numpy(zero_copy_only=False)
    return found


def byte_matrix(array: pa.Array, width: int, rows: Mask) -> Bytes:
    """Return the bytes of ``rows`` as a matrix with one line per byte position and one column per row.

    The texts at ``rows`` must be ``width`` bytes long and not null.
    """
    chosen = array if rows.all() else array.filter(pa.array(rows))
    data, _ = bytes_of(chosen)
    return np.ascontiguousarray(data.reshape(-1, width).T)


def from_byte_matrix(matrix: Bytes, rows: Mask | None, kept: Vector | None = None) -> pa.Array:
    """Return the texts of a matrix as returned by ``byte_matrix``.

    ``kept`` is the number of bytes to keep of each text.
    """
    width, count = matrix.shape
    data = np.ascontiguousarray(matrix.T)
    if kept is None:
        return texts_of(data.reshape(-1), np.arange(count + 1) * width, pa.string(), rows)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(kept, out=offsets[1:])
    return texts_of(data[np.arange(width) < kept[:, None]], offsets, pa.string(), rows)
