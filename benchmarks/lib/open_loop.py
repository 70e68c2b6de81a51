"""Requests by the clock, whether or not earlier ones are answered: an open loop, on one thread.

It must load the machine as little as may be, for what it takes is not the service's: requests are bytes made
beforehand, and there is nothing between them and the sockets.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from urllib.parse import urlsplit

CONNECTIONS = 16
"""Enough for answers that take 80 ms each at 200 a second."""
CHUNK = 1 << 20
NEVER_S = 60.0
"""An answer that takes as long does not come."""

Answered = Callable[[str, float, int], None]
"""Name of the path, seconds since the request was due, status."""


def request(url: str, path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAccept: */*\r\n\r\n".encode()


class _Connection:
    """HTTP/1.1 with keep-alive, as much of it as GET needs; one request at a time."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port or 80))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.name, self.due_s = "", 0.0
        self._answer = b""

    def ask(self, name: str, due_s: float, sent: bytes) -> None:
        self.name, self.due_s, self._answer = name, due_s, b""
        self.socket.sendall(sent)

    def status(self) -> int | None:
        """Parse the received bytes; return None until the whole body has arrived."""
        found = self.socket.recv(CHUNK)
        assert found, f"the service closed the connection instead of answering {self.name}"
        self._answer += found
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        return int(head.split(b" ", 2)[1]) if end and len(body) == int(length) else None


class OpenLoop:
    """``answered`` is told of each of ``paths`` (names to paths), which are asked for in turn.

    A request that is due while all connections wait for answers is sent as soon as one is free, and what it waited
    counts.
    """

    def __init__(self, url: str, paths: dict[str, str], answered: Answered) -> None:
        self._requests = [(name, request(url, path)) for name, path in paths.items()]
        self._answered = answered
        self._selector = selectors.DefaultSelector()
        self._idle = deque(_Connection(url) for _ in range(CONNECTIONS))
        for connection in self._idle:
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def run(self, rate: float, seconds: float) -> None:
        """``rate`` requests a second. Returns when all are answered; raises AssertionError for a cut connection."""
        began_s = time.perf_counter()
        due = deque((number, began_s + number / rate) for number in range(int(rate * seconds)))
        while due or len(self._idle) < CONNECTIONS:
            while due and self._idle and due[0][1] <= time.perf_counter():
                number, due_s = due.popleft()
                name, sent = self._requests[number % len(self._requests)]
                # The longest idle: the service closes what is idle for seconds.
                self._idle.popleft().ask(name, due_s, sent)
            self._take(max(0.0, due[0][1] - time.perf_counter()) if due and self._idle else NEVER_S)
        self._selector.close()
        for connection in self._idle:
            connection.socket.close()

    def _take(self, timeout_s: float) -> None:
        ready = self._selector.select(timeout_s)
        assert ready or timeout_s < NEVER_S, "the service does not answer"
        for key, _ in ready:
            connection: _Connection = key.data
            if (status := connection.status()) is not None:
                self._answered(connection.name, time.perf_counter() - connection.due_s, status)
                self._idle.append(connection)
