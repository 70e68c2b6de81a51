"""Oracle of requested snapshots: each request is answered, and a strictly aligned checkpoint keeps no other waiting for
more than an interval."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.coordinator.machines.checkpoint_events import CheckpointPolicy, SnapshotRequested
from penstock.coordinator.machines.checkpoints import MAX_CANCELLATIONS
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId
from penstock.testing.failure import SimulationFailure

if TYPE_CHECKING:
    from simulator.cluster.driver import SimulatedDriver

TRIGGERS = 1 + MAX_CANCELLATIONS
LATE_MS = 100
"""A tick may come so much later than it is due."""


@dataclass
class _Request:
    """A request that is not answered.

    Attributes:
        triggers: how often it was triggered.
        checkpoint: the newest checkpoint of it; None: it waits.
        acknowledged: by all slots; then its checkpoint has no time-out.
    """

    requested: SnapshotRequested
    since_ms: float
    triggers: int = 0
    triggered_ms: float = 0.0
    checkpoint: CheckpointId | None = None
    acknowledged: bool = False

    @property
    def strict(self) -> bool:
        return self.requested.alignment is Alignment.ALIGNED


@dataclass
class RequestWatch:
    """Oracle for the requests of one driver, over all its Generations."""

    driver: SimulatedDriver
    _open: dict[int, _Request] = field(default_factory=dict)
    _periodic: set[CheckpointId] = field(default_factory=set)
    _strict: dict[CheckpointId, float] = field(default_factory=dict)
    """Strictly aligned checkpoints that not all slots have acknowledged, and when each was triggered."""
    _free_ms: float = 0.0

    def requested(self, request: SnapshotRequested) -> None:
        self._open[request.ticket] = _Request(request, self._now_ms)

    def triggered(self, checkpoint: CheckpointId) -> None:
        requested = self.driver.job.coordinator.request_of(checkpoint)
        if (self._policy if requested is None else requested).alignment is Alignment.ALIGNED:
            self._strict[checkpoint] = self._now_ms
        if requested is None:
            self._periodic.add(checkpoint)
        elif requested.ticket in self._open:
            request = self._open[requested.ticket]
            request.checkpoint, request.triggered_ms = checkpoint, self._now_ms
            request.triggers += 1
            if request.triggers > TRIGGERS and not request.requested.drain:
                raise self._failure(f"request {requested.ticket} is triggered {request.triggers} times")

    def acknowledged(self, checkpoint: CheckpointId) -> None:
        """All slots have acknowledged the checkpoint."""
        self._strict.pop(checkpoint, None)
        for request in self._open.values():
            request.acknowledged = request.acknowledged or request.checkpoint == checkpoint

    def ended(self, checkpoint: CheckpointId, gave_way: bool = False) -> None:
        """The checkpoint is complete or given up."""
        self._strict.pop(checkpoint, None)
        if checkpoint in self._periodic:
            self._periodic.discard(checkpoint)
            self.disturbed()
        for request in self._open.values():
            if request.checkpoint == checkpoint:
                request.checkpoint, request.acknowledged = None, False
                if gave_way and self._now_ms < request.triggered_ms + self._policy.interval_ms:
                    raise self._failure(f"checkpoint {checkpoint} gave way before an interval had passed")

    def answered(self, ticket: int) -> None:
        if self._open.pop(ticket, None) is None and ticket > 0:
            raise self._failure(f"request {ticket} is answered twice")

    def disturbed(self) -> None:
        """The times that count from now on are new ones."""
        self._free_ms = self._now_ms

    def check(self) -> None:
        """Called after each step of the driver."""
        if self.driver.world.quiet:
            return  # the driver does not look at the clock any more
        coordinator = self.driver.job.coordinator
        if self.driver.current is None or coordinator.awaiting_commit >= self._policy.max_awaiting_commit:
            self.disturbed()
        for request in self._open.values():
            if request.checkpoint is None or not request.acknowledged:
                self._check_deadline(request)
        for checkpoint, triggered_ms in self._strict.items():
            self._check_gives_way(checkpoint, triggered_ms)

    def _check_deadline(self, request: _Request) -> None:
        timeout_ms = request.requested.timeout_ms
        if timeout_ms is not None and self._now_ms > request.since_ms + timeout_ms + LATE_MS:
            raise self._failure(f"request {request.requested.ticket} is not answered in its time")

    def _check_gives_way(self, strict: CheckpointId, triggered_ms: float) -> None:
        policy, now_ms = self._policy, self._now_ms
        waiting_ms = [r.since_ms for r in self._open.values() if not r.strict and r.checkpoint is None]
        if policy.alignment is not Alignment.ALIGNED and not self._periodic:
            waiting_ms.append(self._free_ms + max(policy.interval_ms, policy.after_restore_ms, policy.min_pause_ms))
        since_ms = max(min(waiting_ms, default=now_ms), triggered_ms, self._free_ms)
        if now_ms > since_ms + policy.interval_ms + LATE_MS:
            waited = round(now_ms - since_ms)
            raise self._failure(f"checkpoint {strict}, strictly aligned, keeps others waiting for {waited} ms")

    @property
    def _policy(self) -> CheckpointPolicy:
        return self.driver.policy

    @property
    def _now_ms(self) -> float:
        return self.driver.world.context.now_ms

    def _failure(self, message: str) -> SimulationFailure:
        return SimulationFailure(message, "requests")
