"""The upload thread beside a store that is slow, stuck or broken: what it holds, whom it answers, what it leaves."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.model.elements import Captured, Side
from penstock.model.ids import ChannelId, SubtaskId
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint
from penstock.operators.base import OperatorState
from penstock.snapshots.format.sections import data_path, state_path
from penstock.snapshots.restoring.restore import load_inflight, load_restore
from penstock.snapshots.store.store import Effect, LocalStore, MemoryStore, Store
from penstock.snapshots.writing.capture_queue import CaptureLimits
from penstock.state.stored_form import BatchCapture
from penstock.worker.checkpoint_uploader import CheckpointUploader
from simulator.jobs.count_table import CountTable
from simulator.jobs.rows import state_schema
from tests.support.snapshots.snapshot_kit import COUNT, capture, captured, graph, rows, state

CHANNEL = ChannelId(0, 0, 0)
SOURCE, ONE = SubtaskId(0, 0), SubtaskId(1, 0)
PART = rows(*range(10, 20)).nbytes
PATIENCE_S = 10.0
NO_LIMITS = CaptureLimits(None, 1 << 30)


def part(seq: int) -> list[Captured]:
    return [captured(CHANNEL, Side.CONSUMER, seq, rows(*range(10 * seq + 10, 10 * seq + 20)))]


def file_of(checkpoint: int) -> str:
    return data_path(1, checkpoint, 0)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


@dataclass
class Gate:
    """A store's hook: writes to files of these checkpoints (or their closing) wait until it is opened."""

    operation: str = "write"
    blocked: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def __call__(self, effect: Effect) -> None:
        if effect.operation == self.operation and not self.opened.is_set():
            self.blocked.set()
            assert self.opened.wait(PATIENCE_S)


class Bench:
    """An uploader whose answers are kept."""

    def __init__(self, store: Store, limits: CaptureLimits) -> None:
        self.answers: list[AcknowledgeCheckpoint | DeclineCheckpoint] = []
        self.crashes: list[BaseException] = []
        self.uploader = CheckpointUploader(store, graph(), 1, 0, limits, self.answers.append, self.crashes.append)

    def whole(self, checkpoint: int, *seqs: int, base: int = 0) -> None:
        """All of a checkpoint, in as many parts as there are sequence numbers."""
        self.uploader.triggered(checkpoint, base)
        for seq in seqs:
            self.uploader.recorded(ONE, checkpoint, part(seq))
        self.uploader.captured(capture(0, 0, checkpoint))
        self.uploader.captured(capture(1, 0, checkpoint))

    def answer(self, number: int = 0) -> AcknowledgeCheckpoint | DeclineCheckpoint:
        until(lambda: len(self.answers) > number)
        return self.answers[number]


@contextmanager
def bench(store: Store, limits: CaptureLimits = NO_LIMITS) -> Iterator[Bench]:
    made = Bench(store, limits)
    made.uploader.thread.start()
    try:
        yield made
    finally:
        if isinstance(store, MemoryStore) and isinstance(store.hook, Gate):
            store.hook.opened.set()
        made.uploader.stop()
        made.uploader.thread.join(PATIENCE_S)
    assert not made.uploader.thread.is_alive()
    assert made.crashes == []


def test_parts_are_written_while_the_checkpoint_is_recorded(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with bench(store) as made:
        made.uploader.triggered(1, 0)
        made.uploader.recorded(ONE, 1, part(0))
        until(lambda: bool(store.size(file_of(1))) and made.uploader.held_bytes == 0)
        made.uploader.recorded(ONE, 1, part(1))
        made.uploader.captured(capture(0, 0, 1))
        assert made.answers == []
        made.uploader.captured(capture(1, 0, 1, inflight=part(2)))
        answer = made.answer()
    assert isinstance(answer, AcknowledgeCheckpoint)
    entries = answer.manifest.subtasks[1].inflight
    found = [key for e in entries for batch in load_inflight(store, e) for key in batch.column(0).to_pylist()]
    assert found == list(range(10, 40))
    assert answer.manifest.metrics[1].async_ms > 0
    assert store.list("data") == [file_of(1)]


def test_the_second_checkpoint_of_a_stuck_queue_writes_no_in_flight_rows() -> None:
    store = MemoryStore()
    with bench(store) as made:
        made.whole(1, 0, 1, 2)
        first = made.answer()
        written = dict(store.files)
        made.whole(2, 0, 1, 2, base=1)
        second = made.answer(1)
        made.whole(3, 0, 1, 2)
        third = made.answer(2)
    assert isinstance(first, AcknowledgeCheckpoint)
    assert isinstance(second, AcknowledgeCheckpoint)
    assert isinstance(third, AcknowledgeCheckpoint)
    assert written == {path: data for path, data in store.files.items() if path != file_of(3)}
    assert second.manifest.subtasks == first.manifest.subtasks
    assert second.manifest.metrics[1].inflight_persisted_bytes == 0 < second.manifest.metrics[1].inflight_bytes
    assert third.manifest.metrics[1].inflight_persisted_bytes > 0, "without a base everything is written"


def test_the_decline_for_memory_comes_at_once_and_not_behind_a_stuck_store() -> None:
    store, gate = MemoryStore(), Gate()
    store.hook = gate
    with bench(store, CaptureLimits(None, 3 * PART)) as made:
        made.uploader.recorded(ONE, 1, part(0))
        assert gate.blocked.wait(PATIENCE_S)
        for seq in (1, 2):
            made.uploader.recorded(ONE, 1, part(seq))
        assert made.uploader.held_bytes == 3 * PART
        assert made.answers == []
        made.uploader.recorded(SOURCE, 2, part(3))
        (decline,) = made.answers
        assert isinstance(decline, DeclineCheckpoint)
        assert (decline.slot, decline.checkpoint) == (0, 2)
        assert f"spark.penstock.checkpoint.captureMemory={3 * PART}" in decline.reason
        made.uploader.aborted(1)
        assert made.uploader.held_bytes == PART, "only what the stuck store has in hand"
        made.whole(3, 5)
        gate.opened.set()
        answer = made.answer(1)
        assert isinstance(answer, AcknowledgeCheckpoint)
        assert answer.checkpoint == 3
        until(lambda: list(store.files) == [file_of(3)])
        assert made.uploader.held_bytes == 0


def test_an_acknowledgement_says_how_long_its_subtasks_waited_for_the_limit() -> None:
    store = MemoryStore()
    with bench(store, CaptureLimits(2 * PART, 1 << 30)) as made:
        assert made.uploader.allow(1, 2 * PART)
        made.whole(1, 0, 1)
        assert not made.uploader.allow(2, 2 * PART + 1)
        time.sleep(0.05)
        assert made.uploader.allow(2, 2 * PART)
        made.whole(2, 0, 1)
        parallel_calls, waited = made.answer(0), made.answer(1)
        assert isinstance(parallel_calls, AcknowledgeCheckpoint)
        assert parallel_calls.limit_wait_ms == 0.0
        assert isinstance(waited, AcknowledgeCheckpoint)
        assert waited.checkpoint == 2
        assert 50 <= waited.limit_wait_ms < 5_000


@pytest.mark.parametrize("how", ["aborted", "declined"])
def test_a_checkpoint_given_up_half_way_leaves_nothing(how: str) -> None:
    store = MemoryStore()
    with bench(store) as made:
        made.uploader.recorded(ONE, 1, part(0))
        made.uploader.captured(capture(1, 0, 1, operators={COUNT: OperatorState({"counts": BatchCapture(state(1))})}))
        until(lambda: made.uploader.held_bytes == 0)
        assert list(store.files) == [file_of(1)]
        if how == "aborted":
            made.uploader.aborted(1)
        else:
            made.uploader.declined(1, "no")
            made.uploader.declined(1, "twice")
        until(lambda: store.files == {})
        made.uploader.recorded(SOURCE, 1, part(1))
        made.uploader.captured(capture(0, 0, 1))
        made.whole(2, 7)
        expected = [] if how == "aborted" else [DeclineCheckpoint(0, 1, "no")]
        last = made.answer(len(expected))
        assert made.answers == [*expected, last]
        assert isinstance(last, AcknowledgeCheckpoint)
        assert list(store.files) == [file_of(2)]


def test_a_checkpoint_aborted_while_it_is_made_durable_is_not_acknowledged_and_removed() -> None:
    store, gate = MemoryStore(), Gate("close")
    store.hook = gate
    with bench(store) as made:
        made.whole(1, 0)
        assert gate.blocked.wait(PATIENCE_S)
        made.uploader.aborted(1)
        gate.opened.set()
        until(lambda: store.files == {})
        made.whole(2, 0, base=1)
        answer = made.answer()
    assert isinstance(answer, AcknowledgeCheckpoint)
    assert answer.checkpoint == 2
    assert [entry.section.path for entry in answer.manifest.subtasks[1].inflight] == [file_of(2)]


def test_a_full_store_declines_the_checkpoint_and_the_next_one_completes() -> None:
    store, full = MemoryStore(), threading.Event()

    def hook(effect: Effect) -> None:
        if effect.operation == "write" and full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")

    store.hook = hook
    with bench(store) as made:
        made.whole(1, 0)
        assert isinstance(made.answer(), AcknowledgeCheckpoint)
        full.set()
        made.whole(2, 0, 1, base=1)
        decline = made.answer(1)
        assert isinstance(decline, DeclineCheckpoint)
        assert "No space left" in decline.reason
        assert file_of(2) in decline.reason
        until(lambda: list(store.files) == [file_of(1)])
        full.clear()
        made.whole(3, 0, 1, base=1)
        answer = made.answer(2)
    assert isinstance(answer, AcknowledgeCheckpoint)
    assert [e.section.path for e in answer.manifest.subtasks[1].inflight] == [file_of(1), file_of(3)]


class Table(BatchCapture):
    """Counts its releases, and says where they were made."""

    def __init__(self) -> None:
        super().__init__(state(1))
        self.released: list[str] = []

    def release(self) -> None:
        self.released.append(threading.current_thread().name)


def test_every_capture_is_released_once_by_the_thread_that_reads_it_or_when_it_is_gone() -> None:
    """Written, aborted, late, dropped by its subtask, of a full store, never triggered, after the end."""
    store, gate = MemoryStore(), Gate()
    tables = {name: Table() for name in ("written", "aborted", "late", "dropped", "full", "early", "after", "unasked")}

    def states(name: str) -> dict[str, OperatorState]:
        return {COUNT: OperatorState({"counts": tables[name]})}

    with bench(store) as made:
        uploader, thread = made.uploader, made.uploader.thread.name
        store.hook = gate
        uploader.triggered(1, 0)
        uploader.captured(capture(1, 0, 1, operators=states("written")))
        assert gate.blocked.wait(PATIENCE_S)
        uploader.triggered(2, 0)
        uploader.captured(capture(1, 0, 2, operators=states("aborted")))
        uploader.aborted(2)
        uploader.captured(capture(1, 0, 2, operators=states("late")))
        uploader.dropped(list(states("dropped").values()))
        assert not any(table.released for table in tables.values()), "the thread is busy"
        gate.opened.set()
        uploader.captured(capture(0, 0, 1))
        assert isinstance(made.answer(), AcknowledgeCheckpoint)

        def full(effect: Effect) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        store.hook = full
        uploader.triggered(3, 0)
        uploader.captured(capture(1, 0, 3, operators=states("full")))
        assert isinstance(made.answer(1), DeclineCheckpoint)
        uploader.captured(capture(1, 0, 4, operators=states("early")))
    uploader.captured(capture(1, 0, 4, operators=states("after")))
    uploader.dropped(list(states("unasked").values()))
    mine = threading.current_thread().name
    expected = {name: [thread] for name in tables} | {"after": [mine], "unasked": [mine]}
    assert {name: table.released for name, table in tables.items()} == expected


def test_the_first_checkpoint_of_a_restored_slot_refers_to_what_it_was_restored_from() -> None:
    store = MemoryStore()
    table = CountTable(state_schema("key", "count"), 128)
    table.update(((key,), 1) for key in range(5_000))
    with bench(store) as made:
        made.uploader.triggered(1, 0)
        made.uploader.captured(capture(1, 0, 1, operators={COUNT: OperatorState({"counts": table.capture()})}))
        made.uploader.captured(capture(0, 0, 1))
        first = made.answer()
    assert isinstance(first, AcknowledgeCheckpoint)
    restored = CountTable(state_schema("key", "count"), 128)
    restored.load(load_restore(first.manifest.subtasks[1], store).operators[COUNT].tables["counts"])
    again = Bench(store, NO_LIMITS)
    again.uploader.restored(1, first.manifest.subtasks)
    again.uploader.thread.start()
    restored[7,] = 2
    again.uploader.captured(capture(1, 0, 2, operators={COUNT: OperatorState({"counts": restored.capture()})}))
    again.uploader.captured(capture(0, 0, 2))
    again.uploader.triggered(2, 1)  # slower than the barriers
    second = again.answer()
    again.uploader.stop()
    again.uploader.thread.join(PATIENCE_S)
    assert isinstance(second, AcknowledgeCheckpoint)
    assert second.manifest.metrics[1].state_bytes < first.manifest.metrics[1].state_bytes / 20
    entries = second.manifest.subtasks[1].states
    assert [(e.kind, e.rows) for e in entries if e.section.path == state_path(1, 2, 0)] == [("delta", 1)]


def test_what_is_half_written_at_the_end_is_removed() -> None:
    store = MemoryStore()
    with bench(store) as made:
        made.uploader.recorded(ONE, 1, part(0))
        until(lambda: bool(store.files) and made.uploader.held_bytes == 0)
    assert store.files == {}


def test_an_error_that_is_not_the_stores_ends_the_slot_and_leaves_nothing() -> None:
    store = MemoryStore()
    made = Bench(store, NO_LIMITS)
    made.uploader.thread.start()
    for _ in range(2):
        made.uploader.recorded(ONE, 1, part(0))
    made.whole(1)
    made.uploader.thread.join(PATIENCE_S)
    assert [str(crash) for crash in made.crashes if "captured again" in str(crash)]
    assert made.answers == []
    assert store.files == {}


def test_many_threads_hand_over_at_once() -> None:
    """Four checkpoints in flight, each of them recorded by two threads in twenty parts: everything is there once."""
    store = MemoryStore()
    with bench(store) as made:
        for checkpoint in range(1, 5):
            made.uploader.triggered(checkpoint, 0)
        channels = {SOURCE: (CHANNEL, Side.PRODUCER), ONE: (ChannelId(0, 1, 0), Side.CONSUMER)}

        def record(subtask: SubtaskId) -> None:
            channel, side = channels[subtask]
            for seq in range(20):
                for checkpoint in range(1, 5):
                    made.uploader.recorded(subtask, checkpoint, [captured(channel, side, seq, rows(seq))])
            for checkpoint in range(1, 5):
                made.uploader.captured(capture(subtask.vertex, 0, checkpoint))

        threads = [threading.Thread(target=record, args=(subtask,)) for subtask in channels]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        until(lambda: len(made.answers) == 4)
        assert made.uploader.held_bytes == 0
    for answer in made.answers:
        assert isinstance(answer, AcknowledgeCheckpoint)
        for subtask in answer.manifest.subtasks:
            batches = [batch for entry in subtask.inflight for batch in load_inflight(store, entry)]
            assert [key for batch in batches for key in batch.column(0).to_pylist()] == list(range(20))
