"""Rounds of event time: when one begins, what it waits for, and which readers may rise to which watermark."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.coordinator.machines.checkpoint_events import Tick
from penstock.coordinator.machines.event_time_rounds import EventTimeRounds
from penstock.coordinator.machines.splits import Discover, SplitAssigner, SplitCommand, SplitsFound
from penstock.model.elements import END_OF_TIME_US
from penstock.model.messages import AdvanceWatermark, ReaderProgressed, ReaderStatus, RequestSplit, SourceIdle
from penstock.model.splits import Discovery, Split

ONE, OTHER = 0, 1


class Group:
    """Sources with some readers each. A test decides when a discovery ends."""

    def __init__(self, sources: int = 1, readers: int = 2, eager: bool = False) -> None:
        self.assigners = [SplitAssigner(1, f"source-{vertex}", vertex, readers) for vertex in range(sources)]
        self.rounds = EventTimeRounds(self.assigners, eager)
        self.now_ms = -1.0
        self.looks = [False] * sources

    def handle(self, vertex: int, event: Any) -> list[SplitCommand]:
        """Handle an event like the driver. Return the commands for readers."""
        commands: list[SplitCommand] = self.assigners[vertex].handle(event, self.now_ms)
        commands += self.rounds.handled(vertex, event, commands)
        for command in commands:
            if isinstance(command, Discover):
                self.looks[vertex] = True
                self.rounds.discovery_begins(vertex)
        return [command for command in commands if isinstance(command, AdvanceWatermark | SourceIdle)]

    def discovery_begins(self, vertex: int = ONE) -> list[SplitCommand]:
        self.now_ms += 1_000
        assert not self.looks[vertex]
        commands = self.handle(vertex, Tick())
        assert self.looks[vertex]
        return commands

    def look_ends(self, *splits: str, vertex: int = ONE, finished: bool = False) -> list[SplitCommand]:
        self.looks[vertex] = False
        return self.handle(vertex, SplitsFound(1, 0, Discovery([Split(each, {}) for each in splits], None, finished)))

    def whole_look(self, vertex: int) -> list[SplitCommand]:
        """Run a discovery that begins now and finds nothing, after the current one has ended."""
        told = self.look_ends(vertex=vertex) if self.looks[vertex] else []
        self.now_ms += 1_000
        return told + self.handle(vertex, Tick()) + self.look_ends(vertex=vertex)

    def reports(self, index: int, us: int | None, vertex: int = ONE, times: int = 1) -> list[SplitCommand]:
        return [c for _ in range(times) for c in self.handle(vertex, ReaderProgressed(0, index, us))]

    def asks(self, index: int, us: int | None = None, holding: int = 0, vertex: int = ONE) -> list[SplitCommand]:
        received = self.assigners[vertex].readers[index].assigned
        status = ReaderStatus(0, index, holding, received, us, us)
        return self.handle(vertex, status) + self.handle(vertex, RequestSplit(0, index))

    def busy(self, readers: int, vertex: int = ONE) -> None:
        """Give each reader a split."""
        self.discovery_begins(vertex)
        self.look_ends(*[f"{vertex}-{index}" for index in range(readers)], vertex=vertex)
        for index in range(readers):
            self.asks(index, vertex=vertex)


def test_a_reader_without_event_time_may_rise_after_a_discovery() -> None:
    group = Group()
    group.busy(2)
    group.discovery_begins()
    assert group.reports(1, 100) == []
    assert group.reports(0, None, times=3) == [], "the look that is out began before"
    assert group.look_ends() == []
    assert group.discovery_begins() == []
    assert group.look_ends() == [AdvanceWatermark(ONE, 0, 100)]
    group.discovery_begins()
    assert group.look_ends() == []
    assert group.reports(0, None, times=3) == [], "it was told"
    assert group.reports(1, 200) == group.reports(0, 100) == []
    assert group.reports(0, 100) == []
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 0, 200)]


def test_a_moving_reader_needs_no_round() -> None:
    group = Group()
    group.busy(2)
    for us in range(10, 60, 10):
        group.reports(1, 1_000)
        group.reports(0, us)
        group.discovery_begins()
        assert group.look_ends() == []
    group.reports(0, 50)
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 0, 1_000)], "it has stopped"


def test_an_eager_group_raises_moving_readers_too() -> None:
    group = Group(eager=True)
    group.busy(2)
    group.reports(1, 1_000)
    group.reports(0, 10)
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 0, 1_000)]


def test_found_splits_are_assigned_before_readers_rise() -> None:
    group = Group()
    group.busy(2)
    group.reports(1, 100)
    group.reports(0, None, times=2)
    group.discovery_begins()
    assert group.look_ends("a", "b") == []
    assert group.asks(1, 120) == [], "one of them is left"
    group.discovery_begins()
    assert group.look_ends("c") == [], "found later"
    assert group.asks(1, 130) == [AdvanceWatermark(ONE, 0, 100)]


def test_two_silent_readers_do_not_wait_for_each_other() -> None:
    group = Group(readers=3)
    group.busy(3)
    group.reports(2, 100)
    group.reports(0, None, times=2)
    group.reports(1, None, times=2)
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 0, 100), AdvanceWatermark(ONE, 1, 100)]


def test_an_idle_reader_rises_to_the_level_of_busy_ones() -> None:
    group = Group()
    group.busy(1)
    group.asks(1)
    group.reports(0, 100)
    assert group.reports(1, None) == []
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 1, 100)]


def test_an_idle_reader_is_still_without_a_second_report() -> None:
    group = Group()
    group.busy(2)
    group.reports(0, 100)
    assert group.asks(1, 10) == []
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 1, 100)], "no report was needed"
    group.reports(0, 200)
    group.reports(1, 100)
    group.discovery_begins()
    assert group.look_ends() == [AdvanceWatermark(ONE, 1, 200)], "it has reported this watermark once"


def test_each_source_of_a_group_has_its_own_discovery() -> None:
    group = Group(sources=2, readers=1)
    group.busy(1, vertex=OTHER)
    group.asks(0, vertex=ONE)
    if not group.looks[ONE]:
        group.discovery_begins(ONE)
    group.reports(0, 100, vertex=OTHER)
    group.reports(0, None, vertex=ONE)
    assert group.whole_look(OTHER) == [], "the other source's reader is at the level"
    assert group.look_ends(vertex=ONE) == [SourceIdle(ONE, None)], "that look began before"
    assert group.whole_look(ONE) == [AdvanceWatermark(ONE, 0, 100)]
    assert not group.rounds.is_aligned


def test_a_group_is_aligned_when_all_its_readers_are_at_the_level() -> None:
    group = Group(sources=2, readers=1)
    group.asks(0, 50, vertex=ONE)
    group.asks(0, 80, vertex=OTHER)
    told = [command for vertex in (ONE, OTHER) for command in group.whole_look(vertex)]
    assert told == [SourceIdle(ONE, 50), SourceIdle(OTHER, 80)]
    assert not group.rounds.is_aligned
    group.reports(0, 50, vertex=ONE)
    assert [command for vertex in (ONE, OTHER) for command in group.whole_look(vertex)] == [
        AdvanceWatermark(ONE, 0, 80)
    ]
    assert not group.rounds.is_aligned
    group.asks(0, 80, vertex=ONE)
    group.whole_look(ONE)
    assert group.rounds.is_aligned


@pytest.mark.parametrize("finished", [False, True])
def test_a_source_that_finds_nothing_more_comes_to_a_time_of_its_own(finished: bool) -> None:
    group = Group(sources=2, readers=1)
    group.discovery_begins(ONE)
    group.look_ends("a", vertex=ONE, finished=finished)
    group.asks(0, vertex=ONE)
    group.busy(1, vertex=OTHER)
    group.reports(0, 100, vertex=OTHER)
    told = group.reports(0, 10, vertex=ONE, times=2)
    vertices = (OTHER,) if finished else (OTHER, ONE)
    told += [command for vertex in vertices for command in group.whole_look(vertex)]
    assert told == ([] if finished else [AdvanceWatermark(ONE, 0, 100)])
    group.asks(0, 100, vertex=OTHER)
    assert group.rounds.is_aligned == finished, "those of a source that ends are not waited for"


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_source_that_finds_nothing_more_holds_no_round(when: str) -> None:
    """It is looked at no more: neither in a round that begins later nor in one that has begun."""
    group = Group(sources=2, readers=2)
    group.busy(2, vertex=OTHER)
    group.discovery_begins(ONE)
    if when == "before":
        group.look_ends("a", vertex=ONE, finished=True)
    group.reports(0, 100, vertex=OTHER)
    group.reports(1, 10, vertex=OTHER, times=2)
    if when == "meanwhile":
        group.look_ends("a", vertex=ONE, finished=True)
    assert group.whole_look(OTHER) == [AdvanceWatermark(OTHER, 1, 100)]
    group.reports(1, 100, vertex=OTHER)
    group.reports(0, 200, vertex=OTHER)
    group.reports(1, 100, vertex=OTHER, times=2)
    assert group.whole_look(OTHER) == [AdvanceWatermark(OTHER, 1, 200)]


def test_the_end_of_event_time_is_no_level() -> None:
    group = Group()
    group.busy(2)
    group.reports(1, 100)
    group.asks(1, END_OF_TIME_US)
    assert group.rounds.level_us == 100
