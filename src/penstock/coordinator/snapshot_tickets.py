"""Futures of requested snapshots, by the tickets that the checkpoint coordinator uses."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future

from penstock.coordinator.machines.checkpoint_events import SnapshotRequest, SnapshotRequested
from penstock.errors import CheckpointFailed
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId
from penstock.model.manifest import SnapshotMetadata

DRAINED = SnapshotRequest(Alignment.ALIGNED, last=True, drain=True)
"""Request for the last snapshot of a query, without in-flight data."""


class SnapshotTickets:
    """Tickets and futures of requested snapshots. Owned by the coordinator thread, except ``promise``."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[SnapshotMetadata]] = {}
        self._newest: SnapshotMetadata | None = None
        self._promised: set[Future[SnapshotMetadata]] = set()
        self._over: str | None = None
        self._lock = threading.Lock()

    def promise(self) -> Future[SnapshotMetadata]:
        """Return a future that is always resolved, even if the query has ended before its ticket is issued.

        It cannot be canceled. Any thread may call the method.
        """
        future: Future[SnapshotMetadata] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            over = self._over
            if over is None:
                self._promised.add(future)
        if over is None:
            future.add_done_callback(self._promised.discard)
        else:
            future.set_exception(CheckpointFailed(over))
        return future

    def issue(self, future: Future[SnapshotMetadata], request: SnapshotRequest) -> SnapshotRequested:
        """Return the event for the checkpoint coordinator, with a new ticket that the future waits for."""
        ticket = next(self._numbers)
        self._waiting[ticket] = future
        return SnapshotRequested(**vars(request), ticket=ticket)

    def exists(self, metadata: SnapshotMetadata) -> None:
        """Record a complete snapshot. ``succeeded`` is called next if it was requested."""
        self._newest = metadata

    def succeeded(self, ticket: int, checkpoint: CheckpointId) -> None:
        assert self._newest is not None
        assert self._newest.checkpoint == checkpoint, "told of a snapshot before it existed"
        self._waiting.pop(ticket).set_result(self._newest)

    def failed(self, ticket: int, reason: str) -> None:
        self._waiting.pop(ticket).set_exception(CheckpointFailed(f"the snapshot failed: {reason}"))

    def query_ended(self, reason: str) -> None:
        """Fail all futures, because the query has ended."""
        with self._lock:
            self._over = reason
            unanswered = [*self._waiting.values(), *self._promised]
        for future in unanswered:
            if not future.done():
                future.set_exception(CheckpointFailed(reason))
        self._waiting.clear()
