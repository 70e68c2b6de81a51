"""Oracle of in-flight drains: no source is read while one is requested, and its snapshot holds nothing in flight."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.model.ids import CheckpointId
from penstock.model.manifest import SnapshotMetadata
from penstock.testing.failure import SimulationFailure


@dataclass
class DrainWatch:
    """Check of one driver, over all its Generations.

    Attributes:
        checkpoints: all that were triggered for a drain.
    """

    checkpoints: set[CheckpointId] = field(default_factory=set)
    _open: set[int] = field(default_factory=set)
    _paused: bool = False

    def requested(self, request: SnapshotRequested) -> None:
        """Note that a user requests a drain."""
        if request.drain:
            self._open.add(request.ticket)

    def deployed(self, paused: bool) -> None:
        """Check the start of a Generation."""
        self._paused = paused
        if self._open and not paused:
            raise _failure("a Generation begins to read during a drain")

    def sources_paused(self, paused: bool) -> None:
        """Check that all readers of a source are paused or resumed."""
        self._paused = paused
        if self._open and not paused:
            raise _failure("a source is read on during a drain")

    def triggered(self, checkpoint: CheckpointId, request: SnapshotRequested | None) -> None:
        """Check a checkpoint that is triggered for this request."""
        if request is not None and request.drain:
            self.checkpoints.add(checkpoint)
            if not self._paused:
                raise _failure(f"checkpoint {checkpoint} is to be drained, and sources are read")

    def completed(self, metadata: SnapshotMetadata) -> None:
        """Check a snapshot that is complete."""
        if metadata.checkpoint not in self.checkpoints:
            return
        rows = sum(entry.rows for slot in metadata.slots for subtask in slot.subtasks for entry in subtask.inflight)
        if rows:
            raise _failure(f"{metadata.id} is drained, and has {rows} rows in flight")

    def answered(self, ticket: int, reason: str = "") -> None:
        """Note the answer to a request. ``reason``: why it failed."""
        if ticket not in self._open:
            return
        self._open.discard(ticket)
        if "others had waited" in reason or "Generation" in reason:
            raise _failure(f"a drain is given up: {reason}")


def _failure(message: str) -> SimulationFailure:
    return SimulationFailure(message, "in-flight drains")
