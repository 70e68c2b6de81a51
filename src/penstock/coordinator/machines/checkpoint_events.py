"""Events and commands of the checkpoint coordinator. All are immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.coordinator.machines.commits import PendingCommit
from penstock.coordinator.machines.restarts import RestartPolicy
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SlotManifest
from penstock.model.messages import (
    AbortCheckpoint,
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

MAX_AWAITING_COMMIT = 8
"""Maximum number of epochs that await their commit. At this number triggering pauses.

Otherwise snapshots would accumulate while a sink fails.
"""
MAX_IN_FLIGHT = 8
"""Maximum number of checkpoints in flight, including those requested by users."""
DEFAULT_RETRIES = RestartPolicy(attempts=10, delay_ms=100, max_delay_ms=10_000)
"""Retries of a commit with about 40 s of pauses in total."""
AFTER_RESTORE_MS = 500
"""Time in milliseconds from the start of a restored generation to its first checkpoint.

It is shorter than the interval, because a failure before that checkpoint completes loses all work since the restore. An
even earlier checkpoint would save little.
"""


@dataclass(frozen=True)
class CheckpointPolicy:
    """Policy of the checkpoint coordinator. Times in milliseconds.

    Attributes:
        alignment_timeout_ms: time budget of AUTO checkpoints.
        commit_retries: number and pauses of the retries of a failed commit.
        commit_timeout_ms: time limit for the retries, instead of their number; None: the number applies.
        after_restore_ms: time from the start of a restored generation to its first checkpoint, if the interval is
            longer.
        min_pause_ms: time from the end of a periodic checkpoint to the next; if set, they do not overlap.
        max_concurrent: maximum number of periodic checkpoints in flight.
        tolerable_failures: number of periodic checkpoints that may fail in a row before the generation is failed; None:
            any number.
    """

    interval_ms: int
    timeout_ms: int
    alignment: Alignment
    alignment_timeout_ms: int = 200
    min_pause_ms: int = 0
    max_awaiting_commit: int = MAX_AWAITING_COMMIT
    max_concurrent: int = 1
    tolerable_failures: int | None = None
    after_restore_ms: int = AFTER_RESTORE_MS
    commit_retries: RestartPolicy = DEFAULT_RETRIES
    commit_timeout_ms: int | None = None


# -- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tick:
    """Reports that time has passed."""


@dataclass(frozen=True)
class PolicyChanged:
    policy: CheckpointPolicy


@dataclass(frozen=True)
class GenerationOpened:
    """Reports that the log has the entry ``generation-opened``.

    Attributes:
        restored: the checkpoint that is restored, 0 for a first start.
        parallelism: number of slots; None: as before.
        next_batch: no batch id below it may be used.
        planned: id of the batch that must be processed alone before all others; None: there is none.
    """

    generation: GenerationId
    restored: CheckpointId
    next_checkpoint: CheckpointId
    reserved_until: CheckpointId
    committed_epoch: int = 0
    pending: tuple[PendingCommit, ...] = ()
    parallelism: int | None = None
    next_batch: int = 0
    planned: int | None = None


@dataclass(frozen=True)
class AllSlotsRunning:
    """Reports that every slot of the generation runs. Checkpoints may be triggered."""

    generation: GenerationId


@dataclass(frozen=True)
class GenerationEnded:
    """Reports that a slot or link was lost, or that the query stops.

    No checkpoint of this generation can be acknowledged any more.
    """

    generation: GenerationId
    reason: str


@dataclass(frozen=True)
class SnapshotRequest:
    """Request for a snapshot.

    Attributes:
        alignment: alignment mode of its checkpoint.
        label: name given by the user; empty for none.
        note: text of the user about it.
        timeout_ms: time-out, counted from the request. None: the policy's time-out, counted from the trigger. So a
            strictly aligned snapshot, which makes all others wait, always has a time-out.
        kept: True if it is never removed automatically; False for a snapshot that the driver itself needs now.
        last: the query ends with it: nothing is triggered after it, unless it fails.
        drain: it must have no in-flight data. It is strictly aligned and the ``last``, and sources read nothing while
            it is requested. It may be canceled for others any number of times, and if its generation ends, the next one
            triggers it again.
    """

    alignment: Alignment
    label: str = ""
    note: str = ""
    timeout_ms: int | None = None
    kept: bool = True
    last: bool = False
    drain: bool = False


@dataclass(frozen=True)
class SnapshotRequested(SnapshotRequest):
    """Reports that a snapshot is requested. Exactly one SnapshotSucceeded or SnapshotFailed answers the ticket.

    Attributes:
        ticket: positive for requests of the driver's owner; others are the driver's own.
        planned: True for the checkpoint of the planned batch; all others wait for it.
    """

    ticket: int = field(kw_only=True)
    planned: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class MetadataWritten:
    """Reports that the metadata was written. ``created_ms``: the wall-clock time that was written."""

    checkpoint: CheckpointId
    created_ms: int = 0


@dataclass(frozen=True)
class MetadataFailed:
    """Reports that the metadata could not be written.

    ``damaged``: files of older checkpoints that this one references are missing or changed.
    """

    checkpoint: CheckpointId
    reason: str
    damaged: bool = False


@dataclass(frozen=True)
class SnapshotLogged:
    checkpoint: CheckpointId
    reserved_until: CheckpointId


@dataclass(frozen=True)
class LogFailed:
    """Reports that the entry is not in the log. Losing the log to another driver raises ``Fenced`` instead."""

    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True)
class IdsReserved:
    reserved_until: CheckpointId


@dataclass(frozen=True)
class ReserveFailed:
    """Reports that no more ids could be reserved in the log."""

    reason: str


@dataclass(frozen=True)
class EpochCommitted:
    epoch: int
    operator_id: str


@dataclass(frozen=True)
class CommitFailed:
    """Failed commit. ``unknown``: it may be visible nevertheless, so this driver never sends it again."""

    epoch: int
    operator_id: str
    reason: str
    unknown: bool = False


CheckpointEvent = (
    Tick
    | PolicyChanged
    | GenerationOpened
    | AllSlotsRunning
    | GenerationEnded
    | SnapshotRequested
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | MetadataWritten
    | MetadataFailed
    | SnapshotLogged
    | LogFailed
    | IdsReserved
    | ReserveFailed
    | EpochCommitted
    | CommitFailed
)


def describe(event: CheckpointEvent) -> str:
    """Return a short text for the event, because a manifest would be very long."""
    if isinstance(event, AcknowledgeCheckpoint):
        return f"AcknowledgeCheckpoint(checkpoint={event.checkpoint}, slot={event.manifest.slot})"
    return repr(event)[:200]


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteMetadata:
    """Write the metadata of a checkpoint that all slots have acknowledged.

    Attributes:
        slots: manifests by slot index.
        batches, next_batch: as in ``SnapshotMetadata``.
    """

    checkpoint: CheckpointId
    generation: GenerationId
    alignment: Alignment
    requested: bool
    label: str
    slots: tuple[SlotManifest, ...]
    note: str = ""
    batches: Mapping[int, int] = field(default_factory=dict)
    next_batch: int = 0


@dataclass(frozen=True)
class LogSnapshot:
    """Append ``snapshot-complete`` with ``committed_epoch``; ids are reserved below ``reserve``."""

    generation: GenerationId
    checkpoint: CheckpointId
    committed_epoch: int
    reserve: CheckpointId


@dataclass(frozen=True)
class ReserveIds:
    """Reserve checkpoint ids below ``reserve`` in the log."""

    generation: GenerationId
    reserve: CheckpointId
    committed_epoch: int


@dataclass(frozen=True)
class CommitEpoch:
    """Make one epoch of one sink visible. No other commit runs meanwhile. ``batch``: the epoch's batch id."""

    epoch: int
    operator_id: str
    messages: Mapping[int, bytes]
    batch: int = 0


@dataclass(frozen=True)
class CheckpointAborted:
    """The checkpoint was given up; the query continues. ``AbortCheckpoint`` to the slots precedes it if they run.

    Attributes:
        failed: False if nothing went wrong with it (a newer one made it superfluous, or its generation ended), or if it
            was requested by a user, who gets ``SnapshotFailed``.
        missing: the slots that have not acknowledged it, if that is the reason.
    """

    checkpoint: CheckpointId
    reason: str
    failed: bool = True
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class CheckpointCompleted:
    """The snapshot exists from now on."""

    checkpoint: CheckpointId


@dataclass(frozen=True)
class CollectGarbage:
    """Apply retention and collect orphans.

    Attributes:
        pinned: checkpoints that those ``in_flight`` may refer to, or that may be the base of one before the next
            collection.
    """

    pinned: tuple[CheckpointId, ...]
    in_flight: tuple[CheckpointId, ...]


@dataclass(frozen=True)
class SnapshotSucceeded:
    ticket: int
    checkpoint: CheckpointId


@dataclass(frozen=True)
class SnapshotFailed:
    """Answer to a request that failed.

    ``checkpoint`` is 0 if none was triggered. ``missing``: see ``CheckpointAborted``.
    """

    ticket: int
    checkpoint: CheckpointId
    reason: str
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class FailQuery:
    """Fail the query, because a sink cannot be committed."""

    reason: str


@dataclass(frozen=True)
class FailGeneration:
    """Fail the generation after too many failed checkpoints, as if a slot was lost. ``GenerationEnded`` follows."""

    generation: GenerationId
    reason: str


@dataclass(frozen=True)
class Ignored:
    """The event changed nothing, for the given reason."""

    event: CheckpointEvent
    reason: str


CheckpointCommand = (
    TriggerCheckpoint
    | WriteMetadata
    | LogSnapshot
    | ReserveIds
    | CommitEpoch
    | NotifyCheckpointComplete
    | AbortCheckpoint
    | CheckpointAborted
    | CheckpointCompleted
    | CollectGarbage
    | SnapshotSucceeded
    | SnapshotFailed
    | FailQuery
    | FailGeneration
    | Ignored
)
