"""The order and the thread on which listeners hear of a query, over a bus that is a list."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from penstock.queries.listeners import EVENT_BACKLOG, QueryEvents


class ListBus:
    """Remembers events; ``gate`` holds the posting thread back; ``fail`` raises on progress."""

    def __init__(self, fail: bool = False) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.threads: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self._fail = fail

    def _hear(self, kind: str, what: Any) -> None:
        assert self.gate.wait(10)
        self.heard.append((kind, what))
        self.threads.append(threading.current_thread().name)

    def started(self, query_id: str, run_id: str, name: str | None, timestamp: str) -> None:
        self._hear("started", (query_id, run_id, name))

    def progressed(self, progress: dict[str, Any]) -> None:
        if self._fail:
            raise RuntimeError("a listener broke")
        self._hear("progress", progress["batchId"])

    def idle(self, query_id: str, run_id: str, timestamp: str) -> None:
        self._hear("idle", query_id)

    def terminated(self, query_id: str, run_id: str, exception: str | None) -> None:
        self._hear("terminated", exception)


def test_events_arrive_in_order_and_progress_off_the_callers_thread() -> None:
    bus = ListBus()
    events = QueryEvents(bus, "run")
    events.progressed({"batchId": 1})  # a fast first epoch, before the start was told
    events.started("id", "q", "now")
    events.progressed({"batchId": 2})
    events.terminated("it broke: password=hunter2")
    events.join(10)
    assert bus.heard == [
        ("started", ("id", "run", "q")),
        ("progress", 1),
        ("progress", 2),
        ("terminated", "it broke: password=***"),
    ]
    assert bus.threads[0] == threading.current_thread().name
    assert set(bus.threads[1:]) == {"penstock-events-run"}


def test_a_slow_listener_costs_progress_events_never_the_end() -> None:
    bus = ListBus()
    events = QueryEvents(bus, "run")
    events.started("id", None, "now")
    bus.gate.clear()
    for number in range(EVENT_BACKLOG + 50):
        events.progressed({"batchId": number})
    events.terminated(None)
    bus.gate.set()
    events.join(10)
    assert bus.heard[-1] == ("terminated", None)
    numbers = [what for kind, what in bus.heard if kind == "progress"]
    assert EVENT_BACKLOG <= len(numbers) <= EVENT_BACKLOG + 1
    assert numbers == sorted(numbers)


def test_idle_is_told_at_most_every_ten_seconds() -> None:
    bus = ListBus()
    events = QueryEvents(bus, "run")
    events.started("id", None, "now")
    for _ in range(5):
        events.idle("now")
    events.terminated(None)
    events.join(10)
    assert [kind for kind, _ in bus.heard] == ["started", "idle", "terminated"]


def test_a_listener_that_raises_is_logged_and_the_rest_is_heard(caplog: pytest.LogCaptureFixture) -> None:
    bus = ListBus(fail=True)
    events = QueryEvents(bus, "run")
    events.started("id", None, "now")
    with caplog.at_level(logging.WARNING):
        events.progressed({"batchId": 1})
        events.terminated(None)
        events.join(10)
    assert [kind for kind, _ in bus.heard] == ["started", "terminated"]
    assert "a listener broke" in caplog.text


def test_what_is_done_besides_has_its_turn_before_the_end() -> None:
    bus = ListBus()
    events = QueryEvents(bus, "run")
    events.started("id", None, "now")
    events.progressed({"batchId": 1})
    events.call_in_turn(lambda: bus.heard.append(("besides", None)))
    events.terminated(None)
    events.join(10)
    assert [kind for kind, _ in bus.heard] == ["started", "progress", "besides", "terminated"]
