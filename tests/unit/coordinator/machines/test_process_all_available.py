"""Process-all-available tracker: the order of discoveries, polls, the checkpoint and its commit."""

from __future__ import annotations

import pytest

from penstock.coordinator.machines.process_all_available import ProcessAllTracker
from tests.support.coordinator.coordinator_kit import discover


def test_a_discovery_that_began_before_the_call_does_not_count() -> None:
    tracker = ProcessAllTracker([0])
    tracker.discovery_begins(0)
    tracker.add(1)
    tracker.discovery_ended(0)
    assert not tracker.begin_checkpoint(is_idle=True)
    discover(tracker)
    assert not tracker.begin_checkpoint(is_idle=False)
    assert tracker.begin_checkpoint(is_idle=True)
    assert not tracker.begin_checkpoint(is_idle=True)
    tracker.checkpoint_completed(5)
    assert tracker.committed(4) == []
    assert tracker.committed(5) == [1]
    assert tracker.committed(6) == []


def test_every_source_needs_a_discovery() -> None:
    tracker = ProcessAllTracker([0, 3])
    tracker.add(1)
    discover(tracker, 0)
    assert not tracker.begin_checkpoint(is_idle=True)
    discover(tracker, 3)
    assert tracker.begin_checkpoint(is_idle=True)


def test_a_finished_discovery_need_not_be_awaited() -> None:
    tracker = ProcessAllTracker([0, 3])
    tracker.add(1)
    discover(tracker, 3)
    assert not tracker.begin_checkpoint(is_idle=True, without_discovery=(3,))
    assert tracker.begin_checkpoint(is_idle=True, without_discovery=(0,))
    tracker.checkpoint_completed(2)
    assert tracker.committed(2) == [1]


def test_a_call_during_a_checkpoint_waits_for_the_next_one() -> None:
    tracker = ProcessAllTracker([0])
    tracker.add(1)
    discover(tracker)
    assert tracker.begin_checkpoint(is_idle=True)
    tracker.add(2)
    discover(tracker)
    assert not tracker.begin_checkpoint(is_idle=True)
    tracker.checkpoint_completed(1)
    assert tracker.committed(1) == [1]
    assert tracker.begin_checkpoint(is_idle=True)


@pytest.mark.parametrize("lost", [True, False])
def test_a_checkpoint_that_fails_or_crosses_a_failure_does_not_count(lost: bool) -> None:
    tracker = ProcessAllTracker([0])
    tracker.add(1)
    discover(tracker)
    assert tracker.begin_checkpoint(is_idle=True)
    if lost:
        tracker.generation_ended()  # the request waits for the next Generation, which has not read anything yet
        tracker.checkpoint_completed(7)
    else:
        tracker.checkpoint_failed()
    assert tracker.committed(7) == []
    assert not tracker.begin_checkpoint(is_idle=True)
    discover(tracker)
    assert tracker.begin_checkpoint(is_idle=True)
    tracker.checkpoint_completed(8)
    assert tracker.committed(8) == [1]


def test_every_reader_must_poll_once_more() -> None:
    tracker = ProcessAllTracker([0, 3], readers=2)
    assert tracker.next_poll() is None
    tracker.add(1)
    number = tracker.next_poll()
    assert number is not None
    assert tracker.next_poll() is None, "once"
    discover(tracker, 0)
    discover(tracker, 3)
    for vertex, index in ((0, 0), (0, 1), (3, 0)):
        tracker.poll_completed(vertex, index, number)
    assert not tracker.begin_checkpoint(is_idle=True)
    tracker.poll_completed(3, 1, number - 1)
    assert not tracker.begin_checkpoint(is_idle=True), "an earlier poll"
    tracker.poll_completed(3, 1, number)
    assert tracker.begin_checkpoint(is_idle=True)
    tracker.checkpoint_completed(2)
    assert tracker.committed(2) == [1]


def test_a_later_call_needs_a_later_poll() -> None:
    tracker = ProcessAllTracker([0], readers=1)
    tracker.add(1)
    first = tracker.next_poll()
    tracker.add(1)
    second = tracker.next_poll()
    assert first is not None
    assert second is not None
    assert second > first
    discover(tracker)
    tracker.poll_completed(0, 0, first)
    assert tracker.begin_checkpoint(is_idle=True), "for the first call"
    assert not tracker.begin_checkpoint(is_idle=True)


def test_readers_poll_again_after_a_failure() -> None:
    tracker = ProcessAllTracker([0], readers=1)
    tracker.add(1)
    number = tracker.next_poll()
    assert number is not None
    tracker.poll_completed(0, 0, number)
    tracker.generation_ended()
    discover(tracker)
    assert not tracker.begin_checkpoint(is_idle=True), "the reader that answered is gone"
    assert tracker.next_poll() == number
    tracker.poll_completed(0, 0, number)
    assert tracker.begin_checkpoint(is_idle=True)


# -- futures ----------------------------------------------------------------------------------------------------------
