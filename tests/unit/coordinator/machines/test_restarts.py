"""Restart strategies: when a lost generation is started again, and when the query gives up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import RestartStrategy
from penstock.coordinator.machines.restarts import Failure, GiveUp, RestartAt, RestartPolicy, Restarts

POLICY = RestartPolicy(attempts=4, delay_ms=100, max_delay_ms=500)
LOST = Failure("slot", "", "link lost")


def test_restarts_back_off_exponentially_up_to_a_bound_and_then_give_up_with_the_first_cause() -> None:
    restarts = Restarts(POLICY)
    first = Failure("slot", "", "the very first")
    answers = [restarts.failed(first if n == 0 else LOST, 1000.0) for n in range(5)]
    assert answers[:4] == [RestartAt(1100, 1), RestartAt(1200, 2), RestartAt(1400, 3), RestartAt(1500, 4)]
    assert isinstance(answers[4], GiveUp)
    assert answers[4].first is first
    restarts.check_invariants()


def test_a_fixed_pause_stays_the_same() -> None:
    restarts = Restarts(replace(POLICY, strategy=RestartStrategy.FIXED))
    answers = [restarts.failed(LOST, 1000.0) for _ in range(5)]
    assert answers[:4] == [RestartAt(1100, n) for n in range(1, 5)]
    assert isinstance(answers[4], GiveUp)


def test_no_restarts_at_all() -> None:
    assert Restarts(replace(POLICY, strategy=RestartStrategy.NONE)).failed(LOST, 0.0) == GiveUp(
        LOST, "restart.strategy is none"
    )


def test_a_failure_rate_counts_within_a_time_whatever_completes_in_between() -> None:
    restarts = Restarts(replace(POLICY, strategy=RestartStrategy.FAILURE_RATE, interval_ms=10_000))
    for now_ms in (0.0, 1_000.0, 2_000.0, 3_000.0, 10_000.0, 11_000.0):
        assert restarts.failed(LOST, now_ms) == RestartAt(now_ms + 100, 1)
        restarts.completed(rows_read=0)
        restarts.check_invariants()
    last = restarts.failed(LOST, 11_999.0)
    assert last == GiveUp(LOST, "4 restarts within 10 s")


def test_a_pause_differs_by_its_jitter() -> None:
    for chance, due_ms in ((0.0, 80.0), (0.5, 100.0), (1.0, 120.0)):
        restarts = Restarts(replace(POLICY, jitter=0.2))
        answer = restarts.failed(LOST, 0.0, chance)
        assert isinstance(answer, RestartAt)
        assert answer.at_ms == pytest.approx(due_ms)


def test_a_completed_checkpoint_resets_the_bounds() -> None:
    restarts = Restarts(POLICY)
    for _ in range(20):
        assert restarts.failed(LOST, 0.0) == RestartAt(100, 1)
        assert restarts.attempts == 1
        restarts.completed(rows_read=0)


def test_the_first_checkpoint_behind_a_restore_is_progress_only_if_something_was_read() -> None:
    """It comes so soon that a Generation which dies of the same cause each time has one, too."""
    restarts = Restarts(POLICY)
    for attempt in range(POLICY.attempts):
        assert isinstance(restarts.failed(LOST, 0.0), RestartAt)
        assert restarts.attempts == attempt + 1
        restarts.restored(rows_read=100)
        restarts.completed(rows_read=100)
    assert isinstance(restarts.failed(LOST, 0.0), GiveUp)
    restarts.completed(rows_read=101)
    assert restarts.attempts == 0


def test_an_idle_query_that_lives_longer_than_its_first_checkpoint_progresses() -> None:
    restarts = Restarts(POLICY)
    restarts.failed(LOST, 0.0)
    restarts.restored(rows_read=100)
    restarts.completed(rows_read=100)
    assert restarts.attempts == 1
    restarts.completed(rows_read=100)
    assert restarts.attempts == 0


def test_checkpoints_are_no_progress_while_a_source_cannot_be_looked_at() -> None:
    restarts = Restarts(POLICY)
    unreadable = Failure("source", "files", "looking for new data failed")
    for attempt in range(POLICY.attempts):
        assert isinstance(restarts.failed(unreadable, 0.0), RestartAt)
        assert restarts.attempts == attempt + 1
        restarts.discovered("another source")
        restarts.completed(rows_read=0)
    assert isinstance(restarts.failed(unreadable, 0.0), GiveUp)
    restarts.discovered("files")
    restarts.completed(rows_read=0)
    assert restarts.failed(unreadable, 0.0) == RestartAt(100, 1)


def test_the_same_user_error_at_the_same_position_twice_is_deterministic() -> None:
    restarts = Restarts(POLICY)
    error = Failure("function", "udf-1", "ValueError: x", "split a, row 17")
    assert isinstance(restarts.failed(error, 0.0), RestartAt)
    restarts.completed(rows_read=0)
    assert isinstance(restarts.failed(LOST, 0.0), RestartAt)
    again = restarts.failed(error, 0.0)
    assert isinstance(again, GiveUp)
    assert again.first == error
    assert "row 17" in again.reason


def user_error(row: int, message: str = "ValueError: x") -> Failure:
    return Failure("function", "udf-1", message, f"row {row}")


def test_different_user_errors_are_retried() -> None:
    restarts = Restarts(POLICY)
    for row in range(3):
        assert isinstance(restarts.failed(user_error(row, f"ValueError: {row}"), 0.0), RestartAt)


def test_the_same_user_error_is_not_retried_for_ever_from_one_snapshot() -> None:
    restarts = Restarts(POLICY)
    answers = [restarts.failed(user_error(row), 0.0) for row in range(3)]
    assert [type(answer) for answer in answers] == [RestartAt, RestartAt, GiveUp]
    assert answers[2] == GiveUp(user_error(2), "the same error 3 times from the same snapshot is deterministic")


def test_the_same_user_error_is_not_retried_for_ever_although_checkpoints_complete_in_between() -> None:
    restarts = Restarts(POLICY)
    for row in range(POLICY.attempts):
        assert isinstance(restarts.failed(user_error(row), 0.0), RestartAt)
        restarts.completed(rows_read=0)
    last = restarts.failed(user_error(99), 0.0)
    assert isinstance(last, GiveUp)
    assert "whatever completed in between" in last.reason
