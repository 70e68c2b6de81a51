"""The REST server itself: where it listens, whom it answers, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest

import penstock
from penstock.errors import ConfigError, ResourceError
from penstock.rest.connection import MAX_HEAD_BYTES, JoinedWrites
from penstock.rest.guard import MAX_BODY_BYTES
from tests.support.rest.rest_client import Client, assert_problem, run_apart

TOKEN = "a-token-of-some-length"
QUERIES = "/api/v1/queries"


@pytest.fixture
def client() -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


@pytest.fixture
def guarded() -> Iterator[str]:
    with penstock.serve(token=TOKEN) as server:
        yield server.url


def listened_on() -> set[int]:
    return {c.laddr.port for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def test_it_starts_on_a_free_port_of_loopback_and_leaves_nothing() -> None:
    ports, threads = listened_on(), set(threading.enumerate())
    with penstock.serve(token="") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert Client(server.url).get(QUERIES).status == 200
        assert len(listened_on() - ports) == 1
        assert penstock.serve() is penstock.serve(token="") is server
        with pytest.raises(ConfigError, match="other settings: stop"):
            penstock.serve(token=TOKEN)
    assert not server.running
    assert listened_on() == ports
    left = [thread for thread in set(threading.enumerate()) - threads if thread.is_alive()]
    for thread in left:
        thread.join(5)
    assert not [thread for thread in left if thread.is_alive()]
    server.stop()
    with penstock.serve(token="") as again:
        assert again is not server
        assert Client(again.url).get(QUERIES).status == 200


def test_no_answer_waits_for_an_acknowledgement_of_its_head() -> None:
    """Nagle's algorithm would hold its body back for that, 40 ms at times."""
    with penstock.serve(token="") as server:
        asking = http.client.HTTPConnection(server.url.removeprefix("http://"))
        with closing(asking):
            asking.request("GET", QUERIES)
            assert asking.getresponse().read()
            (connection,) = server._server.server_state.connections
            answering = connection.transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert answering.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_bind_beyond_loopback_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="reachable from other machines: give a token"):
        penstock.serve(host=host)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"host": ""}, "rest.host is empty"),
        ({"host": "example.org", "token": TOKEN}, "not an IP address"),
        ({"port": 65536}, "rest.port=65536"),
        ({"port": -1}, "rest.port=-1"),
        ({"port": range(0)}, "rest.port=range"),
        ({"port": range(65530, 65540)}, "rest.port=range"),
        ({"token": "short"}, "16 or more visible"),
        ({"token": "with a blank in the middle"}, "16 or more visible"),
    ],
)
def test_what_cannot_be_listened_on_is_said(wrong: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        penstock.serve(**wrong)  # type: ignore[arg-type]


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ResourceError, match=f"cannot listen on port {port} of 127.0.0.1: .*set rest.port"):
            penstock.serve(port=range(port, port + 1))


def test_with_a_token_it_listens_everywhere_and_answers_to_any_name() -> None:
    with penstock.serve(host="0.0.0.0", token=TOKEN) as server:
        port = server.url.rpartition(":")[2]
        client = Client(f"http://127.0.0.1:{port}", TOKEN)
        assert client.get(QUERIES, Host="driver.example.org").status == 200
        assert_problem(Client(f"http://127.0.0.1:{port}").get(QUERIES), 401, "token is missing")


@pytest.mark.parametrize("path", [QUERIES, "/metrics", "/openapi.json", "/nothing"])
def test_nothing_is_told_without_the_token(guarded: str, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Authorization": "é"}):
        answer = Client(guarded).get(path, **headers)
        assert_problem(answer, 401, "token is missing or wrong")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in answer.text
    assert Client(guarded, TOKEN).get(path).status == (404 if path == "/nothing" else 200)
    assert TOKEN not in repr(penstock.serve(token=TOKEN))


def test_no_operation_is_carried_out_for_who_may_not_ask() -> None:
    """All operations of the service's own list."""
    strangers: list[tuple[int, str | None, dict[str, str]]] = [
        (401, None, {}), (401, "another-token-of-some-length", {}),
        (403, TOKEN, {"Origin": "http://evil.example.org"}), (421, TOKEN, {"Host": "evil.example.org"}),
    ]  # fmt: skip
    with penstock.serve(token=TOKEN) as server:
        paths = Client(server.url, TOKEN).get("/openapi.json").json["paths"]
        operations = [(method.upper(), path) for path, methods in paths.items() for method in methods]
        assert ("POST", "/api/v1/queries/{query_id}/snapshots/verifications") in operations
        for status, token, headers in strangers:
            for method, path in operations:
                assert_problem(
                    Client(server.url, token).send(method, path.replace("{", "").replace("}", ""), headers=headers),
                    status,
                )


@pytest.mark.parametrize("host", ["evil.example.org", "evil.example.org:80", "127.0.0.1.evil.example.org", "", "[::1"])
def test_another_name_that_points_here_gets_nothing(client: Client, host: str) -> None:
    assert_problem(client.get(QUERIES, Host=host), 421, "localhost and loopback")


def test_names_of_this_machine_are_served(client: Client) -> None:
    for host in ("localhost", f"localhost:{client.place.rpartition(':')[2]}", "[::1]:80", "127.0.0.2"):
        assert client.get(QUERIES, Host=host).status == 200


def test_cross_origin_is_closed(client: Client) -> None:
    answer = client.get(QUERIES, Origin="http://evil.example.org")
    assert_problem(answer, 403, "cross-origin")
    assert_problem(client.get(QUERIES, Origin="null"), 403)
    preflight = {"Origin": "http://evil.example.org", "Access-Control-Request-Method": "PATCH"}
    assert client.send("OPTIONS", QUERIES, headers=preflight).status == 403
    same = client.get(QUERIES, Origin=f"http://{client.place}")
    assert same.status == 200
    assert not [name for name in same.headers if name.startswith("access-control-")]


def test_requests_are_bounded(client: Client) -> None:
    path = f"{QUERIES}/some"
    assert_problem(client.send("PATCH", path, b" " * (MAX_BODY_BYTES + 1)), 413, "more than 65536 bytes")
    chunks = (b" " * 1000 for _ in range(MAX_BODY_BYTES // 1000 + 1))
    assert_problem(client.send("PATCH", path, chunks), 413)  # type: ignore[arg-type]
    assert_problem(client.get(f"{QUERIES}/{'x' * 9000}"), 414)
    assert client.get(QUERIES).status == 200


def said_to(client: Client, *pieces: bytes) -> bytes:
    """Return the responses on one connection until it ends."""
    host, port = client.place.split(":")
    with socket.create_connection((host, int(port)), 30) as raw:
        for piece in pieces:
            raw.sendall(piece)
        answered = b""
        while more := raw.recv(1 << 16):
            answered += more
        return answered


@pytest.mark.parametrize(
    "header", [b"x: " + b"y" * MAX_HEAD_BYTES, b"x: y\r\n" * MAX_HEAD_BYTES, b"x" * MAX_HEAD_BYTES]
)
def test_headers_without_an_end_are_refused_and_not_held(client: Client, header: bytes) -> None:
    """However slowly they come: nobody has shown a token yet."""
    pieces = [header[at : at + 8192] for at in range(0, MAX_HEAD_BYTES, 8192)]
    begun = f"GET {QUERIES} HTTP/1.1\r\nhost: {client.place}\r\n".encode()
    answered = said_to(client, begun, *pieces)
    assert answered.startswith(b"HTTP/1.1 400 ")
    assert answered.count(b"HTTP/1.1") == 1
    assert client.get(QUERIES).status == 200


def test_many_requests_on_one_connection_are_not_one_long_one(client: Client) -> None:
    one = f"GET {QUERIES} HTTP/1.1\r\nhost: {client.place}\r\nx: {'y' * 1000}\r\n".encode()
    last = one + b"connection: close\r\n\r\n"
    assert 60 * len(one) > MAX_HEAD_BYTES
    assert said_to(client, *[one + b"\r\n"] * 60, last).count(b"HTTP/1.1 200 OK") == 61
    assert said_to(client, (one + b"\r\n") * 20 + last).count(b"HTTP/1.1 200 OK") == 21, "all at once"


class Network(asyncio.Transport):
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("closed")


def test_a_response_goes_out_in_one_piece_and_before_the_end() -> None:
    async def write() -> Network:
        network = Network()
        joined = JoinedWrites(network, asyncio.get_running_loop())
        joined.write(b"head,")
        joined.write(b"body")
        joined.write(b"")
        assert network.told == []
        await asyncio.sleep(0)
        assert network.told == [b"head,body"]
        joined.write(b"last")
        joined.close()
        await asyncio.sleep(0)
        return network

    assert run_apart(write()).told == [b"head,body", b"last", "closed"]


def test_what_is_not_there_is_a_problem(client: Client) -> None:
    assert_problem(client.get("/nothing"), 404, "/nothing", "/openapi.json")
    assert_problem(client.get(f"{QUERIES}/unknown"), 404, "no query 'unknown'")
    answer = client.send("DELETE", QUERIES)
    assert_problem(answer, 405, "DELETE is not for")
    assert answer.headers["allow"] == "GET"
    assert_problem(client.get(f"{QUERIES}/unknown/checkpoints?limit=0"), 422, "limit")
    assert_problem(client.get(f"{QUERIES}/unknown/checkpoints/zero"), 422, "checkpoint")


def test_a_fault_of_the_service_is_told_in_the_log_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(query_id: str) -> None:
        raise RuntimeError("between the two of us")

    for name in ("routes_queries", "routes_snapshots"):  # answered on the service's own thread, and on another
        monkeypatch.setattr(f"penstock.rest.{name}.find_query", broken)
    for path in (f"{QUERIES}/some/graph", f"{QUERIES}/some/snapshots/sharing"):
        caplog.clear()
        answer = client.get(path)
        assert_problem(answer, 500, "the driver's log says why")
        assert answer.json["instance"] == path
        assert "RuntimeError" not in answer.text
        assert "between the two of us" not in answer.text
        (told,) = [record for record in caplog.records if record.name == "penstock.rest.problems"]
        assert told.getMessage() == f"GET {path} failed"
        assert told.exc_info is not None
        assert told.exc_info[0] is RuntimeError
    assert client.get(QUERIES).status == 200


def test_a_client_that_sends_no_http_breaks_nothing(client: Client) -> None:
    host, port = client.place.split(":")
    for rubbish in (b"\x00\xff" * 100, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"x" * 100_000):
        with socket.create_connection((host, int(port)), 5) as raw:
            raw.sendall(rubbish)
            raw.shutdown(socket.SHUT_WR)
            raw.settimeout(5)
            raw.recv(1000)
    assert client.get(QUERIES).status == 200
