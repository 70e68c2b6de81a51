"""Checks of Arrow IPC streams that may be forged, before and after pyarrow decodes them.

pyarrow trusts what a message declares: the decompressed size of a buffer, the number of rows of a batch, the offsets of
strings. So this module reads the messages first (``Message``, ``RecordBatch`` and ``BodyCompression`` of
format/Message.fbs of Arrow). Callers validate the decoded batches, because no later code does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import CorruptSnapshot

MAX_BODILESS_ROWS = 1 << 24
"""Maximum number of rows of a batch whose columns take no bytes, such as nulls. Such rows may be costly later."""
ROWS_PER_BYTE = 8
"""Maximum number of rows per byte of a body: a boolean takes one bit."""
MAX_DECOMPRESSED_BYTES = 1 << 30
"""Maximum decompressed size of a stream with compressed buffers. No release writes larger ones."""
LZ4_AT_BEST = 255
"""Maximum ratio of decompressed to compressed size of an lz4 frame."""

_UNSUPPORTED_TYPES = (pa.types.is_dictionary, pa.types.is_union, pa.types.is_run_end_encoded)

_NATIVE_ERRORS = (RuntimeError, LookupError, TypeError, ArithmeticError)
"""Python exceptions that stand for C++ exceptions without a class of their own in pyarrow."""

_HEADER = 2
"""Positions of fields in the flatbuffers tables."""
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
_CODEC, _LZ4 = 0, 0


class _BatchHeader(NamedTuple):
    """Header of a record batch message.

    Attributes:
        buffers: offset in the body and length of each buffer.
    """

    rows: int
    buffers: list[tuple[int, int]]
    codec: int | None


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Raise CorruptSnapshot, with ``what`` as prefix, for any error of pyarrow in the block."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error, MemoryError, *_NATIVE_ERRORS) as error:
        raise CorruptSnapshot(f"{what} cannot be read: {error!s:.300}") from None


def check_stream(source: pa.NativeFile | pa.Buffer, what: str, *, compressed: bool) -> None:
    """Check a stream without decoding it.

    The stream must have only a schema and record batches, and the sizes that they declare must be possible.

    Args:
        what: name of the stream, for messages.
        compressed: permit lz4 compression.

    Raises:
        CorruptSnapshot: the stream fails the check.
    """
    with decoding(what):
        room = MAX_DECOMPRESSED_BYTES
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type not in ("schema", "record batch"):
                raise CorruptSnapshot(f"{what} has a message of the kind {message.type}")
            if message.type == "record batch":
                room -= _decompressed_bytes(
                    _batch_header(message.metadata.to_pybytes()), message.body, what, compressed
                )
                if room < 0:
                    raise CorruptSnapshot(f"{what} has more than {MAX_DECOMPRESSED_BYTES} bytes once decompressed")


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError for a schema that stored rows cannot have.

    Such a schema has names that are not text, unknown time zones, or types whose values refer to other values or are
    made by registered code.
    """
    for field in schema:
        _check_field(field)


def _check_field(field: pa.Field) -> None:
    name, kind = field.name, field.type  # Reading a name that is not text raises an error.
    if any(is_such(kind) for is_such in _UNSUPPORTED_TYPES) or isinstance(kind, pa.BaseExtensionType):
        raise ValueError(f"column {name!r:.50} has the type {kind!s:.100}")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        pa.lib.string_to_tzinfo(kind.tz)
    for position in range(kind.num_fields):
        _check_field(kind.field(position))


def _decompressed_bytes(batch: _BatchHeader, body: pa.Buffer | None, what: str, compressed: bool) -> int:
    """Check one batch and return the decompressed size of its compressed buffers."""
    size = 0 if body is None else body.size
    if not 0 <= batch.rows <= MAX_BODILESS_ROWS + ROWS_PER_BYTE * size * (LZ4_AT_BEST if compressed else 1):
        raise CorruptSnapshot(f"{what} says that {size} bytes are {batch.rows} rows")
    if batch.codec is None:
        return 0
    if not compressed:
        raise CorruptSnapshot(f"{what} is compressed")
    if batch.codec != _LZ4:
        raise CorruptSnapshot(f"{what} is compressed by something else than lz4")
    return sum(_decompressed_size(body, at, length, what) for at, length in batch.buffers if length)


def _decompressed_size(body: pa.Buffer | None, at: int, length: int, what: str) -> int:
    """Return the decompressed size that a buffer declares in its first 8 bytes; 0 for -1, which means uncompressed."""
    if body is None or not 0 <= at <= at + length <= body.size or length < 8:
        raise CorruptSnapshot(f"{what} has a buffer outside of its message")
    declared: int = struct.unpack("<q", body.slice(at, 8).to_pybytes())[0]
    if not -1 <= declared <= LZ4_AT_BEST * length:
        raise CorruptSnapshot(f"{what} says that {length} bytes become {declared} when they are decompressed")
    return max(declared, 0)


def _batch_header(message: bytes) -> _BatchHeader:
    header = _table_at(message, _field(message, _root(message), _HEADER))
    length = _field(message, header, _LENGTH)
    rows: int = struct.unpack_from("<q", message, length)[0] if length else 0
    buffers: list[tuple[int, int]] = []
    if vector := _field(message, header, _BUFFERS):
        start = _table_at(message, vector)
        (count,) = struct.unpack_from("<I", message, start)
        buffers = list(struct.iter_unpack("<qq", message[start + 4 : start + 4 + 16 * count]))
    codec: int | None = None
    if compression := _field(message, header, _COMPRESSION):
        table = _table_at(message, compression)
        position = _field(message, table, _CODEC)
        codec = struct.unpack_from("<b", message, position)[0] if position else _LZ4
    return _BatchHeader(rows, buffers, codec)


def _root(message: bytes) -> int:
    return int(struct.unpack_from("<I", message)[0])


def _table_at(message: bytes, field: int) -> int:
    """Return the position of the table or vector that a field refers to."""
    return field + int(struct.unpack_from("<I", message, field)[0])


def _field(message: bytes, table: int, number: int) -> int:
    """Return the position of a field of a table; 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    if vtable < 0 or 4 + 2 * number >= struct.unpack_from("<H", message, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", message, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0
