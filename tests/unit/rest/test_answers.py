"""Answers that are kept are never out of date, and what is told from memory waits for nobody."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

import penstock
from penstock.coordinator.view import CheckpointState, ExecutionState, ExecutionView, RestartView
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.queries.operations import OPERATIONS, Operation, OperationState, Verb
from penstock.rest import routes_queries
from penstock.rest.answers import MAX_KEPT, KeptAnswer, KeptAnswers
from penstock.rest.routes_snapshots import LISTED_FOR_S
from tests.support.rest.made_up_query import MadeUpQuery
from tests.support.rest.rest_client import Answer, Client, run_apart
from tests.unit.cli.test_requests_cli import penstock as penstock_command

MADE_UP = MadeUpQuery(vertices=3, parallelism=2, checkpoints=60)
BASE = f"/api/v1/queries/{MADE_UP.query_id}"
FROM_MEMORY = (
    "/api/v1/queries", BASE, f"{BASE}/graph", f"{BASE}/checkpoints", f"{BASE}/checkpoints?limit=3&before=41",
    f"{BASE}/checkpoints?limit=200", f"{BASE}/checkpoints/60", f"{BASE}/exceptions", f"{BASE}/logs",
    f"{BASE}/configuration", "/metrics",
)  # fmt: skip


class Changing:
    """The driver's view of a query; it changes as the test says."""

    def __init__(self) -> None:
        self.known = [MADE_UP.facts()]

    def now(self) -> list[QueryFacts]:
        """Return new values like the engine, made of parts that are the same objects if nothing has changed."""
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
def client(driver: Changing) -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


NUMBERS = itertools.count()


def anew(client: Client, path: str) -> Answer:
    """Return the answer to a first request: no part of an earlier answer is reused."""
    return client.get(f"{path}{'&' if '?' in path else '?'}ignored={next(NUMBERS)}")


def moved(view: ExecutionView) -> ExecutionView:
    one = view.subtasks[-1]
    metrics = replace(one.metrics, rows_in=one.metrics.rows_in + 1)
    return replace(view, subtasks=(*view.subtasks[:-1], replace(one, metrics=metrics)))


def triggered(view: ExecutionView) -> ExecutionView:
    pending = replace(MADE_UP.checkpoint_at(61), state=CheckpointState.PENDING, subtasks=())
    return replace(view, checkpoints=(*view.checkpoints, pending))


def took_longer(view: ExecutionView) -> ExecutionView:
    *others, newest = view.checkpoints
    return replace(view, checkpoints=(*others, replace(newest, duration_ms=newest.duration_ms + 1)))


def recovered(view: ExecutionView) -> ExecutionView:
    return replace(view, restarts=(*view.restarts, RestartView(1, 2, "slot 0 was lost", 1_000)))


def stopped(view: ExecutionView) -> ExecutionView:
    return replace(view, state=ExecutionState.STOPPED, slots=(), subtasks=())


CHANGES = (moved, triggered, took_longer, recovered, stopped)


def test_every_change_is_seen_at_once(client: Client, driver: Changing) -> None:
    before = {path: client.get(path) for path in FROM_MEMORY}
    assert {answer.status for answer in before.values()} == {200}
    others = set()
    for change in CHANGES:
        driver.change(view=change(driver.view))
        for path in FROM_MEMORY:
            told = client.get(path)
            assert told.text == anew(client, path).text, (change, path)
            if told.text != before[path].text:
                others.add((change, path))
            before[path] = told
    seen = [
        (moved, f"{BASE}/graph"), (moved, "/metrics"), (triggered, f"{BASE}/checkpoints"),
        (took_longer, f"{BASE}/checkpoints"), (stopped, f"{BASE}/graph"), (stopped, "/metrics"), (stopped, BASE),
        (recovered, f"{BASE}/exceptions"),
    ]  # fmt: skip
    assert set(seen) <= others
    driver.change(error_kind="QueryFailed", error_text="the sink is full")
    assert client.get(f"{BASE}/exceptions").json["failure"]["text"] == "the sink is full"
    driver.known = []
    assert {client.get(path).status for path in FROM_MEMORY if path.startswith(BASE)} == {404}


def test_what_is_being_done_to_a_query_is_seen_at_once(
    client: Client, driver: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def states() -> list[str]:
        return [
            client.get(BASE).json["spec"]["state"],
            client.get("/api/v1/queries").json["queries"][0]["spec"]["state"],
        ]

    assert states() == ["running", "running"]
    stop = Operation("stop", MADE_UP.query_id, driver.known[0].run_id, Verb.STOP, None, OperationState.RUNNING, 0)
    monkeypatch.setitem(OPERATIONS._operations, "stop", stop)
    assert states() == ["stopped", "stopped"]
    monkeypatch.setitem(OPERATIONS._operations, "stop", replace(stop, state=OperationState.FAILED))
    assert states() == ["running", "running"]


def test_an_answer_is_made_once_while_nothing_changes(
    client: Client, driver: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[QueryFacts] = []
    graph_resource = routes_queries.graph_resource
    monkeypatch.setattr(routes_queries, "graph_resource", lambda facts: [made.append(facts), graph_resource(facts)][1])
    first = client.get(f"{BASE}/graph")
    assert [client.get(f"{BASE}/graph").text for _ in range(3)] == [first.text] * 3
    assert len(made) == 1
    driver.change(view=moved(driver.view))
    assert client.get(f"{BASE}/graph").text != first.text
    assert len(made) == 2


class Asked:
    """The middleware in front of an application that answers with how often it was asked."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.facts: object = "facts"
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.kept = KeptAnswers(self._app)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts, number = self.facts, len(self.made)
        self.made.append(scope["raw_path"].decode())
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        await KeptAnswer(str(number), facts, lambda: self.facts)(scope, receive, send)

    async def ask(self, path: str, method: str = "GET") -> str:
        said: list[Message] = []

        async def send(message: Message) -> None:
            said.append(message)

        async def receive() -> Message:
            raise AssertionError("nobody reads what these requests say")

        scope = {"type": "http", "method": method, "raw_path": path.encode(), "query_string": b""}
        await self.kept(scope, receive, send)
        assert [message["type"] for message in said] == ["http.response.start", "http.response.body"]
        body: bytes = said[1]["body"]
        return body.decode()


def test_so_many_are_kept_and_what_is_asked_for_stays() -> None:
    async def ask() -> None:
        asked = Asked()
        for number in range(MAX_KEPT + 5):
            await asked.ask(f"/{number}")
            assert await asked.ask("/0") == "0"
        assert asked.made == [f"/{number}" for number in range(MAX_KEPT + 5)]
        assert await asked.ask("/1") == str(MAX_KEPT + 5), "made anew"

    run_apart(ask())


def test_nothing_that_was_looked_up_before_a_change_is_told_after_it() -> None:
    async def ask() -> None:
        asked = Asked()
        assert [await asked.ask("/a"), await asked.ask("/a")] == ["0", "0"]
        assert await asked.ask("/a", "PATCH") == "1"
        assert [await asked.ask("/a"), await asked.ask("/a")] == ["2", "2"]
        asked.meanwhile = lambda: asked.ask("/a", "DELETE")
        assert await asked.ask("/b") == "3", "looked up before the change"
        assert [await asked.ask("/b"), await asked.ask("/a")] == ["5", "6"]

    run_apart(ask())


def test_an_answer_is_good_for_the_facts_that_it_was_made_of() -> None:
    async def ask() -> None:
        asked = Asked()
        assert [await asked.ask("/a"), await asked.ask("/a")] == ["0", "0"]
        asked.facts = "others"
        assert [await asked.ask("/a"), await asked.ask("/a")] == ["1", "1"]

    run_apart(ask())


def test_what_is_told_from_memory_waits_for_no_store(
    client: Client, driver: Changing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many requests wait for one: more than the service has threads to wait on."""
    waiting, go_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> None:
        waiting.release()
        go_on.wait(60)

    monkeypatch.setattr(routes_queries, "checkpoint_of", slow)
    monkeypatch.setattr(routes_queries, "checkpoint_page", slow)
    with ThreadPoolExecutor(60) as clients:
        slow_ones = [clients.submit(client.get, f"{BASE}/checkpoints/1000") for _ in range(60)]
        try:
            for _ in range(40):  # as many as there are threads
                assert waiting.acquire(timeout=30)
            assert {client.get(path).status for path in FROM_MEMORY} == {200}
        finally:
            go_on.set()
        assert {one.result().status for one in slow_ones} == {404}


def test_snapshots_that_others_take_away_are_gone_soon(client: Client, driver: Changing, location: Path) -> None:
    driver.change(location=str(location))

    def listed() -> list[str]:
        return [one["id"] for one in client.get(f"{BASE}/snapshots").json["snapshots"]]

    assert listed() == listed() == ["chk-1", "chk-2", "chk-3", "chk-4"]
    assert penstock_command("delete", location, "chk-1").exit_code == 0
    time.sleep(LISTED_FOR_S)
    assert listed() == ["chk-2", "chk-3", "chk-4"]
    assert penstock_command("label", location, "chk-2", "--label", "mine").exit_code == 0
    time.sleep(LISTED_FOR_S)
    labels = {one["id"]: one["label"] for one in client.get(f"{BASE}/snapshots").json["snapshots"]}
    assert labels["chk-2"] == "mine"
