"""A driver's answer to a request file has no secret, because other users may read it."""

from __future__ import annotations

import itertools

from penstock.coordinator.commands import AnswerTake
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.store.store import MemoryStore
from tests.unit.snapshots.test_requests import TOKEN, a_driver, look


def test_a_refusal_is_stored_without_secrets() -> None:
    store = MemoryStore()
    driver = a_driver(store, 1)

    def sleep(seconds: float) -> None:
        look(driver)
        driver.effects.execute(AnswerTake(TOKEN, "", "it failed: password=hunter2"))

    ticks = itertools.count()
    answer = rq.ask(store, rq.TakeSnapshot(), TOKEN, clock=lambda: float(next(ticks)), sleep=sleep)
    assert answer == rq.Answer("it failed: password=***")
