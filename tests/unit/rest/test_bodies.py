"""Large, endless, deep and malformed bodies of requests: a problem document, without much memory."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import penstock
from penstock.rest.guard import MAX_BODY_BYTES
from penstock.rest.server import RestServer
from tests.support.rest.rest_client import Client

PATH = "/api/v1/queries/00000000-0000-0000-0000-000000000000"
HEAD = f"PATCH {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n".encode()
SENT_AT_MOST = 16 << 20
"""Bytes that the system's buffers on both sides may take before the sender is told of the end."""


@pytest.fixture
def rest() -> Iterator[RestServer]:
    with penstock.serve(token="") as running:
        yield running


def answer(rest: RestServer, head: bytes, more: bytes) -> tuple[bytes, int]:
    """Send a request whose body repeats ``more`` until a side closes the connection.

    Return the start of the answer and the number of bytes sent.
    """
    host, port = Client(rest.url).place.split(":")
    sent = 0
    with socket.create_connection((host, int(port)), 20) as raw:
        raw.sendall(head)
        try:
            while sent <= SENT_AT_MOST:
                sent += raw.send(more)
        except OSError:
            pass  # the other side has closed the connection
        try:
            return raw.recv(4096), sent
        except ConnectionResetError:
            return b"", sent


def test_a_body_in_chunks_without_an_end_is_cut(rest: RestServer) -> None:
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    said, sent = answer(rest, HEAD + b"transfer-encoding: chunked\r\n\r\n", chunk)
    assert MAX_BODY_BYTES < sent < SENT_AT_MOST
    assert not said or b" 413 " in said.partition(b"\r\n")[0]


@pytest.mark.parametrize("length", [str(MAX_BODY_BYTES + 1), "9" * 19, "9" * 300, "-1", "1.5", "\u00b2", "x"])
def test_a_body_that_announces_too_much_or_nonsense_is_not_waited_for(rest: RestServer, length: str) -> None:
    head = HEAD + b"content-length: " + length.encode("latin-1") + b"\r\n\r\n"
    host, port = Client(rest.url).place.split(":")
    with socket.create_connection((host, int(port)), 20) as raw:
        raw.sendall(head)
        status = raw.recv(4096).partition(b"\r\n")[0]
    assert status.split()[1] in (b"413", b"400")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * (MAX_BODY_BYTES - 1),
        b'{"a":' * (MAX_BODY_BYTES // 5 - 1),
        b"[" * (MAX_BODY_BYTES // 2) + b"]" * (MAX_BODY_BYTES // 2),
        b'{"state":' + b"9" * 60_000 + b"}",
        b'{"state":"\\ud800"}',
        b'{"state":"\xff"}',
    ],
    ids=["arrays", "objects", "arrays that end", "digits", "half a character", "no text"],
)
def test_a_body_that_is_deep_or_no_json_is_refused(rest: RestServer, known_query: str, body: bytes) -> None:
    client = Client(rest.url)
    assert client.send("PATCH", f"/api/v1/queries/{known_query}", body).status in (400, 422)
    assert client.get("/api/v1/queries").status == 200
