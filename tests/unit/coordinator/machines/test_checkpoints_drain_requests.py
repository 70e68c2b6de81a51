"""The request for a snapshot with nothing in flight: it lasts until it is answered, and pauses the sources so long."""

from __future__ import annotations

from penstock.coordinator.machines.checkpoint_events import (
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCommand,
    GenerationEnded,
    GenerationOpened,
    SnapshotFailed,
    SnapshotRequested,
    Tick,
)
from penstock.coordinator.machines.checkpoints import ID_BLOCK, MAX_CANCELLATIONS, CheckpointCoordinator
from penstock.coordinator.machines.splits import Discover, Pause, SplitAssigner, SplitsFound
from penstock.model.messages import DeclineCheckpoint, PauseReaders, SourceIdle, TriggerCheckpoint
from penstock.model.splits import Discovery
from tests.support.coordinator.coordinator_kit import ALIGNED, UNALIGNED, ask, complete, started

TICK = Tick()
DRAIN = SnapshotRequested(ALIGNED, last=True, drain=True, ticket=7)


def triggers(commands: list[CheckpointCommand]) -> list[TriggerCheckpoint]:
    return [command for command in commands if isinstance(command, TriggerCheckpoint)]


def drained() -> CheckpointCoordinator:
    machine = started()
    assert not machine.is_draining_inflight
    assert machine.handle(DRAIN, 100) == [TriggerCheckpoint(1, ALIGNED)]
    assert machine.is_draining_inflight
    return machine


def test_it_gives_way_any_number_of_times() -> None:
    machine, now_ms = drained(), 100.0
    for _ in range(MAX_CANCELLATIONS + 5):
        now_ms = machine.next_wake_ms() or 0.0
        commands = machine.handle(TICK, now_ms)
        periodic, again = triggers(commands)
        assert (periodic.alignment, again.alignment) == (UNALIGNED, ALIGNED)
        assert not [command for command in commands if isinstance(command, SnapshotFailed)]
        complete(machine, periodic.checkpoint, now_ms + 1)
        assert machine.is_draining_inflight
    complete(machine, again.checkpoint, now_ms + 2)
    assert machine.is_draining_inflight, "nothing is read behind it"
    assert machine.committed_last == again.checkpoint


def test_it_is_triggered_again_in_the_next_generation() -> None:
    machine = drained()
    commands = machine.handle(GenerationEnded(1, "a slot was lost"), 200)
    assert [type(command) for command in commands] == [CheckpointAborted]
    assert machine.is_draining_inflight
    assert machine.handle(GenerationOpened(2, 0, 65, 65 + ID_BLOCK), 300) == []
    assert machine.is_draining_inflight
    assert triggers(machine.handle(AllSlotsRunning(2), 400)) == [TriggerCheckpoint(65, ALIGNED)]


def test_sources_may_read_when_it_has_failed() -> None:
    machine = drained()
    commands = machine.handle(DeclineCheckpoint(0, 1, "its disk is full"), 200)
    assert SnapshotFailed(7, 1, "slot 0 declined: its disk is full") in commands
    assert not machine.is_draining_inflight
    machine = started(alignment=ALIGNED)
    machine.handle(DRAIN, 0)
    (failed,) = [command for command in machine.handle(TICK, 5000) if isinstance(command, SnapshotFailed)]
    assert failed.reason.endswith("All rows in flight are processed first: raise checkpoint.timeout, or add slots")
    assert not machine.is_draining_inflight


def test_a_paused_source_is_not_looked_at() -> None:
    assigner = SplitAssigner(1, "source", 3, 1, paused=True)
    assert ask(assigner, 0, 0, received=0) == []
    assert assigner.next_wake_ms() is None
    assert assigner.handle(Pause(False), 1) == [PauseReaders(3, False), Discover(1, 3, None)]
    assert assigner.handle(Pause(True), 2) == [PauseReaders(3, True)]
    found = SplitsFound(1, 3, Discovery([], 1))
    assert assigner.handle(found, 3) == [SourceIdle(3, None)], "the look was under way"
    assert assigner.handle(Tick(), 10_000) == []
