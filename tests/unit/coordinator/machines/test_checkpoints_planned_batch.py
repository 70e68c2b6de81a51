"""A batch that Spark had planned: nothing else is read or covered before its own checkpoint is complete."""

from __future__ import annotations

from dataclasses import replace

from penstock.coordinator.machines.checkpoint_events import (
    AllSlotsRunning,
    CommitEpoch,
    EpochCommitted,
    GenerationEnded,
    GenerationOpened,
    SnapshotRequested,
    Tick,
)
from penstock.coordinator.machines.checkpoints import ID_BLOCK, CheckpointCoordinator
from penstock.coordinator.machines.commits import CommitLedger
from penstock.coordinator.machines.job import PLANNED_TICKET
from penstock.coordinator.machines.splits import Discover, ReleaseDiscovery, SplitAssigner
from penstock.model.elements import Alignment
from penstock.model.manifest import SourceManifest
from penstock.model.messages import AssignSplits, TriggerCheckpoint
from penstock.model.splits import Split
from tests.support.coordinator.coordinator_kit import SINK, SINK_VERTEX, ask, complete, policy

TICK = Tick()

COVERS = SnapshotRequested(Alignment.ALIGNED, kept=False, planned=True, ticket=PLANNED_TICKET)


def begun() -> CheckpointCoordinator:
    """A coordinator whose location begins with batch 7 planned: ids from 8 on are free."""
    machine = CheckpointCoordinator(policy(), 2, CommitLedger({SINK_VERTEX: SINK}))
    opened = GenerationOpened(2, 1, 9, 9 + ID_BLOCK, 1, next_batch=8, planned=7)
    assert machine.handle(opened, 0) == []
    machine.handle(AllSlotsRunning(2), 0)
    return machine


def test_the_checkpoint_of_a_planned_batch_is_first_and_uses_its_id() -> None:
    machine = begun()
    assert machine.next_wake_ms() is None
    assert machine.handle(TICK, 10_000) == [], "no periodic one"
    users = SnapshotRequested(Alignment.UNALIGNED, ticket=5)
    assert machine.handle(users, 10_001) == [], "nor a user's"
    assert machine.handle(COVERS, 10_002) == [TriggerCheckpoint(9, Alignment.ALIGNED, base=1)]
    commands = complete(machine, 9, 10_003, {9: b"planned"})
    assert CommitEpoch(9, SINK, {0: b"planned", 1: b"planned"}, batch=7) in commands
    assert [c.checkpoint for c in commands if isinstance(c, TriggerCheckpoint)] == [10, 11], (
        "the user's, and a periodic one"
    )
    commands = complete(machine, 10, 10_004, {10: b"next"})
    assert CommitEpoch(10, SINK, {0: b"next", 1: b"next"}, batch=8) in machine.handle(EpochCommitted(9, SINK), 10_005)
    machine.check_invariants()


def test_the_id_of_a_planned_batch_without_output_is_used() -> None:
    machine = begun()
    machine.handle(COVERS, 1)
    complete(machine, 9, 2)
    machine.handle(TICK, 5_000)
    commands = complete(machine, 10, 5_001, {10: b"next"})
    assert CommitEpoch(10, SINK, {0: b"next", 1: b"next"}, batch=8) in commands


def test_a_request_that_waited_when_its_generation_ended_is_not_made_in_the_next_one() -> None:
    machine = CheckpointCoordinator(policy(), 2, CommitLedger({SINK_VERTEX: SINK}))
    opened = GenerationOpened(2, 1, 9, 9 + ID_BLOCK, 1, next_batch=8, planned=7)
    machine.handle(opened, 0)
    assert machine.handle(COVERS, 1) == [], "not all slots run"
    machine.handle(GenerationEnded(2, "slot lost"), 2)
    machine.handle(replace(opened, generation=3), 3)
    assert machine.handle(AllSlotsRunning(3), 4) == []
    assert machine.handle(COVERS, 5) == [TriggerCheckpoint(9, Alignment.ALIGNED, base=1)]


def test_there_is_no_discovery_before_the_release() -> None:
    split = Split("planned", {})
    manifest = SourceManifest("source", 0, {"read": 1}, [split])
    assigner = SplitAssigner(1, "source", 0, 1, manifest, discovery_held=True)
    assert assigner.handle(AllSlotsRunning(1), 0) == []
    assert ask(assigner, 0, 1, received=0) == [AssignSplits(0, 0, (split,))]
    assert not assigner.readers_idle
    assert ask(assigner, 0, 2, received=1) == []
    assert assigner.readers_idle
    assert assigner.next_wake_ms() is None
    assert assigner.handle(Tick(), 10_000) == []
    assert assigner.handle(ReleaseDiscovery(), 10_001) == [Discover(1, 0, {"read": 1})]
    assigner.check_invariants()
