"""The history of checkpoints over HTTP: it outlives the run, and costs a query nothing if it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.coordinator.view import CheckpointState, CheckpointView
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.commands.verifying import verify_location
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of
from tests.support.rest.rest_client import Client, assert_problem

pytestmark = pytest.mark.spark


@pytest.fixture
def client() -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


def over(query: StreamingQuery) -> list[CheckpointView]:
    return [one for one in query.view().checkpoints if one.state is not CheckpointState.PENDING]


def pages(client: Client, query: StreamingQuery, limit: int = 3) -> list[Any]:
    found: list[Any] = []
    before = ""
    while True:
        page = client.get(f"/api/v1/queries/{query.id}/checkpoints?limit={limit}{before}").json
        assert len(page["checkpoints"]) <= limit
        found += page["checkpoints"]
        if page["next"] is None:
            return found
        before = f"&before={page['next']}"


def test_checkpoints_of_earlier_runs_are_shown_with_their_generation(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client, tmp_path: Path
) -> None:
    runs = []
    for run in range(2):
        inbox.add([(10 * run + n, n, float(n)) for n in range(10)])
        query = start(inbox.stream(spark), **{"checkpoint.interval": "50ms"}, format="noop", parallelism=2)
        query.processAllAvailable()
        eventually(lambda query=query: len(over(query)) >= 4, "four checkpoints")  # type: ignore[misc]
        query.stop()
        runs.append(query)
    first, last = runs
    assert first.id == last.id
    status = client.get(f"/api/v1/queries/{last.id}").json["status"]
    assert (status["generation"], status["first_generation"]) == (2, 2)
    shown = pages(client, last)
    expected = [(one.checkpoint, one.generation, one.state.value) for run in runs for one in over(run)]
    told = [(one["checkpoint"], one["generation"], one["state"]) for one in shown if one["state"] != "pending"]
    assert told == sorted(expected, reverse=True)
    assert {generation for _, generation, _ in told} == {1, 2}
    old = next(one for one in over(first) if one.subtasks)
    detail = client.get(f"/api/v1/queries/{last.id}/checkpoints/{old.checkpoint}").json
    assert (detail["generation"], detail["snapshot_id"]) == (1, old.snapshot_id)
    assert [(one["vertex"], one["async_ms"]) for one in detail["subtasks"]] == [
        (one.vertex, one.async_ms) for one in old.subtasks
    ]
    assert_problem(client.get(f"/api/v1/queries/{last.id}/checkpoints/999999"), 404, "999999")
    verified = verify_location(str(tmp_path / "checkpoint"))
    assert not verified.damage
    assert not [one for one in [*verified.orphans, *verified.unsettled] if one.path.startswith("history/")]


def test_why_a_checkpoint_failed_is_told_by_the_next_run_too(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    def slowly(value: int) -> int:
        import time

        time.sleep(0.001)
        return value

    inbox.add([(n % 7, n, 0.0) for n in range(2000)])
    rows = inbox.stream(spark).repartition("key")
    df = rows.select(F.udf(slowly, "bigint", useArrow=False)("value").alias("value"))
    settings = {"checkpoint.interval": "20ms", "checkpoint.alignment": "unaligned", "checkpoint.captureMemory": "1"}
    query = start(df, **settings, format="noop", parallelism=2)

    def declined() -> list[CheckpointView]:
        return [one for one in over(query) if "captureMemory" in one.reason]

    eventually(lambda: bool(declined()), "one that was declined")
    one = declined()[0]
    path = f"/api/v1/queries/{query.id}/checkpoints"
    told = client.get(f"{path}/{one.checkpoint}").json
    assert (told["state"], told["reason"], told["subtasks"]) == ("failed", one.reason, [])
    assert told["snapshot_id"] == ""
    query.stop()
    again = start(df, **settings, format="noop", parallelism=2)
    assert again.id == query.id
    assert one.checkpoint not in {known.checkpoint for known in again.view().checkpoints}
    later = client.get(f"{path}/{one.checkpoint}").json
    assert later == told | {"duration_ms": pytest.approx(told["duration_ms"], abs=0.001)}
    listed = {shown["checkpoint"]: shown["reason"] for shown in pages(client, again, 100)}
    assert listed[one.checkpoint] == one.reason


def test_a_damaged_history_stops_no_query(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client, tmp_path: Path, out: Path
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark).select("key"))
    query.processAllAvailable()
    query.stop()
    segments = sorted((tmp_path / "checkpoint" / "history").iterdir())
    assert segments
    for segment in segments:
        segment.write_bytes(segment.read_bytes()[:40])
    inbox.add([(n, n, float(n)) for n in range(10, 20)])
    again = start(inbox.stream(spark).select("key"))
    again.processAllAvailable()
    shown = {one["checkpoint"] for one in pages(client, again)}
    assert shown >= {one.checkpoint for one in over(again)}
    assert not shown & {one.checkpoint for one in query.view().checkpoints}
    again.stop()
    assert rows_of(out) == sorted(((n,) for n in range(20)), key=repr)
