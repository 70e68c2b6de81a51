"""Builders for the coordinator's tests."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.coordinator.machines.checkpoint_events import (
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCommand,
    CheckpointPolicy,
    GenerationOpened,
    LogSnapshot,
    MetadataWritten,
    SnapshotLogged,
    WriteMetadata,
)
from penstock.coordinator.machines.checkpoints import ID_BLOCK, CheckpointCoordinator
from penstock.coordinator.machines.commits import CommitLedger
from penstock.coordinator.machines.process_all_available import ProcessAllTracker
from penstock.coordinator.machines.splits import SplitAssigner, SplitCommand
from penstock.model.elements import Alignment
from penstock.model.manifest import SlotManifest, SubtaskManifest
from penstock.model.messages import AbortCheckpoint, AcknowledgeCheckpoint, ReaderStatus, RequestSplit

SINK = "sink-1"
SINK_VERTEX = 2
UNALIGNED = Alignment.UNALIGNED
ALIGNED = Alignment.ALIGNED


def manifest(slot: int, messages: Mapping[int, bytes] | None = None) -> SlotManifest:
    """Return the manifest of a slot with sink messages by epoch and nothing else."""
    return SlotManifest(slot, [SubtaskManifest(SINK_VERTEX, slot, pending_messages=dict(messages or {}))])


def policy(**changes: object) -> CheckpointPolicy:
    values: dict[str, object] = {"interval_ms": 1000, "timeout_ms": 5000, "alignment": UNALIGNED, **changes}
    return CheckpointPolicy(**values)  # type: ignore[arg-type]


def started(parallelism: int = 2, now_ms: float = 0.0, **changes: object) -> CheckpointCoordinator:
    """A coordinator whose Generation 1 runs since ``now_ms``."""
    machine = CheckpointCoordinator(policy(**changes), parallelism, CommitLedger({SINK_VERTEX: SINK}))
    assert machine.handle(GenerationOpened(1, 0, 1, 1 + ID_BLOCK), now_ms) == []
    assert machine.handle(AllSlotsRunning(1), now_ms) == []
    return machine


def acknowledge(
    machine: CheckpointCoordinator,
    checkpoint: int,
    now_ms: float,
    messages: Mapping[int, bytes] | None = None,
    parallelism: int = 2,
) -> list[CheckpointCommand]:
    """All slots acknowledge; every one of them reports the same messages."""
    commands: list[CheckpointCommand] = []
    for slot in range(parallelism):
        commands += machine.handle(AcknowledgeCheckpoint(checkpoint, manifest(slot, messages)), now_ms)
        machine.check_invariants()
    return commands


def complete(
    machine: CheckpointCoordinator,
    checkpoint: int,
    now_ms: float,
    messages: Mapping[int, bytes] | None = None,
) -> list[CheckpointCommand]:
    """Acknowledge, write and log a triggered checkpoint; the commands of the last step."""
    (write,) = acknowledge(machine, checkpoint, now_ms, messages)
    assert isinstance(write, WriteMetadata)
    (log,) = machine.handle(MetadataWritten(checkpoint), now_ms)
    assert isinstance(log, LogSnapshot)
    commands = machine.handle(SnapshotLogged(checkpoint, log.reserve), now_ms)
    machine.check_invariants()
    return commands


def ask(
    machine: SplitAssigner,
    index: int,
    now_ms: float,
    *,
    unread: int = 0,
    seen_us: int | None = None,
    received: int | None = None,
    frozen: bool = False,
) -> list[SplitCommand]:
    """Report a reader's status and request a split for it. ``received``: by default all that it was assigned."""
    if received is None:
        received = machine.readers[index].assigned if index < machine.parallelism else 0
    status = ReaderStatus(machine.vertex, index, unread, received, seen_us, frozen=frozen)
    request = RequestSplit(machine.vertex, index, frozen)
    return machine.handle(status, now_ms) + machine.handle(request, now_ms)


def aborted(
    checkpoint: int, reason: str, failed: bool = True, missing: tuple[int, ...] = ()
) -> list[CheckpointCommand]:
    """Return the commands of a checkpoint that is given up while the slots run."""
    return [AbortCheckpoint(checkpoint), CheckpointAborted(checkpoint, reason, failed, missing)]


def discover(tracker: ProcessAllTracker, vertex: int = 0) -> None:
    """Run one discovery of a source."""
    tracker.discovery_begins(vertex)
    tracker.discovery_ended(vertex)
