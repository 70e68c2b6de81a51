"""Connections of the REST service: how many there are, and that nobody keeps one without asking for something."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import penstock
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.rest import connection, routes_snapshots, server
from penstock.rest.server import MAX_CONNECTIONS, RestServer
from tests.support.queries.query_running import eventually
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Answer, Client

QUERIES = "/api/v1/queries"
TOKEN = "a-token-of-some-length"
HEAD = f"PATCH {QUERIES}/some HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n".encode()
WHOLE = f"GET {QUERIES} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
KINDS: dict[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "a head that trickles": (b"GET / HTTP/1.1\r\n", b"x"),
    "a body that trickles": (HEAD + b"content-length: 60000\r\n\r\n", b"x"),
    "a body that does not come": (HEAD + b"content-length: 2\r\n\r\n", b""),
    "chunks that trickle": (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "line ends": (b"\r\n", b"\r\n"),
    "line ends behind an answer": (WHOLE, b"\r\n"),
    "a head behind an answer": (WHOLE + b"GET", b" "),
    "a body behind an answer": (WHOLE + HEAD + b"content-length: 2\r\n\r\n", b""),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_S", 1.5)


@pytest.fixture
def rest(quick: None) -> Iterator[RestServer]:
    with penstock.serve(token="") as running:
        running._server.config.timeout_keep_alive = 1
        yield running


def connected(rest: RestServer, receive_bytes: int | None = None) -> socket.socket:
    raw = socket.socket()
    if receive_bytes is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    host, port = Client(rest.url).place.split(":")
    raw.connect((host, int(port)))
    return raw


def held(rest: RestServer) -> int:
    return len(rest._server.server_state.connections)


@contextmanager
def strangers(rest: RestServer, count: int, kinds: Sequence[tuple[bytes, bytes]] = ((b"", b""),)) -> Iterator[None]:
    """They send the one, and the other five times a second for as long as this lasts."""
    end = threading.Event()
    with ExitStack() as stack:
        trickling = []
        for _, (first, then) in zip(range(count), itertools.cycle(kinds), strict=False):
            trickling.append((stack.enter_context(connected(rest)), then))
            trickling[-1][0].sendall(first)

        def trickle() -> None:
            while not end.wait(0.2):
                for one in list(trickling):
                    try:
                        one[0].sendall(one[1])
                    except OSError:
                        trickling.remove(one)

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


def test_who_does_not_ask_keeps_nobody_out(rest: RestServer) -> None:
    client = Client(rest.url)
    with strangers(rest, MAX_CONNECTIONS - 1, list(KINDS.values())):
        eventually(lambda: held(rest) == MAX_CONNECTIONS - 1, "them to be there")
        assert client.get(QUERIES).status == 503
        eventually(lambda: client.get(QUERIES).status == 200, "them to be cut", 10)
        eventually(lambda: held(rest) == 0, "all of them to be cut", 10)


def test_one_connection_more_is_told_and_none_fewer(rest: RestServer) -> None:
    client = Client(rest.url)
    with strangers(rest, MAX_CONNECTIONS - 2):
        eventually(lambda: held(rest) == MAX_CONNECTIONS - 2, "them to be there")
        assert client.get(QUERIES).status == 200
        eventually(lambda: held(rest) == MAX_CONNECTIONS - 2, "the client to be gone")
        with strangers(rest, 1):
            eventually(lambda: held(rest) == MAX_CONNECTIONS - 1, "one more")
            refused = client.get(QUERIES)
            assert (refused.status, refused.headers["connection"]) == (503, "close")


def test_so_many_are_held_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 5)
    with penstock.serve(token="") as rest, strangers(rest, 10):
        eventually(lambda: held(rest) == 10, "them to be there")
        with connected(rest) as raw:
            raw.settimeout(5)
            assert raw.recv(1) == b""
        assert held(rest) == 10


@pytest.mark.parametrize("behind", [b"", b"\r\n", WHOLE[:20], HEAD + b"content-length: 2\r\n\r\n"])
def test_who_has_asked_is_answered_however_long_it_takes(
    quick: None, known_query: str, monkeypatch: pytest.MonkeyPatch, behind: bytes
) -> None:
    listed: Callable[..., Any] = routes_snapshots.list_snapshots

    def slow(*arguments: Any) -> Any:
        time.sleep(2.5)
        return listed(*arguments)

    monkeypatch.setattr(routes_snapshots, "list_snapshots", slow)
    asked = f"GET {QUERIES}/{known_query}/snapshots HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()
    with penstock.serve(token="") as rest, connected(rest) as raw:
        raw.settimeout(10)
        raw.sendall(asked[:30])
        time.sleep(0.5)
        raw.sendall(asked[30:] + behind)
        answered = b""
        while b'"snapshots":[' not in answered:
            more = raw.recv(1 << 16)
            assert more
            answered += more
        assert answered.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("requests", "unread_s"), [(1, 600.0), (300, 1.0)])
def test_who_does_not_read_is_cut(
    rest: RestServer, monkeypatch: pytest.MonkeyPatch, requests: int, unread_s: float
) -> None:
    """A small unread rest behind a response, or so much that the next response waits."""
    facts = MadeUpQuery(vertices=20, parallelism=8).facts()
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [facts])
    monkeypatch.setattr(connection, "UNREAD_TIMEOUT_S", unread_s)
    with connected(rest, 4096) as raw:
        eventually(lambda: held(rest) == 1, "it to be there")
        (there,) = rest._server.server_state.connections
        answering = there.transport.get_extra_info("socket")  # type: ignore[union-attr]
        answering.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        raw.settimeout(5)
        raw.sendall(f"GET {QUERIES}/{facts.id}/graph HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode() * requests)
        eventually(lambda: held(rest) == 0, "it to be cut", 10)
    assert Client(rest.url).get(QUERIES).status == 200


@pytest.mark.parametrize(
    ("status", "headers"),
    [(401, {}), (403, {"Origin": "http://evil.example.org"}), (421, {"Host": "evil.example.org"})],
)
def test_who_may_not_ask_keeps_no_connection_by_asking(status: int, headers: dict[str, str]) -> None:
    with penstock.serve(token=TOKEN) as rest:
        answer: Answer = Client(rest.url).send("GET", QUERIES, headers=headers)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        eventually(lambda: held(rest) == 0, "it to be closed")
