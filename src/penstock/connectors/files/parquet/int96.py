"""INT96 timestamps of Parquet files, read from their bits.

An INT96 is a number of nanoseconds and a Julian day. pyarrow reads both as unsigned numbers and a day 0 as null. So
times before 4713 BC, and those for which Spark's writer overflows, become other times. This module changes the footer
before pyarrow reads it: it declares columns of INT96 as columns of 12 bytes, whose pages have the same format.

The footer is a struct of Thrift's compact protocol: thrift-compact-protocol.md, parquet.thrift.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

_INT96, _FIXED_LEN_BYTE_ARRAY = 3, 7
_BYTES = pa.binary(12)
_PARTS: np.dtype[Any] = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_EPOCH_DAY = np.int32(2_440_588)
"""1970-01-01 as a Julian day."""
_MICROS_PER_DAY = 86_400_000_000

_TAIL_BYTES = 8
_SCHEMA_TYPE, _COLUMN_TYPE = (2, 1), (4, 1, 3, 1)
"""Field numbers from the footer down to the physical type of a schema element and of a column in a row group."""
_TYPE_LENGTH = bytes([0x15, 2 * 12])
"""Field 2, which follows field 1: a 32-bit integer, 12."""
_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def has_int96(schema: pq.ParquetSchema) -> bool:
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))


def metadata_with_bytes(path: str) -> pq.FileMetaData:
    """Return the file's metadata with columns of 12 bytes in place of INT96."""
    with open(path, "rb") as file:
        file.seek(-_TAIL_BYTES, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        file.seek(-_TAIL_BYTES - size, os.SEEK_END)
        footer = file.read(size)
    changed = _changed(footer)
    return pq.read_metadata(pa.BufferReader(b"PAR1" + changed + len(changed).to_bytes(4, "little") + b"PAR1"))


def is_int96(leaf: pa.Array, kind: pa.DataType) -> bool:
    """Return True if a leaf has 12 bytes in place of INT96. ``kind``: its type in the unchanged footer."""
    return bool(leaf.type == _BYTES and pa.types.is_timestamp(kind))


def instants(array: pa.FixedSizeBinaryArray) -> pa.Array:
    """Return timestamps in microseconds, with Java's overflows and truncating division."""
    data = array.buffers()[1] or b""
    place = array.offset * _PARTS.itemsize
    parts: npt.NDArray[Any] = np.frombuffer(data, dtype=_PARTS, count=len(array), offset=place)
    nanos = parts["nanos"].astype(np.int64)
    micros = nanos // 1000
    micros += (nanos < 0) & (micros * 1000 != nanos)
    micros += (parts["day"].astype(np.int32) - _EPOCH_DAY).astype(np.int64) * _MICROS_PER_DAY
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(micros, pa.int64(), mask=mask).view(pa.timestamp("us"))


def _changed(footer: bytes) -> bytes:
    reader = _Footer(footer)
    parts: list[bytes] = []
    place = 0
    for begin, end, text in reader.changes():
        parts += footer[place:begin], text
        place = end
    return b"".join([*parts, footer[place:]])


class _Footer:
    """Parser of a footer that finds the bytes to change."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def changes(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield the start, the end and the new bytes of each change, in order."""
        return self._struct(())

    def _struct(self, path: tuple[int, ...]) -> Iterator[tuple[int, int, bytes]]:
        field = 0
        while header := self._byte():
            delta, kind = header >> 4, header & 15
            field = field + delta if delta else self._integer()
            place = (*path, field)
            if kind == _I32 and place in (_SCHEMA_TYPE, _COLUMN_TYPE):
                yield from self._physical_type(place)
            elif kind not in (_TRUE, _FALSE):
                yield from self._value(kind, place)

    def _physical_type(self, place: tuple[int, ...]) -> Iterator[tuple[int, int, bytes]]:
        begin = self._at
        if self._integer() != _INT96:
            return
        yield begin, self._at, bytes([2 * _FIXED_LEN_BYTE_ARRAY])
        if place == _SCHEMA_TYPE:
            # The number of the next field is written as its distance from the one before, now field 2.
            following = self._data[self._at]
            delta = following >> 4
            yield self._at, self._at + 1, _TYPE_LENGTH + bytes([following - 16 if delta else following])

    def _value(self, kind: int, path: tuple[int, ...]) -> Iterator[tuple[int, int, bytes]]:
        if kind in (_I8, _TRUE, _FALSE):  # booleans in lists
            self._at += 1
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind in (_LIST, _SET):
            header = self._byte()
            size = header >> 4 if header >> 4 != 15 else self._varint()
            for _ in range(size):
                yield from self._value(header & 15, path)
        elif kind == _STRUCT:
            yield from self._struct(path)
        else:
            raise pa.ArrowInvalid(f"a footer with a value of kind {kind}")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
