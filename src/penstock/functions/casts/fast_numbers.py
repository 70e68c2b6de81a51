"""Fast paths between texts and numbers: plain digits, which Arrow reads and writes as Spark does.

Each function is a ``ColumnFunction`` whose constant arguments come first.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.functions.core.base import Mask
from penstock.functions.core.fast_path import FastResult
from penstock.functions.core.text_buffers import bytes_of, from_byte_matrix
from penstock.functions.core.vectors import Vector, from_vector, storage_type, to_vector

_MOST_DIGITS = 19
"""Number of digits of the longest long. Every shorter number fits into a long, and so does a number of this length
whose first digit is less than nine."""
_LONGEST = 38
"""Maximum number of characters of a number. With so many digits no float underflows."""
_NIBBLES = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_ZERO, _NINE, _MINUS, _POINT = np.uint8(ord("0")), ord("9"), ord("-"), ord(".")


def read_integers(data_type: pa.DataType, array: pa.Array, rows: Mask | None) -> FastResult:
    """Read integers that consist of digits with an optional minus sign."""
    data, begins, ends, signed = _signed(array)
    digits = ends - begins - signed
    plain = _counts(data - _ZERO > 9, begins, ends) == signed
    plain &= (digits > 0) & (digits <= _MOST_DIGITS)
    plain &= (digits < _MOST_DIGITS) | (_byte_at(data, begins + signed) < _NINE)
    wide = to_vector(_only(array, plain).cast(pa.int64()))
    values = wide.astype(storage_type(data_type))
    return FastResult(from_vector(values, data_type, rows), ~plain | (values != wide))


def read_floats(data_type: pa.DataType, array: pa.Array, rows: Mask | None) -> FastResult:
    """Read floats of digits with an optional minus sign and an optional point between digits.

    Arrow rounds such numbers correctly.
    """
    data, begins, ends, signed = _signed(array)
    points = _counts(data == _POINT, begins, ends)
    plain = _counts(data - _ZERO > 9, begins, ends) == points + signed
    plain &= (ends - begins > signed) & (ends - begins <= _LONGEST) & (points <= 1)
    plain &= (_byte_at(data, begins + signed) != _POINT) & (_byte_at(data, ends - 1) != _POINT)
    return FastResult(from_vector(to_vector(_only(array, plain).cast(data_type)), data_type, rows), ~plain)


def write_integers(array: pa.Array, rows: Mask | None) -> FastResult:
    return FastResult(array.cast(pa.string()))


def write_hexadecimal(array: pa.Array, rows: Mask | None) -> FastResult:
    """Write longs in hexadecimal. Negative longs are written as their unsigned bits, as in Java."""
    values = to_vector(array).astype(np.int64).view(np.uint64)
    digits = np.ones(len(values), np.int64)
    for shift in range(4, 64, 4):
        digits += values >= np.uint64(1 << shift)
    most = int(digits.max(initial=1))
    matrix = np.empty((most, len(values)), np.uint8)
    aligned = values << (np.uint64(4) * (most - digits).astype(np.uint64))
    for position in range(most):
        nibble = (aligned >> np.uint64(4 * (most - 1 - position))) & np.uint64(15)
        matrix[position] = _NIBBLES[nibble.astype(np.intp)]
    return FastResult(from_byte_matrix(matrix, rows, digits))


def _signed(array: pa.Array) -> tuple[Vector, Vector, Vector, Vector]:
    """Return the bytes of the texts, the start and end of each text, and 1 for each text with a leading minus sign."""
    data, offsets = bytes_of(array)
    begins, ends = offsets[:-1], offsets[1:]
    return data, begins, ends, ((_byte_at(data, begins) == _MINUS) & (ends > begins)).astype(np.int32)


def _byte_at(data: Vector, offsets: Vector) -> Vector:
    """Return the bytes at these offsets. At offsets outside all texts the byte is arbitrary."""
    return np.append(data, _ZERO)[offsets] if len(offsets) else data[:0]


def _counts(condition: Mask, begins: Vector, ends: Vector) -> Vector:
    """Count the bytes of each text that meet the condition."""
    before = np.zeros(len(condition) + 1, np.int32)
    np.cumsum(condition, out=before[1:])
    return before[ends] - before[begins]


def _only(array: pa.Array, plain: Mask) -> pa.Array:
    return array if plain.all() else pc.if_else(pa.array(plain), array, pa.scalar(None, array.type))
