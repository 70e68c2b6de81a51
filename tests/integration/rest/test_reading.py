"""Responses of the REST service about running and ended queries, compared with the query's own."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.coordinator.view import CheckpointState, CheckpointView
from penstock.queries.streaming_query import StreamingQuery
from penstock.rest.metric_list import METRICS
from penstock.rest.models import SubtaskCapture
from tests.support.queries.query_running import Inbox, Start, eventually
from tests.support.rest.rest_client import Client, assert_problem

pytestmark = pytest.mark.spark


@pytest.fixture
def client() -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


def complete(query: StreamingQuery) -> int:
    return sum(one.state is CheckpointState.COMPLETE for one in query.view().checkpoints)


def test_a_running_query_is_told_of(spark: SparkSession, inbox: Inbox, start: Start, client: Client) -> None:
    inbox.add([(n % 7, n, float(n)) for n in range(100)])
    df = inbox.stream(spark).groupBy("key").agg(F.sum("value").alias("total"))
    query = start(df, format="memory", queryName="sums", outputMode="complete", parallelism=2)
    query.processAllAvailable()
    listed = client.get("/api/v1/queries").json["queries"]
    assert query.id in [one["id"] for one in listed]
    answer = client.get(f"/api/v1/queries/{query.id}")
    shown = answer.json
    assert (shown["id"], shown["run_id"], shown["name"]) == (query.id, query.runId, "sums")
    assert shown["spec"] == {
        "state": "running",
        "parallelism": 2,
        "checkpoint": {"interval_ms": 200, "alignment": "auto"},
    }
    status = shown["status"]
    assert (status["state"], status["converged"], status["generation"]) == ("running", True, 1)
    assert [slot["running"] for slot in status["slots"]] == [True, True]
    assert status["checkpoints_completed"] >= 1
    assert shown["last_progress"]["runId"] == query.runId
    assert re.fullmatch(r'"[0-9a-f]{24}"', answer.headers["etag"])
    assert client.get(f"/api/v1/queries/{query.id}").headers["etag"] == answer.headers["etag"]
    query.setCheckpoints(interval="1s", alignment="unaligned")
    changed = client.get(f"/api/v1/queries/{query.id}")
    assert changed.json["spec"]["checkpoint"] == {"interval_ms": 1000, "alignment": "unaligned"}
    options = client.get(f"/api/v1/queries/{query.id}/configuration").json["options"]
    own = {one["name"]: (one["value"], one["at_start"]) for one in options if not one["is_default"]}
    assert own == {
        "checkpoint.alignment": ("unaligned", "auto"),
        "checkpoint.interval": ("1s", "200ms"),
        "parallelism": ("2", "2"),
        "restart.attempts": ("2", "2"),
        "restart.delay": ("10ms", "10ms"),
    }
    assert changed.headers["etag"] != answer.headers["etag"]


def test_the_graph_has_the_figures_of_every_subtask(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    inbox.add([(n % 7, n, float(n)) for n in range(100)])
    df = inbox.stream(spark).groupBy("key").agg(F.sum("value").alias("total"))
    query = start(df, format="noop", outputMode="update", parallelism=2)
    query.processAllAvailable()
    eventually(lambda: sum(one.metrics.rows_in for one in query.view().subtasks) >= 100, "the figures")
    graph = client.get(f"/api/v1/queries/{query.id}/graph").json
    assert [[one["index"] for one in vertex["subtasks"]] for vertex in graph["vertices"]] == [[0, 1], [0, 1]]
    assert (graph["input_limit_bytes"], graph["output_limit_bytes"]) == (32 << 20, 8 << 20)
    source, last = graph["vertices"]
    assert source["operators"][0]["role"] == "source"
    assert last["operators"][-1]["role"] == "sink"
    assert sum(one["rows_in"] for one in source["subtasks"]) == 100
    (edge,) = graph["edges"]
    assert (edge["producer"], edge["consumer"], edge["kind"]) == (source["id"], last["id"], "hash")
    assert len(edge["keys"]) == 1


def test_checkpoints_come_in_pages_with_figures_of_each_subtask(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    query = start(inbox.stream(spark), **{"checkpoint.interval": "20ms"}, format="noop", parallelism=2)
    eventually(lambda: complete(query) >= 5, "five checkpoints")
    query.stop()
    known = [one.checkpoint for one in reversed(query.view().checkpoints)]
    path, found, before = f"/api/v1/queries/{query.id}/checkpoints", [], None
    while before is not None or not found:
        page = client.get(f"{path}?limit=2" + (f"&before={before}" if before else "")).json
        assert 1 <= len(page["checkpoints"]) <= 2
        found += [one["checkpoint"] for one in page["checkpoints"]]
        before = page["next"]
    assert found == known
    newest = next(one for one in reversed(query.view().checkpoints) if one.subtasks)
    shown = client.get(f"{path}/{newest.checkpoint}").json
    assert shown["snapshot_id"] == f"chk-{newest.checkpoint}"
    assert [(one["vertex"], one["index"]) for one in shown["subtasks"]] == [
        (one.vertex, one.index) for one in newest.subtasks
    ]
    assert shown["subtasks"][0]["async_ms"] == newest.subtasks[0].async_ms
    assert_problem(client.get(f"{path}/999999"), 404, "999999")


def test_a_checkpoint_has_every_figure_of_every_subtask(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    def slowly(value: int) -> int:
        import time

        time.sleep(0.001)
        return value

    inbox.add([(n % 7, n, 0.0) for n in range(4000)])
    rows = inbox.stream(spark).repartition("key")
    df = rows.select(F.udf(slowly, "bigint", useArrow=False)("value").alias("value"))
    query = start(df, **{"checkpoint.interval": "10m"}, format="noop", parallelism=2)
    path = f"/api/v1/queries/{query.id}/checkpoints"
    names = set(SubtaskCapture.model_fields)

    def shown(alignment: str) -> CheckpointView:
        """A checkpoint as the query knows it, which has been compared with what is told of it."""
        number = query.snapshot(alignment=alignment).checkpoint
        known = next(one for one in query.view().checkpoints if one.checkpoint == number)
        told = client.get(f"{path}/{number}").json
        assert told["subtasks"] == [{name: getattr(one, name) for name in names} for one in known.subtasks]
        return known

    eventually(lambda: shown("unaligned").inflight_rows > 0, "rows in flight")
    aligned = shown("aligned")
    assert aligned.inflight_rows == 0
    assert aligned.inflight_processed_bytes > 0, "its barriers waited behind the rows"
    assert query.lastProgress is not None
    eventually(lambda: told_of(query)["id"] == aligned.checkpoint, "its commit")
    assert told_of(query)["inflightProcessedBytes"] == aligned.inflight_processed_bytes


def told_of(query: StreamingQuery) -> dict[str, Any]:
    """The checkpoint, in the newest progress."""
    assert query.lastProgress is not None
    return dict(query.lastProgress["checkpoint"])


def test_snapshots_are_listed_and_shown(spark: SparkSession, inbox: Inbox, start: Start, client: Client) -> None:
    inbox.add([(n % 7, n, float(n)) for n in range(100)])
    df = inbox.stream(spark).groupBy("key").agg(F.sum("value").alias("total"))
    query = start(df, format="noop", outputMode="update")
    query.processAllAvailable()
    taken = query.snapshot(label="mine", alignment="unaligned")
    newest = client.get(f"/api/v1/queries/{query.id}/checkpoints/{taken.checkpoint}").json
    assert newest["unaligned_subtasks"] == sum(one["unaligned"] for one in newest["subtasks"]) > 0
    path = f"/api/v1/queries/{query.id}/snapshots"
    listed = client.get(path).json["snapshots"]
    mine = next(one for one in listed if one["label"] == "mine")
    assert (mine["id"], mine["kind"], mine["state_rows"]) == (taken.id, "requested", 7)
    shown = client.get(f"{path}/mine").json
    assert shown["snapshot"]["id"] == taken.id
    assert sum(table["rows"] for one in shown["operators"] for table in one["tables"]) == 7
    assert_problem(client.get(f"{path}/nobody's"), 404, "nobody's")


def test_an_ended_query_says_how_it_ended(spark: SparkSession, inbox: Inbox, start: Start, client: Client) -> None:
    def divide(value: int) -> int:
        try:
            return 1 // value
        except ZeroDivisionError as error:
            raise ValueError("cannot log in with jdbc:postgresql://h/db?password=hunter2") from error

    inbox.add([(1, 0, 1.0)])
    df = inbox.stream(spark).select(F.udf(divide, "bigint", useArrow=False)("value").alias("x"))
    query = start(df, format="noop", **{"restart.strategy": "none"})
    eventually(lambda: not query.isActive, "the failure")
    path = f"/api/v1/queries/{query.id}"
    shown = client.get(path).json
    assert (shown["spec"]["state"], shown["status"]["state"]) == ("stopped", "failed")
    assert shown["status"]["error"] == "FunctionError"
    exceptions = client.get(f"{path}/exceptions").json
    assert exceptions["failure"]["kind"] == "FunctionError"
    assert "ZeroDivisionError" in exceptions["failure"]["text"]
    assert "?password=***" in exceptions["failure"]["text"]
    assert "hunter2" not in client.get(path).text + client.get(f"{path}/exceptions").text
    assert client.get(f"{path}/graph").json["vertices"]
    assert query.id not in client.get("/metrics").text


def test_recoveries_are_told(spark: SparkSession, inbox: Inbox, start: Start, client: Client) -> None:
    inbox.add([(1, 1, 1.0)])
    query = start(inbox.stream(spark), format="noop")
    query.processAllAvailable()
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    eventually(lambda: query.generation == 2 and query.view().state.value == "running", "Generation 2")
    exceptions = client.get(f"/api/v1/queries/{query.id}/exceptions").json
    assert exceptions["failure"] is None
    assert [(one["failed_generation"], one["generation"]) for one in exceptions["restarts"]] == [(1, 2)]
    status = client.get(f"/api/v1/queries/{query.id}").json["status"]
    assert (status["restarts"], status["generation"], status["first_generation"]) == (1, 2, 1)


def test_a_location_that_is_gone_is_a_problem(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client, tmp_path: Path
) -> None:
    query = start(inbox.stream(spark), format="noop", checkpointLocation=str(tmp_path / "moved"))
    query.stop()
    (tmp_path / "moved").rename(tmp_path / "elsewhere")
    assert_problem(client.get(f"/api/v1/queries/{query.id}/snapshots"), 404, "moved")


def test_metrics_are_prometheus_of_what_runs(spark: SparkSession, inbox: Inbox, start: Start, client: Client) -> None:
    inbox.add([(n, n, float(n)) for n in range(100)])
    query = start(inbox.stream(spark), format="noop", queryName="metered", parallelism=2)
    query.processAllAvailable()
    eventually(lambda: sum(one.metrics.rows_in for one in query.view().subtasks) == 100, "the figures")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
    own = [sample for sample in samples if sample.labels.get("query") == query.id]
    values = {sample.name: sample.value for sample in own}
    assert sum(sample.value for sample in own if sample.name == "penstock_subtask_rows_in_total") == 100
    assert values["penstock_query_running"] == 1
    assert values["penstock_query_parallelism"] == 2
    assert values["penstock_checkpoints_completed_total"] >= 1
    assert 0 < values["penstock_checkpoint_last_duration_seconds"] < 60
    assert values["penstock_source_rows_total"] == 100
    assert values["penstock_checkpoint_duration_seconds_count"] >= 1
    assert dict(re.findall(r"^# TYPE (\S+) (\S+)$", answer.text, re.MULTILINE)) == {
        spec.name: spec.kind.value for spec in METRICS
    }
    listed = {series for spec in METRICS for series in spec.series}
    without_state_event_time_and_failures = {
        "penstock_query_watermark_timestamp_seconds",
        "penstock_query_last_recovery_seconds",
        "penstock_subtask_watermark_timestamp_seconds",
        "penstock_subtask_state_rows",
        "penstock_subtask_state_memory_bytes",
        "penstock_subtask_late_dropped_rows_total",
        "penstock_subtask_duplicate_dropped_rows_total",
        "penstock_source_behind_rows",
        "penstock_source_behind_most_rows",
    }
    assert listed - {sample.name for sample in samples} == without_state_event_time_and_failures
