"""Snapshots taken and deleted over HTTP: as operations, once, and by the owner of the location."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.queries import operations as steering
from penstock.queries.operations import OperationState, Outcome, QueryOperations, Verb
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.verifying import verify_location
from tests.support.queries.query_running import Inbox, Start, eventually
from tests.support.rest.rest_client import Answer, Client, assert_problem

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client() -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


def take(client: Client, query_id: str, wanted: Any, key: str | None = None) -> Answer:
    headers = JSON if key is None else {**JSON, "Idempotency-Key": key}
    return client.send("POST", f"/api/v1/queries/{query_id}/snapshots", json.dumps(wanted), headers)


def ended(client: Client, begun: Answer) -> Any:
    assert begun.status == 202, begun.text
    path = begun.headers["location"]
    eventually(lambda: client.get(path).json["state"] != "running", "the operation to end", 60)
    return client.get(path).json


@pytest.mark.spark
def test_a_snapshot_is_taken_planned_away_and_deleted(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client, tmp_path: Path
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark).dropDuplicates(["key"]), format="noop")
    query.processAllAvailable()
    path = f"/api/v1/queries/{query.id}/snapshots"
    begun = take(client, query.id, {"label": "mine", "note": "by hand"}, key="k-1")
    assert begun.json["verb"] == "snapshot"
    taken = ended(client, begun)
    assert (taken["state"], taken["error"], taken["freed_bytes"]) == ("succeeded", None, None)
    mine = taken["snapshot"]
    assert client.get(f"{path}/mine").json["snapshot"]["id"] == mine
    again = take(client, query.id, {"label": "mine", "note": "by hand"}, key="k-1")
    assert again.json["id"] == taken["id"]
    assert_problem(take(client, query.id, {"label": "other"}, key="k-1"), 409, "Idempotency-Key")
    labels = [json.dumps({"label": label}) for label in ("yours", "mine")]
    renamed = [client.send("PATCH", f"{path}/{mine}", label, JSON) for label in labels]
    assert [(one.status, one.json["label"], one.json["kind"]) for one in renamed] == [
        (200, "yours", "requested"),
        (200, "mine", "requested"),
    ]
    newer = ended(client, take(client, query.id, {"alignment": "unaligned", "timeout_ms": 60_000}))["snapshot"]
    assert newer != mine

    def deleted() -> Any:
        """A checkpoint that is being taken may build on it just then."""
        return ended(client, client.send("DELETE", f"{path}/{mine}"))

    while (planned := client.get(f"{path}/{mine}/deletion")).status == 409:
        assert_problem(planned, 409, "builds on")
    plan = planned.json
    assert plan["snapshot"] == mine
    assert f"snapshots/{mine}/metadata.json" in plan["paths"]
    assert (plan["files"], plan["bytes"] > 0) == (len(plan["paths"]), True)
    assert client.get(f"{path}/{mine}").status == 200, "a plan changes nothing"
    gone = deleted()
    for _ in range(20):
        if gone["state"] == "succeeded":
            break
        assert "builds on" in gone["error"]["text"]
        gone = deleted()
    assert (gone["verb"], gone["snapshot"], gone["freed_files"] >= 1) == ("delete-snapshot", mine, True)
    assert_problem(client.get(f"{path}/{mine}"), 404, mine)
    assert_problem(client.send("DELETE", f"{path}/{mine}"), 404, mine)
    newest = open_location_to_read(str(tmp_path / "checkpoint")).view.lineage[-1].checkpoint
    assert client.send("DELETE", f"{path}/chk-{newest}").status in (202, 409)  # it may not be the newest any more
    query.stop()
    newest = open_location_to_read(str(tmp_path / "checkpoint")).view.lineage[-1].checkpoint
    assert_problem(client.send("DELETE", f"{path}/chk-{newest}"), 409, "the newest snapshot")
    assert_problem(client.get(f"{path}/chk-{newest}/deletion"), 409, "the newest snapshot")
    assert_problem(take(client, query.id, {}), 409, "has ended")
    assert ended(client, client.send("DELETE", f"{path}/{newer}"))["snapshot"] == newer
    assert not verify_location(str(tmp_path / "checkpoint")).damage


@pytest.mark.spark
def test_snapshots_of_a_query_that_runs_are_verified_compared_and_copied(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark).dropDuplicates(["key"]), format="noop")
    query.processAllAvailable()
    before = query.snapshot(label="before").id
    inbox.add([(n, n, float(n)) for n in range(5, 13)])
    query.processAllAvailable()
    after = query.snapshot(label="after").id
    orphan = tmp_path / "checkpoint" / "data" / "0-1-9.arrows"
    orphan.write_bytes(b"left by a crash")
    with penstock.serve(token="", export_root=tmp_path / "archives") as server:
        client, path = Client(server.url), f"/api/v1/queries/{query.id}/snapshots"

        def done(what: str, wanted: Any) -> Any:
            over = ended(client, client.send("POST", f"{path}/{what}", json.dumps(wanted), JSON))
            assert over["state"] == "succeeded", over
            return over

        compared = done("before/comparisons", {"to": "after"})["diff"]
        assert (compared["before"], compared["after"]) == (before, after)
        assert [(one["added"], one["changed"], one["removed"]) for one in compared["tables"]] == [(3, 0, 0)]
        assert [one["rows_in"] for one in compared["sources"]] == [8]
        found = done("verifications", {})["verification"]
        assert (found["damaged"], found["snapshots"] >= 2, found["bytes"] > 0) == (0, True, True)
        assert done("collections", {})["freed_files"] in (0, 1)  # the query may have collected it by itself
        assert not orphan.exists()
        copied = done(f"{before}/copies", {"name": "archive"})["location"]
        assert not verify_location(copied).damage
        assert query.isActive


@pytest.mark.spark
def test_requests_that_cannot_be_change_nothing(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    query = start(inbox.stream(spark), format="noop")
    path = f"/api/v1/queries/{query.id}/snapshots"
    for wrong in ({"label": "x" * 201}, {"label": 7}, {"note": None}, {"alignment": "askew"}, {"timeout_ms": 0},
                  {"timeout_ms": "5"}, {"format": "zip"}, {"colour": "red"}, {"label": "\ud800"}, [], 7):  # fmt: skip
        assert_problem(take(client, query.id, wrong), 422)
    assert_problem(client.send("POST", path, "{", JSON), 400, "not JSON")
    assert_problem(take(client, "unknown", {}), 404, "unknown")
    assert_problem(client.send("DELETE", f"{path}/chk-999999"), 404, "chk-999999")
    assert_problem(client.send("DELETE", f"{path}/mine"), 422)
    assert_problem(client.get(f"{path}/chk-0/deletion"), 422)
    assert client.send("PUT", path).headers["allow"] == "DELETE, GET, POST"
    assert_problem(client.send("DELETE", path), 422)
    assert_problem(client.send("DELETE", f"{path}?snapshot=mine"), 422)
    assert not [one for one in client.get(path).json["snapshots"] if one["kind"] == "requested"]
    failed = ended(client, take(client, query.id, {"alignment": "aligned", "timeout_ms": 1}))
    assert failed["state"] in ("failed", "succeeded")  # a millisecond may do
    if failed["state"] == "failed":
        assert failed["error"]["kind"] == "CheckpointFailed"
    assert query.isActive


def test_operations_on_snapshots_are_bounded_and_joined() -> None:
    known, go_on = QueryOperations(), threading.Event()

    def wait() -> Outcome:
        go_on.wait(30)
        return Outcome("chk-1", 2, 3)

    def begin(key: str, once: bool = False) -> steering.Operation | None:
        return known.begin_snapshots(Verb.SNAPSHOT, "q", "run", wait, key=key, once=once)

    first = begin("a")
    assert first is not None
    assert begin("a") == first
    others = [begin("") for _ in range(steering.SNAPSHOTS_AT_ONCE - 1)]
    assert len({one.id for one in others if one is not None} | {first.id}) == steering.SNAPSHOTS_AT_ONCE
    assert begin("") is begin("b") is None
    assert begin("a") == first, "what is under way already is no more"
    go_on.set()
    eventually(lambda: _state(known, first.id) is OperationState.SUCCEEDED, "the end")
    over = known.get(first.id)
    assert over is not None
    assert (over.snapshot, over.freed_files, over.freed_bytes) == ("chk-1", 2, 3)
    assert begin("a", once=True) == over
    eventually(lambda: begin("a") not in (None, over), "a new one under the same key")


def _state(known: QueryOperations, name: str) -> OperationState:
    operation = known.get(name)
    assert operation is not None
    return operation.state
