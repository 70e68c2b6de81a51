"""No slice begins where a barrier is about to come, and behind a user call that could not be cut, the slot's other
threads get their turn."""

from __future__ import annotations

import math
import threading
import time

import pytest

from penstock.model.ids import SubtaskId
from penstock.worker.activity import Abandoned
from penstock.worker.barrier_yield import LONG_STEP_S, MOMENT_S, PATIENCE_S, BarrierYield, PendingCheckpoints
from penstock.worker.host import Inbox, StepResult
from penstock.worker.subtask_thread import SubtaskThread

ALL = 99
"""Captured: no barrier is to come any more."""


class Slot:
    """A barrier_yield with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pending_checkpoints = PendingCheckpoints()
        self.barrier_yield = BarrierYield(self.pending_checkpoints, lambda: self.now)

    def begin(self, checkpoint: int, in_s: float = 0.0) -> None:
        self.pending_checkpoints.began(checkpoint, self.now + in_s)

    def rest_s(self, answer_at: dict[float, int] | None = None, captured: int = ALL) -> float:
        """Return the length of the yield from now on; ``answer_at``: checkpoints that end so many seconds from now."""
        began = self.now
        while self.barrier_yield.must_yield(captured):
            self.now += 0.001
            for after, checkpoint in (answer_at or {}).items():
                if self.now - began >= after:
                    self.pending_checkpoints.ended(checkpoint)
        return self.now - began


def test_short_steps_are_followed_by_the_next_at_once() -> None:
    slot = Slot()
    slot.begin(1)
    slot.barrier_yield.stepped(LONG_STEP_S)
    assert slot.rest_s() == 0


def test_a_long_step_without_a_checkpoint_costs_a_moment() -> None:
    slot = Slot()
    slot.barrier_yield.stepped(1.0)
    assert slot.rest_s() == pytest.approx(MOMENT_S, abs=0.002)
    assert slot.rest_s() == 0


def test_a_checkpoint_is_waited_for_until_it_is_answered_and_the_answer_sent() -> None:
    slot = Slot()
    slot.barrier_yield.stepped(1.0)
    assert slot.barrier_yield.must_yield(ALL)
    slot.begin(7)
    assert slot.rest_s({0.3: 7}) == pytest.approx(0.3 + MOMENT_S, abs=0.003)


def test_a_checkpoint_is_waited_for_once_and_no_longer_than_the_step_took() -> None:
    slot = Slot()
    slot.begin(7)
    slot.barrier_yield.stepped(0.5)
    assert slot.rest_s() == pytest.approx(0.5, abs=0.003)
    slot.barrier_yield.stepped(0.5)
    assert slot.rest_s() == pytest.approx(MOMENT_S, abs=0.002)
    slot.begin(8)
    slot.barrier_yield.stepped(0.5)
    assert slot.rest_s({0.1: 8}) == pytest.approx(0.1 + MOMENT_S, abs=0.003)


def test_late_barriers_of_an_answered_checkpoint_do_not_bring_it_back() -> None:
    pending = PendingCheckpoints()
    pending.began(3, 1.0)
    pending.ended(3)
    pending.began(3, 1.0)
    assert pending.newest(1.0) is None
    pending.began(4, 1.0)
    assert pending.newest(1.0) == 4


def test_from_a_trigger_on_input_is_left_alone_until_all_barriers_came() -> None:
    slot = Slot()
    slot.begin(7)
    assert slot.barrier_yield.must_yield(captured=6)
    assert not slot.barrier_yield.must_yield(captured=7)


def test_barriers_that_do_not_come_are_waited_for_as_long_as_a_slice_once() -> None:
    slot = Slot()
    slot.begin(7)
    assert slot.rest_s(captured=6) == pytest.approx(PATIENCE_S, abs=0.002)
    assert (slot.rest_s(captured=6), slot.barrier_yield.within_ms()) == (0, math.inf)
    slot.begin(8)
    assert slot.rest_s(captured=6) == pytest.approx(PATIENCE_S, abs=0.002)


def test_a_checkpoint_that_is_over_is_not_waited_for() -> None:
    slot = Slot()
    slot.begin(7)
    assert slot.rest_s({0.005: 7}, captured=6) == pytest.approx(0.005, abs=0.002)


def test_what_stays_aligned_for_a_time_is_waited_for_behind_it_and_steps_end_by_then() -> None:
    slot = Slot()
    slot.begin(7, in_s=0.2)
    assert not slot.barrier_yield.must_yield(captured=6)
    assert slot.barrier_yield.within_ms() == pytest.approx(200)
    slot.now += 0.195
    assert not slot.barrier_yield.must_yield(captured=6)
    assert slot.barrier_yield.within_ms() == pytest.approx(5)
    slot.now += 0.0051
    assert slot.rest_s(captured=6) == pytest.approx(PATIENCE_S, abs=0.002)


def test_behind_a_long_step_nothing_waits_for_one_that_is_still_aligned() -> None:
    slot = Slot()
    slot.begin(7, in_s=60)
    slot.barrier_yield.stepped(1.0)
    assert slot.rest_s() == pytest.approx(MOMENT_S, abs=0.002)


def test_with_one_that_is_due_and_one_that_is_not_yet_both_have_their_time() -> None:
    slot = Slot()
    slot.begin(8, in_s=0.2)
    slot.begin(7)
    assert slot.rest_s(captured=6) == pytest.approx(PATIENCE_S, abs=0.002)
    assert slot.barrier_yield.within_ms() == pytest.approx(180, abs=2)


def test_the_earliest_moment_counts_and_one_to_come_is_no_reason_to_rest_behind_a_long_step() -> None:
    pending = PendingCheckpoints()
    pending.began(3, 5.0)
    pending.began(3, 6.0)
    assert (pending.newest(4.9), pending.newest(5.0)) == (None, 3)
    assert (pending.due_s(2, 4.9), pending.due_s(2, 5.0), pending.due_s(3, 0.0)) == (5.0, math.inf, math.inf)
    pending.began(3, 4.0)
    assert pending.due_s(2, 0.0) == 4.0


class Stub:
    """A subtask whose steps with input take long; what each step was allowed is kept."""

    captured = ALL

    def __init__(self) -> None:
        self.stopped = False
        self.inbox: Inbox[object] = Inbox()
        self.allowed: list[bool] = []
        self.within_ms: list[float] = []
        self.closed = threading.Event()

    def step(self, now_ms: float, take_input: bool, within_ms: float) -> StepResult:
        self.allowed.append(take_input)
        self.within_ms.append(within_ms)
        if take_input:
            time.sleep(1.5 * LONG_STEP_S)
        return StepResult(worked=take_input)

    def close(self) -> None:
        self.closed.set()


def thread_of(stub: Stub, pending: PendingCheckpoints, failures: list[BaseException]) -> SubtaskThread:
    return SubtaskThread(
        SubtaskId(0, 0),
        lambda: stub,  # type: ignore[arg-type,return-value]
        lambda subtask: None,
        lambda subtask, problem: failures.append(problem),
        pending,
    )


def test_the_thread_of_a_subtask_leaves_its_input_alone_behind_a_long_step_while_a_checkpoint_is_under_way() -> None:
    pending, stub, failures = PendingCheckpoints(), Stub(), list[BaseException]()
    thread = thread_of(stub, pending, failures)
    pending.began(1, time.monotonic())
    thread.start()
    thread.go()
    deadline = time.monotonic() + 30
    while len(stub.allowed) < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    pending.ended(1)
    while stub.allowed.count(True) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    thread.thread.join(30)
    assert failures == []
    assert stub.closed.is_set()
    assert stub.allowed[:10] == [True] + [False] * 9
    assert stub.allowed.count(True) >= 2, "input again once it is answered"


def test_the_thread_of_a_subtask_has_its_steps_end_by_when_barriers_are_due() -> None:
    pending, stub, failures = PendingCheckpoints(), Stub(), list[BaseException]()
    stub.captured = 0
    thread = thread_of(stub, pending, failures)
    pending.began(1, time.monotonic() + 3_600)
    thread.start()
    thread.go()
    deadline = time.monotonic() + 30
    while not stub.within_ms and time.monotonic() < deadline:
        time.sleep(0.01)
    thread.stop()
    thread.thread.join(30)
    assert failures == []
    assert 3_500_000 < stub.within_ms[0] <= 3_600_000


class Long(Stub):
    """Its first step lasts until the subtask is stopped."""

    def step(self, now_ms: float, take_input: bool, within_ms: float) -> StepResult:
        self.allowed.append(take_input)
        deadline = time.monotonic() + 30
        while not self.stopped and time.monotonic() < deadline:
            time.sleep(0.005)
        raise Abandoned


def test_a_stopped_thread_abandons_the_step_that_runs_and_reports_no_failure() -> None:
    stub, failures = Long(), list[BaseException]()
    thread = thread_of(stub, PendingCheckpoints(), failures)
    thread.start()
    thread.go()
    while not stub.allowed:
        time.sleep(0.005)
    thread.stop()
    thread.thread.join(10)
    assert not thread.thread.is_alive()
    assert stub.closed.is_set()
    assert (failures, thread.failed) == ([], True), "its tables are not those between two steps"
