"""The two limits on what is captured, what waits for a trigger, and what becomes of queued parts at the end."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.config import OPTION_NAMES
from penstock.model.elements import Captured, Side
from penstock.model.ids import ChannelId, SubtaskId
from penstock.operators.base import OperatorState
from penstock.snapshots.writing.capture_queue import (
    MAX_REMEMBERED,
    BeginCheckpoint,
    CaptureLimits,
    CaptureQueue,
    EndCheckpoint,
    RecordedRows,
    ReleaseState,
    WriterTask,
)
from penstock.snapshots.writing.handover import SubtaskCapture
from penstock.state.stored_form import BatchCapture
from tests.support.snapshots.snapshot_kit import COUNT, capture, captured, rows, state

CHANNEL = ChannelId(0, 0, 0)
ONE = SubtaskId(1, 0)
PART = rows(*range(10)).nbytes
PLENTY = 1 << 30


def inflight(seq: int = 0, offset: int = 0) -> list[Captured]:
    return [captured(CHANNEL, Side.CONSUMER, seq, rows(*range(10)), offset=offset)]


class Table(BatchCapture):
    """Knows how often it was released."""

    released = 0

    def __init__(self) -> None:
        super().__init__(state(1))

    def release(self) -> None:
        self.released += 1


def with_table(checkpoint: int, recorded: list[Captured] | None = None) -> tuple[SubtaskCapture, Table]:
    table = Table()
    operators = {COUNT: OperatorState({"counts": table})}
    return capture(1, 0, checkpoint, inflight=recorded, operators=operators), table


def do(work: WriterTask | None) -> None:
    """Act like a writer with state."""
    match work:
        case SubtaskCapture():
            work.release()
        case ReleaseState(states):
            for one in states:
                one.release()


def part(checkpoint: int, seq: int = 0, offset: int = 0) -> RecordedRows:
    return RecordedRows(ONE, checkpoint, inflight(seq, offset))


def test_the_reason_names_an_option_that_exists() -> None:
    assert "checkpoint.captureMemory" in OPTION_NAMES
    queue = CaptureQueue(CaptureLimits(None, PART))
    assert queue.offer(part(1)) is None, "the limit itself is allowed"
    reason = queue.offer(part(1, seq=1, offset=9))
    assert reason is not None
    assert f"spark.penstock.checkpoint.captureMemory={PART}" in reason
    assert len(queue) == 1, "what is refused is not kept"


def test_the_memory_limit_counts_what_waits_of_all_checkpoints() -> None:
    queue = CaptureQueue(CaptureLimits(None, 2 * PART))
    assert queue.offer(part(1)) is None
    assert queue.offer(part(2)) is None
    assert "captureMemory" in str(queue.offer(part(3)))
    assert queue.take() == part(1)
    assert queue.held_bytes == 2 * PART, "it is held while it is written"
    queue.written()
    assert queue.held_bytes == PART


def test_a_checkpoint_may_have_so_many_bytes_in_flight_and_no_more() -> None:
    queue = CaptureQueue(CaptureLimits(2 * PART, PLENTY))
    assert queue.allow(1, PART)
    assert not queue.allow(1, PART + 1), "what is not allowed is not taken"
    assert queue.allow(1, PART), "the limit itself is allowed"
    assert not queue.allow(1, 1)
    assert queue.allow(1, 0)
    assert queue.allow(2, 2 * PART), "each checkpoint has the whole limit"
    queue.end(1)
    assert queue.allow(1, PLENTY), "a dead one is not kept waiting"
    assert CaptureQueue(CaptureLimits(None, PLENTY)).allow(1, 1 << 60)


def test_an_ended_checkpoint_drops_what_waits_and_the_writer_hears_of_it_first() -> None:
    queue = CaptureQueue(CaptureLimits(None, 3 * PART))
    queue.triggered(1, 0)
    for checkpoint in (1, 2, 1):
        assert queue.offer(part(checkpoint, seq=checkpoint)) is None
    assert queue.end(1)
    assert queue.held_bytes == PART
    assert not queue.end(1), "once is enough"
    assert queue.offer(part(1)) is None, "late ones are dropped"
    queue.triggered(1, 0)
    assert [queue.take(), queue.take(), queue.take()] == [EndCheckpoint(1), part(2, seq=2), None]


def test_what_is_being_written_when_its_checkpoint_ends_is_held_until_it_is_written() -> None:
    queue = CaptureQueue(CaptureLimits(None, PART))
    queue.offer(part(1))
    queue.take()
    queue.end(1)
    assert queue.held_bytes == PART
    assert "captureMemory" in str(queue.offer(part(2)))
    queue.written()
    assert queue.offer(part(2)) is None


def test_a_checkpoint_is_finished_or_ended_but_answered_once() -> None:
    queue = CaptureQueue(CaptureLimits(None, PLENTY))
    queue.triggered(1, 0)
    assert queue.take() == BeginCheckpoint(1, 0)
    assert queue.finish(1)
    assert not queue.finish(1)
    assert not queue.end(1), "no decline after the acknowledgement"
    assert queue.take() == EndCheckpoint(1), "but its index is of no use any more"
    queue.end(2)
    assert not queue.finish(2)


def test_a_capture_counts_its_rows_and_not_its_state() -> None:
    queue = CaptureQueue(CaptureLimits(None, PART))
    assert queue.offer(capture(1, 0, 1, inflight=inflight(offset=5))) is None
    assert queue.held_bytes == inflight(offset=5)[0].cost == PART // 2


def test_a_capture_waits_for_its_trigger_and_rows_do_not() -> None:
    queue = CaptureQueue(CaptureLimits(None, 3 * PART))
    early, _ = with_table(2, inflight(0))
    assert queue.offer(early) is None
    assert queue.offer(part(2, seq=1)) is None
    assert queue.held_bytes == 2 * PART
    assert [queue.take(), queue.take()] == [part(2, seq=1), None]
    queue.written()
    queue.triggered(2, 1)
    later, _ = with_table(2)
    assert queue.offer(later) is None
    assert [queue.take(), queue.take(), queue.take(), queue.take()] == [BeginCheckpoint(2, 1), early, later, None]
    queue.written()
    assert queue.held_bytes == 0


@pytest.mark.parametrize("when", ["waits for its trigger", "waits", "comes late", "is refused", "was not offered"])
def test_state_that_is_dropped_is_handed_on_to_be_released(when: str) -> None:
    queue = CaptureQueue(CaptureLimits(None, PART))
    one, table = with_table(1, inflight() * (2 if when == "is refused" else 1))
    match when:
        case "waits for its trigger" | "waits":
            if when == "waits":
                queue.triggered(1, 0)
            queue.offer(one)
            queue.end(1)
        case "comes late":
            queue.end(1)
            queue.offer(one)
        case "is refused":
            assert queue.offer(one) is not None
            queue.end(1)
        case "was not offered":
            queue.drop([OperatorState()])
            queue.drop(list(one.operators.values()))
    works = [queue.take() for _ in range(4)]
    assert works.count(None) >= 2, "without a table there is nothing to release"
    assert not any(isinstance(work, SubtaskCapture) for work in works)
    assert table.released == 0, "not here"
    for work in works:
        do(work)
    assert table.released == 1
    queue.written()
    assert queue.held_bytes == 0


def test_what_nobody_writes_any_more_is_left_to_be_released() -> None:
    queue = CaptureQueue(CaptureLimits(None, PLENTY))
    tables = []
    for checkpoint in (1, 2, 3):
        one, table = with_table(checkpoint, inflight())
        tables.append(table)
        queue.offer(one)
    queue.triggered(2, 0)
    queue.end(3)
    for states in [*queue.remaining_states(), *queue.remaining_states()]:
        for one_state in states:
            one_state.release()
    assert [table.released for table in tables] == [1, 1, 1]
    assert len(queue) == 0
    assert queue.held_bytes == 0


class QueueRules(RuleBasedStateMachine):
    """Any order of calls: the ledger is right, and nothing of a dead checkpoint is kept or handed on."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = CaptureQueue(CaptureLimits(6 * PART, 4 * PART))
        self.allowed: Counter[int] = Counter()
        self.over: set[int] = set()
        self.triggered: set[int] = set()
        self.tables: list[Table] = []
        self.seq = 0

    @rule(checkpoint=st.integers(1, 5), offset=st.integers(0, 9), last=st.booleans())
    def offer(self, checkpoint: int, offset: int, last: bool) -> None:
        self.seq += 1
        recorded = inflight(self.seq, offset)
        waiting, held = len(self.queue), self.queue.held_bytes
        work: SubtaskCapture | RecordedRows = RecordedRows(ONE, checkpoint, recorded)
        if last:
            work, table = with_table(checkpoint, recorded)
            self.tables.append(table)
        refused = self.queue.offer(work)
        if refused is not None or checkpoint in self.over:
            assert (len(self.queue), self.queue.held_bytes) == (waiting + last, held), "only its state is left"
        else:
            assert self.queue.held_bytes == held + recorded[0].cost
            assert len(self.queue) == waiting + (not last or checkpoint in self.triggered)

    @rule(checkpoint=st.integers(1, 5), size=st.integers(0, 4 * PART))
    def allow(self, checkpoint: int, size: int) -> None:
        fits = checkpoint in self.over or self.allowed[checkpoint] + size <= 6 * PART
        assert self.queue.allow(checkpoint, size) == fits
        self.allowed[checkpoint] += size if fits else 0

    @rule(checkpoint=st.integers(1, 5))
    def trigger(self, checkpoint: int) -> None:
        self.queue.triggered(checkpoint, 0)
        self.triggered.add(checkpoint)

    @rule()
    def write(self) -> None:
        work = self.queue.take()
        assert not isinstance(work, SubtaskCapture) or work.checkpoint in self.triggered
        do(work)
        assert not isinstance(work, RecordedRows | SubtaskCapture | BeginCheckpoint) or work.checkpoint not in self.over
        self.queue.written()

    @rule(checkpoint=st.integers(1, 5))
    def end(self, checkpoint: int) -> None:
        assert self.queue.end(checkpoint) == (checkpoint not in self.over)
        self.over.add(checkpoint)

    @rule(checkpoint=st.integers(1, 5))
    def finish(self, checkpoint: int) -> None:
        if not self.queue_holds(checkpoint):
            assert self.queue.finish(checkpoint) == (checkpoint not in self.over)
            self.over.add(checkpoint)

    def queue_holds(self, checkpoint: int) -> bool:
        works = [work for work, _ in self.queue._tasks if not isinstance(work, ReleaseState)]
        return checkpoint in self.queue._early or any(work.checkpoint == checkpoint for work in works)

    def teardown(self) -> None:
        for states in self.queue.remaining_states():
            do(ReleaseState(states))
        assert all(table.released == 1 for table in self.tables), "each is released once"

    @invariant()
    def holds(self) -> None:
        self.queue.check_invariants()


TestQueueRules = QueueRules.TestCase


def test_the_memory_of_ends_is_bounded() -> None:
    queue = CaptureQueue(CaptureLimits(None, PLENTY))
    for checkpoint in range(3 * MAX_REMEMBERED):
        queue.end(checkpoint)
        queue.take()
        queue.check_invariants()
    assert queue.offer(part(3 * MAX_REMEMBERED - 1)) is None
    assert len(queue) == 0
