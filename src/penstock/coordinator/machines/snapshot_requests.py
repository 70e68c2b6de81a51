"""Queue of requests for snapshots whose checkpoints are not triggered yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.coordinator.machines.checkpoint_events import SnapshotFailed, SnapshotRequested
from penstock.coordinator.machines.checkpoint_lifecycle import Waiting

MAX_REQUESTS = 64
"""Maximum number of waiting requests; more are refused."""


class SnapshotRequests(deque[Waiting]):
    """Requests in the order in which their checkpoints are triggered."""

    def add(self, request: SnapshotRequested, now_ms: float) -> list[SnapshotFailed]:
        """Append a request. The request of the planned batch is put first, because all others wait for it."""
        if len(self) >= MAX_REQUESTS:
            return [SnapshotFailed(request.ticket, 0, f"{MAX_REQUESTS} requests are waiting already")]
        deadline_ms = None if request.timeout_ms is None else now_ms + request.timeout_ms
        put = self.appendleft if request.planned else self.append
        put(Waiting(request, now_ms, deadline_ms))
        return []

    def expire(self, now_ms: float) -> list[SnapshotFailed]:
        """Remove the requests whose time-out has passed."""
        late = [one for one in self if one.deadline_ms is not None and now_ms >= one.deadline_ms]
        self._drop(late)
        return [
            SnapshotFailed(one.request.ticket, 0, f"not triggered within {int(now_ms - one.since_ms)} ms")
            for one in late
        ]

    def drop_planned(self) -> None:
        """Remove the request for the planned batch of an ended generation.

        Otherwise the next generation would take its checkpoint before the batch is read.
        """
        self._drop([one for one in self if one.request.planned])

    def refuse(self, reason: str) -> list[SnapshotFailed]:
        """Remove all requests."""
        refused = [SnapshotFailed(one.request.ticket, 0, reason) for one in self]
        self.clear()
        return refused

    @property
    def deadlines_ms(self) -> list[float]:
        """Times at which ``expire`` will remove a request."""
        return [one.deadline_ms for one in self if one.deadline_ms is not None]

    def _drop(self, requests: Iterable[Waiting]) -> None:
        for one in requests:
            self.remove(one)
