"""Decisions of the checkpoint coordinator, as scenarios: events in, commands out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config import RestartStrategy
from penstock.coordinator.machines.checkpoint_events import (
    AFTER_RESTORE_MS,
    MAX_IN_FLIGHT,
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCompleted,
    CollectGarbage,
    CommitEpoch,
    CommitFailed,
    EpochCommitted,
    FailQuery,
    GenerationEnded,
    GenerationOpened,
    IdsReserved,
    Ignored,
    LogFailed,
    LogSnapshot,
    MetadataFailed,
    MetadataWritten,
    PolicyChanged,
    ReserveFailed,
    ReserveIds,
    SnapshotFailed,
    SnapshotLogged,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
    WriteMetadata,
)
from penstock.coordinator.machines.checkpoints import ID_BLOCK, CheckpointCoordinator
from penstock.coordinator.machines.commits import CommitLedger, PendingCommit
from penstock.coordinator.machines.restarts import RestartPolicy
from penstock.coordinator.machines.snapshot_requests import MAX_REQUESTS
from penstock.errors import ProtocolViolation
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from tests.support.coordinator.coordinator_kit import (
    ALIGNED,
    SINK,
    SINK_VERTEX,
    UNALIGNED,
    aborted,
    acknowledge,
    complete,
    manifest,
    policy,
    started,
)

TICK = Tick()


def test_the_first_checkpoint_comes_one_interval_after_all_slots_run() -> None:
    machine = started(now_ms=500)
    assert machine.handle(TICK, 1499) == []
    assert machine.next_wake_ms() == 1500
    assert machine.handle(TICK, 1500) == [TriggerCheckpoint(1, UNALIGNED)]
    assert machine.in_flight == (1,)


def test_a_checkpoint_is_written_when_the_last_slot_acknowledges_and_logged_when_it_is_written() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    assert machine.handle(AcknowledgeCheckpoint(1, manifest(1)), 1001) == []
    assert machine.handle(AcknowledgeCheckpoint(1, manifest(0)), 1002) == [
        WriteMetadata(1, 1, UNALIGNED, requested=False, label="", slots=(manifest(0), manifest(1)))
    ]
    assert machine.handle(MetadataWritten(1), 1003) == [LogSnapshot(1, 1, 0, 2 + ID_BLOCK)]
    assert machine.handle(SnapshotLogged(1, 2 + ID_BLOCK), 1004) == [
        CheckpointCompleted(1),
        NotifyCheckpointComplete(1, 1),
        CollectGarbage(pinned=(1,), in_flight=()),
    ]
    assert machine.newest_complete == 1
    assert machine.committed_epoch == 1


def test_nothing_is_committed_before_its_snapshot_is_logged_and_slots_hear_of_it_after_the_commit() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    commands = complete(machine, 1, 1001, {1: b"one"})
    assert CommitEpoch(1, SINK, {0: b"one", 1: b"one"}) in commands
    assert not any(isinstance(command, NotifyCheckpointComplete) for command in commands)
    assert machine.committed_epoch == 0
    assert machine.handle(EpochCommitted(1, SINK), 1002) == [
        NotifyCheckpointComplete(1, 1),
        CollectGarbage(pinned=(1,), in_flight=()),
    ]


def test_an_aborted_checkpoint_loses_nothing_its_epoch_is_committed_with_the_next() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    assert machine.handle(DeclineCheckpoint(0, 1, "over budget"), 1001) == [*aborted(1, "slot 0 declined: over budget")]
    assert machine.handle(TICK, 2000) == [TriggerCheckpoint(2, UNALIGNED)]
    commands = complete(machine, 2, 2001, {1: b"one", 2: b"two"})
    assert CommitEpoch(1, SINK, {0: b"one", 1: b"one"}) in commands
    assert not any(isinstance(c, CommitEpoch) and c.epoch == 2 for c in commands), "epochs go alone"
    assert machine.handle(EpochCommitted(1, SINK), 2002) == [CommitEpoch(2, SINK, {0: b"two", 1: b"two"}, batch=1)]
    assert NotifyCheckpointComplete(2, 2) in machine.handle(EpochCommitted(2, SINK), 2003)


def test_a_checkpoint_that_takes_too_long_is_aborted_and_the_slots_that_lack_are_named() -> None:
    machine = started(timeout_ms=300)
    machine.handle(TICK, 1000)
    machine.handle(AcknowledgeCheckpoint(1, manifest(0)), 1100)
    assert machine.handle(TICK, 1299) == []
    assert machine.handle(TICK, 1300) == [*aborted(1, "not acknowledged by slots [1] within 300 ms", missing=(1,))]
    late = AcknowledgeCheckpoint(1, manifest(1))
    assert machine.handle(late, 1301) == [Ignored(late, "the checkpoint is complete, aborted or was never triggered")]


def test_late_duplicate_and_foreign_acknowledgements_change_nothing() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    machine.handle(AcknowledgeCheckpoint(1, manifest(0)), 1001)
    for ack in (
        AcknowledgeCheckpoint(1, manifest(0)),
        AcknowledgeCheckpoint(1, manifest(7)),
        AcknowledgeCheckpoint(9, manifest(1)),
    ):
        (ignored,) = machine.handle(ack, 1002)
        assert isinstance(ignored, Ignored)
        assert ignored.reason
    (write,) = machine.handle(AcknowledgeCheckpoint(1, manifest(1)), 1003)
    assert isinstance(write, WriteMetadata)


def test_a_slow_periodic_checkpoint_holds_back_the_next_and_the_pause_follows_it() -> None:
    machine = started(min_pause_ms=400)
    machine.handle(TICK, 1000)
    assert machine.handle(TICK, 2500) == []
    complete(machine, 1, 2600)
    assert machine.handle(TICK, 2999) == []
    assert machine.handle(TICK, 3000) == [TriggerCheckpoint(2, UNALIGNED, base=1)]


def test_a_user_snapshot_runs_beside_a_periodic_one_and_may_complete_after_it() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    assert machine.handle(SnapshotRequested(UNALIGNED, "mine", ticket=7), 1100) == [TriggerCheckpoint(2, UNALIGNED)]
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=8), 1101) == [TriggerCheckpoint(3, UNALIGNED)]
    assert [machine.request_of(checkpoint) for checkpoint in (1, 2, 4)] == [
        None, SnapshotRequested(UNALIGNED, "mine", ticket=7), None,
    ]  # fmt: skip
    complete(machine, 1, 1200)
    assert SnapshotSucceeded(8, 3) in complete(machine, 3, 1250)
    assert SnapshotSucceeded(7, 2) in complete(machine, 2, 1300)
    assert machine.newest_complete == 3


def test_nothing_is_triggered_while_an_aligned_checkpoint_is_in_flight() -> None:
    machine = started()
    assert machine.handle(SnapshotRequested(ALIGNED, timeout_ms=1500, ticket=1), 100) == [TriggerCheckpoint(1, ALIGNED)]
    assert machine.handle(TICK, 1000) == []
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=2), 1200) == []
    way_out = "A strictly aligned snapshot waits for all queued data; an unaligned one does not"
    text = f"not acknowledged by slots [0, 1] within 1500 ms. {way_out}"
    assert machine.handle(TICK, 1600) == [
        *aborted(1, text, failed=False, missing=(0, 1)),
        SnapshotFailed(1, 1, text, missing=(0, 1)),
        TriggerCheckpoint(2, UNALIGNED),
        TriggerCheckpoint(3, UNALIGNED),
    ]


def test_a_full_disk_fails_the_checkpoint_and_the_query_goes_on() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    acknowledge(machine, 1, 1001)
    assert machine.handle(MetadataFailed(1, "No space left on device"), 1002) == [
        *aborted(1, "No space left on device")
    ]
    machine.handle(TICK, 2000)
    acknowledge(machine, 2, 2001)
    machine.handle(MetadataWritten(2), 2002)
    assert machine.handle(LogFailed(2, "No space left on device"), 2003) == [*aborted(2, "No space left on device")]
    assert machine.handle(TICK, 3000) == [TriggerCheckpoint(3, UNALIGNED)]


def test_checkpoints_write_everything_until_a_new_base_is_complete_if_the_old_one_is_damaged() -> None:
    machine = started(max_concurrent=2)
    machine.handle(TICK, 1000)
    assert NotifyCheckpointComplete(1, 1) in complete(machine, 1, 1001)
    assert machine.handle(TICK, 2000) == [TriggerCheckpoint(2, UNALIGNED, base=1)]
    acknowledge(machine, 2, 2001)
    reason = "a file that it refers to is damaged"
    assert machine.handle(MetadataFailed(2, reason, damaged=True), 2002) == aborted(2, reason)
    assert machine.handle(TICK, 3000) == [TriggerCheckpoint(3, UNALIGNED, base=0)]
    assert machine.handle(TICK, 4000) == [TriggerCheckpoint(4, UNALIGNED, base=0)]
    complete(machine, 3, 4001)
    assert machine.handle(TICK, 5000) == [TriggerCheckpoint(5, UNALIGNED, base=3)]


def test_triggering_pauses_while_too_many_epochs_await_their_commit() -> None:
    machine = started(max_awaiting_commit=2)
    machine.handle(TICK, 1000)
    assert CommitEpoch(1, SINK, {0: b"1", 1: b"1"}) in complete(machine, 1, 1001, {1: b"1"})
    machine.handle(TICK, 2000)
    complete(machine, 2, 2001, {1: b"1", 2: b"2"})
    assert machine.awaiting_commit == 2
    assert machine.handle(TICK, 9000) == []
    assert machine.handle(EpochCommitted(1, SINK), 9001) == [
        CommitEpoch(2, SINK, {0: b"2", 1: b"2"}, batch=1),
        NotifyCheckpointComplete(1, 1),
        CollectGarbage(pinned=(1, 2), in_flight=()),
        TriggerCheckpoint(3, UNALIGNED, base=1),
    ]


GROWING = RestartPolicy(attempts=6, delay_ms=100, max_delay_ms=1000)
FIXED = replace(GROWING, strategy=RestartStrategy.FIXED)
NONE = replace(GROWING, strategy=RestartStrategy.NONE)
RATE = replace(GROWING, strategy=RestartStrategy.FAILURE_RATE)


@pytest.mark.parametrize(
    ("retries", "timeout_ms", "expected"),
    [
        (GROWING, None, [100, 200, 400, 800, 1000, 1000]),
        (FIXED, None, [100] * 6),
        (RATE, None, [100] * 6),
        (NONE, None, []),
        (GROWING, 3000, [100, 200, 400, 800, 1000, 500]),
        (NONE, 250, [100, 150]),
        (FIXED, 250, [100, 100, 50]),
        (GROWING, 0, []),
    ],
)
def test_a_failing_commit_is_repeated_as_the_options_say_and_then_the_query_fails(
    retries: RestartPolicy, timeout_ms: int | None, expected: list[float]
) -> None:
    machine = started(interval_ms=10_000_000, commit_retries=retries, commit_timeout_ms=timeout_ms)
    machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 0)
    complete(machine, 1, 0, {1: b"one"})
    now, pauses = 0.0, []
    for _ in expected:
        assert machine.handle(CommitFailed(1, SINK, "down"), now) == []
        wake = machine.next_wake_ms()
        assert wake is not None
        assert machine.handle(TICK, wake - 1) == []
        assert machine.handle(TICK, wake) == [CommitEpoch(1, SINK, {0: b"one", 1: b"one"})]
        pauses.append(wake - now)
        now = wake
    assert pauses == expected
    count = f"{len(expected) + 1} failure{'s' if expected else ''}"
    told = f"{count} in {sum(expected) / 1000:.0f} s (restart.*, sink.retryTimeout)"
    assert machine.handle(CommitFailed(1, SINK, "down"), now) == [
        FailQuery(f"epoch 1 of sink {SINK}: down\nThe commit is not repeated any more: {told}")
    ]
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=2), now) == [SnapshotFailed(2, 0, "the query has failed")]


def test_a_commit_of_unknown_outcome_is_never_sent_again() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    complete(machine, 1, 1001, {1: b"one"})
    assert machine.handle(CommitFailed(1, SINK, "link lost", unknown=True), 1002) == [
        FailQuery(f"epoch 1 of sink {SINK}: link lost")
    ]
    assert machine.handle(TICK, 1_000_000) == []


def test_the_end_of_a_generation_kills_what_is_not_being_logged() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    machine.handle(SnapshotRequested(UNALIGNED, ticket=5), 1000)
    acknowledge(machine, 1, 1001)
    machine.handle(MetadataWritten(1), 1002)
    acknowledge(machine, 2, 1002)
    ended = machine.handle(GenerationEnded(1, "slot 0 lost"), 1003)
    assert ended == [
        CheckpointAborted(2, "Generation 1 ended: slot 0 lost", failed=False),
        SnapshotFailed(5, 2, "Generation 1 ended: slot 0 lost"),
    ]
    (ignored,) = machine.handle(MetadataWritten(2), 1004)
    assert isinstance(ignored, Ignored), "its file is an orphan now"
    with pytest.raises(ProtocolViolation):
        machine.handle(GenerationOpened(2, 0, 3, 67), 1004)
    commands = machine.handle(SnapshotLogged(1, 70), 1005)
    assert CheckpointCompleted(1) in commands
    assert not any(isinstance(c, NotifyCheckpointComplete) for c in commands), "its slots are gone"
    assert machine.handle(GenerationOpened(2, 1, 3, 67, 1), 1006) == []
    assert machine.handle(AllSlotsRunning(2), 1007) == []
    assert machine.handle(TICK, 2007) == [TriggerCheckpoint(3, UNALIGNED, base=1)], "ids go on where they were"


def restored(**changes: object) -> CheckpointCoordinator:
    """A coordinator whose Generation 2 restored checkpoint 7, and runs since 100 ms."""
    machine = CheckpointCoordinator(policy(**changes), 2, CommitLedger({SINK_VERTEX: SINK}))
    machine.handle(GenerationOpened(2, 7, 8, 8 + ID_BLOCK, 7), 0)
    machine.handle(AllSlotsRunning(2), 100)
    return machine


def test_the_first_checkpoint_behind_a_restore_does_not_wait_for_the_interval() -> None:
    machine = restored()
    assert machine.next_wake_ms() == 100 + AFTER_RESTORE_MS
    assert machine.handle(TICK, 99 + AFTER_RESTORE_MS) == []
    assert machine.handle(TICK, 100 + AFTER_RESTORE_MS) == [TriggerCheckpoint(8, UNALIGNED, base=7)]
    complete(machine, 8, 700)
    assert machine.next_wake_ms() == 1100 + AFTER_RESTORE_MS, "from then on it does"
    assert restored(interval_ms=50).next_wake_ms() == 150, "nor any longer than the interval"
    assert started(now_ms=100).next_wake_ms() == 1100, "without a snapshot there is nothing to go on from"


def test_recovery_commits_what_the_restored_snapshot_holds_before_anything_new() -> None:
    machine = CheckpointCoordinator(policy(), 2, CommitLedger({2: SINK}))
    pending = (PendingCommit(4, SINK, {0: b"4"}, 2), PendingCommit(5, SINK, {1: b"5"}, 3))
    opened = GenerationOpened(3, 5, 70, 134, 3, pending, next_batch=4)
    assert machine.handle(opened, 0) == [CommitEpoch(4, SINK, {0: b"4"}, batch=2)]
    assert machine.committed_epoch == 3
    machine.handle(AllSlotsRunning(3), 0)
    machine.handle(TICK, 1000)
    complete(machine, 70, 1001, {70: b"new"})
    assert machine.handle(EpochCommitted(4, SINK), 1002) == [CommitEpoch(5, SINK, {1: b"5"}, batch=3)]
    assert CommitEpoch(70, SINK, {0: b"new", 1: b"new"}, batch=4) in machine.handle(EpochCommitted(5, SINK), 1003)
    assert NotifyCheckpointComplete(70, 70) in machine.handle(EpochCommitted(70, SINK), 1004)


def test_ids_beyond_the_reserved_ones_are_reserved_first() -> None:
    machine = started()
    now = 1000.0
    for checkpoint in range(1, ID_BLOCK + 1):
        assert machine.handle(TICK, now) == [TriggerCheckpoint(checkpoint, UNALIGNED)]
        machine.handle(DeclineCheckpoint(0, checkpoint, "no"), now)
        machine.check_invariants()
        now += 1000
    assert machine.handle(TICK, now) == [ReserveIds(1, 1 + 2 * ID_BLOCK, 0)]
    assert machine.handle(TICK, now + 1) == [], "asked once"
    assert machine.handle(ReserveFailed("disk full"), now + 2) == []
    assert machine.handle(TICK, now + 1002) == [ReserveIds(1, 1 + 2 * ID_BLOCK, 0)]
    assert machine.handle(IdsReserved(1 + 2 * ID_BLOCK), now + 1003) == [TriggerCheckpoint(ID_BLOCK + 1, UNALIGNED)]


def test_an_event_that_fits_no_command_is_refused_with_the_story_and_changes_nothing() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    for event in (SnapshotLogged(1, 99), LogFailed(1, "x"), MetadataWritten(1), MetadataFailed(1, "x")):
        with pytest.raises(ProtocolViolation) as caught:
            machine.handle(event, 1001)
        assert "running" in caught.value.state
        assert "AllSlotsRunning" in str(caught.value)
    with pytest.raises(ProtocolViolation):
        machine.handle(EpochCommitted(1, SINK), 1001)
    assert machine.in_flight == (1,)
    machine.check_invariants()


def test_the_interval_can_be_changed_while_the_query_runs() -> None:
    machine = started(interval_ms=1_000_000)
    machine.handle(PolicyChanged(policy(interval_ms=50, alignment=ALIGNED)), 10)
    assert machine.handle(TICK, 60) == [TriggerCheckpoint(1, ALIGNED)]


def test_requests_wait_over_a_restart_but_not_without_bound() -> None:
    machine = started()
    machine.handle(GenerationEnded(1, "lost"), 10)
    for ticket in range(MAX_REQUESTS):
        assert machine.handle(SnapshotRequested(UNALIGNED, ticket=ticket), 11) == []
    (refused,) = machine.handle(SnapshotRequested(UNALIGNED, ticket=99), 12)
    assert isinstance(refused, SnapshotFailed)
    machine.handle(GenerationOpened(2, 0, 1, 65), 13)
    assert machine.handle(AllSlotsRunning(2), 14) == [
        TriggerCheckpoint(n, UNALIGNED) for n in range(1, MAX_IN_FLIGHT + 1)
    ]
