"""Finished discoveries, finished subtasks, the final checkpoint and the end of the query."""

from __future__ import annotations

from penstock.connectors.base import Split
from penstock.ids import SubtaskId
from penstock.protocol.ending import FINAL_RETRY_MS, Ending
from penstock.protocol.splits import (
    Assign,
    Command,
    Discover,
    Discovered,
    Dry,
    Ended,
    LookAround,
    Progressed,
    Requested,
    SplitAssigner,
)

VERTEX = 0


def split(number: int) -> Split:
    return Split(f"s{number}", {"n": number})


def after_a_last_look(parallelism: int, *splits: Split) -> SplitAssigner:
    """An assigner whose first look found these and nothing else for ever."""
    machine = SplitAssigner("source-1", VERTEX, parallelism)
    assert machine.handle(LookAround(), 0) == [Discover(VERTEX, None)]
    assert machine.handle(Discovered(splits, "all", finished=True), 1) == []
    return machine


def test_a_finished_source_ends_when_everything_was_handed_out_and_read() -> None:
    machine = after_a_last_look(2, split(1), split(2), split(3))
    assert machine.handle(Requested(0, 0, None), 2) == [Assign(VERTEX, 0, (split(1),))]
    assert machine.handle(Requested(1, 0, None), 3) == [Assign(VERTEX, 1, (split(2),))]
    assert machine.handle(Requested(0, 0, 700), 4) == [Assign(VERTEX, 0, (split(3),))]
    assert machine.handle(Requested(1, 0, 900), 5) == [], "reader 0 still reads"
    assert machine.handle(Requested(0, 0, 800), 6) == [Dry(VERTEX, 900), Ended(VERTEX)], "event time rises first"
    assert machine.dry
    machine.check_invariants()


def test_nobody_looks_for_more_and_the_end_is_said_once() -> None:
    machine = after_a_last_look(1, split(1))
    assert machine.next_wake_ms() is None
    machine.handle(Requested(0, 0, None), 2)
    assert machine.handle(LookAround(), 100_000) == []
    assert machine.handle(Requested(0, 0, 5), 100_001) == [Dry(VERTEX, 5), Ended(VERTEX)]
    assert machine.handle(LookAround(), 200_000) == []
    assert machine.handle(Progressed(0, 5), 200_001) == []
    assert machine.next_wake_ms() is None


def test_a_source_without_anything_ends_when_its_readers_ask() -> None:
    machine = after_a_last_look(2)
    assert machine.handle(Requested(0, 0, None), 2) == []
    assert machine.handle(Requested(1, 0, None), 3) == [Dry(VERTEX, None), Ended(VERTEX)]


def test_a_source_that_was_dry_before_its_last_look_only_ends() -> None:
    machine = SplitAssigner("source-1", VERTEX, 1)
    machine.handle(Requested(0, 0, 5), 0)
    assert machine.handle(Discovered((), 1), 1) == [Dry(VERTEX, 5)]
    assert machine.handle(LookAround(), 500) == [Discover(VERTEX, 1)]
    assert machine.handle(Discovered((), 1, finished=True), 501) == [Ended(VERTEX)]


def test_a_reader_of_an_endless_split_that_reads_on_makes_dry_possible_again() -> None:
    machine = after_a_last_look(1, split(1))
    machine.handle(Requested(0, 0, None), 2)
    assert machine.handle(Requested(0, 0, 5), 3) == [Dry(VERTEX, 5), Ended(VERTEX)], "idle, though its split never ends"
    assert machine.handle(Requested(0, 1, 5), 4) == []
    assert not machine.dry
    assert machine.handle(Requested(0, 0, 9), 5) == [Dry(VERTEX, 9)]


def test_a_restored_assigner_whose_discovery_was_finished_hands_out_the_rest_and_ends_again() -> None:
    machine = after_a_last_look(2, split(1), split(2))
    machine.handle(Requested(0, 0, None), 2)
    manifest = machine.capture().manifest
    assert manifest.finished
    restored = SplitAssigner("source-1", VERTEX, 2, manifest, ["s1"])
    assert restored.next_wake_ms() is None
    assert restored.handle(LookAround(), 10_000) == []
    assert restored.handle(Requested(1, 0, None), 10_001) == [Assign(VERTEX, 1, (split(2),))]
    assert restored.handle(Requested(0, 0, 3), 10_002) == []
    ended: list[Command] = [Dry(VERTEX, 4), Ended(VERTEX)]
    assert restored.handle(Requested(1, 0, 4), 10_003) == ended
    assert restored.capture().manifest.finished


def test_an_older_snapshot_that_completes_late_tells_the_source_nothing() -> None:
    machine = SplitAssigner("source-1", VERTEX, 1)
    machine.handle(LookAround(), 0)
    machine.handle(Discovered([split(1)], "after 1"), 1)
    older = machine.capture()
    machine.handle(LookAround(), 100)
    machine.handle(Discovered([split(2)], "after 2"), 101)
    newer = machine.capture()
    assert machine.settled(newer.looks[-1])
    assert not machine.settled(older.looks[-1])
    assert not machine.settled(newer.looks[-1])
    assert machine.capture().looks == ()


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
