"""Check of an ORC file's footer before Arrow parses it, to limit memory and recursion.

Arrow visits a file's columns recursively, and a footer of a few KiB can have columns that are nested a million deep.
https://orc.apache.org/specification/ORCv1 describes the layout, in the wire format of Protocol Buffers.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator

import pyarrow as pa
import xxhash

from penstock.connectors.files.parquet.pages import MAX_COLUMNS, MAX_DEPTH
from penstock.errors import DataError

_NONE, _ZLIB, _SNAPPY, _LZ4, _ZSTD = 0, 1, 2, 4, 5
_LZ4_FRAME = b"\x04\x22\x4d\x18"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def check_footer(path: str, most_bytes: int) -> None:
    """Check a file's footer. A file that is not an ORC file passes: Arrow reports it.

    Raises:
        DataError: the footer or a block of the file is larger than ``most_bytes`` after decompression, or the file has
            too many columns, or columns that are nested too deeply.
        pa.ArrowInvalid: the postscript or the footer is damaged.
    """
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 256))
        tail = file.read(256)
        length = tail[-1] if tail else 0
        if not 0 < length < len(tail):
            return
        try:
            said = {number: value for number, value in _fields(tail[-1 - length : -1]) if isinstance(value, int)}
        except (IndexError, ValueError) as error:
            raise pa.ArrowInvalid(f"not a readable ORC file: its postscript is damaged: {error}") from error
        footer, block = said.get(1, 0), said.get(3, 0)
        for what, number in (("a footer", footer), ("blocks", block)):
            if number > most_bytes:
                raise DataError(f"{path} has {what} of {number} bytes, more than {most_bytes} (option maxPageBytes)")
        if footer > size - 1 - length:
            return
        file.seek(size - 1 - length - footer)
        data = file.read(footer)
    try:
        _check_columns(path, _uncompressed(path, data, said.get(2, _NONE), most_bytes))
    except (IndexError, ValueError, zlib.error, pa.ArrowException) as error:
        raise pa.ArrowInvalid(f"not a readable ORC file: its footer is damaged: {error}") from error


def _check_columns(path: str, footer: bytes) -> None:
    depths = [1]
    columns = [value for number, value in _fields(footer) if number == 4 and isinstance(value, bytes)]
    if len(columns) > MAX_COLUMNS:
        raise DataError(f"{path} has {len(columns)} columns and fields of columns; at most {MAX_COLUMNS} are read")
    depths *= len(columns)
    for index, column in enumerate(columns):
        for inner in _numbers(column, 2):
            if not index < inner < len(columns):
                raise ValueError(f"column {index} holds column {inner}")
            depths[inner] = depths[index] + 1
    if max(depths, default=0) > MAX_DEPTH:
        raise DataError(f"{path} has columns that are more than {MAX_DEPTH} deep")


def _uncompressed(path: str, data: bytes, compression: int, most_bytes: int) -> bytes:
    """Decompress the footer. Each of its blocks has a header of three bytes."""
    if compression == _NONE:
        return data
    found, at = bytearray(), 0
    while at < len(data):
        header = int.from_bytes(data[at : at + 3], "little")
        block = data[at + 3 : at + 3 + (header >> 1)]
        at += 3 + (header >> 1)
        found += block if header & 1 else _block(block, compression, most_bytes + 1 - len(found))
        if len(found) > most_bytes:
            raise DataError(f"{path} has a footer that becomes more than {most_bytes} bytes (option maxPageBytes)")
    return bytes(found)


def _block(data: bytes, compression: int, most: int) -> bytes:
    """Decompress a block, up to ``most`` bytes."""
    if compression == _ZLIB:
        return zlib.decompressobj(-15).decompress(data, most)
    if compression == _SNAPPY:
        return bytes(pa.decompress(data, min(_number(data, 0)[0], most), codec="snappy"))
    if compression == _LZ4:
        flags = b"\x40\x70"  # blocks of up to 4 MiB that refer to each other
        check = xxhash.xxh32(flags).intdigest() >> 8 & 0xFF
        frame = _LZ4_FRAME + flags + bytes([check]) + struct.pack("<I", len(data)) + data + bytes(4)
        return _stream(frame, "lz4", most)
    if compression == _ZSTD:
        return _stream(data, "zstd", most)
    raise ValueError(f"compression {compression}")


def _stream(data: bytes, codec: str, most: int) -> bytes:
    with pa.input_stream(pa.py_buffer(data), compression=codec) as stream:
        return bytes(stream.read(most))


def _number(data: bytes, at: int) -> tuple[int, int]:
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number without an end")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _number(message, at)
            yield tag >> 3, number
            continue
        if kind == _BYTES:
            length, at = _number(message, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"no wire type {kind}")
        if at + length > len(message):
            raise IndexError("a field without an end")
        yield tag >> 3, message[at : at + length]
        at += length


def _numbers(message: bytes, field: int) -> Iterator[int]:
    """Yield the numbers of a repeated field, packed or not."""
    for number, value in _fields(message):
        if number == field and isinstance(value, int):
            yield value
        elif number == field and isinstance(value, bytes):
            at = 0
            while at < len(value):
                one, at = _number(value, at)
                yield one
