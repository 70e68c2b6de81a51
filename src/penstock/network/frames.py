"""Frames: encoding of messages that share one TCP connection. Converts bytes to messages and back, without sockets.

A message belongs to a *stream* (an edge, or 0 on control links) and has a kind. It is sent as one frame, or as several
of at most ``FRAGMENT_BYTES``. Frames of other streams may be sent in between, so a large buffer on one channel does not
delay the others. Messages of one stream stay in order.

A frame is a header (``length``, bytes of the message that ``remain`` after this frame, ``stream``, ``kind``), then
``length`` bytes. A reader knows a message's whole size from its first frame, and receives directly into memory of that
size.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from penstock.errors import GenerationFailed
from penstock.version import __version__

PROTOCOL_VERSION = f"{__version__} (protocol 1)"
"""Version that both ends of a link must share, because a slot receives objects of the driver's release.

The protocol number rises with every change of the messages.
"""

HEADER = struct.Struct("<IIHH")
FRAGMENT_BYTES = 256 << 10
MAX_MESSAGE_BYTES = 1 << 30
"""Maximum size of a message, larger than any buffer that can be built.

Buffers are cut to the exclusive window, but a single row may be larger.
"""

MAX_STREAMS = 1 << 16

_SCRATCH_BYTES = 64 << 10

Bytes = bytes | bytearray | memoryview


class MessageKind(IntEnum):
    HANDSHAKE = 1
    CONTROL = 2
    SCHEMA = 3
    BUFFER = 4
    ELEMENT = 5
    GRANT = 6


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message. ``body`` is aligned to 64 bytes and not shared."""

    kind: MessageKind
    stream: int
    body: pa.Buffer


@dataclass(slots=True)
class _Outgoing:
    kind: MessageKind
    parts: deque[memoryview]
    remaining: int


class FrameWriter:
    """Splits queued messages into frames, one frame per stream in turn."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[_Outgoing]] = {}
        self._turn: deque[int] = deque()

    def push(self, kind: MessageKind, stream: int, parts: Sequence[Bytes | pa.Buffer]) -> None:
        """Queue one message. ``parts`` are sent one after another without being joined by a copy."""
        views = deque(view for view in (memoryview(part).cast("B") for part in parts) if view.nbytes)
        queue = self._queues.get(stream)
        if queue is None:
            queue = self._queues[stream] = deque()
        if not queue:
            self._turn.append(stream)
        queue.append(_Outgoing(kind, views, sum(view.nbytes for view in views)))

    def __bool__(self) -> bool:
        return bool(self._turn)

    def frames(self, budget: int) -> Iterator[Bytes]:
        """Yield the bytes to send, in order.

        These are at least one frame, and no further frame once ``budget`` bytes are reached.
        """
        taken = 0
        while self._turn and taken < budget:
            stream = self._turn.popleft()
            queue = self._queues[stream]
            message = queue[0]
            length = min(FRAGMENT_BYTES, message.remaining)
            message.remaining -= length
            yield HEADER.pack(length, message.remaining, stream, message.kind)
            yield from _take(message.parts, length)
            if message.remaining == 0:
                queue.popleft()
            if queue:
                self._turn.append(stream)
            taken += length + HEADER.size


def _take(parts: deque[memoryview], length: int) -> Iterator[memoryview]:
    while length:
        head = parts[0]
        if head.nbytes <= length:
            yield parts.popleft()
            length -= head.nbytes
        else:
            yield head[:length]
            parts[0] = head[length:]
            length = 0


@dataclass(slots=True)
class _Incoming:
    kind: MessageKind
    buffer: pa.Buffer
    view: memoryview
    filled: int


class FrameReader:
    """Joins frames into messages. Call ``writable``, receive into it, then call ``received``.

    Args:
        limit: maximum size of a message in bytes; raised once a peer is authenticated.
        streams: maximum number of streams with an incomplete message; raised likewise.
    """

    def __init__(self, limit: int, streams: int = MAX_STREAMS) -> None:
        self.limit = limit
        self.streams = streams
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._start = 0
        self._end = 0
        self._partial: dict[int, _Incoming] = {}
        self._current: tuple[int, _Incoming] | None = None
        self._needed = 0  # bytes of the current frame that are still missing

    def writable(self) -> memoryview:
        """Return the memory for the next bytes: the message itself where that is possible."""
        if self._current is not None and self._start == self._end:
            message = self._current[1]
            return message.view[message.filled : message.filled + self._needed]
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == _SCRATCH_BYTES:
            rest = bytes(self._scratch[self._start : self._end])
            self._scratch[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self._scratch[self._end :]

    def received(self, count: int) -> Iterator[Message]:
        """Yield the messages completed by the ``count`` bytes that were written into ``writable()``.

        Raises:
            GenerationFailed: the bytes are not a valid frame, or a message is larger than the limit.
        """
        if self._current is not None and self._start == self._end:
            yield from self._fill(count)
            return
        self._end += count
        while self._start < self._end:
            if self._current is None:
                if self._end - self._start < HEADER.size:
                    return
                self._begin(*HEADER.unpack_from(self._scratch, self._start))
                self._start += HEADER.size
            assert self._current is not None
            message = self._current[1]
            count = min(self._needed, self._end - self._start)
            message.view[message.filled : message.filled + count] = self._scratch[self._start : self._start + count]
            self._start += count
            yield from self._fill(count)

    def _begin(self, length: int, remaining: int, stream: int, kind: int) -> None:
        if remaining and not length:
            raise GenerationFailed(f"a peer sent an empty fragment on stream {stream}")
        message = self._partial.get(stream)
        if message is None:
            total = length + remaining
            if total > self.limit:
                raise GenerationFailed(f"a peer announced a message of {total} bytes; at most {self.limit} are allowed")
            if len(self._partial) >= self.streams:
                raise GenerationFailed(f"a peer began a message on stream {stream} amid another stream's")
            if kind not in MessageKind.__members__.values():
                raise GenerationFailed(f"a peer sent a message of unknown kind {kind}")
            buffer = pa.allocate_buffer(total)
            message = self._partial[stream] = _Incoming(MessageKind(kind), buffer, memoryview(buffer).cast("B"), 0)
        elif kind != message.kind or len(message.view) - message.filled != length + remaining:
            raise GenerationFailed(f"a peer sent a fragment on stream {stream} that does not continue its message")
        self._current = (stream, message)
        self._needed = length

    def _fill(self, count: int) -> Iterator[Message]:
        assert self._current is not None
        stream, message = self._current
        message.filled += count
        self._needed -= count
        if self._needed:
            return
        self._current = None
        if message.filled == len(message.view):
            del self._partial[stream]
            message.view.release()
            yield Message(message.kind, stream, message.buffer)
