"""Commands of the job coordinator, their completion events, and its other outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from penstock.coordinator.machines.checkpoint_events import (
    CheckpointAborted,
    CheckpointEvent,
    CollectGarbage,
    CommitEpoch,
    CommitFailed,
    FailGeneration,
    FailQuery,
    GenerationOpened,
    Ignored,
    LogSnapshot,
    MetadataFailed,
    ReserveIds,
    SnapshotFailed,
    SnapshotSucceeded,
    Tick,
)
from penstock.coordinator.machines.splits import Discover, FreezeSource, SplitsFound
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SnapshotMetadata, SubtaskManifest
from penstock.model.messages import FromSlot, ToSubtask
from penstock.model.plain import Plain
from penstock.snapshots.commands.requests import TakeSnapshot

# -- commands: executed off the owner's thread, one at a time and in order per executor --------------------


@dataclass(frozen=True)
class OpenGeneration:
    """Take the location over: read the log, choose and check a snapshot, append ``generation-opened``.

    Attributes:
        committed_epoch: what this driver knows to be committed beyond the log.
        next_checkpoint: this driver's next id, or None for its first Generation: then ids start beyond all reserved.
        checksums: verify every byte of the snapshot, not lengths only.
        parallelism: of the Generation; None: as the graph has it.
    """

    committed_epoch: int = 0
    next_checkpoint: CheckpointId | None = None
    checksums: bool = True
    parallelism: int | None = None


@dataclass(frozen=True)
class WriteSnapshot:
    """Write the metadata (``created_ms`` is filled in by the executor)."""

    metadata: SnapshotMetadata


@dataclass(frozen=True)
class AnswerRequestFiles:
    """Read the request files and carry out what they ask for.

    ``spared``: files that a collection at this point of the command order must spare.
    """

    spared: CollectGarbage


@dataclass(frozen=True)
class AnswerTake:
    """Tell who asked for a snapshot by a request file what became of it."""

    token: str
    snapshot: str
    refusal: str = ""


@dataclass(frozen=True)
class AbandonStagedData:
    """Staged data of Generations up to this one is needed no more: all their pending epochs are committed."""

    generation: GenerationId


@dataclass(frozen=True)
class CheckLocation:
    """Check that the checkpoint location still exists; answered with LocationChecked."""


@dataclass(frozen=True)
class NotifySourceCommitted:
    """Call ``Source.committed``: everything found before this state is read and in a complete snapshot."""

    vertex: int
    state: Plain


Command = (
    OpenGeneration
    | WriteSnapshot
    | LogSnapshot
    | ReserveIds
    | CollectGarbage
    | AnswerRequestFiles
    | AnswerTake
    | CheckLocation
    | CommitEpoch
    | AbandonStagedData
    | Discover
    | FreezeSource
    | NotifySourceCommitted
)

# -- events that only the driver has (besides those of the coordinator) --------------------


@dataclass(frozen=True)
class GenerationReady:
    """This driver owns the location.

    Attributes:
        opened: what the log holds about the Generation.
        restored: metadata of the restored snapshot; None for a first start.
        slots: what each slot restores, by index; empty lists for a first start.
        skipped: reasons for which newer snapshots were not chosen.
        fences: results of ``SinkCommitter.fence``, by operator id.
        inflight_rows: rows of in-flight data that will be replayed. Exact if this driver has opened a Generation
            before, otherwise an upper bound.
    """

    opened: GenerationOpened
    restored: SnapshotMetadata | None
    slots: list[list[SubtaskManifest]]
    skipped: tuple[str, ...] = ()
    fences: Mapping[str, str] = field(default_factory=dict)
    inflight_rows: int = 0


@dataclass(frozen=True)
class DrainRequested:
    """Request of a user to drain: read what is available now, end event time, commit and finish.

    It applies to all later Generations. It applies to a later driver once a snapshot contains the end of event time.
    See ``JobCoordinator.check_drainable``.
    """


@dataclass(frozen=True)
class CollectionFailed:
    """Space was not freed; the next collection tries again."""

    reason: str


@dataclass(frozen=True)
class TakesRequested:
    """Snapshots that request files ask for, by token. The owner answers each with an ``AnswerTake``."""

    takes: tuple[tuple[str, TakeSnapshot], ...]


@dataclass(frozen=True)
class LocationChecked:
    """``missing``: what a removed location lacks; empty if the location exists or the store fails."""

    missing: str


JobEvent = (
    CheckpointEvent
    | FromSlot
    | GenerationReady
    | SplitsFound
    | DrainRequested
    | CollectionFailed
    | TakesRequested
    | LocationChecked
)

# -- outputs that are not commands --------------------


@dataclass(frozen=True)
class LaunchSlots:
    """Notice for the owner: start the slots of this Generation and send each its manifests.

    ``paused``: sources start paused.
    """

    ready: GenerationReady
    paused: bool = False


@dataclass(frozen=True)
class SnapshotCompleted:
    """To the owner: a snapshot is complete and logged (its epochs may still await their commit)."""

    metadata: SnapshotMetadata


@dataclass(frozen=True)
class EpochsCommitted:
    """To the owner: every epoch up to this one is visible (or was empty)."""

    epoch: int


@dataclass(frozen=True)
class QueryFinished:
    """To the owner, last of all: the input has ended and everything up to this checkpoint is committed. Stop orderly;
    nothing more comes of it if the owner does not."""

    checkpoint: CheckpointId


@dataclass(frozen=True)
class LastSnapshotCommitted:
    """To the owner: the snapshot that was asked for as the last is complete, and so are its commits. Stop orderly."""

    checkpoint: CheckpointId


Notice = (
    LaunchSlots
    | SnapshotCompleted
    | EpochsCommitted
    | QueryFinished
    | LastSnapshotCommitted
    | CheckpointAborted
    | SnapshotSucceeded
    | SnapshotFailed
    | FailQuery
    | FailGeneration
    | Ignored
)
"""Output for the owner of the job coordinator. ``GenerationEnded`` answers ``FailGeneration``, as it does the loss of a
slot."""

Output = Command | ToSubtask | Notice
"""Commands are executed by the command executor, messages are sent to slots."""

EXECUTED_AT_THE_END = (NotifySourceCommitted, AnswerTake)
"""Commands that are executed even if the driver ends first."""


def executor_of(command: Command) -> str:
    """Return the name of the serial executor that carries it out. Executors are independent of each other."""
    match command:
        case CommitEpoch() | AbandonStagedData():
            return "commit"
        case Discover(vertex=vertex) | FreezeSource(vertex=vertex) | NotifySourceCommitted(vertex=vertex):
            return f"source {vertex}"
        case (
            OpenGeneration()
            | WriteSnapshot()
            | LogSnapshot()
            | ReserveIds()
            | CollectGarbage()
            | AnswerRequestFiles()
            | AnswerTake()
            | CheckLocation()
        ):
            return "log"
        case _:
            assert_never(command)


def event_of_failure(command: Command, reason: str) -> JobEvent:
    """Return the event for the state machine after a command that was not executed.

    The state machine requests a commit again; that commit finds what is already visible. For a command without an
    awaited result the event is the time.
    """
    match command:
        case CommitEpoch(epoch, operator_id):
            return CommitFailed(epoch, operator_id, reason)
        case WriteSnapshot(metadata):
            return MetadataFailed(metadata.checkpoint, reason)
    return Tick()
