"""Checkpoint coordinator: triggers checkpoints, decides when they are complete, and orders the commits that follow.

``checkpoint_lifecycle`` has the life of one checkpoint as a table. Several are in flight at once: periodic ones up to
``max_concurrent``, requested ones in addition, ``MAX_IN_FLIGHT`` in all. Requested ones are triggered first. Nothing is
triggered while a strictly aligned one is in flight. That one is canceled after others have waited for an interval. They
complete in any order. A complete one makes older periodic ones superfluous; a requested one that completes late has no
further effect. After a ``last`` one nothing is triggered, unless it fails.

An aborted checkpoint loses nothing: subtasks repeat the messages of its epoch in the next. The state machine lives as
long as its driver, over many generations. It must be given only messages of slots of the current one. Events of the
driver's own executor (``MetadataWritten``, ...) must match the commands; any other event is a bug and raises.
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

from penstock.coordinator.machines import checkpoint_lifecycle as life
from penstock.coordinator.machines.checkpoint_events import (
    MAX_IN_FLIGHT,
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCommand,
    CheckpointCompleted,
    CheckpointEvent,
    CheckpointPolicy,
    CollectGarbage,
    CommitEpoch,
    CommitFailed,
    EpochCommitted,
    FailGeneration,
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
    describe,
)
from penstock.coordinator.machines.checkpoint_lifecycle import Pending, Phase, Waiting
from penstock.coordinator.machines.commits import CommitLedger
from penstock.coordinator.machines.restarts import Retries
from penstock.coordinator.machines.snapshot_requests import SnapshotRequests
from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.messages import (
    AbortCheckpoint,
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

ID_BLOCK = 64
"""Number of ids reserved ahead in the log. A failed driver leaves a gap of at most this many; no id is used twice."""
MAX_CANCELLATIONS = 3
"""Number of cancellations after which a user's strictly aligned snapshot fails at the next one."""
HISTORY = 32


class CheckpointCoordinator:
    """Pure state machine of all checkpoints. Call ``handle`` with every event, and with ``Tick`` by ``next_wake_ms``.

    Args:
        policy: intervals and bounds; replaceable with ``PolicyChanged``.
        parallelism: number of slots that must acknowledge, unless a generation is opened with another number.
        ledger: the epochs that await their commit.
    """

    def __init__(self, policy: CheckpointPolicy, parallelism: int, ledger: CommitLedger) -> None:
        self._policy = policy
        self._parallelism = parallelism
        self._ledger = ledger
        self._generation: GenerationId = 0
        self._running = False
        self._pending: dict[CheckpointId, Pending] = {}
        self._requests = SnapshotRequests()
        self._next_checkpoint: CheckpointId = 1
        self._reserved_until: CheckpointId = 1
        self._reserving = False
        self._newest_complete: CheckpointId = 0
        self._newest_notified: CheckpointId = 0
        self._newest_damaged: CheckpointId = 0
        self._to_notify: list[CheckpointId] = []
        self._failed_in_row = 0
        self._last_failure = ""
        self._failing = False
        self._next_trigger_ms = 0.0
        self._commit_retries = Retries(policy.commit_retries, policy.commit_timeout_ms)
        self._has_failed = False
        self._last: CheckpointId = 0
        self._drained = False
        self._planned = False
        self._history: deque[str] = deque(maxlen=HISTORY)

    # -- read access ---------------------------------------------------------------------------------------------

    @property
    def generation(self) -> GenerationId:
        return self._generation

    @property
    def next_checkpoint(self) -> CheckpointId:
        return self._next_checkpoint

    @property
    def committed_epoch(self) -> int:
        return self._ledger.committed_epoch

    @property
    def newest_complete(self) -> CheckpointId:
        return self._newest_complete

    @property
    def in_flight(self) -> tuple[CheckpointId, ...]:
        """Checkpoints that are neither complete nor aborted, ascending."""
        return tuple(self._pending)

    @property
    def awaiting_commit(self) -> int:
        return self._ledger.awaiting

    @property
    def committed_last(self) -> CheckpointId:
        """The checkpoint requested as the last, once it is complete and committed; otherwise 0."""
        return self._last if self._last <= self.committed_epoch else 0

    def request_of(self, checkpoint: CheckpointId) -> SnapshotRequested | None:
        """Return the request of a checkpoint in flight; None for a periodic one, or if it is no longer in flight."""
        pending = self._pending.get(checkpoint)
        return None if pending is None else pending.request

    def garbage_collection(self) -> CollectGarbage:
        """Return a garbage collection to execute after all commands up to now. It names the checkpoints to keep."""
        return CollectGarbage(pinned=self._pinned(), in_flight=self.in_flight)

    @property
    def has_user_requests(self) -> bool:
        """True if a request of the driver's owner is queued or its checkpoint is in flight."""
        return any(request.ticket > 0 for request in self._unanswered)

    @property
    def is_draining_inflight(self) -> bool:
        """True from the request of a drained snapshot until it fails. Sources must not read meanwhile."""
        return self._drained or any(request.drain for request in self._unanswered)

    @property
    def _unanswered(self) -> list[SnapshotRequested]:
        waiting = [waiting.request for waiting in self._requests]
        return waiting + [pending.request for pending in self._pending.values() if pending.request is not None]

    def next_wake_ms(self) -> float | None:
        """Return the time at which the next ``Tick`` has an effect; None if only another event can have one."""
        times = [p.deadline_ms for p in self._pending.values() if p.phase is Phase.RUNNING]
        times += self._requests.deadlines_ms
        if self._may_trigger() and self._periodic_has_room() and not self._reserving:
            times.append(self._next_trigger_ms)
        times += [at_ms for p in self._pending.values() if (at_ms := self._gives_way_at_ms(p)) is not None]
        if self._commit_retries.again_at_ms is not None:
            times.append(self._commit_retries.again_at_ms)
        return min(times, default=None)

    # -- event handling ------------------------------------------------------------------------------------------

    def handle(self, event: CheckpointEvent, now_ms: float) -> list[CheckpointCommand]:
        """Handle one event. Execute the returned commands in order.

        Raises:
            ProtocolViolation: an executor's event that matches no command; the state is unchanged.
        """
        commands = self._on(event, now_ms)
        if not isinstance(event, Tick):
            self._history.append(describe(event))
        commands += self._next_commit(now_ms)
        commands += self._notify()
        commands += self._fail_generation()
        commands += self._give_way(now_ms)
        commands += self._trigger(now_ms)
        return commands

    def _on(self, event: CheckpointEvent, now_ms: float) -> list[CheckpointCommand]:
        match event:
            case Tick():
                return self._on_tick(event, now_ms)
            case PolicyChanged():
                return self._on_policy(event, now_ms)
            case GenerationOpened():
                return self._on_opened(event, now_ms)
            case AllSlotsRunning():
                return self._on_running(event, now_ms)
            case GenerationEnded():
                return self._on_ended(event, now_ms)
            case SnapshotRequested():
                return self._on_requested(event, now_ms)
            case AcknowledgeCheckpoint():
                return self._on_ack(event, now_ms)
            case DeclineCheckpoint():
                return self._on_decline(event, now_ms)
            case MetadataWritten():
                return self._on_metadata_written(event, now_ms)
            case MetadataFailed():
                return self._on_metadata_failed(event, now_ms)
            case SnapshotLogged():
                return self._on_complete_logged(event, now_ms)
            case LogFailed():
                return self._on_log_failed(event, now_ms)
            case IdsReserved():
                return self._on_ids_reserved(event, now_ms)
            case ReserveFailed():
                return self._on_reserve_failed(event, now_ms)
            case EpochCommitted():
                return self._on_epoch_committed(event, now_ms)
            case CommitFailed():
                return self._on_commit_failed(event, now_ms)
            case _:
                assert_never(event)

    def _on_tick(self, event: Tick, now_ms: float) -> list[CheckpointCommand]:
        expired = [p for p in self._pending.values() if p.phase is Phase.RUNNING and now_ms >= p.deadline_ms]
        commands = [
            c for p in expired for c in self._abort(p, life.TIMED_OUT, p.timeout_text(self._parallelism), now_ms)
        ]
        commands += self._requests.expire(now_ms)
        return commands

    def _on_policy(self, event: PolicyChanged, now_ms: float) -> list[CheckpointCommand]:
        self._policy = event.policy
        self._next_trigger_ms = min(self._next_trigger_ms, now_ms + event.policy.interval_ms)
        return []

    def _on_opened(self, event: GenerationOpened, now_ms: float) -> list[CheckpointCommand]:
        if event.generation <= self._generation or event.next_checkpoint < self._next_checkpoint:
            raise self._violation(event)
        if self._pending:
            raise self._violation(event)
        self._ledger.recovered(event.committed_epoch, event.pending, event.restored, event.next_batch, event.planned)
        self._planned = event.planned is not None
        self._requests.drop_planned()
        self._generation = event.generation
        self._parallelism = event.parallelism or self._parallelism
        self._running = False
        self._next_checkpoint = event.next_checkpoint
        self._reserved_until = event.reserved_until
        self._reserving = False
        self._newest_complete = event.restored
        self._newest_notified = event.restored  # slots know the snapshot that they restore
        self._to_notify.clear()
        self._failed_in_row = 0
        self._failing = False
        return []

    def _on_running(self, event: AllSlotsRunning, now_ms: float) -> list[CheckpointCommand]:
        if event.generation != self._generation or self._running:
            return [Ignored(event, f"Generation {self._generation}, running: {self._running}")]
        self._running = True
        restored = self._newest_complete > 0
        first_ms = self._policy.after_restore_ms if restored else self._policy.interval_ms
        self._next_trigger_ms = now_ms + min(first_ms, self._policy.interval_ms)
        return []

    def _on_ended(self, event: GenerationEnded, now_ms: float) -> list[CheckpointCommand]:
        if event.generation != self._generation:
            return [Ignored(event, f"Generation {self._generation} is the current one")]
        self._running = False
        self._to_notify.clear()
        # A checkpoint that is being logged may already be in the log: its outcome is awaited. All others are aborted.
        dead = [p for p in self._pending.values() if p.phase is not Phase.LOGGING]
        reason = f"Generation {event.generation} ended: {event.reason}"
        self._requests.extend(p.again() for p in dead if p.drain)
        return [c for p in dead for c in self._abort(p, life.ENDED, reason, now_ms, answered=not p.drain)]

    def _on_requested(self, event: SnapshotRequested, now_ms: float) -> list[CheckpointCommand]:
        if self._has_failed:
            return [SnapshotFailed(event.ticket, 0, "the query has failed")]
        return [*self._requests.add(event, now_ms)]

    def _on_ack(self, event: AcknowledgeCheckpoint, now_ms: float) -> list[CheckpointCommand]:
        pending = self._pending.get(event.checkpoint)
        if pending is None:
            return [Ignored(event, "the checkpoint is complete, aborted or was never triggered")]
        if event.manifest.slot in pending.acks or not 0 <= event.manifest.slot < self._parallelism:
            return [Ignored(event, "the slot has acknowledged already or does not exist")]
        pending.acks[event.manifest.slot] = event.manifest
        if len(pending.acks) < self._parallelism:
            return []
        pending.step("all slots acknowledged")
        request = pending.request
        slots = tuple(pending.acks[slot] for slot in sorted(pending.acks))
        batches, next_batch = self._ledger.numbered(pending.checkpoint, slots)
        return [
            WriteMetadata(
                pending.checkpoint,
                pending.generation,
                pending.alignment,
                requested=request is not None and request.kept,
                label=request.label if request else "",
                slots=slots,
                note=request.note if request else "",
                batches=batches,
                next_batch=next_batch,
            )
        ]

    def _on_decline(self, event: DeclineCheckpoint, now_ms: float) -> list[CheckpointCommand]:
        pending = self._pending.get(event.checkpoint)
        if pending is None or pending.phase is not Phase.RUNNING:
            return [Ignored(event, "the checkpoint is not in flight")]
        return self._abort(pending, life.DECLINED, f"slot {event.slot} declined: {event.reason}", now_ms)

    def _on_metadata_written(self, event: MetadataWritten, now_ms: float) -> list[CheckpointCommand]:
        pending = self._pending.get(event.checkpoint)
        if pending is None:  # its generation ended meanwhile; nothing refers to the file
            return [Ignored(event, "the checkpoint was aborted")]
        if pending.phase is not Phase.WRITING:
            raise self._violation(event)
        pending.step("metadata written")
        reserve = self._next_checkpoint + ID_BLOCK
        return [LogSnapshot(self._generation, pending.checkpoint, self.committed_epoch, reserve)]

    def _on_metadata_failed(self, event: MetadataFailed, now_ms: float) -> list[CheckpointCommand]:
        pending = self._pending.get(event.checkpoint)
        if pending is None:
            return [Ignored(event, "the checkpoint was aborted")]
        if pending.phase is not Phase.WRITING:
            raise self._violation(event)
        if event.damaged:
            self._newest_damaged = max(self._newest_damaged, pending.base)
        return self._abort(pending, life.NOT_WRITTEN, event.reason, now_ms)

    def _on_complete_logged(self, event: SnapshotLogged, now_ms: float) -> list[CheckpointCommand]:
        pending = self._logging(event, event.checkpoint)
        self._ledger.completed(event.checkpoint, list(pending.acks.values()))
        pending.step("logged")
        del self._pending[event.checkpoint]
        self._failed_in_row = 0
        self._planned = False
        self._newest_complete = max(self._newest_complete, event.checkpoint)
        self._reserved_until = max(self._reserved_until, event.reserved_until)
        self._ended(pending, now_ms)
        if pending.generation == self._generation and self._running:
            self._to_notify.append(event.checkpoint)
        commands: list[CheckpointCommand] = [CheckpointCompleted(event.checkpoint)]
        if pending.request is not None:
            commands.append(SnapshotSucceeded(pending.request.ticket, event.checkpoint))
            self._last = event.checkpoint if pending.request.last else self._last
            self._drained |= pending.drain
        return commands + self._subsume(event.checkpoint, now_ms)

    def _on_log_failed(self, event: LogFailed, now_ms: float) -> list[CheckpointCommand]:
        return self._abort(self._logging(event, event.checkpoint), life.NOT_LOGGED, event.reason, now_ms)

    def _on_ids_reserved(self, event: IdsReserved, now_ms: float) -> list[CheckpointCommand]:
        self._reserving = False
        self._reserved_until = max(self._reserved_until, event.reserved_until)
        return []

    def _on_reserve_failed(self, event: ReserveFailed, now_ms: float) -> list[CheckpointCommand]:
        """Retry at the next interval. A failing store counts as a failed checkpoint."""
        self._reserving = False
        if now_ms >= self._next_trigger_ms:
            self._count_failure(event.reason)
        self._next_trigger_ms = now_ms + self._policy.interval_ms
        return [*self._requests.refuse(event.reason)]

    def _on_epoch_committed(self, event: EpochCommitted, now_ms: float) -> list[CheckpointCommand]:
        self._ledger.done(event.epoch, event.operator_id)
        self._commit_retries.succeeded()
        return []

    def _on_commit_failed(self, event: CommitFailed, now_ms: float) -> list[CheckpointCommand]:
        self._ledger.failed(event.epoch, event.operator_id)
        gave_up = "" if event.unknown else self._commit_retries.failed(now_ms)
        if not (event.unknown or gave_up):
            return []
        self._has_failed = True
        refused = self._requests.refuse("the query has failed")
        note = f"\nThe commit is not repeated any more: {gave_up} (restart.*, sink.retryTimeout)" if gave_up else ""
        return [FailQuery(f"epoch {event.epoch} of sink {event.operator_id}: {event.reason}{note}"), *refused]

    # -- decisions taken after every event -------------------------------------------------------------------------

    def _next_commit(self, now_ms: float) -> list[CheckpointCommand]:
        if self._has_failed or not self._commit_retries.due(now_ms):
            return []
        entry = self._ledger.take()
        if entry is None:
            return []
        return [CommitEpoch(entry.epoch, entry.operator_id, entry.messages, entry.batch)]

    def _notify(self) -> list[CheckpointCommand]:
        """Notify slots of complete checkpoints whose epochs are committed. They may then drop the messages.

        The checkpoint may be a base from then on, and files that it replaces as a base may be collected.
        """
        committed = self.committed_epoch
        ready = [checkpoint for checkpoint in self._to_notify if checkpoint <= committed]
        self._to_notify = [checkpoint for checkpoint in self._to_notify if checkpoint > committed]
        if not ready:
            return []
        self._newest_notified = max(self._newest_notified, *ready)
        notices = [NotifyCheckpointComplete(checkpoint, committed) for checkpoint in ready]
        return [*notices, self.garbage_collection()]

    def _fail_generation(self) -> list[CheckpointCommand]:
        """Fail a generation after too many failed checkpoints: nothing is committed, and a restart may help."""
        tolerable, failed = self._policy.tolerable_failures, self._failed_in_row
        if tolerable is None or failed <= tolerable or not self._running or self._failing:
            return []
        self._failing = True
        text = f"{failed} periodic checkpoints failed in a row, more than checkpoint.tolerableFailures={tolerable}"
        return [FailGeneration(self._generation, f"{text}; the last was {self._last_failure}")]

    def _give_way(self, now_ms: float) -> list[CheckpointCommand]:
        """Cancel a strictly aligned checkpoint for which another one has waited for an interval."""
        commands: list[CheckpointCommand] = []
        for pending in list(self._pending.values()):
            at_ms = self._gives_way_at_ms(pending)
            if at_ms is not None and now_ms >= at_ms:
                commands += self._cancel(pending, now_ms)
        return commands

    def _gives_way_at_ms(self, pending: Pending) -> float | None:
        """Return when to cancel a strictly aligned checkpoint; None if no faster one waits for it."""
        if not pending.gives_way or not self._may_trigger():
            return None
        since_ms = [w.since_ms for w in self._requests if w.request.alignment is not Alignment.ALIGNED]
        if self._policy.alignment is not Alignment.ALIGNED:
            since_ms.append(self._next_trigger_ms)
        waits_ms = min((max(at_ms, pending.triggered_ms) for at_ms in since_ms), default=None)
        return None if waits_ms is None else waits_ms + self._policy.interval_ms

    def _cancel(self, pending: Pending, now_ms: float) -> list[CheckpointCommand]:
        """Abort a checkpoint and append its request, if it has one, to the queue.

        A user's snapshot is queued at most ``MAX_CANCELLATIONS`` times, unless it drains: each time less is in flight.
        """
        request, attempt = pending.request, pending.cancellations + 1
        missing = pending.missing(self._parallelism)
        reason = f"not acknowledged by slots {missing}; others had waited for one checkpoint.interval"
        if request is None:
            return self._abort(pending, life.GAVE_WAY, reason, now_ms)
        if request.kept and not request.drain and attempt > MAX_CANCELLATIONS:
            reason = f"{reason}, the last of {attempt} times{pending.way_out}"
            return self._abort(pending, life.GAVE_WAY, reason, now_ms)
        self._requests.append(pending.again())
        return self._abort(pending, life.GAVE_WAY, reason, now_ms, answered=False)

    def _trigger(self, now_ms: float) -> list[CheckpointCommand]:
        if not self._may_trigger():
            return []
        again = bool(self._requests) and self._requests[0].cancellations > 0
        commands = self._trigger_periodic(now_ms) if again else []
        while self._requests and self._has_room() and (not self._planned or self._requests[0].request.planned):
            if self._next_checkpoint >= self._reserved_until:
                return commands + self._reserve()
            commands.append(self._start(self._requests.popleft(), now_ms))
        return commands + self._trigger_periodic(now_ms)

    def _trigger_periodic(self, now_ms: float) -> list[CheckpointCommand]:
        if now_ms < self._next_trigger_ms or not self._periodic_has_room():
            return []
        if self._next_checkpoint >= self._reserved_until:
            return self._reserve()
        self._next_trigger_ms = now_ms + self._policy.interval_ms
        return [self._start(None, now_ms)]

    def _may_trigger(self) -> bool:
        full = self._ledger.awaiting >= self._policy.max_awaiting_commit
        return self._running and not (self._has_failed or self._failing or self._last or full)

    def _has_room(self) -> bool:
        """Return True if another checkpoint may be in flight: none after a last one or with a strictly aligned one."""
        return len(self._pending) < MAX_IN_FLIGHT and not any(p.strict or p.last for p in self._pending.values())

    def _periodic_has_room(self) -> bool:
        most = 1 if self._policy.min_pause_ms else self._policy.max_concurrent
        periodic = sum(p.periodic for p in self._pending.values())
        return not self._planned and self._has_room() and periodic < most

    def _reserve(self) -> list[CheckpointCommand]:
        if self._reserving:
            return []
        self._reserving = True
        return [ReserveIds(self._generation, self._next_checkpoint + ID_BLOCK, self.committed_epoch)]

    def _start(self, waiting: Waiting | None, now_ms: float) -> TriggerCheckpoint:
        checkpoint = self._next_checkpoint
        self._next_checkpoint += 1
        deadline_ms = None if waiting is None else waiting.deadline_ms
        pending = Pending(
            checkpoint,
            self._generation,
            self._policy.alignment if waiting is None else waiting.request.alignment,
            None if waiting is None else waiting.request,
            base=self._newest_notified if self._newest_notified > self._newest_damaged else 0,
            origin=self._newest_complete,
            started_ms=now_ms if waiting is None else waiting.since_ms,
            triggered_ms=now_ms,
            cancellations=0 if waiting is None else waiting.cancellations,
            deadline_ms=now_ms + self._policy.timeout_ms if deadline_ms is None else deadline_ms,
        )
        pending.step("triggered")
        self._pending[checkpoint] = pending
        return self._trigger_of(pending)

    def _trigger_of(self, pending: Pending) -> TriggerCheckpoint:
        if pending.alignment is Alignment.AUTO:
            return TriggerCheckpoint(
                pending.checkpoint, Alignment.ALIGNED, int(self._policy.alignment_timeout_ms), base=pending.base
            )
        return TriggerCheckpoint(pending.checkpoint, pending.alignment, base=pending.base)

    def _abort(
        self, pending: Pending, cause: str, reason: str, now_ms: float, *, answered: bool = True
    ) -> list[CheckpointCommand]:
        """Abort a checkpoint. ``answered``: its request, if it has one, fails with it."""
        pending.step(cause)
        del self._pending[pending.checkpoint]
        self._ended(pending, now_ms)
        failed = cause in life.FAILURES
        if pending.periodic and failed:
            self._count_failure(f"checkpoint {pending.checkpoint}: {reason}")
        request_kept = pending.request is not None and pending.request.kept
        missing = tuple(pending.missing(self._parallelism)) if cause in (life.TIMED_OUT, life.GAVE_WAY) else ()
        commands: list[CheckpointCommand] = [AbortCheckpoint(pending.checkpoint)] if self._running else []
        commands.append(CheckpointAborted(pending.checkpoint, reason, failed and not request_kept, missing))
        if pending.request is not None and answered:
            commands.append(SnapshotFailed(pending.request.ticket, pending.checkpoint, reason, missing))
        return commands

    def _count_failure(self, reason: str) -> None:
        self._failed_in_row += 1
        self._last_failure = reason

    def _subsume(self, complete: CheckpointId, now_ms: float) -> list[CheckpointCommand]:
        """Abort older periodic checkpoints. Their epochs are covered by ``complete``, which recovery prefers."""
        older = [p for p in self._pending.values() if p.periodic and p.checkpoint < complete]
        reason = f"checkpoint {complete}, which is newer, is complete"
        return [
            command
            for p in older
            if p.phase is not Phase.LOGGING
            for command in self._abort(p, life.SUBSUMED, reason, now_ms)
        ]

    def _pinned(self) -> tuple[CheckpointId, ...]:
        """Return all checkpoints that those in flight may refer to, or that may be a base before the next collection.

        The latter are those of which slots were last notified, those of which they will be, and those being logged now.
        """
        found = {self._newest_notified, *self._to_notify, *self._pending}
        for pending in self._pending.values():
            found |= {pending.base, pending.origin}
        return tuple(sorted(found - {0}))

    def _ended(self, pending: Pending, now_ms: float) -> None:
        if pending.periodic:
            self._next_trigger_ms = max(self._next_trigger_ms, now_ms + self._policy.min_pause_ms)

    def _logging(self, event: CheckpointEvent, checkpoint: CheckpointId) -> Pending:
        pending = self._pending.get(checkpoint)
        if pending is None or pending.phase is not Phase.LOGGING:
            raise self._violation(event)
        return pending

    def _violation(self, event: CheckpointEvent) -> ProtocolViolation:
        phases = {c: p.phase.value for c, p in self._pending.items()}
        return ProtocolViolation(
            "coordinator", f"generation {self._generation}, in flight {phases}", describe(event), tuple(self._history)
        )

    def check_invariants(self) -> None:
        self._ledger.check_invariants()
        ids = list(self._pending)
        assert ids == sorted(ids), "ids rise"
        assert all(c < self._next_checkpoint for c in ids), "no id is used twice"
        assert self._next_checkpoint <= max(self._reserved_until, 1), "only reserved ids are used"
        assert len(ids) <= MAX_IN_FLIGHT, "checkpoints in flight are bounded"
        assert not any(self._pending[c].strict for c in ids[:-1]), "nothing is triggered beside a strictly aligned one"
        assert self._newest_notified <= self._newest_complete, "slots hear of complete checkpoints only"
        for p in self._pending.values():
            assert p.base <= p.origin < p.checkpoint, "a base is complete and older"
            complete = len(p.acks) == self._parallelism
            assert complete == (p.phase is not Phase.RUNNING), "written exactly when all have acknowledged"
            assert p.generation == self._generation or p.phase is Phase.LOGGING, "older Generations are dead"
