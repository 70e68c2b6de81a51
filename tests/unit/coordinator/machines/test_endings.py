"""Finished discoveries, finished subtasks, the final checkpoint and the end of the query."""

from __future__ import annotations

from penstock.coordinator.machines.checkpoint_events import AllSlotsRunning, Tick
from penstock.coordinator.machines.endings import FINAL_RETRY_MS, Ending
from penstock.coordinator.machines.splits import (
    EMPTY_DISCOVERY_PAUSE_MS,
    Discover,
    Freeze,
    FreezeSource,
    SplitAssigner,
    SplitCommand,
    SplitsFound,
)
from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.model.ids import SubtaskId
from penstock.model.messages import AssignSplits, FreezeReaders, NoMoreSplits, ReaderProgressed, SourceIdle
from penstock.model.splits import Discovery, Split
from tests.support.coordinator.coordinator_kit import ask

VERTEX = 0


def split(number: int) -> Split:
    return Split(f"s{number}", {"n": number})


def after_a_last_look(parallelism: int, *splits: Split) -> SplitAssigner:
    """An assigner whose first look found these and nothing else for ever."""
    machine = SplitAssigner(1, "source-1", VERTEX, parallelism)
    assert machine.handle(Tick(), 0) == [Discover(1, VERTEX, None)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery(splits, "all", finished=True)), 1) == []
    return machine


def test_a_finished_source_ends_when_everything_was_handed_out_and_read() -> None:
    machine = after_a_last_look(2, split(1), split(2), split(3))
    assert ask(machine, 0, 2) == [AssignSplits(VERTEX, 0, (split(1),))]
    assert ask(machine, 1, 3) == [AssignSplits(VERTEX, 1, (split(2),))]
    assert ask(machine, 0, 4, seen_us=700) == [AssignSplits(VERTEX, 0, (split(3),))]
    assert ask(machine, 1, 5, seen_us=900) == [], "reader 0 still reads"
    assert ask(machine, 0, 6, seen_us=800) == [SourceIdle(VERTEX, 900), NoMoreSplits(VERTEX)], "event time rises first"
    assert machine.is_idle
    machine.check_invariants()


def test_nobody_looks_for_more_and_the_end_is_said_once() -> None:
    machine = after_a_last_look(1, split(1))
    assert machine.next_wake_ms() is None
    ask(machine, 0, 2)
    assert machine.handle(Tick(), 100_000) == []
    assert ask(machine, 0, 100_001, seen_us=5) == [SourceIdle(VERTEX, 5), NoMoreSplits(VERTEX)]
    assert machine.handle(Tick(), 200_000) == []
    assert machine.handle(ReaderProgressed(VERTEX, 0, 5), 200_001) == []
    assert machine.next_wake_ms() is None


def test_a_source_without_anything_ends_when_its_readers_ask() -> None:
    machine = after_a_last_look(2)
    assert ask(machine, 0, 2) == []
    nothing: list[SplitCommand] = [SourceIdle(VERTEX, START_OF_TIME_US), NoMoreSplits(VERTEX)]
    assert ask(machine, 1, 3) == nothing, "no other source may go ahead of it"


def test_a_source_that_was_dry_before_its_last_look_only_ends() -> None:
    machine = SplitAssigner(1, "source-1", VERTEX, 1)
    ask(machine, 0, 0, seen_us=5)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 1)), 1) == [SourceIdle(VERTEX, 5)]
    assert machine.handle(Tick(), 500) == [Discover(1, VERTEX, 1)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 1, finished=True)), 501) == [NoMoreSplits(VERTEX)]


def test_a_reader_of_an_endless_split_that_reads_on_makes_dry_possible_again() -> None:
    machine = after_a_last_look(1, split(1))
    ask(machine, 0, 2)
    assert ask(machine, 0, 3, seen_us=5) == [SourceIdle(VERTEX, 5), NoMoreSplits(VERTEX)], (
        "idle, though its split never ends"
    )
    assert ask(machine, 0, 4, unread=1, seen_us=5) == []
    assert not machine.is_idle
    assert ask(machine, 0, 5, seen_us=9) == [SourceIdle(VERTEX, 9)]


def test_a_restored_assigner_looks_again_although_its_discovery_was_finished() -> None:
    machine = after_a_last_look(2, split(1), split(2))
    ask(machine, 0, 2)
    restored = SplitAssigner(1, "source-1", VERTEX, 2, machine.capture().manifest, ["s1"])
    assert not restored.finished
    assert restored.handle(Tick(), 10_000) == [Discover(1, VERTEX, "all")]
    assert ask(restored, 1, 10_001) == [AssignSplits(VERTEX, 1, (split(2),))]
    assert ask(restored, 0, 10_002, seen_us=3) == []
    assert ask(restored, 1, 10_003, seen_us=4) == []
    ended: list[SplitCommand] = [SourceIdle(VERTEX, 4), NoMoreSplits(VERTEX)]
    assert restored.handle(SplitsFound(1, VERTEX, Discovery((), "all", finished=True)), 10_004) == ended


# -- freezing and draining --------------------------------------------------------------------------------------------


def frozen(parallelism: int, *, drain: bool = False) -> SplitAssigner:
    """An assigner that was frozen before its first look; its readers run."""
    machine = SplitAssigner(1, "source-1", VERTEX, parallelism)
    assert machine.handle(Freeze(drain), 0) == [FreezeSource(1, VERTEX), Discover(1, VERTEX, None)]
    assert machine.handle(AllSlotsRunning(1), 1) == [FreezeReaders(VERTEX)]
    return machine


def test_a_source_is_frozen_before_the_look_that_follows_and_its_readers_when_they_run() -> None:
    machine = frozen(1)
    assert ask(machine, 0, 2, frozen=True) == []
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], 1, finished=True)), 3) == [
        AssignSplits(VERTEX, 0, (split(1),))
    ]
    assert ask(machine, 0, 4, seen_us=5, frozen=True) == [
        SourceIdle(VERTEX, 5),
        NoMoreSplits(VERTEX),
    ]
    assert not machine.capture().manifest.drained


def test_a_look_that_was_out_when_the_source_was_frozen_is_not_the_last() -> None:
    machine = SplitAssigner(1, "source-1", VERTEX, 1)
    machine.handle(Tick(), 0)
    machine.handle(AllSlotsRunning(1), 1)
    assert machine.handle(Freeze(), 2) == [FreezeSource(1, VERTEX), FreezeReaders(VERTEX)]
    ask(machine, 0, 3, frozen=True)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 0)), 4) == [], "it began before"
    assert machine.handle(Tick(), 4 + EMPTY_DISCOVERY_PAUSE_MS) == [Discover(1, VERTEX, 0)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 0, finished=True)), 200) == [
        SourceIdle(VERTEX, START_OF_TIME_US),
        NoMoreSplits(VERTEX),
    ]


def test_what_a_reader_asked_before_it_was_frozen_is_void() -> None:
    """It called itself idle in front of an endless split, or on its way to one; there may be rows now."""
    machine = SplitAssigner(1, "source-1", VERTEX, 1)
    ask(machine, 0, 0, seen_us=5)
    machine.handle(AllSlotsRunning(1), 0)
    machine.handle(SplitsFound(1, VERTEX, Discovery((), 1)), 1)
    assert machine.is_idle
    machine.handle(Freeze(drain=True), 2)
    assert not machine.is_idle
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 1, finished=True)), 3) == [], (
        "the reader has not answered"
    )
    assert ask(machine, 0, 4, seen_us=5) == [], "said before it heard of the freeze"
    machine.check_invariants()
    assert ask(machine, 0, 5, seen_us=9, frozen=True) == [
        SourceIdle(VERTEX, END_OF_TIME_US),
        NoMoreSplits(VERTEX),
    ]


def test_no_split_is_given_for_a_void_request() -> None:
    machine = frozen(1)
    ask(machine, 0, 2)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], 1)), 3) == []
    assert ask(machine, 0, 4, frozen=True) == [AssignSplits(VERTEX, 0, (split(1),))]


def test_a_drained_source_ends_event_time_and_its_captures_say_so_from_then_on() -> None:
    machine = frozen(1, drain=True)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], 1, finished=True)), 2)
    ask(machine, 0, 3, frozen=True)
    assert not machine.capture().manifest.drained
    assert ask(machine, 0, 4, seen_us=7, frozen=True) == [
        SourceIdle(VERTEX, END_OF_TIME_US),
        NoMoreSplits(VERTEX),
    ]
    manifest = machine.capture().manifest
    assert manifest.drained
    restored = SplitAssigner(1, "source-1", VERTEX, 1, manifest)
    assert restored.handle(Freeze(drain=True), 0) == [], "nothing to be frozen, and no look"
    assert restored.handle(AllSlotsRunning(1), 1) == [FreezeReaders(VERTEX)]
    assert restored.handle(Tick(), 10_000) == []
    ended: list[SplitCommand] = [SourceIdle(VERTEX, END_OF_TIME_US), NoMoreSplits(VERTEX)]
    assert ask(restored, 0, 10_001, frozen=True) == ended


def test_a_frozen_source_that_stood_dry_still_ends_event_time_when_it_is_drained() -> None:
    machine = frozen(1)
    assert machine.handle(Freeze(drain=True), 2) == [], "frozen once"
    ask(machine, 0, 3, seen_us=5, frozen=True)
    machine.handle(SplitsFound(1, VERTEX, Discovery((), 0)), 4)
    machine.handle(Tick(), 500)
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 0)), 501) == [SourceIdle(VERTEX, 5)], (
        "there may be more to be found"
    )
    machine.handle(Tick(), 1000)
    ended: list[SplitCommand] = [SourceIdle(VERTEX, END_OF_TIME_US), NoMoreSplits(VERTEX)]
    assert machine.handle(SplitsFound(1, VERTEX, Discovery((), 0, finished=True)), 1001) == ended
    machine.check_invariants()


def test_a_source_that_has_ended_cannot_be_drained() -> None:
    machine = after_a_last_look(1)
    assert machine.can_drain
    ask(machine, 0, 2)
    assert not machine.can_drain


def test_an_older_snapshot_that_completes_late_tells_the_source_nothing() -> None:
    machine = SplitAssigner(1, "source-1", VERTEX, 1)
    machine.handle(Tick(), 0)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(1)], "after 1")), 1)
    older = machine.capture()
    machine.handle(Tick(), 100)
    machine.handle(SplitsFound(1, VERTEX, Discovery([split(2)], "after 2")), 101)
    newer = machine.capture()
    assert machine.mark_read(newer.discoveries[-1])
    assert not machine.mark_read(older.discoveries[-1])
    assert not machine.mark_read(newer.discoveries[-1])
    assert machine.capture().discoveries == ()


# -- the final checkpoint ---------------------------------------------------------------------------------------------

A, B = SubtaskId(0, 0), SubtaskId(1, 0)


def finished(now_ms: float = 100) -> Ending:
    """Two subtasks, both finished; the next checkpoint would be 7."""
    machine = Ending(2)
    machine.subtask_finished(A, 5, now_ms)
    assert machine.ask(now_ms) is None
    machine.subtask_finished(A, 6, now_ms)
    assert machine.finished == 1
    machine.subtask_finished(B, 7, now_ms)
    machine.check_invariants()
    return machine


def test_the_final_checkpoint_is_asked_for_once_and_the_query_is_over_when_it_is_committed() -> None:
    machine = finished()
    assert machine.next_wake_ms() == 100
    assert machine.ask(100) == -1
    assert machine.ask(101) is None
    machine.completed(7)
    assert machine.next_wake_ms() is None
    assert not machine.over(6)
    assert machine.over(7)
    assert not machine.over(8), "said once"


def test_a_checkpoint_that_was_triggered_before_the_last_end_is_not_final() -> None:
    machine = finished()
    machine.completed(6)
    assert not machine.over(6)
    assert machine.ask(100) == -1
    machine.completed(8)  # a periodic one, triggered afterwards, serves as well
    assert machine.over(8)


def test_a_final_checkpoint_that_fails_is_asked_for_again_after_a_pause() -> None:
    machine = finished()
    assert machine.ask(100) == -1
    machine.refused(-1)
    assert machine.ask(200) is None
    assert machine.next_wake_ms() == 200 + FINAL_RETRY_MS
    assert machine.ask(199 + FINAL_RETRY_MS) is None
    assert machine.ask(200 + FINAL_RETRY_MS) == -2
    machine.refused(-1)
    assert machine.ask(10_000) is None, "that was the first one"


def test_a_lost_generation_begins_all_over() -> None:
    machine = finished()
    machine.ask(100)
    machine.completed(7)
    machine.generation_ended()
    assert not machine.over(7)
    machine.subtask_finished(A, 8, 200)
    assert machine.ask(200) is None
    machine.subtask_finished(B, 8, 300)
    assert machine.ask(300) == -2
    machine.completed(8)
    assert machine.over(8)
