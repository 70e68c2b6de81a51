"""PATCH of a query's spec: rescale, checkpoints, stop; guarded, idempotent, and converging."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from tests.support.queries.query_running import Inbox, Start, eventually
from tests.support.rest.rest_client import Answer, Client, assert_problem

pytestmark = pytest.mark.spark


@pytest.fixture
def client() -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


def patch(client: Client, query_id: str, spec: Any, tag: str | None = "*") -> Answer:
    headers = {"Content-Type": "application/merge-patch+json"} | ({} if tag is None else {"If-Match": tag})
    return client.send("PATCH", f"/api/v1/queries/{query_id}", json.dumps({"spec": spec}), headers)


class Seen:
    """Responses of the service about a query and an operation on it, poll by poll, until the operation ended."""

    def __init__(self, client: Client, query_id: str, accepted: Answer) -> None:
        assert accepted.status == 202, accepted.text
        self.statuses: list[Any] = []
        self.progress: list[Any] = []
        path, query = accepted.headers["location"], f"/api/v1/queries/{query_id}"
        deadline_s = time.monotonic() + 60
        while (now := client.get(path).json)["state"] == "running":
            self.progress.append(now["progress"])
            self.statuses.append(client.get(query).json["status"])
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
        self.operation = now

    @property
    def messages(self) -> list[str]:
        """Return the messages in order, each once."""
        return list(dict.fromkeys(one["message"] for one in self.statuses if not one["converged"]))


def ended(client: Client, accepted: Answer) -> Any:
    assert accepted.status == 202, accepted.text
    path = accepted.headers["location"]
    eventually(lambda: client.get(path).json["state"] != "running", "the operation to end", 60)
    return client.get(path).json


def test_the_spec_is_changed_and_the_query_goes_there(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark), format="noop")
    query.processAllAvailable()
    tag = client.get(f"/api/v1/queries/{query.id}").headers["etag"]
    changed = patch(client, query.id, {"checkpoint": {"interval_ms": 300, "alignment": "unaligned"}}, tag)
    assert changed.status == 200
    assert changed.json["spec"]["checkpoint"] == {"interval_ms": 300, "alignment": "unaligned"}
    eventually(lambda: query.view().checkpoints[-1].alignment == "unaligned", "an unaligned checkpoint")
    assert_problem(patch(client, query.id, {"parallelism": 3}, tag), 412, "another client")
    tag = changed.headers["etag"]
    accepted = patch(client, query.id, {"parallelism": 3}, tag)
    assert accepted.json["verb"] == "rescale"
    assert accepted.headers["etag"] != tag
    assert client.get(f"/api/v1/queries/{query.id}").json["spec"]["parallelism"] == 3
    same = patch(client, query.id, {"parallelism": 3}, tag)
    assert (same.status, same.json["id"]) == (202, accepted.json["id"]), "its answer was lost, and the tag is of before"
    assert patch(client, query.id, {"checkpoint": {"interval_ms": 300}}).status == 200, "of something else"
    seen = Seen(client, query.id, accepted)
    operation = seen.operation
    assert (operation["state"], operation["error"], operation["parallelism"]) == ("succeeded", None, 3)
    assert seen.messages[-1].startswith("Starting at parallelism 3: ")
    assert "Processing new data" not in seen.messages
    assert {one["verb"] for status in seen.statuses for one in status["operations"]} == {"rescale"}
    counts = [(one["done"], one["total"]) for one in seen.progress]
    assert counts == sorted(counts)
    assert (counts[0], {total for _, total in counts}) == ((0, 3), {3})
    assert query.parallelism == 3
    eventually(lambda: client.get(f"/api/v1/queries/{query.id}").json["status"]["converged"], "convergence")
    again = patch(client, query.id, {"parallelism": 3}, accepted.headers["etag"])
    assert again.status == 200
    assert again.headers["etag"] == accepted.headers["etag"]
    assert query.generation == 2


def test_what_cannot_be_is_refused_and_changes_nothing(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    query = start(inbox.stream(spark), format="noop")
    before = client.get(f"/api/v1/queries/{query.id}").json["spec"]
    assert_problem(patch(client, query.id, {"parallelism": 2}, None), 428, "If-Match")
    assert_problem(patch(client, query.id, {"parallelism": 500}), 409, "maxParallelism")
    for wrong in ({"parallelism": 0}, {"parallelism": "2"}, {"parallelism": True}, {"parallelism": None},
                  {"state": "asleep"}, {"colour": "red"}, {"checkpoint": {"interval_ms": 9}}, [], 7):  # fmt: skip
        assert_problem(patch(client, query.id, wrong), 422)
    headers = {"If-Match": "*", "Content-Type": "application/json"}
    path = f"/api/v1/queries/{query.id}"
    assert client.send("DELETE", path).headers["allow"] == "GET, PATCH"
    assert patch(client, query.id, {"parallelism": 0}).json["invalid"][0]["where"] == "body.spec.parallelism"
    for malformed in ("{", "\ud800".encode("utf-8", "surrogatepass"), "[" * 20_000):
        assert client.send("PATCH", path, malformed, headers).status in (400, 422)
        assert_problem(client.send("PATCH", path, malformed, headers), 400, "not JSON")
    operation = ended(client, patch(client, query.id, {"parallelism": 99}))
    assert (operation["state"], operation["error"]["kind"]) == ("failed", "ResourceError")
    assert client.get(path).json["spec"] == before
    assert_problem(client.get("/api/v1/operations/unknown"), 404, "no operation")


def test_stop_ends_it_and_a_dead_query_cannot_be_changed(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    query = start(inbox.stream(spark), format="noop")
    assert_problem(patch(client, query.id, {"state": "stopped", "parallelism": 2}), 409, "state alone")
    assert ended(client, patch(client, query.id, {"state": "stopped"}))["state"] == "succeeded"
    assert not query.isActive
    shown = client.get(f"/api/v1/queries/{query.id}").json
    assert (shown["spec"]["state"], shown["status"]["state"], shown["status"]["converged"]) == (
        "stopped", "stopped", True,
    )  # fmt: skip
    assert patch(client, query.id, {"state": "stopped"}).status == 200
    assert_problem(patch(client, query.id, {"parallelism": 2}), 409, "has ended")
    assert_problem(patch(client, query.id, {"state": "running"}), 409, "has ended")


def test_suspended_and_resumed_from_an_older_snapshot(
    spark: SparkSession, inbox: Inbox, start: Start, client: Client
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark), format="noop")
    query.processAllAvailable()
    query.snapshot(label="older")
    path = f"/api/v1/queries/{query.id}"
    assert_problem(
        patch(client, query.id, {"state": "suspended", "checkpoint": {"interval_ms": 123}}), 409, "send state alone"
    )
    resume = json.dumps({"spec": {"state": "running"}, "resume_from": {"snapshot": "older", "output": "keep"}})
    headers = {"Content-Type": "application/merge-patch+json", "If-Match": "*"}
    assert_problem(client.send("PATCH", path, resume, headers), 409, "suspend it first")
    accepted = patch(client, query.id, {"state": "suspended"})
    assert patch(client, query.id, {"state": "suspended"}).json["id"] == accepted.json["id"]
    seen = Seen(client, query.id, accepted)
    assert set(seen.messages) <= {"Taking the last snapshot before it is suspended", "Giving its slots back"}
    counts = [(one["done"], one["total"]) for one in seen.progress]
    assert set(counts) <= {(0, 1), (1, 1)}
    assert counts == sorted(counts)
    operation = seen.operation
    assert (operation["verb"], operation["state"]) == ("suspend", "succeeded")
    shown = client.get(path).json
    assert (shown["spec"]["state"], shown["status"]["state"], shown["status"]["converged"]) == (
        "suspended", "suspended", True,
    )  # fmt: skip
    assert query.isActive
    assert query.status["message"].startswith("Suspended")
    assert patch(client, query.id, {"state": "suspended"}).status == 200
    assert patch(client, query.id, {"parallelism": 1}).json["spec"]["parallelism"] == 1
    generation = query.generation
    wrong = json.loads(resume) | {"resume_from": {"snapshot": "unknown"}}
    operation = ended(client, client.send("PATCH", path, json.dumps(wrong), headers))
    assert (operation["state"], operation["error"]["kind"]) == ("failed", "LocationError")
    assert client.get(path).json["spec"]["state"] == "suspended"
    stateless = json.dumps({"resume_from": {"snapshot": "older"}})
    assert_problem(client.send("PATCH", path, stateless, headers), 409, "goes with state running")
    accepted = client.send("PATCH", path, resume, headers)
    assert client.send("PATCH", path, resume, headers).json["id"] == accepted.json["id"], "under way, or it has ended"
    operation = ended(client, accepted)
    assert (operation["verb"], operation["state"], operation["error"]) == ("resume", "succeeded", None)
    for tag in ("*", '"of before"', accepted.headers["etag"]):
        again = client.send("PATCH", path, resume, {**headers, "If-Match": tag})
        assert (again.status, again.json["id"], again.json["state"]) == (202, accepted.json["id"], "succeeded")
    assert_problem(client.send("PATCH", path, json.dumps(wrong), headers), 409, "suspend it first")
    assert_problem(client.send("PATCH", path, stateless, headers), 409, "suspend it first")
    eventually(lambda: client.get(path).json["status"]["converged"], "convergence")
    assert query.generation > generation
    assert query.parallelism == 1
    inbox.add([(10, 10, 10.0)])
    query.processAllAvailable()
    assert query.view().committed_epoch > 0
    assert ended(client, patch(client, query.id, {"state": "suspended"}))["state"] == "succeeded"
    generation = query.generation
    assert ended(client, client.send("PATCH", path, resume, headers))["id"] != accepted.json["id"]
    eventually(lambda: query.generation > generation, "it to go on from there once more")
