"""One client's connection: uvicorn's protocol over httptools, with a bound that it lacks, and its writes joined.

While a driver answers, its other threads wait for the interpreter, those that take checkpoints, too. That is why the
parser is one in C (with h11, in Python, an answer that is kept took half as much CPU again), and why a response goes to
the network in one piece: each piece is a system call, behind which another thread may have the interpreter, and wakes
the client once more.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 32 << 10
"""Of a request's line and headers together, give or take what the network delivers at once. The parser itself would
hold a header of any length."""


class Connection(HttpToolsProtocol):
    """What uvicorn makes for each client; bad requests get 400 and the connection's end."""

    _head_bytes = 0
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(JoinedWrites(transport, self.loop))

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response(f"The request has more than {MAX_HEAD_BYTES} bytes of headers.")

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._head_bytes = True, 0
        super().on_message_complete()


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
