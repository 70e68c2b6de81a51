"""Labels and notes of snapshots changed over HTTP, at a location whose driver has ended."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.queries import snapshot_operations as snapshot_steering
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Answer, Client, assert_problem
from tests.unit.cli.test_requests_cli import forget_that_it_ended

PATH = f"/api/v1/queries/{MadeUpQuery.query_id}/snapshots"


def patch(client: Client, snapshot: str, wanted: Any, media_type: str = "application/merge-patch+json") -> Answer:
    return client.send("PATCH", f"{PATH}/{snapshot}", json.dumps(wanted), {"Content-Type": media_type})


def named(answer: Answer) -> tuple[str, str, str, str]:
    assert answer.status == 200, answer.text
    row = answer.json
    return row["id"], row["label"], row["note"], row["kind"]


def test_only_what_is_named_changes_and_null_takes_it_away(client: Client) -> None:
    assert named(patch(client, "chk-2", {"label": "mine", "note": "by hand"})) == (
        "chk-2", "mine", "by hand", "requested",
    )  # fmt: skip
    assert named(patch(client, "chk-2", {"note": "moved"}, "application/json")) == (
        "chk-2", "mine", "moved", "requested",
    )  # fmt: skip
    assert named(patch(client, "chk-2", {"label": None})) == ("chk-2", "", "moved", "periodic")
    assert named(patch(client, "chk-2", {"note": ""})) == ("chk-2", "", "", "periodic")
    listed = client.get(PATH).json["snapshots"]
    assert patch(client, "chk-2", {}).json == listed[1]
    assert {(one["label"], one["note"]) for one in listed} == {("", "")}


def test_what_cannot_be_changes_nothing(client: Client, location: Path) -> None:
    before = sorted(location.rglob("*"))
    for wrong in ({"label": "x" * 201}, {"note": "x" * 2001}, {"label": 7}, {"colour": "red"}, [], 7):
        assert_problem(patch(client, "chk-2", wrong), 422)
    assert_problem(patch(client, "chk-9", {"label": "mine"}), 404, "chk-9")
    assert_problem(patch(client, "mine", {"label": "mine"}), 422)
    assert patch(client, "chk-2", {}).status == 200
    assert sorted(location.rglob("*")) == before
    forget_that_it_ended(location)
    assert_problem(patch(client, "chk-2", {"label": "mine"}), 409, "no driver answers")
    assert client.get(f"{PATH}/chk-2").json["snapshot"]["label"] == ""


def test_many_at_once_are_refused_and_none_is_lost(
    client: Client,
    location: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full, go_on, change = threading.Barrier(2), threading.Event(), snapshot_steering.ownership.request_change

    def slow(*words: Any, **more: Any) -> Any:
        full.wait(30)
        go_on.wait(30)
        return change(*words, **more)

    monkeypatch.setattr(snapshot_steering.ownership, "request_change", slow)
    monkeypatch.setattr(snapshot_steering, "_LABELS", threading.BoundedSemaphore(1))
    answers: list[Answer] = []
    first = threading.Thread(target=lambda: answers.append(patch(client, "chk-1", {"label": "first"})))
    first.start()
    full.wait(30)
    assert_problem(patch(client, "chk-2", {"label": "second"}), 409, "ask again")
    go_on.set()
    first.join(30)
    assert [named(answer)[1] for answer in answers] == ["first"]
    monkeypatch.setattr(snapshot_steering.ownership, "request_change", change)
    assert named(patch(client, "chk-2", {"label": "second"}))[1] == "second"
    records = SnapshotLog(LocalStore(str(location))).refresh().snapshots
    assert [record.label for record in records] == ["first", "second", "", ""]
