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
    """Take over the location: read the log, choose and check a snapshot, append ``generation-opened``.

    Attributes:
        committed_epoch: newest committed epoch known to this driver, which may be beyond the log.
        next_checkpoint: this driver's next id. None for its first generation: ids then start after all reserved ones.
        checksums: verify every byte of the snapshot, not only lengths.
        parallelism: parallelism of the generation; None: that of the graph.
    """

    committed_epoch: int = 0
    next_checkpoint: CheckpointId | None = None
    checksums: bool = True
    parallelism: int | None = None


@dataclass(frozen=True)
class WriteSnapshot:
    """Write the metadata of a snapshot. The executor sets ``created_ms``."""

    metadata: SnapshotMetadata


@dataclass(frozen=True)
class AnswerRequestFiles:
    """Read the request files and execute the requests in them.

    ``spared``: files that a collection at this point of the command order must spare.
    """

    spared: CollectGarbage


@dataclass(frozen=True)
class AnswerTake:
    """Answer a request file that asked for a snapshot."""

    token: str
    snapshot: str
    refusal: str = ""


@dataclass(frozen=True)
class AbandonStagedData:
    """Abandon staged data of generations up to this one, because all their pending epochs are committed."""

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
    """Reports that this driver owns the location.

    Attributes:
        opened: the log's data about the generation.
        restored: metadata of the restored snapshot; None for a first start.
        slots: data that each slot restores, by index; empty lists for a first start.
        skipped: reasons for which newer snapshots were not chosen.
        fences: results of ``SinkCommitter.fence``, by operator id.
        inflight_rows: number of in-flight rows that will be replayed. It is exact if this opening is the driver's
            first and all shared sections can be read; otherwise it is an upper bound.
    """

    opened: GenerationOpened
    restored: SnapshotMetadata | None
    slots: list[list[SubtaskManifest]]
    skipped: tuple[str, ...] = ()
    fences: Mapping[str, str] = field(default_factory=dict)
    inflight_rows: int = 0


@dataclass(frozen=True)
class DrainRequested:
    """Request of a user to drain: read the input available now, end event time, commit and finish.

    It applies to all later generations. It applies to a later driver once a snapshot contains the end of event time.
    See ``JobCoordinator.check_drainable``.
    """


@dataclass(frozen=True)
class CollectionFailed:
    """Reports that space was not freed. The next collection tries again."""

    reason: str


@dataclass(frozen=True)
class TakesRequested:
    """Snapshots that request files ask for, by token. The owner answers each with an ``AnswerTake``."""

    takes: tuple[tuple[str, TakeSnapshot], ...]


@dataclass(frozen=True)
class LocationChecked:
    """Result of CheckLocation.

    ``missing``: part that a removed location lacks; empty if it exists or the store fails.
    """

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
    """Notice for the owner: start the slots of this generation and send each its manifests.

    ``paused``: sources start paused.
    """

    ready: GenerationReady
    paused: bool = False


@dataclass(frozen=True)
class SnapshotCompleted:
    """Notice for the owner: a snapshot is complete and logged. Its epochs may still await their commit."""

    metadata: SnapshotMetadata


@dataclass(frozen=True)
class EpochsCommitted:
    """Notice for the owner: every epoch up to this one is visible or was empty."""

    epoch: int


@dataclass(frozen=True)
class QueryFinished:
    """Last notice for the owner: the input has ended, and everything up to this checkpoint is committed.

    The owner must stop orderly. If it does not, nothing further happens.
    """

    checkpoint: CheckpointId


@dataclass(frozen=True)
class LastSnapshotCommitted:
    """Notice for the owner: the snapshot requested as the last one is complete and committed.

    The owner must stop orderly.
    """

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
"""Output for the owner of the job coordinator.

The owner answers ``FailGeneration`` with ``GenerationEnded``, as after the loss of a slot.
"""

Output = Command | ToSubtask | Notice
"""All outputs. Commands are executed by the command executor; messages are sent to slots."""

EXECUTED_AT_THE_END = (NotifySourceCommitted, AnswerTake)
"""Commands that are executed even if the driver ends first."""


def executor_of(command: Command) -> str:
    """Return the name of the serial executor that executes a command. Executors are independent of each other."""
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

    The state machine requests a commit again; that commit detects output that is already visible. For a command without
    an awaited result, the event is a ``Tick``.
    """
    match command:
        case CommitEpoch(epoch, operator_id):
            return CommitFailed(epoch, operator_id, reason)
        case WriteSnapshot(metadata):
            return MetadataFailed(metadata.checkpoint, reason)
    return Tick()
