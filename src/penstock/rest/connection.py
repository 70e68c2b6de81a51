"""One client's connection: uvicorn's protocol over httptools, with bounds that it lacks, and its writes joined.

While a driver answers, its other threads wait for the interpreter, those that take checkpoints, too. That is why the
parser is one in C (with h11, in Python, an answer that is kept took half as much CPU again), and why a response goes to
the network in one piece: each piece is a system call, behind which another thread may have the interpreter, and wakes
the client once more.

Nobody has shown a token before a request is there, and only so many connections are served. So whoever is to ask has a
bounded time for it, as whoever is answered has for reading; uvicorn's own clock, for what comes behind a response,
stops with each byte that does.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 32 << 10
"""Of a request's line and headers together, give or take what the network delivers at once. The parser itself would
hold a header of any length."""
REQUEST_TIMEOUT_S = 10.0
"""From a connection's begin, or from the first byte behind a response, until there is a whole request. No request has
more than ``guard.MAX_BODY_BYTES`` to say."""
UNREAD_TIMEOUT_S = 30.0
"""So long a client may leave what was answered in the driver's memory: answers have some 100 KB."""
HELD_PER_SERVED = 2
"""Connections held at a time, of each that is served: those in between are told (503), others cut at once, for each
takes one of the driver's file descriptors."""


class Connection(HttpToolsProtocol):
    """Connection of one client. A bad request gets 400, and the connection is closed."""

    _head_bytes = 0
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(JoinedWrites(transport, self.loop))
        self._late, self._unread = _Limit(self.loop, transport), _Limit(self.loop, transport)
        if self.limit_concurrency and len(self.connections) > HELD_PER_SERVED * self.limit_concurrency:
            transport.abort()
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response(f"The request has more than {MAX_HEAD_BYTES} bytes of headers.")
        self._watch()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._unset_keepalive_if_required()
        self._watch()  # it is closed only when all was read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.begin(UNREAD_TIMEOUT_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.lift()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._late.lift()
        self._unread.lift()

    def _watch(self) -> None:
        """Have the connection end in time, unless a request is being answered or uvicorn's own clock runs."""
        if self._is_answered() or self.timeout_keep_alive_task is not None:
            self._late.lift()
        else:
            self._late.begin(REQUEST_TIMEOUT_S)

    def _is_answered(self) -> bool:
        """Return True if a whole request has arrived. Later bytes are not read meanwhile."""
        cycle = self.cycle
        return bool(self.pipeline) or (cycle is not None and not (cycle.more_body or cycle.response_complete))


class _Limit:
    """Time limit after which a connection is cut, unless it is lifted before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, in_s: float) -> None:
        """One that has begun stays as it is."""
        if self._timer is None:
            self._timer = self._loop.call_later(in_s, self._transport.abort)

    def lift(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class JoinedWrites(asyncio.Transport):
    """A transport that passes on what is written to it when the event loop comes to its next turn, and what else it is
    told at once, in this order. As much of ``asyncio.Transport`` as the server uses."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._held: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(bytes(data))

    def _flush(self) -> None:
        if self._held:
            held, self._held = self._held, []
            self._transport.write(b"".join(held))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
