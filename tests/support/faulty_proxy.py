"""An HTTP proxy in front of an object store that does to requests what networks and servers do now and then."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

_NOT_PASSED_ON = {"connection", "transfer-encoding", "keep-alive"}
PIECES = 8
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"


class Fault(Enum):
    """Fault of one request."""

    UNAVAILABLE = "503, and nothing was done"
    UNAVAILABLE_AFTER = "503, though it was done"
    RESET = "the connection is reset, and nothing was done"
    RESET_AFTER = "it was done, and the connection is reset before the answer"
    CUT = "the connection is reset in the middle of the answer"
    SLOW = "request and answer take their time, in pieces"
    CONFLICT = "409, and nothing was done"
    DENIED = "403, and nothing was done"
    UNCONDITIONAL = "the condition is not passed on"


@dataclass(frozen=True)
class Seen:
    """``path``: without what is behind a question mark, which is ``query``."""

    method: str
    path: str
    query: str
    is_conditional: bool


Plan = Callable[[Seen], Fault | None]


def no_faults(seen: Seen) -> Fault | None:
    return None


@dataclass
class FaultyProxy:
    """Serves on loopback while it is entered.

    Attributes:
        upstream: ``http://host:port``.
        plan: asked for every request, on any thread.
        seen: all requests so far.
        slow_s: what ``SLOW`` costs.
        most_at_once: requests that were under way together.
    """

    upstream: str
    plan: Plan = no_faults
    seen: list[Seen] = field(default_factory=list)
    slow_s: float = 0.2
    most_at_once: int = 0
    _under_way: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> FaultyProxy:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="proxy", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def _counted(self, seen: Seen) -> Iterator[None]:
        with self._lock:
            self.seen.append(seen)
            self._under_way += 1
            self.most_at_once = max(self.most_at_once, self._under_way)
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def count(self, method: str, ends: str = "") -> int:
        return sum(one.method == method and one.path.endswith(ends) for one in self.seen)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections end badly here, on purpose."""


class _Handler(BaseHTTPRequestHandler):
    owner: FaultyProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silent."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = urlsplit(self.path)
        seen = Seen(self.command, parts.path, parts.query, "If-None-Match" in self.headers)
        with self.owner._counted(seen):
            self._treat(seen, body)

    def _treat(self, seen: Seen, body: bytes) -> None:
        fault = self.owner.plan(seen)
        match fault:
            case Fault.UNAVAILABLE:
                self._answer(503, [], SLOW_DOWN)
                return
            case Fault.CONFLICT:
                self._answer(409, [], b"<Error><Code>ConditionalRequestConflict</Code></Error>")
                return
            case Fault.DENIED:
                self._answer(403, [], b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>")
                return
            case Fault.RESET:
                self._reset()
                return
            case Fault.SLOW:
                time.sleep(self.owner.slow_s)
            case _:
                pass
        status, headers, answer = self._forward(body, drop_condition=fault is Fault.UNCONDITIONAL)
        if fault is Fault.UNAVAILABLE_AFTER:
            self._answer(503, [], b"")
        elif fault is Fault.RESET_AFTER:
            self._reset()
        else:
            self._answer(status, headers, answer, fault)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle  # noqa: N815

    def _forward(self, body: bytes, *, drop_condition: bool) -> tuple[int, list[tuple[str, str]], bytes]:
        parts = urlsplit(self.owner.upstream)
        assert parts.hostname is not None
        connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _NOT_PASSED_ON and not (drop_condition and name.lower() == "if-none-match"):
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _NOT_PASSED_ON]
            return answer.status, headers, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, fault: Fault | None = None) -> None:
        try:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() != "content-length" or self.command == "HEAD":
                    self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if fault is Fault.CUT:
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                self._reset()
            elif fault is Fault.SLOW:
                self._drip(body)
            else:
                self.wfile.write(body)
        except OSError:  # who asked has gone
            self.close_connection = True

    def _drip(self, body: bytes) -> None:
        step = max(1, len(body) // PIECES)
        for start in range(0, len(body), step):
            self.wfile.write(body[start : start + step])
            self.wfile.flush()
            time.sleep(self.owner.slow_s / PIECES)

    def _reset(self) -> None:
        """A hard one: the other side reads no orderly end."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
        self.rfile.close()
