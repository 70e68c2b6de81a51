"""The REST service that a session, or the query itself, asks for by ``rest.*`` options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from query_running import Inbox, Start
from rest_client import Client

import penstock
from penstock.errors import ConfigError
from penstock.query import serving
from penstock.query.active_queries import ACTIVE_QUERIES
from penstock.query.serving import parse_service
from penstock.rest import server as rest_server

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
    assert parse_service(said) == {
        "host": "::1", "port": 4041, "token": TOKEN, "certificate": "/c.pem", "key": "/k.pem",
        "export_root": "/exports",
    }  # fmt: skip
    assert parse_service({"rest.port": "4041"}) is None
    assert parse_service({"rest.enabled": "false", "rest.port": "4041"}) is None
    assert parse_service({}) is None
    with pytest.raises(
        ConfigError, match=r"unknown option spark.penstock.rest.secret; known: rest.enabled, rest.expor"
    ):
        parse_service({"rest.secret": "xyzzy"})
    for name, value in (("rest.enabled", "yes"), ("rest.port", "65536"), ("rest.port", "-1"), ("rest.port", "x")):
        with pytest.raises(ConfigError, match=name):
            parse_service({name: value})


def test_who_lends_no_service_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.SERVICE, "serve", None)
    serving.serve(None)
    with pytest.raises(ConfigError, match=r"penstock\.writeStream"):
        serving.serve({})


def test_without_arguments_serve_gives_the_one_that_runs() -> None:
    with penstock.serve(token=TOKEN) as server:
        assert penstock.serve() is server
        with pytest.raises(ConfigError, match="other settings: stop"):
            penstock.serve(port=1)


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
