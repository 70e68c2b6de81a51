"""Snapshots verified and compared over HTTP, and files collected, at a location whose driver has ended."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.queries import snapshot_checks
from penstock.queries.operations import WHOLE_AT_ONCE
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.verifying import verify_location
from tests.support.queries.query_running import eventually
from tests.support.rest.rest_client import Answer, Client, assert_problem
from tests.support.snapshots.location_kit import flip
from tests.unit.cli.test_requests_cli import forget_that_it_ended, ids

JSON = {"Content-Type": "application/json"}


def post(client: Client, query_id: str, what: str, wanted: Any) -> Answer:
    return client.send("POST", f"/api/v1/queries/{query_id}/snapshots/{what}", json.dumps(wanted), JSON)


def ended(client: Client, begun: Answer) -> Any:
    assert begun.status == 202, begun.text
    path = begun.headers["location"]
    eventually(lambda: client.get(path).json["state"] != "running", "the operation to end", 60)
    return client.get(path).json


def verified(client: Client, query_id: str, wanted: Any) -> Any:
    done = ended(client, post(client, query_id, "verifications", wanted))
    assert (done["state"], done["verb"], done["progress"]) == ("succeeded", "verify-snapshots", None)
    return done["verification"]


def test_a_verification_finds_what_the_command_finds(client: Client, known_query: str, location: Path) -> None:
    found, told = verify_location(str(location)), verified(client, known_query, {})
    assert (told["damaged"], told["damage"], told["unused_known"]) == (0, [], True)
    for number in ("log_entries", "snapshots", "sections", "bytes"):
        assert told[number] == getattr(found, number) > 0
    one = verified(client, known_query, {"snapshot": "chk-2"})
    assert (one["snapshots"], one["unused_known"]) == (1, False)
    assert one["bytes"] < told["bytes"]


def test_all_damage_is_told_with_who_needs_it(
    client: Client, known_query: str, location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = sorted((location / "data").iterdir())[0]
    flip(damaged, -1)
    (location / "snapshots/chk-3/metadata.json").write_bytes(b"{}")
    found, told = verify_location(str(location)), verified(client, known_query, {})
    assert told["damaged"] == len(found.damage) >= 2
    assert told["damage"] == [
        {"path": one.path, "problem": one.problem, "snapshots": one.snapshots} for one in found.damage
    ]
    monkeypatch.setattr(snapshot_checks, "MAX_DAMAGE_REPORTED", 1)
    told = verified(client, known_query, {})
    assert (told["damaged"], len(told["damage"])) == (len(found.damage), 1)
    newest = max((location / "log").iterdir())
    flip(newest, -2)
    assert verified(client, known_query, {"snapshot": "chk-2"})["damaged"] >= 1, "a damaged log is told of"


def test_a_comparison_counts_what_the_command_counts(client: Client, known_query: str, location: Path) -> None:
    opened = open_location_to_read(str(location))
    found = compare_snapshots(opened, opened.record("chk-1"), opened.record("chk-4"))
    done = ended(client, post(client, known_query, "chk-1/comparisons", {"to": "chk-4"}))
    assert (done["state"], done["verb"]) == ("succeeded", "compare-snapshots")
    told = done["diff"]
    assert (told["before"], told["after"]) == ("chk-1", "chk-4")
    assert len(told["tables"]) == len(found.tables) > 0
    for shown, table in zip(told["tables"], found.tables, strict=True):
        assert shown == {member: getattr(table, member) for member in shown}
    assert [one["rows_in"] for one in told["sources"]] == [one.rows_in for one in found.sources]
    assert [one["text"] for one in told["edges"]] == [one.text for one in found.edges]


def test_what_no_snapshot_needs_is_told_and_then_removed(client: Client, known_query: str, location: Path) -> None:
    orphan = location / "data" / "0-1-9.arrows"
    orphan.write_bytes(b"left by a crash")
    before = verified(client, known_query, {})
    assert (before["orphan_files"], before["orphan_bytes"], before["damaged"]) == (1, 15, 0)
    done = ended(client, post(client, known_query, "collections", {}))
    assert (done["state"], done["verb"], done["snapshot"]) == ("succeeded", "collect-files", None)
    assert (done["freed_files"], done["freed_bytes"]) == (1, 15)
    assert not orphan.exists()
    assert ids(location) == [1, 2, 3, 4]
    forget_that_it_ended(location)
    refused = ended(client, post(client, known_query, "collections", {}))
    assert (refused["state"], refused["error"]["kind"]) == ("failed", "LocationError")
    assert "no driver answers" in refused["error"]["text"]


def test_what_cannot_be_begins_nothing(client: Client, known_query: str) -> None:
    for wrong in ({"snapshot": None}, {"snapshot": 7}, {"snapshot": "x" * 201}, {"rows": 5}, [], 7):
        assert_problem(post(client, known_query, "verifications", wrong), 422)
    for wrong in ({}, {"to": None}, {"to": ""}, {"to": 7}, {"to": "chk-1", "rows": 5}, [], 7):
        assert_problem(post(client, known_query, "chk-1/comparisons", wrong), 422)
    assert_problem(post(client, known_query, "verifications", {"snapshot": "mine"}), 404, "mine")
    assert_problem(post(client, known_query, "chk-1/comparisons", {"to": "chk-9"}), 404, "chk-9")
    assert_problem(post(client, known_query, "mine/comparisons", {"to": "chk-1"}), 404, "mine")
    for what in ("verifications", "collections", "chk-1/comparisons"):
        assert_problem(post(client, "unknown", what, {"to": "chk-2"} if "/" in what else {}), 404, "unknown")
        for method in ("GET", "DELETE", "PATCH", "PUT"):
            answer = client.send(method, f"/api/v1/queries/{known_query}/snapshots/{what}")
            assert_problem(answer, 405)
            assert answer.headers["allow"] == "POST"


def test_progress_is_told_the_same_is_joined_and_only_so_many_read(
    client: Client, known_query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    verify = snapshot_checks.verify_location

    def slow(location: str, snapshot: str, progress: Any, access: Any) -> Any:
        progress(30, 70)
        assert go_on.wait(30)
        return verify(location, snapshot, progress, access)

    monkeypatch.setattr(snapshot_checks, "verify_location", slow)
    first = post(client, known_query, "verifications", {})
    path = first.headers["location"]
    eventually(lambda: client.get(path).json["progress"]["done"] == 30, "progress")
    assert client.get(path).json["progress"] == {"message": "Verifying every file", "done": 30, "total": 70}
    assert post(client, known_query, "verifications", {}).json["id"] == first.json["id"]
    assert WHOLE_AT_ONCE == 2
    second = post(client, known_query, "verifications", {"snapshot": "chk-1"})
    assert second.json["id"] != first.json["id"]
    for what, wanted in (("verifications", {"snapshot": "chk-2"}), ("chk-1/comparisons", {"to": "chk-2"})):
        assert_problem(post(client, known_query, what, wanted), 409, "2 snapshots", "as a whole")
    go_on.set()
    assert [ended(client, one)["state"] for one in (first, second)] == ["succeeded"] * 2
