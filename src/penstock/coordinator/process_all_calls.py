"""Calls of ``processAllAvailable`` on the driver: their futures, and the actions that the tracker decides on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from penstock.coordinator.generation_slots import GenerationSlots
from penstock.coordinator.machines.checkpoint_events import SnapshotRequest
from penstock.coordinator.machines.job import JobCoordinator
from penstock.coordinator.machines.process_all_available import ProcessAllTracker
from penstock.errors import PenstockError, QueryFailed
from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.model.messages import PollAgain


class ProcessAllCalls:
    """Executes the decisions of the process-all-available tracker. Owned by the coordinator thread.

    Args:
        sources: vertices with a source.
        readers: number of readers of each source.
        snapshot: takes a snapshot; the future is completed on this thread.

    Attributes:
        tracker: the tracker; the owner reports events to it.
    """

    def __init__(
        self,
        sources: Sequence[int],
        readers: int,
        snapshot: Callable[[Future[SnapshotMetadata], SnapshotRequest], None],
    ) -> None:
        self.tracker = ProcessAllTracker(sources, readers)
        self._sources = sources
        self._snapshot = snapshot
        self._numbers = itertools.count(1)
        self._futures: dict[int, Future[None]] = {}

    def add(self, future: Future[None]) -> None:
        """Register a call. The future is completed when all input that exists now is committed."""
        ticket = next(self._numbers)
        self._futures[ticket] = future
        self.tracker.add(ticket)

    def pursue(self, slots: GenerationSlots, job: JobCoordinator) -> None:
        """Tell readers to poll again, or take the checkpoint, if it is time for that."""
        if slots.runs and (number := self.tracker.next_poll()) is not None:
            for vertex in self._sources:
                slots.tell(PollAgain(vertex, number))
        if self.tracker.begin_checkpoint(job.is_idle_except_endless, job.discovery_not_awaited):
            future: Future[SnapshotMetadata] = Future()
            future.add_done_callback(self._checkpoint_ended)
            self._snapshot(future, SnapshotRequest(Alignment.ALIGNED, kept=False))

    def _checkpoint_ended(self, future: Future[SnapshotMetadata]) -> None:
        if future.exception() is None:
            self.tracker.checkpoint_completed(future.result().checkpoint)
        else:
            self.tracker.checkpoint_failed()

    def committed(self, epoch: int) -> None:
        """Complete the futures for which the commit of all epochs up to this one suffices."""
        for ticket in self.tracker.committed(epoch):
            self._futures.pop(ticket).set_result(None)

    def all_committed(self) -> None:
        """Complete all futures: every source has ended and everything is committed, or the query was stopped."""
        for future in self._futures.values():
            future.set_result(None)
        self._futures.clear()

    def query_ended(self, error: PenstockError | None, *, suspended: bool = False) -> None:
        """Complete all futures. As in Spark, the wait for a query that is stopped ends without an error."""
        if error is None and not suspended:
            self.all_committed()
            return
        text = f"the query {'was suspended' if suspended else 'failed'} before all available data was committed"
        for future in self._futures.values():
            failure = QueryFailed(text if error is None else f"{text}: {error}")
            failure.__cause__ = error
            future.set_exception(failure)
        self._futures.clear()
