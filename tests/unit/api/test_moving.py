"""A query leaves an executor that is decommissioned: a snapshot, then the next Generation."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import CheckpointFailed
from penstock.queries import decommission as moving
from penstock.queries.decommission import move_when_executors_leave


class World:
    """An execution and its executors. ``looks``: who leaves, look by look; the query ends after the last."""

    def __init__(self, looks: list[set[str] | Exception], snapshot: Exception | None = None) -> None:
        self._looks: Iterator[set[str] | Exception] = iter(looks)
        self._left = len(looks)
        self._snapshot = snapshot
        self.told: list[str] = []
        self.ended = threading.Event()
        self.suspended = False

    def await_termination(self, timeout_s: float) -> bool:
        self._left -= 1
        if self._left < 0:
            self.ended.set()
        return self._left < 0

    def request_snapshot(self, *, timeout_s: float, kept: bool) -> None:
        self.told.append(f"snapshot within {timeout_s:.0f} s, kept {kept}")
        if self._snapshot is not None:
            raise self._snapshot

    def leaving_executors(self) -> set[str]:
        look = next(self._looks)
        if isinstance(look, Exception):
            raise look
        return look

    def give_up_job(self, why: str) -> None:
        self.told.append(why)


def watched(world: Any) -> list[str]:
    move_when_executors_leave(world, world)
    assert world.ended.wait(10)
    told: list[str] = world.told
    return told


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "POLL_INTERVAL_S", 0.0)


SNAPSHOT = "snapshot within 30 s, kept False"


def test_a_snapshot_then_the_next_generation_once_per_executor() -> None:
    told = watched(World([set(), {"2", "1"}, {"1", "2"}, {"2", "7"}, set()]))
    moved = ["Spark decommissions executor 1, 2; ", "Spark decommissions executor 7; "]
    assert told[::2] == [SNAPSHOT, SNAPSHOT]
    assert [text[: len(start)] for text, start in zip(told[1::2], moved, strict=True)] == moved


def test_it_moves_without_a_snapshot_if_none_can_be_had(caplog: pytest.LogCaptureFixture) -> None:
    told = watched(World([{"1"}], CheckpointFailed("too slow")))
    assert len(told) == 2
    assert "no snapshot was taken before: too slow" in caplog.text


def test_a_session_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(watched(World([RuntimeError("stopped"), {"1"}]))) == 2
    assert caplog.text == ""


def test_one_that_is_suspended_has_nothing_to_move() -> None:
    world = World([{"1"}])
    world.suspended = True
    assert watched(world) == []
