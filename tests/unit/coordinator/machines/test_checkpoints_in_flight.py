"""Several checkpoints at once: who may start, what makes what superfluous, what they may refer to."""

from __future__ import annotations

from penstock.coordinator.machines.checkpoint_events import (
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCommand,
    CheckpointCompleted,
    CollectGarbage,
    CommitEpoch,
    EpochCommitted,
    FailGeneration,
    GenerationEnded,
    GenerationOpened,
    Ignored,
    LogFailed,
    MetadataFailed,
    MetadataWritten,
    PolicyChanged,
    SnapshotFailed,
    SnapshotLogged,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
)
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.model.elements import Alignment
from penstock.model.messages import (
    AbortCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from tests.support.coordinator.coordinator_kit import (
    ALIGNED,
    SINK,
    UNALIGNED,
    aborted,
    acknowledge,
    complete,
    policy,
    started,
)

TICK = Tick()
WAY_OUT = "A strictly aligned snapshot waits for all queued data; an unaligned one does not"
AUTO = Alignment.AUTO


def ticking(
    machine: CheckpointCoordinator, first_ms: int, last_ms: int, every_ms: int = 100
) -> list[CheckpointCommand]:
    """All commands of ticks from ``first_ms`` to ``last_ms``."""
    commands: list[CheckpointCommand] = []
    for now_ms in range(first_ms, last_ms + 1, every_ms):
        commands += machine.handle(TICK, now_ms)
        machine.check_invariants()
    return commands


def test_periodic_ones_overlap_up_to_their_bound() -> None:
    machine = started(max_concurrent=3, timeout_ms=60_000)
    assert ticking(machine, 0, 9000) == [TriggerCheckpoint(n, UNALIGNED) for n in (1, 2, 3)]
    assert machine.next_wake_ms() == 61_000, "nothing to do but to wait for the first time-out"
    machine.handle(DeclineCheckpoint(0, 2, "no"), 9001)
    assert machine.in_flight == (1, 3, 4)


def test_with_a_pause_periodic_ones_do_not_overlap() -> None:
    machine = started(max_concurrent=3, min_pause_ms=500, timeout_ms=60_000)
    assert ticking(machine, 0, 9000) == [TriggerCheckpoint(1, UNALIGNED)]
    complete(machine, 1, 9100)
    assert ticking(machine, 9200, 9599) == []
    assert ticking(machine, 9600, 9600) == [TriggerCheckpoint(2, UNALIGNED, base=1)]


def test_requested_ones_come_on_top_and_first_but_no_more_than_the_bound_of_all() -> None:
    machine = started(max_concurrent=8, interval_ms=100, timeout_ms=60_000)
    ticking(machine, 0, 500)
    assert machine.in_flight == (1, 2, 3, 4, 5)
    for ticket in range(1, 6):
        machine.handle(SnapshotRequested(UNALIGNED, ticket=ticket), 501)
    assert machine.in_flight == (1, 2, 3, 4, 5, 6, 7, 8)
    assert machine.has_user_requests
    assert ticking(machine, 600, 900) == [], "full"
    machine.handle(DeclineCheckpoint(0, 1, "no"), 901)
    machine.handle(DeclineCheckpoint(0, 2, "no"), 902)
    assert machine.in_flight == (3, 4, 5, 6, 7, 8, 9, 10), "both are requested ones: those go first"
    assert SnapshotSucceeded(4, 9) in complete(machine, 9, 903)
    assert SnapshotSucceeded(5, 10) in complete(machine, 10, 904)


def test_auto_ones_have_a_budget_and_overlap_with_everything() -> None:
    machine = started(alignment=AUTO, alignment_timeout_ms=150, max_concurrent=2, timeout_ms=60_000)
    assert ticking(machine, 1000, 2000) == [TriggerCheckpoint(1, ALIGNED, 150), TriggerCheckpoint(2, ALIGNED, 150)]
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 2001) == [TriggerCheckpoint(3, UNALIGNED)]
    assert machine.handle(SnapshotRequested(AUTO, ticket=2), 2002) == [TriggerCheckpoint(4, ALIGNED, 150)]
    assert machine.handle(SnapshotRequested(ALIGNED, ticket=3), 2003) == [TriggerCheckpoint(5, ALIGNED)], (
        "strictly, behind them"
    )
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=4), 2004) == []
    for checkpoint in (1, 2, 3, 4):
        machine.handle(DeclineCheckpoint(0, checkpoint, "no"), 2005)
    assert ticking(machine, 2100, 2900) == [], "nothing beside a strictly aligned one"
    commands = complete(machine, 5, 3001)
    assert [c for c in commands if isinstance(c, TriggerCheckpoint)] == [
        TriggerCheckpoint(6, UNALIGNED, base=5),
        TriggerCheckpoint(7, ALIGNED, 150, base=5),
    ]


def test_a_strictly_aligned_snapshot_gives_way_after_an_interval_and_is_tried_again_three_times() -> None:
    machine = started(alignment=AUTO, alignment_timeout_ms=150, timeout_ms=60_000, interval_ms=1000)
    assert machine.handle(SnapshotRequested(ALIGNED, label="x", ticket=1), 500) == [TriggerCheckpoint(1, ALIGNED)]
    text = "not acknowledged by slots [0, 1]; others had waited for one checkpoint.interval"
    for number, now_ms in enumerate((2000, 4000, 6000)):
        strict, base = 2 * number + 1, 2 * number
        assert machine.next_wake_ms() == now_ms, "the periodic one was due an interval before"
        assert machine.handle(TICK, now_ms - 1) == []
        assert machine.handle(TICK, now_ms) == [
            *aborted(strict, text, failed=False, missing=(0, 1)),
            TriggerCheckpoint(strict + 1, ALIGNED, 150, base=base),
            TriggerCheckpoint(strict + 2, ALIGNED, base=base),
        ]
        complete(machine, strict + 1, now_ms + 10)
    text = f"{text}, the last of 4 times. {WAY_OUT}"
    assert machine.handle(TICK, 8000) == [
        *aborted(7, text, failed=False, missing=(0, 1)),
        SnapshotFailed(1, 7, text, missing=(0, 1)),
        TriggerCheckpoint(8, ALIGNED, 150, base=6),
    ]


def test_it_gives_way_to_a_snapshot_that_has_waited_for_an_interval() -> None:
    machine = started(alignment=ALIGNED, timeout_ms=60_000, interval_ms=1000)
    machine.handle(SnapshotRequested(ALIGNED, timeout_ms=5000, ticket=1), 100)
    assert machine.next_wake_ms() == 5100, "strictly aligned periodic ones would wait as long"
    machine.handle(SnapshotRequested(UNALIGNED, ticket=2), 700)
    assert machine.next_wake_ms() == 1700
    assert [type(c) for c in machine.handle(TICK, 1700)] == [
        AbortCheckpoint,
        CheckpointAborted,
        TriggerCheckpoint,
        TriggerCheckpoint,
    ]
    text = f"not acknowledged by slots [0, 1] within 5000 ms. {WAY_OUT}"
    assert SnapshotFailed(1, 3, text, missing=(0, 1)) in machine.handle(TICK, 5100), (
        "its time-out counts from the request"
    )


def test_the_driver_s_own_one_is_triggered_again_without_end() -> None:
    machine = started(alignment=AUTO, timeout_ms=60_000, interval_ms=1000)
    machine.handle(SnapshotRequested(ALIGNED, kept=False, ticket=-1), 0)
    commands = ticking(machine, 100, 30_000)
    assert not [c for c in commands if isinstance(c, SnapshotFailed)]
    assert len([c for c in commands if isinstance(c, CheckpointAborted)]) > 5


def test_strictly_aligned_periodic_ones_never_overlap() -> None:
    machine = started(alignment=ALIGNED, max_concurrent=8, timeout_ms=60_000)
    assert ticking(machine, 0, 9000) == [TriggerCheckpoint(1, ALIGNED)]
    assert machine.next_wake_ms() == 61_000


def test_a_strictly_aligned_periodic_one_gives_way_to_a_snapshot_that_has_waited_for_an_interval() -> None:
    machine = started(alignment=ALIGNED, timeout_ms=60_000, interval_ms=1000)
    assert ticking(machine, 1000, 1000) == [TriggerCheckpoint(1, ALIGNED)]
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 1500) == []
    assert machine.next_wake_ms() == 2500
    assert machine.handle(TICK, 2499) == []
    text = "not acknowledged by slots [0, 1]; others had waited for one checkpoint.interval"
    assert machine.handle(TICK, 2500) == [
        *aborted(1, text, failed=False, missing=(0, 1)),
        TriggerCheckpoint(2, UNALIGNED),
        TriggerCheckpoint(3, ALIGNED),
    ]
    assert SnapshotSucceeded(1, 2) in complete(machine, 2, 2600)


def test_a_strictly_aligned_periodic_one_gives_way_when_the_query_turns_to_unaligned_ones() -> None:
    machine = started(alignment=ALIGNED, timeout_ms=60_000, interval_ms=1000)
    ticking(machine, 1000, 1000)
    machine.handle(PolicyChanged(policy(timeout_ms=60_000)), 1200)
    commands = ticking(machine, 1300, 3000)
    assert [c for c in commands if isinstance(c, TriggerCheckpoint)] == [TriggerCheckpoint(2, UNALIGNED)]


def test_a_strictly_aligned_snapshot_without_a_time_out_has_the_query_s() -> None:
    machine = started(interval_ms=100_000, timeout_ms=5000)
    machine.handle(SnapshotRequested(ALIGNED, ticket=1), 10)
    assert machine.next_wake_ms() == 5010
    text = f"not acknowledged by slots [0, 1] within 5000 ms. {WAY_OUT}"
    assert machine.handle(TICK, 5010) == [
        *aborted(1, text, failed=False, missing=(0, 1)),
        SnapshotFailed(1, 1, text, missing=(0, 1)),
    ]


def test_a_time_out_of_a_request_counts_while_it_waits() -> None:
    machine = started(alignment=ALIGNED, timeout_ms=60_000)
    machine.handle(TICK, 1000)
    machine.handle(SnapshotRequested(UNALIGNED, timeout_ms=300, ticket=1), 1100)
    machine.handle(SnapshotRequested(UNALIGNED, ticket=2), 1100)
    assert machine.next_wake_ms() == 1400
    assert machine.handle(TICK, 1400) == [SnapshotFailed(1, 0, "not triggered within 300 ms")]
    assert TriggerCheckpoint(2, UNALIGNED, base=1) in complete(machine, 1, 1500)


def test_one_that_completes_makes_older_periodic_ones_superfluous() -> None:
    machine = started(max_concurrent=4, timeout_ms=60_000)
    ticking(machine, 1000, 2000)
    machine.handle(SnapshotRequested(UNALIGNED, ticket=9), 2001)
    ticking(machine, 3000, 4000)
    assert machine.in_flight == (1, 2, 3, 4, 5)
    acknowledge(machine, 1, 4001)
    commands = complete(machine, 4, 4002)
    reason = "checkpoint 4, which is newer, is complete"
    assert [c for c in commands if isinstance(c, CheckpointAborted)] == [
        CheckpointAborted(1, reason, failed=False),
        CheckpointAborted(2, reason, failed=False),
    ]
    assert machine.in_flight == (3, 5), "a user's snapshot stays, and what is newer"
    (ignored,) = machine.handle(MetadataWritten(1), 4003)
    assert isinstance(ignored, Ignored), "its metadata was being written"


def test_what_is_being_logged_is_not_given_up_and_completes_late() -> None:
    machine = started(max_concurrent=2, timeout_ms=60_000)
    ticking(machine, 1000, 2000)
    acknowledge(machine, 1, 2001, {1: b"1"})
    machine.handle(MetadataWritten(1), 2002)
    commands = complete(machine, 2, 2003, {1: b"1", 2: b"2"})
    assert not any(isinstance(c, CheckpointAborted) for c in commands)
    assert CommitEpoch(1, SINK, {0: b"1", 1: b"1"}, batch=0) in commands
    machine.handle(EpochCommitted(1, SINK), 2004)
    machine.handle(EpochCommitted(2, SINK), 2005)
    commands = machine.handle(SnapshotLogged(1, 70), 2006)
    assert commands == [
        CheckpointCompleted(1),
        NotifyCheckpointComplete(1, 2),
        CollectGarbage(pinned=(2,), in_flight=()),
    ], "its epochs were committed already: nothing is committed twice, and the newest told stays"
    assert (machine.newest_complete, machine.committed_epoch) == (2, 2)
    assert TriggerCheckpoint(3, UNALIGNED, base=2) in machine.handle(TICK, 3000)


def test_the_base_is_the_newest_that_slots_were_told_of_and_stays_pinned() -> None:
    machine = started(max_concurrent=2, timeout_ms=60_000)
    machine.handle(TICK, 1000)
    complete(machine, 1, 1001, {1: b"1"})
    assert machine.handle(TICK, 2000) == [TriggerCheckpoint(2, UNALIGNED)], "1 is complete, but no slot was told"
    assert machine.handle(EpochCommitted(1, SINK), 2001) == [
        NotifyCheckpointComplete(1, 1),
        CollectGarbage(pinned=(1, 2), in_flight=(2,)),
    ]
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 2002) == [TriggerCheckpoint(3, UNALIGNED, base=1)]
    commands = complete(machine, 2, 2003)
    assert CollectGarbage(pinned=(1, 2, 3), in_flight=(3,)) in commands, "3 refers to 1, the next one to 2"
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=2), 2004) == [TriggerCheckpoint(4, UNALIGNED, base=2)]
    machine.handle(DeclineCheckpoint(0, 3, "no"), 2005)
    assert CollectGarbage(pinned=(4,), in_flight=()) in complete(machine, 4, 2006)


def test_the_restored_snapshot_is_the_first_base_and_pinned_for_the_channels_that_are_still_read() -> None:
    machine = started()
    machine.handle(TICK, 1000)
    complete(machine, 1, 1001)
    machine.handle(GenerationEnded(1, "lost"), 1002)
    machine.handle(GenerationOpened(2, 1, 2, 66, 1), 1003)
    machine.handle(AllSlotsRunning(2), 1004)
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 1005) == [TriggerCheckpoint(2, UNALIGNED, base=1)]
    assert machine.handle(SnapshotRequested(UNALIGNED, ticket=2), 1006) == [TriggerCheckpoint(3, UNALIGNED, base=1)]
    commands = complete(machine, 3, 1007)
    assert CollectGarbage(pinned=(1, 2, 3), in_flight=(2,)) in commands


# -- tolerable failures -----------------------------------------------------------------------------------------------


def failures(machine: CheckpointCoordinator, number: int, now_ms: float) -> list[CheckpointCommand]:
    """So many periodic checkpoints are triggered and declined."""
    commands: list[CheckpointCommand] = []
    for _ in range(number):
        now_ms += 1000
        (trigger,) = machine.handle(TICK, now_ms)
        assert isinstance(trigger, TriggerCheckpoint)
        commands += machine.handle(DeclineCheckpoint(1, trigger.checkpoint, "disk full"), now_ms)
    return [command for command in commands if isinstance(command, FailGeneration)]


def test_any_number_of_failures_is_tolerated_by_default() -> None:
    assert failures(started(), 30, 0) == []


def test_one_failure_too_many_in_a_row_fails_the_generation_once() -> None:
    machine = started(tolerable_failures=2)
    assert failures(machine, 3, 0) == [
        FailGeneration(
            1,
            "3 periodic checkpoints failed in a row, more than checkpoint.tolerableFailures=2; the last was "
            "checkpoint 3: slot 1 declined: disk full",
        )
    ]
    assert machine.handle(TICK, 9000) == [], "nothing is triggered any more"
    machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 9001)
    assert machine.in_flight == ()
    machine.handle(GenerationEnded(1, "checkpoints"), 9002)
    machine.handle(GenerationOpened(2, 0, 4, 68), 9003)
    assert machine.handle(AllSlotsRunning(2), 9004) == [TriggerCheckpoint(4, UNALIGNED)]


def test_what_fails_the_store_fails_checkpoints() -> None:
    machine = started(tolerable_failures=2)
    machine.handle(TICK, 1000)
    acknowledge(machine, 1, 1001)
    machine.handle(MetadataFailed(1, "full"), 1002)
    machine.handle(TICK, 2000)
    acknowledge(machine, 2, 2001)
    machine.handle(MetadataWritten(2), 2002)
    machine.handle(LogFailed(2, "full"), 2003)
    machine.handle(TICK, 3000)
    commands = machine.handle(TICK, 8000)
    assert isinstance(commands[-1], FailGeneration), "the third timed out"


def test_a_complete_one_begins_the_count_anew_and_others_ends_do_not_count() -> None:
    machine = started(tolerable_failures=1, max_concurrent=3)
    assert failures(machine, 1, 0) == []
    machine.handle(SnapshotRequested(UNALIGNED, ticket=1), 1001)
    assert machine.handle(DeclineCheckpoint(0, 2, "no"), 1002)[-1] == SnapshotFailed(1, 2, "slot 0 declined: no")
    ticking(machine, 2000, 4000, 1000)
    assert machine.in_flight == (3, 4, 5)
    commands = complete(machine, 5, 4001)
    assert sum(isinstance(c, CheckpointAborted) for c in commands) == 2
    assert not any(isinstance(c, FailGeneration) for c in commands)
    assert failures(machine, 1, 4001) == []
    assert len(failures(machine, 1, 5001)) == 1


def test_the_end_of_a_generation_is_no_failure_of_its_checkpoints() -> None:
    machine = started(tolerable_failures=0, max_concurrent=3)
    ticking(machine, 1000, 3000)
    commands = machine.handle(GenerationEnded(1, "slot lost"), 3001)
    assert [type(command) for command in commands] == [CheckpointAborted] * 3
