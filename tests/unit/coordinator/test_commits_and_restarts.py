"""The commit ledger and the restart strategy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import RestartStrategy
from penstock.coordinator.machines.commits import CommitLedger, PendingCommit, pending_commits
from penstock.coordinator.machines.restarts import Failure, GiveUp, RestartAt, RestartPolicy, Restarts
from penstock.errors import ProtocolViolation
from penstock.model.manifest import SlotManifest, SubtaskManifest
from tests.support.coordinator.coordinator_kit import SINK, manifest

SINKS = {2: SINK}


def test_messages_are_merged_by_epoch_sink_and_subtask_in_order() -> None:
    slots = [
        SlotManifest(1, [SubtaskManifest(2, 1, pending_messages={7: b"b7", 5: b"b5"})]),
        SlotManifest(
            0,
            [
                SubtaskManifest(2, 0, pending_messages={5: b"a5", 4: b"a4", 8: b"a8"}),
                SubtaskManifest(3, 0, pending_messages={5: b"other"}),
            ],
        ),
    ]
    sinks = {2: "z-sink", 3: "a-sink"}
    merged = pending_commits(slots, sinks, committed_epoch=4, checkpoint=7, batches={5: 1, 7: 2})
    assert merged == [
        PendingCommit(5, "a-sink", {0: b"other"}, 1),
        PendingCommit(5, "z-sink", {0: b"a5", 1: b"b5"}, 1),
        PendingCommit(7, "z-sink", {1: b"b7"}, 2),
    ]
    assert list(merged[1].messages) == [0, 1]


def test_the_committed_epoch_rises_over_empty_epochs_and_stops_before_the_oldest_open_one() -> None:
    ledger = CommitLedger(SINKS)
    ledger.completed(3, [manifest(0)])
    assert ledger.committed_epoch == 3
    ledger.completed(9, [manifest(0, {6: b"6", 9: b"9"})])
    assert (ledger.committed_epoch, ledger.awaiting) == (5, 2)
    first = ledger.take()
    assert first is not None
    assert ledger.take() is None, "alone"
    ledger.done(6, SINK)
    assert ledger.committed_epoch == 8
    assert ledger.take() == PendingCommit(9, SINK, {0: b"9"}, 1)
    ledger.failed(9, SINK)
    assert ledger.take() == PendingCommit(9, SINK, {0: b"9"}, 1), "a failed one is given again"
    ledger.done(9, SINK)
    assert (ledger.committed_epoch, ledger.awaiting) == (9, 0)
    ledger.check_invariants()


def test_a_message_belongs_to_its_epoch_for_ever() -> None:
    ledger = CommitLedger(SINKS)
    ledger.completed(5, [manifest(0, {5: b"five"})])
    ledger.completed(6, [manifest(0, {5: b"five", 6: b"six"})])
    assert ledger.awaiting == 2
    with pytest.raises(ProtocolViolation, match="other messages"):
        ledger.completed(7, [manifest(0, {5: b"changed"})])
    ledger.check_invariants()


def test_of_two_sinks_one_that_is_done_is_not_committed_again_with_the_next_snapshot() -> None:
    def both(*epochs: int) -> list[SlotManifest]:
        messages = {epoch: b"%d" % epoch for epoch in epochs}
        return [SlotManifest(0, [SubtaskManifest(v, 0, pending_messages=messages) for v in (2, 3)])]

    ledger = CommitLedger({2: "a-sink", 3: "z-sink"})
    ledger.completed(5, both(5))
    ledger.take()
    ledger.done(5, "a-sink")
    assert ledger.committed_epoch == 4, "the other sink's half is not visible"
    ledger.completed(6, both(5, 6))
    rest = []
    while (entry := ledger.take()) is not None:
        rest.append(entry.key)
        ledger.done(*entry.key)
        ledger.check_invariants()
    assert rest == [(5, "z-sink"), (6, "a-sink"), (6, "z-sink")]


def test_a_user_s_snapshot_that_completes_late_commits_nothing_again() -> None:
    ledger = CommitLedger(SINKS)
    ledger.completed(7, [manifest(0, {5: b"5", 7: b"7"})])
    ledger.completed(5, [manifest(0, {5: b"5"})])
    assert ledger.awaiting == 2, "while they wait"
    for epoch in (5, 7):
        ledger.take()
        ledger.done(epoch, SINK)
    ledger.completed(6, [manifest(0, {5: b"5", 6: b"never alone"})])
    assert (ledger.awaiting, ledger.committed_epoch) == (0, 7), "nor when they are visible"
    ledger.check_invariants()


def test_an_epoch_older_than_one_that_waits_already_is_a_bug() -> None:
    ledger = CommitLedger(SINKS)
    ledger.completed(9, [manifest(0, {5: b"5", 9: b"9"})])
    with pytest.raises(ProtocolViolation, match="late epoch"):
        ledger.recovered(3, [PendingCommit(7, SINK, {0: b"7"}, 0)], 9, 1)


def test_only_what_is_out_can_end() -> None:
    ledger = CommitLedger(SINKS)
    ledger.completed(5, [manifest(0, {5: b"five"})])
    with pytest.raises(ProtocolViolation):
        ledger.done(5, SINK)
    ledger.take()
    with pytest.raises(ProtocolViolation):
        ledger.failed(4, SINK)
    assert ledger.out is not None


def test_a_roll_back_drops_what_left_the_lineage() -> None:
    ledger = CommitLedger(SINKS)
    ledger.completed(7, [manifest(0, {4: b"4", 6: b"6", 7: b"7"})])
    ledger.recovered(3, [PendingCommit(4, SINK, {0: b"4"}, 0)], 5, 3)
    assert ledger.awaiting == 1
    assert ledger.take() == PendingCommit(4, SINK, {0: b"4"}, 0)


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
