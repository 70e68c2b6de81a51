"""Faults of a service: each ends in one line and code 1, and the token is never printed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.query import service as client
from penstock.errors import ConfigError, NoAnswer
from tests.support.cli.calling import assert_one_line, query
from tests.support.cli.fake_service import FakeService, Reply, fake_service, problem, query_document

TOKEN = "a-token-of-some-length"
LIST = "GET /api/v1/queries"


@pytest.fixture
def service() -> Iterator[FakeService]:
    with fake_service() as fake:
        yield fake


def test_nobody_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    called = query("list", PENSTOCK_URL=f"http://127.0.0.1:{port}")
    assert_one_line(called, f"127.0.0.1:{port}", "Connection refused", "penstock.serve()")


def test_an_address_is_asked_for() -> None:
    assert_one_line(query("list"), "--url", "PENSTOCK_URL", "penstock.serve().url")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:4041",
        "ftp://host",
        "http://",
        "http://h:port",
        "http://h:0",
        "http://a b",
        "http://h/é",
        "http://\x1b[2J",
    ],
)
def test_what_is_no_address_is_said(url: str) -> None:
    assert_one_line(query("list", "--url", url), "write for example http://127.0.0.1:4041", code=2)


@pytest.mark.parametrize(
    "url", ["http://me:secret@localhost", "http://localhost/?token=secret", "http://localhost/#secret"]
)
def test_secrets_do_not_belong_into_an_address(url: str) -> None:
    called = query("list", "--url", url)
    assert_one_line(called, "a token goes into PENSTOCK_TOKEN", code=2)
    assert "secret" not in called[2]


def test_the_token_is_shown_to_the_service_and_to_nobody_else(service: FakeService, tmp_path: Path) -> None:
    service.routes[LIST] = Reply({"queries": []})
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    calls = [
        query("list", PENSTOCK_URL=service.url, PENSTOCK_TOKEN=TOKEN),
        query("list", "--url", service.url, "--token-file", str(file)),
        query("list", "--token-file", str(file), PENSTOCK_URL=service.url, PENSTOCK_TOKEN="another"),
        query("list", PENSTOCK_URL=service.url),
    ]
    assert [code for code, _, _ in calls] == [0, 0, 0, 0]
    assert [one.headers.get("Authorization") for one in service.requests] == [f"Bearer {TOKEN}"] * 3 + [None]
    assert TOKEN not in repr(client.service_at(service.url, TOKEN))


def test_a_wrong_token_is_one_line_without_it(service: FakeService) -> None:
    service.routes[LIST] = problem(401, "the token is missing or wrong")
    called = query("list", PENSTOCK_URL=service.url, PENSTOCK_TOKEN=TOKEN)
    assert_one_line(called, service.url, "does not know the token", "PENSTOCK_TOKEN", "--token-file")
    assert TOKEN not in called[2]
    assert_one_line(query("list", PENSTOCK_URL=service.url), "asks for a token")


def test_a_token_that_others_can_read_is_not_sent(service: FakeService, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o640)
    called = query("list", "--url", service.url, "--token-file", str(file))
    assert_one_line(called, f"--token-file {file}", "mode 0640", f"chmod 600 {file}", code=2)
    assert not service.requests


def test_an_answer_that_would_become_far_more_in_memory_is_not_decoded(service: FakeService) -> None:
    brackets = b"[" + b"[]," * (2 << 20) + b"[]]"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(brackets)}\r\n\r\n"
    service.routes[LIST] = Reply(raw=head.encode() + brackets)
    assert_one_line(query("list", "--url", service.url), "no JSON document")


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"x" * 5000, b"a\r\nX-Evil: 1"])
def test_what_is_no_token_is_not_sent(service: FakeService, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    (tmp_path / "token").chmod(0o600)
    service.routes[LIST] = Reply({"queries": []})
    called = query("list", "--url", service.url, "--token-file", str(tmp_path / "token"))
    assert_one_line(called, "token", code=2)
    assert not service.requests
    assert_one_line(
        query("list", "--url", service.url, "--token-file", str(tmp_path / "none")), "cannot be read", code=2
    )


def test_no_redirect_is_followed(service: FakeService) -> None:
    with fake_service() as other:
        service.routes[LIST] = Reply({}, 307, {"Location": f"{other.url}/api/v1/queries"})
        called = query("list", PENSTOCK_URL=service.url, PENSTOCK_TOKEN=TOKEN)
        assert_one_line(called, f"redirects to {other.url}", "give the address itself")
        assert not other.requests


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
WHOLE = json.dumps({"queries": []}).encode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (HEAD + b"Content-Length: 100\r\n\r\n" + WHOLE, "15 of 100 bytes came"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nf\r\n" + WHOLE[:5], "the connection ended amid its answer"),
        (b"", "did not answer"),
        (b"\x00\xff\x1b[2J" * 9 + b"\r\n\r\n", "did not answer"),
        (HEAD + b"X: " + b"x" * 70_000, "did not answer"),
        (HEAD + b"Content-Length: 6\r\n\r\n<html>", "no REST service of Penstock"),
        (HEAD + b"Content-Length: 4\r\n\r\nnull", "no REST service of Penstock"),
        (HEAD + b"Content-Length: 30000\r\n\r\n" + b"[" * 30_000, "no REST service of Penstock"),
        (HEAD + b"Content-Length: 2\r\n\r\n{}", "is not understood: Object missing required field `queries`"),
        (HEAD + b"\r\n" + WHOLE[:-1].replace(b"[", b"[7]"), "no REST service of Penstock"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\ntoo\nmany", "503 Service Unavailable: too many"),
    ],
)  # fmt: skip
def test_garbage_and_halves_are_one_line(service: FakeService, raw: bytes, text: str) -> None:
    service.routes[LIST] = Reply(raw=raw)
    called = query("list", PENSTOCK_URL=service.url)
    assert_one_line(called, text, service.url)
    assert "\x1b" not in called[2]


def test_an_answer_is_bounded_in_time_and_size(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.routes[LIST] = Reply(raw=HEAD + b"\r\n" + b" " * 10_000, pause_s=0.01)
    began_s = time.monotonic()
    with pytest.raises(NoAnswer, match="timed out"):
        client.service_at(service.url, timeout_s=0.5).get("queries")
    assert time.monotonic() - began_s < 5
    monkeypatch.setattr(client, "MAX_ANSWER_BYTES", 1 << 20)
    service.routes[LIST] = Reply(raw=HEAD + b"\r\n" + b" " * (2 << 20))
    with pytest.raises(NoAnswer, match="more than 1 MiB"):
        client.service_at(service.url).get("queries")


def test_a_problem_is_told_in_its_own_words_without_steering_the_terminal(service: FakeService) -> None:
    service.routes[LIST] = problem(409, "the query\x1b[2J has\nended [bold]or[/] is about to")
    assert_one_line(query("list", PENSTOCK_URL=service.url), "the query [2J has ended [bold]or[/] is about to")
    service.routes[LIST] = Reply({"queries": [query_document(name="\x1b]0;evil\x07", message="a\u202eb")]})
    code, out, _ = query("list", PENSTOCK_URL=service.url)
    assert code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_what_a_newer_service_tells_besides_is_no_matter(service: FakeService) -> None:
    service.routes[LIST] = Reply({"queries": [query_document(state="suspended", colour="red")], "next": 1})
    code, out, _ = query("list", PENSTOCK_URL=service.url)
    assert (code, "suspended" in out) == (0, True)


def test_below_a_path_of_a_proxy(service: FakeService) -> None:
    service.routes["GET /driver-7/api/v1/queries"] = Reply({"queries": []})
    code, out, _ = query("list", PENSTOCK_URL=f"{service.url}/driver-7/")
    assert (code, "knows no query" in out) == (0, True)
    with pytest.raises(ConfigError, match="is no address"):
        client.service_at("http://[::1")
