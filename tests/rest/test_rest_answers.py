"""Answers that are kept are never out of date, and what is told from memory waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from made_up_query import MadeUpQuery
from rest_client import Answer, Client
from test_requests_cli import penstock as penstock_command

import penstock
from penstock.query.active_queries import ACTIVE_QUERIES
from penstock.query.facts import QueryFacts
from penstock.rest import routes_queries
from penstock.rest.answers import KEPT_ANSWERS, MAX_KEPT, KeptAnswers
from penstock.runtime.view import CheckpointState, ExecutionState, ExecutionView

MADE_UP = MadeUpQuery(vertices=3, parallelism=2, checkpoints=60)
BASE = f"/api/v1/queries/{MADE_UP.query_id}"
FROM_MEMORY = (
    "/api/v1/queries", BASE, f"{BASE}/graph", f"{BASE}/checkpoints", f"{BASE}/checkpoints?limit=3&before=41",
    f"{BASE}/checkpoints/60", f"{BASE}/exceptions", f"{BASE}/logs", "/metrics",
)  # fmt: skip


class Changing:
    """What the driver knows; it changes as the test says."""

    def __init__(self) -> None:
        self.known = [MADE_UP.facts()]

    def now(self) -> list[QueryFacts]:
        """As the engine does: new values, of parts that are the same where nothing has changed."""
        return [replace(facts, view=replace(facts.view)) for facts in self.known]

    def change(self, **changes: object) -> None:
        self.known = [replace(facts, **changes) for facts in self.known]  # type: ignore[arg-type]

    @property
    def view(self) -> ExecutionView:
        return self.known[0].view


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Changing:
    driver = Changing()
    monkeypatch.setattr(ACTIVE_QUERIES, "known", driver.now)
    return driver


@pytest.fixture
def client(driver: Changing, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(KEPT_ANSWERS, "_kept", type(KEPT_ANSWERS._kept)())
    with penstock.serve() as server:
        yield Client(server.url)


def anew(client: Client, path: str, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """With nothing kept."""
    with monkeypatch.context() as patch:
        patch.setattr(KEPT_ANSWERS, "_kept", type(KEPT_ANSWERS._kept)())
        return client.get(path)


def moved(view: ExecutionView) -> ExecutionView:
    one = view.subtasks[-1]
    metrics = msgspec.structs.replace(one.metrics, rows_in=one.metrics.rows_in + 1)
    return replace(view, subtasks=(*view.subtasks[:-1], replace(one, metrics=metrics)))


def triggered(view: ExecutionView) -> ExecutionView:
    pending = replace(MADE_UP.checkpoint_at(61), state=CheckpointState.PENDING, subtasks=())
    return replace(view, checkpoints=(*view.checkpoints, pending))


def took_longer(view: ExecutionView) -> ExecutionView:
    *others, newest = view.checkpoints
    return replace(view, checkpoints=(*others, replace(newest, duration_ms=newest.duration_ms + 1)))


def stopped(view: ExecutionView) -> ExecutionView:
    return replace(view, state=ExecutionState.STOPPED, slots=(), subtasks=())


CHANGES = (moved, triggered, took_longer, stopped)


def test_every_change_is_seen_at_once(client: Client, driver: Changing, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: client.get(path) for path in FROM_MEMORY}
    assert {answer.status for answer in before.values()} == {200}
    others = set()
    for change in CHANGES:
        driver.change(view=change(driver.view))
        for path in FROM_MEMORY:
            told = client.get(path)
            assert told.text == anew(client, path, monkeypatch).text, (change, path)
            if told.text != before[path].text:
                others.add((change, path))
            before[path] = told
    seen = [
        (moved, f"{BASE}/graph"), (moved, "/metrics"), (triggered, f"{BASE}/checkpoints"),
        (took_longer, f"{BASE}/checkpoints"), (stopped, f"{BASE}/graph"), (stopped, "/metrics"), (stopped, BASE),
    ]  # fmt: skip
    assert set(seen) <= others
    driver.known = []
    assert {client.get(path).status for path in FROM_MEMORY if path.startswith(BASE)} == {404}


def test_an_answer_is_made_once_while_nothing_changes(
    client: Client, driver: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[QueryFacts] = []
    graph_of = routes_queries.graph_of
    monkeypatch.setattr(routes_queries, "graph_of", lambda facts: [made.append(facts), graph_of(facts)][1])
    first = client.get(f"{BASE}/graph")
    assert [client.get(f"{BASE}/graph").text for _ in range(3)] == [first.text] * 3
    assert len(made) == 1
    driver.change(view=moved(driver.view))
    assert client.get(f"{BASE}/graph").text != first.text
    assert len(made) == 2


def test_so_many_are_kept(client: Client) -> None:
    told = {limit: client.get(f"{BASE}/checkpoints?limit={limit}").json for limit in range(1, MAX_KEPT + 10)}
    assert len(KEPT_ANSWERS._kept) == MAX_KEPT
    assert [len(page["checkpoints"]) for page in told.values()] == list(told)
    kept, made = KeptAnswers(), []
    for number in range(MAX_KEPT + 5):
        kept.get(number, "facts", lambda number=number: made.append(number) or str(number))  # type: ignore[misc]
        assert kept.get(0, "facts", lambda: "made anew") == b"0"  # what is asked for stays
    assert made == list(range(MAX_KEPT + 5))


def test_what_is_told_from_memory_waits_for_no_store(
    client: Client, driver: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests wait for one: more than the service has threads to wait on."""
    waiting, go_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> None:
        waiting.release()
        go_on.wait(60)

    monkeypatch.setattr(routes_queries, "checkpoint_of", slow)
    with ThreadPoolExecutor(60) as clients:
        slow_ones = [clients.submit(client.get, f"{BASE}/checkpoints/1000") for _ in range(60)]
        try:
            for _ in range(40):  # as many as there are threads
                assert waiting.acquire(timeout=30)
            assert {client.get(path).status for path in FROM_MEMORY} == {200}
        finally:
            go_on.set()
        assert {one.result().status for one in slow_ones} == {404}


def test_snapshots_that_others_take_away_are_gone_at_once(client: Client, driver: Changing, location: Path) -> None:
    driver.change(location=str(location))

    def listed() -> list[str]:
        return [one["id"] for one in client.get(f"{BASE}/snapshots").json["snapshots"]]

    assert listed() == listed() == ["chk-1", "chk-2", "chk-3", "chk-4"]
    assert penstock_command("delete", location, "chk-1").exit_code == 0
    assert listed() == ["chk-2", "chk-3", "chk-4"]
    assert penstock_command("label", location, "chk-2", "--label", "mine").exit_code == 0
    labels = {one["id"]: one["label"] for one in client.get(f"{BASE}/snapshots").json["snapshots"]}
    assert labels["chk-2"] == "mine"
