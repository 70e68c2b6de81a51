"""Request files at the location, on the coordinator's side: when to look for them, and the snapshots they ask for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from penstock.config import Options, SnapshotFormat
from penstock.coordinator.commands import AnswerTake, JobEvent, TakesRequested
from penstock.coordinator.machines.checkpoint_events import SnapshotRequest
from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.commands.requests import TakeSnapshot
from penstock.snapshots.portable.in_both import then_in_both
from penstock.snapshots.store.store import Store

LOOK_EVERY_MS = 1_000.0
"""Between two looks: one listing of a folder each."""


Told = Callable[[Future[SnapshotMetadata]], None]
Portable = Callable[[Future[SnapshotMetadata], Told], None]
"""Tells, on the coordinator thread, of a snapshot that is being taken once its portable form is there, too."""


def written_beside(store: Store, soon: Callable[[Callable[[], None]], None]) -> Portable:
    """On a thread for each: the coordinator does not wait for it.

    Args:
        soon: has something done on the coordinator thread, if that lives then.
    """

    def write(native: Future[SnapshotMetadata], tell: Told) -> None:
        then_in_both(store, native).add_done_callback(lambda both: soon(lambda: tell(both)))

    return write


class RequestFiles:
    """Owned by the coordinator thread.

    Args:
        options: alignment and format of snapshots that do not say otherwise.
        snapshot: takes one; it is told of on this thread.
        answer: has an answer written.
        portable: has the portable form of a snapshot written, too.
    """

    def __init__(
        self,
        options: Options,
        snapshot: Callable[[Future[SnapshotMetadata], SnapshotRequest], None],
        answer: Callable[[AnswerTake], None],
        portable: Portable,
    ) -> None:
        self._options = options
        self._snapshot = snapshot
        self._answer = answer
        self._portable = portable
        self._looks = False
        self._look_at_ms = 0.0

    def due(self, now_ms: float) -> bool:
        """Return True if request files must be read now. The next poll waits for this one: the store may be slow."""
        if self._looks or now_ms < self._look_at_ms:
            return False
        self._looks, self._look_at_ms = True, now_ms + LOOK_EVERY_MS
        return True

    def looked(self, found: JobEvent | None) -> None:
        """The look that was due is over."""
        self._looks = False
        for token, take in found.takes if isinstance(found, TakesRequested) else ():
            self._take(token, take)

    def _take(self, token: str, take: TakeSnapshot) -> None:
        def tell(snapshot: Future[SnapshotMetadata]) -> None:
            problem = snapshot.exception()
            if problem is None:
                self._answer(AnswerTake(token, snapshot.result().id))
            else:
                self._answer(AnswerTake(token, "", str(problem)))

        future: Future[SnapshotMetadata] = Future()
        form = SnapshotFormat(take.format) if take.format else self._options.snapshots_format
        if form is SnapshotFormat.PORTABLE:
            self._portable(future, tell)
        else:
            future.add_done_callback(tell)
        alignment = Alignment(take.alignment) if take.alignment else self._options.checkpoint_alignment
        self._snapshot(future, SnapshotRequest(alignment, take.label, take.note, take.timeout_ms or None))
