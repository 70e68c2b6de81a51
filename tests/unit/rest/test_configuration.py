"""The options of a query over HTTP: all of them, as they count now, without anything that is secret."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.config import OPTION_NAMES, Options, option_texts, parse_options
from penstock.coordinator.view import RequestedState
from penstock.queries.active_queries import ACTIVE_QUERIES
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Client, assert_problem

SAID = {
    "state.backend": "rocksdb",
    "checkpoint.interval": "1500 ms",
    "checkpoint.tolerableFailures": "unlimited",
    "checkpoint.maxInflightBytes": "64m",
    "driver.port": "40000-40009",
    "restart.jitter": "0.25",
    "network.tls": "true",
}
TEXTS = {
    "parallelism": st.integers(1, 64).map(str),
    "checkpoint.interval": st.integers(10, 10**9).map(lambda ms: f"{ms}ms"),
    "checkpoint.alignment": st.sampled_from(["auto", "aligned", "unaligned"]),
    "checkpoint.triggerOn": st.sampled_from(["firstBarrier", "lastBarrier"]),
    "checkpoint.tolerableFailures": st.one_of(st.just("unlimited"), st.integers(0, 9).map(str)),
    "exchange.memoryPerGate": st.integers(1, 1 << 40).map(str),
    "join.maxStaticBytes": st.integers(0, 1 << 30).map(str),
    "restart.strategy": st.sampled_from(["exponential", "fixed", "failureRate", "none"]),
    "restart.jitter": st.floats(0, 1).map(repr),
    "slot.port": st.sampled_from(["0", "7", "40000-40099"]),
    "network.tls": st.sampled_from(["true", "false"]),
    "log.format": st.sampled_from(["text", "json"]),
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUpQuery:
    query = MadeUpQuery(vertices=2, parallelism=2, options=replace(parse_options(SAID), parallelism=2))
    query.requested = RequestedState(2, 1500, "auto")
    monkeypatch.setattr(ACTIVE_QUERIES, "known", lambda: [query.facts()])
    return query


@pytest.fixture
def client(made_up: MadeUpQuery) -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


def told(client: Client) -> dict[str, Any]:
    options = client.get(f"/api/v1/queries/{MadeUpQuery.query_id}/configuration").json["options"]
    return {one.pop("name"): one for one in options}


@given(st.fixed_dictionaries({}, optional=TEXTS))
def test_options_as_texts_are_read_as_the_same_options(said: dict[str, str]) -> None:
    options = parse_options(said)
    texts = {name: text for name, text in option_texts(options).items() if text is not None}
    assert parse_options(texts) == options


def test_every_option_has_a_text() -> None:
    assert list(option_texts(Options())) == list(OPTION_NAMES)
    assert len(OPTION_NAMES) == len(fields(Options)), "an option that nobody can set"
    texts = option_texts(parse_options({"exchange.memoryPerGate": "1536k", "restart.delay": "90s"}))
    assert (texts["exchange.memoryPerGate"], texts["restart.delay"]) == ("1536k", "90s")
    assert (texts["join.maxStaticBytes"], texts["checkpoint.timeout"]) == ("256m", "10m")
    assert (texts["checkpoint.tolerableFailures"], texts["checkpoint.maxInflightBytes"]) == ("unlimited", "off")
    assert (texts["checkpoint.minPause"], texts["slot.port"], texts["parallelism"]) == ("0ms", "0", None)


def test_every_option_is_told_with_its_default(client: Client) -> None:
    options = told(client)
    assert list(options) == list(OPTION_NAMES)
    assert options["state.backend"] == {
        "value": "rocksdb", "at_start": "rocksdb", "default": "memory", "is_default": False, "changes": "next_start",
    }  # fmt: skip
    own = {name: one["value"] for name, one in options.items() if not one["is_default"]}
    assert own == {
        "checkpoint.interval": "1500ms", "checkpoint.maxInflightBytes": "64m", "driver.port": "40000-40009",
        "network.tls": "true", "parallelism": "2", "restart.jitter": "0.25", "state.backend": "rocksdb",
    }  # fmt: skip
    assert options["checkpoint.tolerableFailures"]["value"] == options["checkpoint.tolerableFailures"]["default"]
    assert options["exchange.inflightTarget"]["value"] == "off"
    now = {name for name, one in options.items() if one["changes"] == "now"}
    assert now == {"parallelism", "checkpoint.interval", "checkpoint.alignment"}
    assert [name for name, one in options.items() if one["changes"] == "never"] == ["maxParallelism"]


def test_what_was_changed_since_counts_now(client: Client, made_up: MadeUpQuery) -> None:
    assert told(client)["checkpoint.interval"]["value"] == "1500ms"
    made_up.requested = RequestedState(3, 10_000, "unaligned")
    options = told(client)
    interval = options["checkpoint.interval"]
    assert (interval["value"], interval["at_start"], interval["is_default"]) == ("10s", "1500ms", True)
    assert (options["parallelism"]["value"], options["parallelism"]["at_start"]) == ("3", "2")
    assert options["checkpoint.alignment"]["value"] == "unaligned"


def test_an_unknown_query_has_none(client: Client) -> None:
    assert_problem(client.get("/api/v1/queries/unknown/configuration"), 404, "unknown")
