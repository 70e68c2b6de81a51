"""INT96 timestamps of Parquet files, decoded from their bytes.

An INT96 is a number of nanoseconds and a Julian day. pyarrow reads both as unsigned numbers, and day 0 as null. So it
returns wrong times before 4713 BC, and also where Spark's writer overflows. This module changes the footer before
pyarrow reads it: it declares INT96 columns as columns of 12 bytes, whose pages have the same format.

The footer is a structure of Thrift's compact protocol; parquet.thrift has its fields.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.thrift_compact import STRUCT, CompactReader

_INT96, _FIXED_LEN_BYTE_ARRAY = 3, 7
_BYTES = pa.binary(12)
_PARTS: np.dtype[Any] = np.dtype([("nanos", "<i8"), ("day", "<i4")])
_EPOCH_DAY = np.int32(2_440_588)
"""1970-01-01 as a Julian day."""
_MICROS_PER_DAY = 86_400_000_000

_TAIL_BYTES = 8
_SCHEMA_TYPE, _COLUMN_TYPE = (2, 1), (4, 1, 3, 1)
"""Field numbers from the footer down to the physical type of a schema element and of a column in a row group."""
_PHYSICAL_TYPES = (_SCHEMA_TYPE, _COLUMN_TYPE)
_TYPE_LENGTH = bytes([0x15, 2 * 12])
"""Encoded field 2 after field 1: the 32-bit integer 12."""


def has_int96(schema: pq.ParquetSchema) -> bool:
    return any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))


def metadata_with_bytes(path: str) -> pq.FileMetaData:
    """Return the file's metadata, in which INT96 columns are declared as columns of 12 bytes."""
    with open(path, "rb") as file:
        file.seek(-_TAIL_BYTES, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        file.seek(-_TAIL_BYTES - size, os.SEEK_END)
        footer = file.read(size)
    try:
        changed = _changed(footer)
    except (IndexError, ValueError) as error:
        raise pa.ArrowInvalid(f"its footer is damaged: {error}") from error
    return pq.read_metadata(pa.BufferReader(b"PAR1" + changed + len(changed).to_bytes(4, "little") + b"PAR1"))


def is_int96(leaf: pa.Array, kind: pa.DataType) -> bool:
    """Return True if a leaf has the 12 bytes of INT96 values. ``kind``: its type in the unchanged footer."""
    return bool(leaf.type == _BYTES and pa.types.is_timestamp(kind))


def instants(array: pa.FixedSizeBinaryArray) -> pa.Array:
    """Convert the bytes to timestamps in microseconds, with Java's overflows and truncating division."""
    data = array.buffers()[1] or b""
    offset = array.offset * _PARTS.itemsize
    parts: npt.NDArray[Any] = np.frombuffer(data, dtype=_PARTS, count=len(array), offset=offset)
    nanos = parts["nanos"].astype(np.int64)
    micros = nanos // 1000
    micros += (nanos < 0) & (micros * 1000 != nanos)
    micros += (parts["day"].astype(np.int32) - _EPOCH_DAY).astype(np.int64) * _MICROS_PER_DAY
    mask = np.asarray(array.is_null()) if array.null_count else None
    return pa.array(micros, pa.int64(), mask=mask).view(pa.timestamp("us"))


def _changed(footer: bytes) -> bytes:
    parts: list[bytes] = []
    start = 0
    for begin, end, text in _changes(footer, CompactReader(footer)):
        parts += footer[start:begin], text
        start = end
    return b"".join([*parts, footer[start:]])


def _changes(footer: bytes, reader: CompactReader, path: tuple[int, ...] = ()) -> Iterator[tuple[int, int, bytes]]:
    """Yield start, end and new bytes of each change, in order. ``path``: field numbers down to this structure."""
    for number, kind in reader.fields():
        position = (*path, number)
        if position in _PHYSICAL_TYPES:
            begin = reader.at
            if reader.value(kind) != _INT96:
                continue
            yield begin, reader.at, bytes([2 * _FIXED_LEN_BYTE_ARRAY])
            if position == _SCHEMA_TYPE:
                # The next field's number is encoded as the difference to the field before it, which is now field 2.
                following = footer[reader.at]
                delta = following >> 4
                yield reader.at, reader.at + 1, _TYPE_LENGTH + bytes([following - 16 if delta else following])
        elif not any(changed[: len(position)] == position for changed in _PHYSICAL_TYPES):
            reader.value(kind)
        elif kind == STRUCT:
            yield from _changes(footer, reader, position)
        else:
            for _ in range(reader.count_structures(kind)):
                yield from _changes(footer, reader, position)
