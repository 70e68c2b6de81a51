"""Commit ledger: which epochs await their commit."""

from __future__ import annotations

import pytest

from penstock.coordinator.machines.commits import CommitLedger, PendingCommit, pending_commits
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
