"""Polling of request files at the location, and the snapshots that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from penstock.config import Options, SnapshotFormat
from penstock.coordinator.commands import AnswerTake, JobEvent, TakesRequested
from penstock.coordinator.machines.checkpoint_events import SnapshotRequest
from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.commands.requests import TakeSnapshot
from penstock.snapshots.portable.portable_form import future_with_portable_form
from penstock.snapshots.store.store import Store

POLL_INTERVAL_MS = 1_000.0
"""Time in milliseconds between two polls. Each poll lists one folder."""

OnSnapshot = Callable[[Future[SnapshotMetadata]], None]
PortableWriter = Callable[[Future[SnapshotMetadata], OnSnapshot], None]
"""Writes the portable form of a snapshot and then calls back on the coordinator thread."""


def portable_writer(store: Store, on_coordinator: Callable[[Callable[[], None]], None]) -> PortableWriter:
    """Return a writer of portable forms that uses one thread for each snapshot.

    Args:
        on_coordinator: calls a function on the coordinator thread, unless that has ended.
    """

    def write(native: Future[SnapshotMetadata], done: OnSnapshot) -> None:
        future_with_portable_form(store, native).add_done_callback(lambda both: on_coordinator(lambda: done(both)))

    return write


class RequestFiles:
    """Request files at the location, polled by the coordinator thread, which owns this object.

    Args:
        options: alignment and format of snapshots whose request names none.
        snapshot: takes a snapshot and resolves the future on this thread.
        answer: writes an answer file.
        portable: writes the portable form of a snapshot.
    """

    def __init__(
        self,
        options: Options,
        snapshot: Callable[[Future[SnapshotMetadata], SnapshotRequest], None],
        answer: Callable[[AnswerTake], None],
        portable: PortableWriter,
    ) -> None:
        self._options = options
        self._snapshot = snapshot
        self._answer = answer
        self._portable = portable
        self._polling = False
        self._next_poll_ms = 0.0

    def due(self, now_ms: float) -> bool:
        """Return True if request files must be read now. The next poll waits for the end of this one."""
        if self._polling or now_ms < self._next_poll_ms:
            return False
        self._polling, self._next_poll_ms = True, now_ms + POLL_INTERVAL_MS
        return True

    def polled(self, found: JobEvent | None) -> None:
        """Take the snapshots that were requested by the files of a finished poll."""
        self._polling = False
        for token, take in found.takes if isinstance(found, TakesRequested) else ():
            self._take(token, take)

    def _take(self, token: str, take: TakeSnapshot) -> None:
        def answer(snapshot: Future[SnapshotMetadata]) -> None:
            problem = snapshot.exception()
            if problem is None:
                self._answer(AnswerTake(token, snapshot.result().id))
            else:
                self._answer(AnswerTake(token, "", str(problem)))

        future: Future[SnapshotMetadata] = Future()
        form = SnapshotFormat(take.format) if take.format else self._options.snapshots_format
        if form is SnapshotFormat.PORTABLE:
            self._portable(future, answer)
        else:
            future.add_done_callback(answer)
        alignment = Alignment(take.alignment) if take.alignment else self._options.checkpoint_alignment
        self._snapshot(future, SnapshotRequest(alignment, take.label, take.note, take.timeout_ms or None))
