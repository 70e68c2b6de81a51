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
"""The last snapshot of a query, with nothing in flight."""


class SnapshotTickets:
    """Owned by the coordinator thread, but for ``promise``."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[SnapshotMetadata]] = {}
        self._newest: SnapshotMetadata | None = None
        self._promised: set[Future[SnapshotMetadata]] = set()
        self._over: str | None = None
        self._lock = threading.Lock()

    def promise(self) -> Future[SnapshotMetadata]:
        """A future that is answered in any case, though nobody may be there any more to issue its ticket. It cannot be
        cancelled. For any thread."""
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
        """A snapshot is complete; whoever asked for it is told next."""
        self._newest = metadata

    def succeeded(self, ticket: int, checkpoint: CheckpointId) -> None:
        assert self._newest is not None
        assert self._newest.checkpoint == checkpoint, "told of a snapshot before it existed"
        self._waiting.pop(ticket).set_result(self._newest)

    def failed(self, ticket: int, reason: str) -> None:
        self._waiting.pop(ticket).set_exception(CheckpointFailed(f"the snapshot failed: {reason}"))

    def query_ended(self, reason: str) -> None:
        """Complete all futures: the query has ended."""
        with self._lock:
            self._over = reason
            unanswered = [*self._waiting.values(), *self._promised]
        for future in unanswered:
            if not future.done():
                future.set_exception(CheckpointFailed(reason))
        self._waiting.clear()
