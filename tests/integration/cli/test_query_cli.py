"""``penstock query`` against a driver with a query that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.coordinator.view import ExecutionState
from tests.support.queries.query_running import Inbox, Start, eventually

pytestmark = pytest.mark.spark

TOKEN = "a-token-of-some-length"


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with penstock.serve(token=TOKEN) as server:
        monkeypatch.setenv("PENSTOCK_URL", server.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
        monkeypatch.setenv("COLUMNS", "80")
        yield server.url


def call(*words: str) -> str:
    """Stdout; stderr has to be empty, and the code 0."""
    result = CliRunner().invoke(app, ["query", *words])
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def refused(*words: str) -> str:
    result = CliRunner().invoke(app, ["query", *words])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
    return result.stderr


def test_a_query_is_looked_at_changed_rescaled_and_stopped(
    spark: SparkSession, inbox: Inbox, start: Start, url: str
) -> None:
    inbox.add([(n % 7, n, float(n)) for n in range(100)])
    df = inbox.stream(spark).groupBy("key").agg(F.sum("value").alias("total"))
    query = start(df, format="memory", queryName="cli_sums", outputMode="complete")
    query.processAllAvailable()
    eventually(lambda: sum(one.metrics.rows_in for one in query.view().subtasks) >= 100, "the figures")

    listed = json.loads(call("list", "--json"))["queries"]
    assert query.id in [one["id"] for one in listed]
    assert f"{query.id[:8]}  cli_sums" in call("list")
    shown = call("show", query.id[:13])
    for text in (f"cli_sums, query {query.id}, run {query.runId}", "running: ", "every 200ms, auto", "hash -> 1"):
        assert text in shown, shown
    told = json.loads(call("show", "cli_sums", "--json"))
    assert (told["id"], len(told["graph"]["vertices"]), told["exceptions"]["failure"]) == (query.id, 2, None)

    frame = call("watch", "cli_sums")
    for text in (f"cli_sums ({query.id[:8]})  generation 1  parallelism 1", "checkpoints: every 200ms", "complete"):
        assert text in frame, frame
    assert max(map(len, frame.splitlines())) <= 80
    told = json.loads(call("watch", "cli_sums", "--json"))
    assert [rate["rows_in"] for rate in told["rates"].values()] == [0.0, 0.0]
    assert all(0 <= rate["busy"] + rate["backpressured"] <= 1 for rate in told["rates"].values())

    changed = call("set", "cli_sums", "--interval", "100ms", "--alignment", "unaligned")
    assert changed == f"cli_sums ({query.id[:8]}) takes checkpoints every 100ms, unaligned\n"
    assert "already" in call("set", "cli_sums", "--interval", "0.1s")
    eventually(lambda: query.view().checkpoints[-1].alignment == "unaligned", "an unaligned checkpoint")

    told = json.loads(call("rescale", "cli_sums", "2", "--json"))
    assert (told["asked"], told["changed"], told["operation"]["state"]) == ({"parallelism": 2}, True, "succeeded")
    assert (query.parallelism, query.generation) == (2, 2)
    assert "runs at parallelism 2 already" in call("rescale", "cli_sums", "2")
    assert "maxParallelism" in refused("rescale", "cli_sums", "500")
    assert "failed: ResourceError: " in refused("rescale", "cli_sums", "99")
    assert query.parallelism == 2

    assert call("stop", "cli_sums") == f"cli_sums ({query.id[:8]}) has stopped\n"
    assert not query.isActive
    assert "has ended already" in call("stop", query.id)
    assert "has ended or is about to" in refused("rescale", query.id, "1")
    assert "has ended: start it again in its program" in refused("rescale", query.id, "2")
    assert "has ended: start it again in its program" in refused("set", query.id, "--interval", "100ms")
    assert "stopped: Stopped" in call("watch", query.id)


def test_a_query_is_suspended_and_resumed_and_its_settings_are_told(
    spark: SparkSession, inbox: Inbox, start: Start, url: str
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark), format="noop", queryName="cli_waits")
    query.processAllAvailable()
    query.snapshot(label="older")
    called = f"cli_waits ({query.id[:8]})"
    told = json.loads(call("set", "cli_waits", "--interval", "300ms", "--json"))
    assert (told["asked"], told["changed"], told["operation"]) == ({"checkpoint": {"interval_ms": 300}}, True, None)
    assert json.loads(call("set", "cli_waits", "--interval", "300ms", "--json"))["changed"] is False
    assert "suspend it first" in refused("resume", "cli_waits", "--from", "older")

    assert call("suspend", "cli_waits") == f"{called} is suspended\n"
    assert query.view().state is ExecutionState.SUSPENDED
    assert call("suspend", "cli_waits") == f"{called} is suspended already\n"
    assert "suspended: Suspended" in call("show", "cli_waits")
    assert "failed: LocationError: " in refused("resume", "cli_waits", "--from", "unknown")
    assert call("resume", "cli_waits", "--from", "older", "--output", "keep") == f"{called} goes on from older\n"
    eventually(lambda: query.view().state is ExecutionState.RUNNING, "it to run")
    generation = query.generation
    assert call("resume", "cli_waits", "--from", "older", "--output", "keep") == f"{called} goes on from older\n"
    assert (query.generation, query.view().state) == (generation, ExecutionState.RUNNING), "it was resumed once"
    assert "suspend it first" in refused("resume", "cli_waits", "--from", "chk-1")
    assert call("resume", "cli_waits") == f"{called} runs already\n"

    told = json.loads(call("suspend", "cli_waits", "--no-wait", "--json"))
    assert (told["asked"], told["operation"]["verb"]) == ({"state": "suspended"}, "suspend")
    assert call("suspend", "cli_waits") in (f"{called} is suspended\n", f"{called} is suspended already\n")
    told = json.loads(call("resume", "cli_waits", "--json"))
    assert (told["changed"], told["operation"]["state"]) == (True, "succeeded")
    assert query.isActive


def test_who_may_not_is_told_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("list")
    monkeypatch.setenv("PENSTOCK_TOKEN", "another-token-of-some-length")
    assert "does not know the token" in refused("list")
    monkeypatch.delenv("PENSTOCK_TOKEN")
    assert "asks for a token" in refused("list")
    monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
    assert "there is no query 'nobody'" in refused("show", "nobody")
