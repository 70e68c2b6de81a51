"""Texts as NumPy can compute with them: their bytes one after the other, and where each begins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.vectors import Vector

Bytes = npt.NDArray[np.uint8]

MAX_BYTES = 2**31 - 1
"""Limit of Arrow's 32-bit offsets, for all texts of one batch."""
_ASCII = 128


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the position of each text (or binary) in the data buffer, and the end of the last one."""
    if len(array) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, count=len(array) + array.offset + 1)[array.offset :]


def bytes_of(array: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """The texts' bytes and nothing else, with the offsets in them. Never write to them."""
    offsets = offsets_of(array)
    begin, end = int(offsets[0]), int(offsets[-1])
    data = array.buffers()[2]
    if data is None or begin == end:
        return np.zeros(0, np.uint8), offsets - offsets[0]
    return np.frombuffer(data, np.uint8, count=end - begin, offset=begin), offsets - offsets[0]


def texts_of(data: Bytes, offsets: Vector, data_type: pa.DataType, rows: Mask | None = None) -> pa.Array:
    """The inverse; null outside ``rows``."""
    validity = None if rows is None or rows.all() else pa.array(rows).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(data_type, len(offsets) - 1, buffers)


def beyond_ascii(array: pa.Array) -> Mask | None:
    """The texts that are not all ASCII, at whose nulls it may say anything; None if there are none."""
    data, _ = bytes_of(array)
    if len(data) == 0 or data.max() < _ASCII:
        return None
    found: Mask = pc.fill_null(pc.invert(pc.string_is_ascii(array)), True).to_numpy(zero_copy_only=False)
    return found


def byte_matrix(array: pa.Array, width: int, rows: Mask) -> Bytes:
    """Return the bytes of ``rows`` as a matrix: one line per byte position, one column per row.

    The texts of ``rows`` must be ``width`` bytes long and not null.
    """
    chosen = array if rows.all() else array.filter(pa.array(rows))
    data, _ = bytes_of(chosen)
    return np.ascontiguousarray(data.reshape(-1, width).T)


def from_byte_matrix(matrix: Bytes, rows: Mask | None, kept: Vector | None = None) -> pa.Array:
    """Return the texts of a matrix as ``byte_matrix`` returns it; with ``kept``, only that many bytes of each text."""
    width, count = matrix.shape
    data = np.ascontiguousarray(matrix.T)
    if kept is None:
        return texts_of(data.reshape(-1), np.arange(count + 1) * width, pa.string(), rows)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(kept, out=offsets[1:])
    return texts_of(data[np.arange(width) < kept[:, None]], offsets, pa.string(), rows)
