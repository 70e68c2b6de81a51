"""Owners of splits: each split has one at every moment, and a source is idle only if all of its readers are."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.coordinator.machines.checkpoint_events import AllSlotsRunning, Tick
from penstock.coordinator.machines.splits import (
    EMPTY_DISCOVERY_PAUSE_MS,
    PENDING_PER_READER,
    Discover,
    Freeze,
    FreezeSource,
    SplitAssigner,
    SplitsFound,
    last_fully_read,
)
from penstock.errors import ProtocolViolation
from penstock.model.elements import END_OF_TIME_US
from penstock.model.manifest import SourceManifest
from penstock.model.messages import (
    AssignSplits,
    FreezeReaders,
    NoMoreSplits,
    ReaderProgressed,
    ReaderStatus,
    RequestSplit,
    SourceIdle,
)
from penstock.model.splits import Discovery, Split
from tests.support.coordinator.coordinator_kit import ask
from tests.support.effort import some

VERTEX = 0


def split(number: int) -> Split:
    return Split(f"s{number}", {"n": number})


def assigner(parallelism: int = 2, restored: SourceManifest | None = None) -> SplitAssigner:
    return SplitAssigner(1, "source-1", VERTEX, parallelism, restored)


def test_splits_go_out_in_discovery_order_one_per_request() -> None:
    machine = assigner()
    assert machine.handle(Tick(), 0) == [Discover(1, VERTEX, None)]
    assert ask(machine, 1, 1) == []
    found = [split(1), split(2), split(3)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery(found, {"seen": 3})), 2) == [
        AssignSplits(VERTEX, 1, (split(1),))
    ]
    assert ask(machine, 0, 3) == [AssignSplits(VERTEX, 0, (split(2),))]
    assert machine.capture().manifest == SourceManifest("source-1", VERTEX, {"seen": 3}, [split(3)])


def test_the_reader_with_the_least_to_read_comes_first() -> None:
    machine = assigner()
    machine.handle(Tick(), 0)
    ask(machine, 0, 1, unread=2)
    ask(machine, 1, 1, unread=1)
    commands = machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], 1)), 2)
    assert commands == [AssignSplits(VERTEX, 1, (split(1),))]


def test_a_split_with_a_home_goes_there_alone_and_keeps_no_other_back() -> None:
    machine = assigner()
    machine.handle(Tick(), 0)
    ask(machine, 0, 1)
    found = [Split(f"s{n}", {"n": n}, home=home) for n, home in ((1, 1), (2, 0), (3, 3), (4, 4))]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery(found, 1)), 2) == [AssignSplits(VERTEX, 0, (found[1],))]
    machine.check_invariants()
    assert ask(machine, 1, 3) == [AssignSplits(VERTEX, 1, (found[0],))]
    assert ask(machine, 1, 4, unread=1) == [AssignSplits(VERTEX, 1, (found[2],))]
    assert ask(machine, 1, 5, unread=2) == [], "the last one is not for this reader"
    assert ask(machine, 0, 6, unread=1) == [AssignSplits(VERTEX, 0, (found[3],))]
    machine.check_invariants()


def test_dry_needs_a_look_that_started_after_all_were_idle_and_is_said_once() -> None:
    machine = assigner()
    machine.handle(Tick(), 0)
    ask(machine, 0, 1, seen_us=500)
    ask(machine, 1, 1, seen_us=900)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], None)), 2) == [], "that look had started before"
    later = 2 + EMPTY_DISCOVERY_PAUSE_MS
    assert machine.handle(Tick(), later) == [Discover(1, VERTEX, None)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], None)), later) == [SourceIdle(VERTEX, 900)]
    assert machine.is_idle
    now, said = float(later), 0
    for _ in range(50):  # an idle source sends nothing, however often it is looked at
        now += EMPTY_DISCOVERY_PAUSE_MS
        assert machine.handle(Tick(), now) == [Discover(1, VERTEX, None)]
        said += sum(isinstance(c, SourceIdle) for c in machine.handle(SplitsFound(1, VERTEX, Discovery([], None)), now))
    assert said == 0


def test_a_new_split_makes_dry_possible_again() -> None:
    machine = assigner(1)
    ask(machine, 0, 0)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], 0)), 1) == [SourceIdle(VERTEX, None)]
    machine.handle(Tick(), 200)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], 1)), 201) == [
        AssignSplits(VERTEX, 0, (split(1),))
    ]
    assert not machine.is_idle
    machine.handle(Tick(), 400)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], 1)), 401) == [], "the reader is busy"
    ask(machine, 0, 600, seen_us=77)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], 1)), 601) == [SourceIdle(VERTEX, 77)]


def test_a_request_that_crossed_an_assignment_is_no_sign_of_idleness() -> None:
    machine = assigner(1)
    ask(machine, 0, 0, unread=1, received=0)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], 1)), 1)
    ask(machine, 0, 2, seen_us=5, received=0)
    assert not machine.readers_idle
    machine.handle(Tick(), 300)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], 1)), 301) == []
    ask(machine, 0, 302, seen_us=9, received=1)
    machine.handle(Tick(), 600)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], 1)), 601) == [SourceIdle(VERTEX, 9)]


def test_no_more_looks_while_enough_is_pending() -> None:
    machine = assigner(1)
    machine.handle(Tick(), 0)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(n) for n in range(PENDING_PER_READER)], 1)), 1)
    assert machine.next_wake_ms() is None
    assert machine.handle(Tick(), 1_000_000) == []
    commands = ask(machine, 0, 1_000_001)
    assert commands == [AssignSplits(VERTEX, 0, (split(0),)), Discover(1, VERTEX, 1)]


def test_without_looking_ahead_a_look_waits_for_a_reader_that_asks() -> None:
    machine = SplitAssigner(1, "source-1", VERTEX, 2, discovers_ahead=False)
    assert machine.handle(Tick(), 0) == []
    assert machine.next_wake_ms() is None
    assert ask(machine, 0, 1) == [Discover(1, VERTEX, None)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([split(1), split(2)], 2)), 2) == [
        AssignSplits(VERTEX, 0, (split(1),))
    ]
    assert machine.next_wake_ms() is None, "one is pending, and nobody waits"
    assert machine.handle(Tick(), 1_000) == []
    assert ask(machine, 1, 1_001) == [AssignSplits(VERTEX, 1, (split(2),))]
    assert ask(machine, 0, 1_002) == [Discover(1, VERTEX, 2)]


def test_a_frozen_source_is_looked_at_whoever_is_busy() -> None:
    machine = SplitAssigner(1, "source-1", VERTEX, 1, discovers_ahead=False)
    assert machine.handle(Freeze(), 5) == [FreezeSource(1, VERTEX), Discover(1, VERTEX, None)]


def test_a_restored_assigner_goes_on_where_the_captured_one_was() -> None:
    machine = assigner(2, SourceManifest("source-1", VERTEX, {"seen": 9}, [split(8), split(9)]))
    assert ask(machine, 1, 0) == [
        Discover(1, VERTEX, {"seen": 9}),
        AssignSplits(VERTEX, 1, (split(8),)),
    ]
    assert ask(machine, 0, 1) == [AssignSplits(VERTEX, 0, (split(9),))]


def test_negative_watermarks_are_watermarks() -> None:
    machine = assigner(2)
    ask(machine, 0, 0, seen_us=0)
    ask(machine, 1, 0, seen_us=-5)
    machine.handle(SplitsFound(1, VERTEX, Discovery([], None)), 1)
    machine.handle(Tick(), 300)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([], None)), 301) == [SourceIdle(VERTEX, 0)]


def test_a_source_hears_only_of_what_was_read_to_the_end() -> None:
    machine = assigner(1)
    machine.handle(Tick(), 0)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], "after-1")), 1)
    machine.handle(Tick(), 100)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(2), split(3)], "after-3")), 101)
    ask(machine, 0, 102)
    capture = machine.capture()
    assert last_fully_read(capture, ["s1"]) is None
    settled = last_fully_read(capture, [])
    assert settled is not None
    assert settled.state == "after-1", "2 and 3 are pending"
    machine.mark_read(settled)
    ask(machine, 0, 103)
    ask(machine, 0, 104)
    later = machine.capture()
    assert last_fully_read(later, ["s2", "s3"]) is None
    assert last_fully_read(later, ["s3"]) is None
    newest = last_fully_read(later, [])
    assert newest is not None
    assert newest.state == "after-3"


def test_illegal_events_are_refused() -> None:
    machine = assigner(2)
    with pytest.raises(ProtocolViolation):
        machine.handle(SplitsFound(1, VERTEX, Discovery([], None)), 0)
    with pytest.raises(ProtocolViolation):
        ask(machine, 2, 0)
    machine.check_invariants()


class SplitWorld(RuleBasedStateMachine):
    """An outside that grows until it is closed, readers behind FIFO links, and restores from any capture."""

    PARALLELISM = 3
    DISCOVERS_AHEAD = True

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.outside = 0
        self.closed = False
        self.look_was_last = False
        self.ended = False
        self.drain = False
        self.frozen_at: int | None = None
        self.machine = self.assigner()
        self.look: Discover | None = None
        self.look_found: list[Split] = []
        self.links: list[list[Split | FreezeReaders]] = [[] for _ in range(self.PARALLELISM)]
        self.frozen = [False] * self.PARALLELISM
        self.readers: list[list[Split]] = [[] for _ in range(self.PARALLELISM)]
        self.received = [0] * self.PARALLELISM
        self.asked = [False] * self.PARALLELISM
        self.read: list[str] = []
        self.saved: tuple[SourceManifest, list[Split], list[str]] | None = None
        self.carry_out(self.machine.handle(AllSlotsRunning(1), self.now))

    def assigner(self, restored: SourceManifest | None = None) -> SplitAssigner:
        return SplitAssigner(1, "source-1", VERTEX, self.PARALLELISM, restored, discovers_ahead=self.DISCOVERS_AHEAD)

    def carry_out(self, commands: list[object]) -> None:
        for command in commands:
            match command:
                case Discover():
                    assert self.look is None, "one look at a time"
                    assert not self.machine.finished, "nobody looks any more"
                    assert self.DISCOVERS_AHEAD or self.frozen_at is not None or self.has_waiting_reader()
                    self.look = command
                    seen = command.state or 0
                    there = self.outside if self.frozen_at is None else self.frozen_at
                    self.look_was_last = self.closed or self.frozen_at is not None
                    self.look_found = [split(n) for n in range(seen, there)]
                case FreezeSource():
                    self.frozen_at = self.outside
                case FreezeReaders():
                    for link in self.links:
                        link.append(command)
                case AssignSplits():
                    self.links[command.index].extend(command.splits)
                case SourceIdle():
                    assert not any(self.readers)
                    assert not any(link for link in self.links), "nothing is on its way"
                    assert sorted(self.read) == sorted({f"s{n}" for n in range(self.machine._state or 0)})
                    assert self.drain or command.watermark_us != END_OF_TIME_US
                case NoMoreSplits():
                    assert not self.ended, "said once"
                    there = self.outside if self.frozen_at is None else self.frozen_at
                    assert self.machine.capture().manifest.drained == self.drain
                    restored = self.drain and self.frozen_at is None
                    assert restored or len(self.read) == there, "everything is read"
                    assert self.machine.is_idle, "behind the last rise of event time"
                    self.ended = True

    def has_waiting_reader(self) -> bool:
        return any(reader.requests for reader in self.machine._readers)

    @rule(number=st.integers(1, 7))
    def outside_grows(self, number: int) -> None:
        self.outside += 0 if self.closed else number

    @rule(indeed=st.sampled_from([False, False, True]))
    def outside_closes(self, indeed: bool) -> None:
        self.closed = self.closed or indeed

    @precondition(lambda self: self.machine.can_drain)
    @rule(drain=st.booleans(), indeed=st.sampled_from([False, False, True]))
    def freezes(self, drain: bool, indeed: bool) -> None:
        if indeed:
            self.drain = self.drain or drain
            self.carry_out(self.machine.handle(Freeze(drain), self.now))

    @rule(step=st.integers(1, 300))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.carry_out(self.machine.handle(Tick(), self.now))

    @precondition(lambda self: self.look is not None)
    @rule()
    def look_ends(self) -> None:
        assert self.look is not None
        state = (self.look.state or 0) + len(self.look_found)
        found, self.look = self.look_found, None
        self.carry_out(
            self.machine.handle(SplitsFound(1, VERTEX, Discovery(found, state, self.look_was_last)), self.now)
        )

    @rule(index=st.integers(0, PARALLELISM - 1))
    def reader_reports(self, index: int) -> None:
        unread, received = len(self.readers[index]), self.received[index]
        status = ReaderStatus(VERTEX, index, unread, received, frozen=self.frozen[index])
        self.carry_out(self.machine.handle(status, self.now))

    @rule(index=st.integers(0, PARALLELISM - 1))
    def reader_asks(self, index: int) -> None:
        self.reader_reports(index)
        self.carry_out(self.machine.handle(RequestSplit(VERTEX, index, self.frozen[index]), self.now))

    @rule(index=st.integers(0, PARALLELISM - 1))
    def reader_receives(self, index: int) -> None:
        if self.links[index]:
            message = self.links[index].pop(0)
            if isinstance(message, Split):
                self.readers[index].append(message)
                self.received[index] += 1
            else:
                self.frozen[index] = True

    @rule(index=st.integers(0, PARALLELISM - 1))
    def reader_reads(self, index: int) -> None:
        if self.readers[index]:
            self.read.append(self.readers[index].pop(0).split_id)

    @rule(index=st.integers(0, PARALLELISM - 1), watermark_us=st.none() | st.integers(0, 5))
    def reader_progresses(self, index: int, watermark_us: int | None) -> None:
        self.carry_out(self.machine.handle(ReaderProgressed(VERTEX, index, watermark_us), self.now))
        known_us = [us for us in (self.machine.readers[index].watermark_us, watermark_us) if us is not None]
        assert self.machine.readers[index].watermark_us == max(known_us, default=None)

    @rule()
    def capture(self) -> None:
        held = [
            s
            for link, reader in zip(self.links, self.readers, strict=True)
            for s in [*reader, *link]
            if isinstance(s, Split)
        ]
        self.saved = (self.machine.capture().manifest, held, list(self.read))

    @precondition(lambda self: self.saved is not None)
    @rule()
    def restore(self) -> None:
        assert self.saved is not None
        manifest, held, self.read = self.saved[0], list(self.saved[1]), list(self.saved[2])
        self.machine = self.assigner(manifest)
        self.look = None
        self.ended = False
        self.drain = manifest.drained
        self.frozen_at = None
        self.frozen = [False] * self.PARALLELISM
        self.links = [[] for _ in range(self.PARALLELISM)]
        self.readers = [held[index :: self.PARALLELISM] for index in range(self.PARALLELISM)]
        self.received = [0] * self.PARALLELISM
        self.carry_out(self.machine.handle(AllSlotsRunning(1), self.now))

    @invariant()
    def a_finished_source_that_is_read_has_ended(self) -> None:
        if self.machine.finished and self.machine.readers_idle:
            assert self.ended

    @invariant()
    def every_split_has_one_owner(self) -> None:
        self.machine.check_invariants()
        pending = self.machine.capture().manifest.pending
        everywhere = [s.split_id for s in pending] + self.read
        everywhere += [s.split_id for part in [*self.links, *self.readers] for s in part if isinstance(s, Split)]
        assert sorted(everywhere) == sorted(f"s{n}" for n in range(self.machine._state or 0))


SplitWorld.TestCase.settings = settings(max_examples=some(100), stateful_step_count=50, deadline=None)
TestSplitWorld = SplitWorld.TestCase


class AskedWorld(SplitWorld):
    """Nobody looks ahead."""

    DISCOVERS_AHEAD = False


AskedWorld.TestCase.settings = SplitWorld.TestCase.settings
TestAskedWorld = AskedWorld.TestCase
