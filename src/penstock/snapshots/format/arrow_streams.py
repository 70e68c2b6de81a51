"""Arrow streams that may be somebody else's work, looked through before pyarrow decodes them.

pyarrow trusts what a message says: how long a buffer is once it is decompressed, how many rows a batch has, where the
offsets of a string point. So messages are read here first (``Message``, ``RecordBatch`` and ``BodyCompression`` of
format/Message.fbs of Arrow), and what was decoded is checked, since nothing behind this does it again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import CorruptSnapshot

MAX_BODILESS_ROWS = 1 << 24
"""Of a batch whose columns take no bytes, such as nulls: rows that cost nothing here may cost much later."""
ROWS_PER_BYTE = 8
"""Of a batch with a body: a truth value takes a bit."""
MAX_DECOMPRESSED_BYTES = 1 << 30
"""Of a stream with compressed buffers. No release has written such streams of any size, nor does this one."""
LZ4_AT_BEST = 255
"""How many times as large a text may be as its lz4 frame."""

_STRANGE = (pa.types.is_dictionary, pa.types.is_union, pa.types.is_run_end_encoded)

_OF_NATIVE_CODE = (RuntimeError, LookupError, TypeError, ArithmeticError)
"""What becomes of exceptions of C++ that pyarrow has no class of its own for."""

_HEADER = 2
"""Fields of the flatbuffers tables."""
_LENGTH, _BUFFERS, _COMPRESSION = 0, 2, 3
_CODEC, _LZ4 = 0, 0


class _Batch(NamedTuple):
    """What a record batch message says of itself. ``buffers``: where each lies in the body, and its length."""

    rows: int
    buffers: list[tuple[int, int]]
    codec: int | None


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Whatever pyarrow raises is CorruptSnapshot, with ``what`` in front."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error, MemoryError, *_OF_NATIVE_CODE) as error:
        raise CorruptSnapshot(f"{what} cannot be read: {error!s:.300}") from None


def look_through(source: pa.NativeFile | pa.Buffer, what: str, *, compressed: bool) -> None:
    """Raise CorruptSnapshot unless the stream has nothing but a schema and record batches that are as large as they
    say, as far as one can tell without decoding.

    Args:
        what: its name for messages.
        compressed: whether lz4 is allowed.
    """
    with decoding(what):
        room = MAX_DECOMPRESSED_BYTES
        for message in pa.ipc.MessageReader.open_stream(source):
            if message.type not in ("schema", "record batch"):
                raise CorruptSnapshot(f"{what} has a message of the kind {message.type}")
            if message.type == "record batch":
                room -= _checked(_described(message.metadata.to_pybytes()), message.body, what, compressed)
                if room < 0:
                    raise CorruptSnapshot(f"{what} has more than {MAX_DECOMPRESSED_BYTES} bytes once decompressed")


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError for what no stored row has: names that are no text, zones that are nowhere, and types whose
    values are made by code that is registered for them, or stand for something else."""
    for field in schema:
        _check_field(field)


def _check_field(field: pa.Field) -> None:
    name, kind = field.name, field.type  # a name that is no text is found out by asking for it
    if any(is_such(kind) for is_such in _STRANGE) or isinstance(kind, pa.BaseExtensionType):
        raise ValueError(f"column {name!r:.50} has the type {kind!s:.100}")
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        pa.lib.string_to_tzinfo(kind.tz)
    for position in range(kind.num_fields):
        _check_field(kind.field(position))


def _checked(batch: _Batch, body: pa.Buffer | None, what: str, compressed: bool) -> int:
    """How many bytes its buffers become that are compressed."""
    size = 0 if body is None else body.size
    if not 0 <= batch.rows <= MAX_BODILESS_ROWS + ROWS_PER_BYTE * size * (LZ4_AT_BEST if compressed else 1):
        raise CorruptSnapshot(f"{what} says that {size} bytes are {batch.rows} rows")
    if batch.codec is None:
        return 0
    if not compressed:
        raise CorruptSnapshot(f"{what} is compressed")
    if batch.codec != _LZ4:
        raise CorruptSnapshot(f"{what} is compressed by something else than lz4")
    return sum(_decompressed(body, at, length, what) for at, length in batch.buffers if length)


def _decompressed(body: pa.Buffer | None, at: int, length: int, what: str) -> int:
    """A buffer begins with its length as it was, -1 if it is as it was."""
    if body is None or not 0 <= at <= at + length <= body.size or length < 8:
        raise CorruptSnapshot(f"{what} has a buffer outside of its message")
    said: int = struct.unpack("<q", body.slice(at, 8).to_pybytes())[0]
    if not -1 <= said <= LZ4_AT_BEST * length:
        raise CorruptSnapshot(f"{what} says that {length} bytes become {said} when they are decompressed")
    return max(said, 0)


def _described(message: bytes) -> _Batch:
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
        place = _field(message, table, _CODEC)
        codec = struct.unpack_from("<b", message, place)[0] if place else _LZ4
    return _Batch(rows, buffers, codec)


def _root(message: bytes) -> int:
    return int(struct.unpack_from("<I", message)[0])


def _table_at(message: bytes, field: int) -> int:
    """Where the table, or vector, stands that a field refers to."""
    return field + int(struct.unpack_from("<I", message, field)[0])


def _field(message: bytes, table: int, number: int) -> int:
    """Where a field of a table stands; 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", message, table)[0]
    if vtable < 0 or 4 + 2 * number >= struct.unpack_from("<H", message, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", message, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0
