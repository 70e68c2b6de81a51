"""Who waits for which snapshot: the futures of users' requests, by the tickets that the coordinator knows them by."""

from __future__ import annotations

import itertools
from concurrent.futures import Future

from penstock.errors import CheckpointFailed
from penstock.ids import CheckpointId
from penstock.snapshot.model import SnapshotMetadata


class SnapshotTickets:
    """Owned by the coordinator thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[SnapshotMetadata]] = {}
        self._newest: SnapshotMetadata | None = None

    def issue(self, future: Future[SnapshotMetadata]) -> int:
        """A new ticket: positive, as users' are."""
        ticket = next(self._numbers)
        self._waiting[ticket] = future
        return ticket

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
        """Nobody answers any more."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(CheckpointFailed(reason))
        self._waiting.clear()
