"""A snapshot that is to be the last: nothing is triggered behind it, and the owner hears when it is committed."""

from __future__ import annotations

from penstock.coordinator.commands import LastSnapshotCommitted
from penstock.coordinator.machines.checkpoint_events import (
    CommitEpoch,
    GenerationEnded,
    SnapshotFailed,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
)
from penstock.model.elements import Alignment
from penstock.model.messages import DeclineCheckpoint, FromSlot, TriggerCheckpoint
from penstock.snapshots.store.store import MemoryStore
from tests.support.snapshots.snapshot_kit import Driver, Target

LAST = SnapshotRequested(Alignment.UNALIGNED, last=True, ticket=7)


def a_driver() -> Driver:
    driver = Driver(MemoryStore(), Target(), retained=100)
    driver.start()
    driver.checkpoint()
    return driver


def pass_time(driver: Driver) -> list[object]:
    before = len(driver.others)
    for _ in range(3):
        driver.now += 1000
        driver.feed(Tick())
    return [output for output in driver.others[before:] if isinstance(output, TriggerCheckpoint)]


def step(driver: Driver, until: type) -> None:
    """Works are done up to the first of this kind, which is not."""
    while not isinstance(driver.works[0], until):
        event = driver.effects.execute(driver.works.pop(0))
        if event is not None:
            driver.feed(event)


def test_nothing_is_triggered_behind_the_last_and_the_owner_hears_of_it_once_it_is_committed() -> None:
    driver = a_driver()
    older = driver.trigger()
    driver.feed(LAST)
    last = driver.core.coordinator.in_flight[-1]
    assert last == older + 1
    driver.feed(SnapshotRequested(Alignment.UNALIGNED, ticket=8))
    assert driver.core.coordinator.in_flight == (older, last)
    assert pass_time(driver) == []
    driver.acknowledge(last)
    step(driver, CommitEpoch)
    assert SnapshotSucceeded(7, last) in driver.others
    assert LastSnapshotCommitted(last) not in driver.others, "its epochs await their commit"
    assert pass_time(driver) == []
    driver.work()
    assert LastSnapshotCommitted(last) in driver.others
    assert max(driver.committer.target.visible) == last
    assert pass_time(driver) == []


def test_a_last_one_that_fails_is_not_the_last() -> None:
    driver = a_driver()
    driver.feed(LAST)
    (last,) = driver.core.coordinator.in_flight
    driver.feed(FromSlot(1, DeclineCheckpoint(0, last, "no")))
    assert SnapshotFailed(7, last, "slot 0 declined: no") in driver.others
    assert driver.checkpoint() == last + 1
    assert not [output for output in driver.others if isinstance(output, LastSnapshotCommitted)]


def test_a_generation_that_fails_in_between_is_followed_by_one_that_only_commits() -> None:
    driver = a_driver()
    driver.feed(LAST)
    (last,) = driver.core.coordinator.in_flight
    driver.acknowledge(last)
    step(driver, CommitEpoch)
    commits, driver.works = driver.works, []
    driver.feed(GenerationEnded(1, "slot lost"))
    driver.start()
    assert pass_time(driver) == []
    assert commits
    driver.works = commits
    driver.work()
    assert LastSnapshotCommitted(last) in driver.others
