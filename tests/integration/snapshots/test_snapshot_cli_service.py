"""``penstock snapshot`` of a query that runs and whose driver has a REST service: over HTTP while it runs, by the files
of its location afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.queries.operations import OPERATIONS, Verb
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.verifying import verify_location
from tests.support.queries.query_running import Inbox, Start, eventually

pytestmark = pytest.mark.spark

TOKEN = "a-token-of-some-length"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The environment names the service and its token."""
    with penstock.serve(token=TOKEN) as server:
        monkeypatch.setenv("PENSTOCK_URL", server.url)
        monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
        yield server.url


def called(verb: str, location: Path, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["snapshot", verb, str(location), *words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def done(verb: str, location: Path, *words: str) -> str:
    code, out, err = called(verb, location, *words)
    assert (code, err) == (0, ""), (code, out, err)
    return out


def asked_over_http(query_id: str) -> list[Verb]:
    return [one.verb for one in OPERATIONS._operations.values() if one.query_id == query_id]


def deleted(location: Path, *names: str) -> str:
    """Again while a checkpoint that is being taken just then builds on one of them."""
    told: list[tuple[int, str, str]] = []

    def is_over() -> bool:
        told.append(called("delete", location, *names))
        return "builds on" not in told[-1][2]

    eventually(is_over, "no checkpoint to build on them", 60)
    assert told[-1][0] == 0, told[-1]
    return told[-1][1]


def test_over_http_while_it_runs_and_by_the_files_afterwards(
    spark: SparkSession, inbox: Inbox, start: Start, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark).dropDuplicates(["key"]), format="noop")
    query.processAllAvailable()
    location = tmp_path / "checkpoint"

    first = done("take", location, "--label", "first", "--note", "over HTTP").strip()
    second = json.loads(done("take", location, "--format", "portable", "--alignment", "unaligned", "--json"))
    assert second["format"] == "portable"
    assert (location / "portable" / second["snapshot"]).is_dir()
    assert asked_over_http(query.id) == [Verb.SNAPSHOT] * 2
    assert not (location / rq.FOLDER).exists(), "nobody has asked by files"
    record = open_location_to_read(str(location)).record("first")
    assert (f"chk-{record.checkpoint}", record.note) == (first, "over HTTP")

    assert done("label", location, first, "--label", "1st") == f"{first} is called '1st', requested\n"
    assert deleted(location, "1st", second["snapshot"]).startswith(f"{first}, {second['snapshot']}: ")
    assert Verb.DELETE_SNAPSHOT in asked_over_http(query.id)
    left = {record.checkpoint for record in open_location_to_read(str(location)).view.snapshots}
    assert not left & {record.checkpoint, int(second["snapshot"].removeprefix("chk-"))}
    for way in ([], ["--url", ""]):
        code, _, err = called("take", location, "--timeout", "0.001", "--alignment", "aligned", *way)
        assert code == 0 or err.startswith("penstock: the snapshot failed: "), err  # a millisecond may do

    def refused(*words: str) -> str:
        code, out, err = called("take", location, *words)
        assert (code, out, err.count("\n")) == (1, "", 1), err
        return err

    monkeypatch.setenv("PENSTOCK_TOKEN", "another-token-of-some-length")
    assert "PENSTOCK_TOKEN" in refused()
    monkeypatch.setenv("PENSTOCK_TOKEN", TOKEN)
    over_http = asked_over_http(query.id)
    by_files = done("take", location, "--url", "", "--label", "by files").strip()
    assert asked_over_http(query.id) == over_http
    assert (location / rq.FOLDER).is_dir(), "what asks by files leaves it"

    query.stop()
    over_http = asked_over_http(query.id)
    assert "no query runs at this location" in refused()
    assert done("label", location, by_files, "--label", "kept") == f"{by_files} is called 'kept', requested\n"
    assert asked_over_http(query.id) == over_http, "it has ended: its location was asked"
    assert not verify_location(str(location)).damage
