"""The token that a service makes: where it is printed and stored, and how the command line reads it."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.errors import ConfigError
from penstock.rest.guard import ANSWER_HEADERS
from penstock.rest.runtime_file import DIRECTORY_VARIABLE, RuntimeFile, running_services, runtime_directory
from penstock.rest.server import RestServer
from tests.support.cli.calling import assert_one_line, query
from tests.support.rest.rest_client import Client, assert_problem

QUERIES = "/api/v1/queries"
GIVEN = "a-token-of-some-length"
pytestmark = pytest.mark.usefixtures("known_query")


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "runtime"
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))
    return directory


@pytest.fixture
def server(runtime: Path) -> Iterator[RestServer]:
    with penstock.serve() as running:
        yield running


def test_requests_without_the_token_that_the_service_made_are_refused(server: RestServer) -> None:
    assert server.token is not None
    assert len(server.token) >= 43
    for token in (None, GIVEN, ""):
        stranger = Client(server.url, token)
        assert_problem(stranger.get(QUERIES), 401, "token is missing or wrong")
        assert_problem(stranger.send("PATCH", f"{QUERIES}/some", b"{}"), 401)
        assert_problem(stranger.get("/metrics"), 401)
    assert Client(server.url, server.token).get(QUERIES).status == 200
    assert penstock.serve() is server
    server.stop()
    with penstock.serve() as again:
        assert again.token != server.token


def test_the_token_is_printed_once_and_not_logged(
    runtime: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with penstock.serve() as server:
        penstock.serve()
        assert server.token is not None
        assert Client(server.url, server.token).get(QUERIES).status == 200
    printed = capfd.readouterr()
    assert printed.err.count(server.token) == 1
    assert f"{server.url}/#token={server.token}" in printed.err
    assert printed.out == ""
    assert server.token not in caplog.text + repr(server) + repr(RuntimeFile(server.url, server.token))
    with penstock.serve(token=GIVEN) as own:
        assert own.token == GIVEN
        assert not running_services(), "who gives a token knows it"
    assert capfd.readouterr() == ("", "")


def test_an_empty_token_is_possible_and_logs_a_warning(runtime: Path, caplog: pytest.LogCaptureFixture) -> None:
    with penstock.serve(token="") as server:
        assert (server.token, server.link) == (None, f"{server.url}/")
        assert Client(server.url).get(QUERIES).status == 200
    assert "every account on this machine can read and steer" in caplog.text
    with pytest.raises(ConfigError, match="give a token"):
        penstock.serve(host="0.0.0.0", token="")


def test_the_runtime_file_is_private_and_is_removed_with_the_service(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = runtime / f"rest-{dead.pid}-4040.json"
    left.write_text("{}")
    (runtime / "notes").touch()
    before = os.umask(0)
    try:
        with penstock.serve() as server:
            (path,) = runtime.glob("rest-*")
            assert not left.exists(), "what a killed process left is removed"
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert json.loads(path.read_bytes()) == {"url": server.url, "token": server.token}
    finally:
        os.umask(before)
    assert [one.name for one in runtime.iterdir()] == ["notes"]


def test_a_program_that_ends_without_a_stop_leaves_no_file(runtime: Path) -> None:
    subprocess.run([sys.executable, "-c", "import penstock; penstock.serve()"], check=True, capture_output=True)
    assert runtime.is_dir()
    assert not list(runtime.iterdir())


def test_the_command_line_needs_no_address_and_no_token_for_the_users_own_service(server: RestServer) -> None:
    assert query("list")[::2] == (0, "")
    assert query("list", "--url", server.url)[::2] == (0, "")
    assert query("list", "--url", f"{server.url}/")[::2] == (0, "")
    assert_one_line(query("list", PENSTOCK_TOKEN=GIVEN), "does not know the token")
    assert_one_line(query("list", "--url", server.url.replace("127.0.0.1", "127.0.0.2")), "no REST service")


def test_no_service_and_several_are_an_error_of_one_line(server: RestServer, runtime: Path) -> None:
    other = RuntimeFile("http://127.0.0.1:1", GIVEN)
    path = runtime / f"rest-{os.getpid()}-1.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({"url": other.url, "token": other.token}))
    assert_one_line(query("list"), "several", other.url, server.url, "--url", code=2)
    path.chmod(0o644)
    assert query("list")[0] == 0, "a file that others can read is none of ours"
    server.stop()
    assert_one_line(query("list"), "--url", "PENSTOCK_URL", "penstock.serve().url")


@pytest.mark.parametrize("mode", [0o755, 0o770])
def test_a_directory_with_access_for_others_is_not_used(
    runtime: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    runtime.mkdir()
    runtime.chmod(mode)
    with penstock.serve() as server:
        assert not list(runtime.iterdir())
        path = runtime / f"rest-{os.getpid()}-1.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps({"url": server.url, "token": GIVEN}))
        assert not running_services()
    assert "the runtime file cannot be written" in caplog.text


def test_the_path_of_the_runtime_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, wanted in (
        (DIRECTORY_VARIABLE, "/mine", "/mine"),
        ("XDG_RUNTIME_DIR", "/run/user/7", "/run/user/7/penstock"),
        ("HOME", "/home/u", "/home/u/.local/share/penstock/runtime"),
    ):
        monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setenv(name, value)
        assert str(runtime_directory()) == wanted


def test_answers_have_the_security_headers(server: RestServer) -> None:
    own, stranger = Client(server.url, server.token), Client(server.url)
    answers = [own.get(path) for path in (QUERIES, QUERIES, "/metrics", "/openapi.json", "/nothing", f"{QUERIES}/x")]
    answers += [stranger.get(QUERIES), own.get(QUERIES, Origin="http://evil.example.org"), own.get(QUERIES, Host="x")]
    answers += [own.send("PATCH", f"{QUERIES}/x", b" " * (1 << 17)), own.send("DELETE", QUERIES)]
    assert {answer.status for answer in answers} == {200, 401, 403, 404, 405, 413, 421}
    for answer in answers:
        for name, value in ANSWER_HEADERS.items():
            assert answer.headers[name] == value, (answer.status, name)
    page = own.get("/")
    assert page.headers["cache-control"] == "no-cache"
    script = re.findall(r'"(/ui/[^"]*main\.js)"', page.text)[0]
    assert "immutable" in own.get(script).headers["cache-control"], "the same for everybody"
