"""The REST service that a session, or the query itself, asks for by ``rest.*`` options."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.api.rest_options import parse_rest_options, reserved_service
from penstock.errors import ConfigError, ResourceError
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.rest import server as rest_server
from penstock.spark.launcher import SparkLauncher
from tests.support.queries.query_running import Inbox, Start
from tests.support.rest.rest_client import Client

TOKEN = "a-token-of-some-length"


@pytest.fixture(autouse=True)
def stopped() -> Iterator[None]:
    yield
    running = rest_server._RUNNING.server
    if running is not None:
        running.stop()


def test_names_are_those_of_serve_and_unknown_ones_are_listed() -> None:
    said = {
        "rest.ENABLED": "true", "rest.host": "::1", "rest.port": "4041", "rest.token": TOKEN,
        "rest.tls.certificate": "/c.pem", "rest.tls.key": "/k.pem", "rest.exportroot": "/exports", "parallelism": "2",
    }  # fmt: skip
    assert parse_rest_options(said) == {
        "host": "::1", "port": 4041, "token": TOKEN, "certificate": "/c.pem", "key": "/k.pem",
        "export_root": "/exports",
    }  # fmt: skip
    assert parse_rest_options({"rest.port": "4041"}) is None
    assert parse_rest_options({"rest.enabled": "false", "rest.port": "4041"}) is None
    assert parse_rest_options({}) is None
    with pytest.raises(
        ConfigError,
        match=r"unknown option spark.penstock.rest.secret. Options of the REST service: rest.enabled, rest.expor",
    ):
        parse_rest_options({"rest.secret": "xyzzy"})
    for name, value in (("rest.enabled", "yes"), ("rest.port", "65536"), ("rest.port", "-1"), ("rest.port", "x")):
        with pytest.raises(ConfigError, match=name):
            parse_rest_options({name: value})


def test_a_query_that_requests_no_service_gets_none() -> None:
    with reserved_service(None, None) as serve:
        serve()
    assert rest_server._RUNNING.server is None or not rest_server._RUNNING.server.running


def test_without_arguments_serve_gives_the_one_that_runs() -> None:
    with penstock.serve(token=TOKEN) as server:
        assert penstock.serve() is server
        with pytest.raises(ConfigError, match="other settings: stop"):
            penstock.serve(port=1)


@pytest.mark.parametrize(
    ("text", "port"), [("4041", 4041), (" 4041 ", 4041), ("0", 0), ("4041-4050", range(4041, 4051))]
)
def test_a_port_is_one_to_begin_with_or_a_range(text: str, port: int | range) -> None:
    said = parse_rest_options({"rest.enabled": "true", "rest.port": text})
    assert said == {"port": port}


def neighbours() -> tuple[socket.socket, int]:
    """A port that is taken, below those that systems hand out, so that nobody is given the free one behind it."""
    for _ in range(100):
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return socket.create_server(("127.0.0.1", port)), port
    raise AssertionError("no two free ports in a row")


def test_a_reservation_has_its_port_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    taken, port = neighbours()
    with taken:
        with reserved_service({"port": port}, None):
            assert "is taken; the REST service listens on port" in caplog.text
            with pytest.raises(ResourceError, match=f"on port {port + 1} of"):
                penstock.serve(port=range(port + 1, port + 2))
            assert rest_server._RUNNING.server is None or not rest_server._RUNNING.server.running
        with penstock.serve(port=range(port, port + 2)) as server:
            assert server.url.endswith(f":{port + 1}"), "the reserved one is free again"
        with (
            pytest.raises(ResourceError, match=f"cannot listen on port {port} of"),
            reserved_service({"port": port}, "0"),
        ):
            pytest.fail("the port is taken, and no other may be tried")
        with pytest.raises(ConfigError, match=r"spark\.port\.maxRetries='x'"), reserved_service({}, "x"):
            pytest.fail("that is no number")


def test_two_starts_that_reserve_the_same_have_one_service() -> None:
    with reserved_service({"token": TOKEN}, None) as one, reserved_service({"token": TOKEN}, None) as two:
        assert one() is two()
    assert len({thread for thread in threading.enumerate() if thread.name == "penstock-rest"}) == 1


@pytest.mark.spark
@pytest.mark.parametrize("option", ["rest.port", "driver.port"])
def test_a_port_that_is_taken_is_told_before_anything_has_begun(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, ExitStack() as more:
        port = taken.getsockname()[1]
        if option == "driver.port":
            host = SparkLauncher(spark).control_address().bind
            taken.close()
            more.enter_context(socket.create_server((host, port)))
        before = sorted(tmp_path.rglob("*"))
        began = time.monotonic()
        with pytest.raises(ResourceError, match=rf"cannot listen on ports? {port}.*{option}"):
            start(
                inbox.stream(spark).join(spark.createDataFrame([(1,)], "key bigint"), "key"),
                format="noop", **{"rest.enabled": "true", option: f"{port}-{port}"},
            )  # fmt: skip
        assert sorted(tmp_path.rglob("*")) == before
        assert time.monotonic() - began < 10
    assert rest_server._RUNNING.server is None or not rest_server._RUNNING.server.running


@pytest.mark.spark
def test_a_query_whose_port_is_taken_is_served_on_one_behind_it(
    spark: SparkSession, inbox: Inbox, start: Start
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        start(inbox.stream(spark), format="noop", **{"rest.enabled": "true", "rest.port": str(port)})
        assert port < int(penstock.serve().url.rpartition(":")[2]) <= port + 16


def conf_set(spark: SparkSession, values: dict[str, Any]) -> None:
    for name, value in values.items():
        spark.conf.set(f"spark.penstock.{name}", str(value))


@pytest.mark.spark
def test_a_session_has_its_queries_served_and_what_does_not_fit_refuses_the_start(
    spark: SparkSession, inbox: Inbox, start: Start
) -> None:
    settings = {"rest.enabled": "true", "rest.port": "0", "rest.token": TOKEN}
    conf_set(spark, settings)
    try:
        query = start(inbox.stream(spark), format="noop")
        server = penstock.serve()
        known = Client(server.url, TOKEN).get("/api/v1/queries").json["queries"]
        assert query.id in [one["id"] for one in known]
        assert Client(server.url).get("/api/v1/queries").status == 401
        query.stop()
        assert server.running, "it is the driver's"
        before = len(ACTIVE_QUERIES.known())
        conf_set(spark, {"rest.token": "another-token-of-some-length"})
        with pytest.raises(ConfigError, match="other settings: stop"):
            start(inbox.stream(spark), format="noop")
        server.stop()
        with pytest.raises(ConfigError, match="must be 16 or more"):
            start(inbox.stream(spark), format="noop", **{"rest.token": "short"})
        with pytest.raises(ConfigError, match="unknown option") as refused:
            start(inbox.stream(spark), format="noop", **{"spark.penstock.rest.nonsense": "1"})
        assert "another-token" not in str(refused.value)
        assert len(ACTIVE_QUERIES.known()) == before
        assert rest_server._RUNNING.server is not None
        assert not rest_server._RUNNING.server.running
    finally:
        for name in settings:
            spark.conf.unset(f"spark.penstock.{name}")
