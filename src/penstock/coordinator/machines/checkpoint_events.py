"""Events and commands of the checkpoint coordinator: frozen values, nothing else."""

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
"""Epochs that may await their commit; beyond, triggering pauses, so that a dead sink does not pile up snapshots."""
MAX_IN_FLIGHT = 8
"""Checkpoints in flight, those that users asked for included."""
DEFAULT_RETRIES = RestartPolicy(attempts=10, delay_ms=100, max_delay_ms=10_000)
"""About 40 s of pauses in all."""
AFTER_RESTORE_MS = 500
"""Until the first checkpoint behind a restore is complete, another failure takes all that was done since: it does not
wait for the interval. Earlier there would be little to save."""


@dataclass(frozen=True)
class CheckpointPolicy:
    """Policy of the checkpoint coordinator. Times in milliseconds.

    Attributes:
        alignment_timeout_ms: the budget of AUTO checkpoints.
        commit_retries: number and pauses of the repetitions of a failed commit.
        commit_timeout_ms: time limit for the repetitions, instead of their number; None: the number applies.
        after_restore_ms: from when a restored Generation runs to its first checkpoint, if the interval is longer.
        min_pause_ms: from the end of a periodic checkpoint to the next; if set, they do not overlap.
        max_concurrent: periodic checkpoints in flight.
        tolerable_failures: periodic checkpoints that may fail in a row before the Generation is failed; None: any
            number.
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
    """Time has passed."""


@dataclass(frozen=True)
class PolicyChanged:
    policy: CheckpointPolicy


@dataclass(frozen=True)
class GenerationOpened:
    """The log holds ``generation-opened``. ``restored``: the checkpoint that is restored, 0 for a first start.
    ``parallelism``: how many slots it has; None: as before. ``next_batch``: no batch id below it may be used.
    ``planned``: id of the batch that must be processed alone before all others; None: there is none."""

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
    """Every slot of the Generation runs: checkpoints may be triggered."""

    generation: GenerationId


@dataclass(frozen=True)
class GenerationEnded:
    """A slot or link was lost, or the query stops: nothing of this Generation can be acknowledged any more."""

    generation: GenerationId
    reason: str


@dataclass(frozen=True)
class SnapshotRequest:
    """Request for a snapshot.

    Attributes:
        alignment: of its checkpoint.
        label: name that the user gives it; empty for none.
        note: text of the user about it.
        timeout_ms: counts from the request; None: the policy's, from its trigger. So a strictly aligned one, which
            keeps all others waiting, always has a time-out.
        kept: it is never collected; False for a snapshot that the driver itself wants now.
        last: nothing is triggered after it, unless it fails: the query ends with it.
        drain: nothing may be in flight in it. It is strictly aligned and the ``last``, and sources read nothing while
            it is requested. It may give way any number of times, and the next Generation triggers it again if its own
            ends.
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
    """A snapshot is requested. Exactly one of SnapshotSucceeded and SnapshotFailed answers the ticket.

    Attributes:
        ticket: positive for the driver's owner, others are the driver's own.
        planned: it is the checkpoint of the planned batch; all others wait for it.
    """

    ticket: int = field(kw_only=True)
    planned: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class MetadataWritten:
    """``created_ms``: the wall-clock time that was written."""

    checkpoint: CheckpointId
    created_ms: int = 0


@dataclass(frozen=True)
class MetadataFailed:
    """``damaged``: files of older checkpoints that this one refers to are missing or changed."""

    checkpoint: CheckpointId
    reason: str
    damaged: bool = False


@dataclass(frozen=True)
class SnapshotLogged:
    checkpoint: CheckpointId
    reserved_until: CheckpointId


@dataclass(frozen=True)
class LogFailed:
    """The entry is not in the log (losing the log to another driver is ``Fenced``, an exception, instead)."""

    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True)
class IdsReserved:
    reserved_until: CheckpointId


@dataclass(frozen=True)
class ReserveFailed:
    """No more ids could be reserved in the log."""

    reason: str


@dataclass(frozen=True)
class EpochCommitted:
    epoch: int
    operator_id: str


@dataclass(frozen=True)
class CommitFailed:
    """Failed commit. ``unknown``: it may be visible all the same, so this driver never sends it again."""

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
    """Return the event in a few words: a manifest has thousands of them."""
    if isinstance(event, AcknowledgeCheckpoint):
        return f"AcknowledgeCheckpoint(checkpoint={event.checkpoint}, slot={event.manifest.slot})"
    return repr(event)[:200]


# -- commands ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WriteMetadata:
    """All slots acknowledged. ``slots`` by index; ``batches``, ``next_batch``: as in ``SnapshotMetadata``."""

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
    """The permit to make one epoch of one sink visible; no other is out meanwhile. ``batch``: the epoch's batch id."""

    epoch: int
    operator_id: str
    messages: Mapping[int, bytes]
    batch: int = 0


@dataclass(frozen=True)
class CheckpointAborted:
    """The checkpoint is given up; the query continues. ``AbortCheckpoint`` to the slots precedes it if they run.

    Attributes:
        failed: False if nothing went wrong with it (a newer one made it superfluous, or its Generation ended), or if it
            was requested by a user, who gets ``SnapshotFailed``.
        missing: the slots that have not acknowledged it, if that is the reason.
    """

    checkpoint: CheckpointId
    reason: str
    failed: bool = True
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class CheckpointCompleted:
    """The snapshot exists from here on."""

    checkpoint: CheckpointId


@dataclass(frozen=True)
class CollectGarbage:
    """Apply retention and collect orphans. ``pinned``: what checkpoints ``in_flight`` may refer to, and what may become
    the base of one before the next collection."""

    pinned: tuple[CheckpointId, ...]
    in_flight: tuple[CheckpointId, ...]


@dataclass(frozen=True)
class SnapshotSucceeded:
    ticket: int
    checkpoint: CheckpointId


@dataclass(frozen=True)
class SnapshotFailed:
    """``checkpoint`` is 0 if none was triggered. ``missing``: see ``CheckpointAborted``."""

    ticket: int
    checkpoint: CheckpointId
    reason: str
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class FailQuery:
    """A sink cannot be committed: the query gives up."""

    reason: str


@dataclass(frozen=True)
class FailGeneration:
    """Too many checkpoints failed in a row: end the Generation as if a slot was lost (``GenerationEnded`` follows)."""

    generation: GenerationId
    reason: str


@dataclass(frozen=True)
class Ignored:
    """The event changed nothing, and why."""

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
