"""Connection of one client: uvicorn's httptools protocol with additional limits and with joined writes.

While the driver answers, its other threads wait for the interpreter, including those that take checkpoints. Therefore
the parser is written in C: with h11, in Python, a cached answer took 50 % more CPU. For the same reason a response is
written to the network in one piece. Each piece is a system call, after which another thread may hold the interpreter,
and each piece wakes the client.

A client is not authenticated before its request has arrived, and the number of connections is limited. Therefore a
client has a limited time to send a request, and to read the response. uvicorn's own keep-alive timeout does not
suffice: each byte after a response stops it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 32 << 10
"""Most bytes of a request line and its headers, exceeded at most by one network read. The parser has no such limit."""
REQUEST_TIMEOUT_S = 10.0
"""Longest time from the start of a connection, or from the first byte after a response, until a request is complete.
A request body has at most ``guard.MAX_BODY_BYTES``."""
UNREAD_TIMEOUT_S = 30.0
"""Longest time for which an unread response stays in the driver's memory. Responses have up to some 100 KB."""
HELD_PER_SERVED = 2
"""Most open connections, as a multiple of the connections that are served. Connections above the number that is served
get 503. Those above this limit are cut at once, because each holds a file descriptor of the driver."""


class Connection(HttpToolsProtocol):
    """Connection of one client. It answers a malformed request with 400 and is then closed."""

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
        self._watch()  # the transport closes only after the client has read everything

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
        """Limit the time for a request, unless one is being answered or uvicorn's keep-alive timeout runs."""
        if self._is_answered() or self.timeout_keep_alive_task is not None:
            self._late.lift()
        else:
            self._late.begin(REQUEST_TIMEOUT_S)

    def _is_answered(self) -> bool:
        """Return True if a complete request has arrived and its response is not complete."""
        cycle = self.cycle
        return bool(self.pipeline) or (cycle is not None and not (cycle.more_body or cycle.response_complete))


class _Limit:
    """Time limit after which a connection is cut, unless ``lift`` is called before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        self._loop = loop
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, in_s: float) -> None:
        """Start the timer. If it runs already, it keeps its time."""
        if self._timer is None:
            self._timer = self._loop.call_later(in_s, self._transport.abort)

    def lift(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class JoinedWrites(asyncio.Transport):
    """Transport that collects writes until the next iteration of the event loop and passes them on as one write.

    All other calls are passed on at once; ``close`` writes the collected data first. It has only the methods of
    ``asyncio.Transport`` that the server uses.
    """

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
