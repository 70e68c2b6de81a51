"""Rows that subtasks of former parallelisms emitted and received; no state contains them after a rescale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SnapshotMetadata
from simulator.jobs.checked_operator import EMITTED, RECEIVED
from simulator.jobs.rows import vertex_of

Sums = tuple[int, int, int]
"""Rows, the sum of their ``seq``, and the sum of squares."""
NOTHING: Sums = (0, 0, 0)


def plus(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@dataclass(frozen=True)
class FormerCounts:
    """Rows of former subtasks: ``emitted`` by emitter; ``received`` by emitter and the receiving vertex."""

    emitted: Mapping[int, int] = field(default_factory=dict)
    received: Mapping[tuple[int, int], Sums] = field(default_factory=dict)

    def emitted_by(self, vertex: int) -> int:
        return sum(rows for emitter, rows in self.emitted.items() if vertex_of(emitter) == vertex)

    def with_snapshot(self, metadata: SnapshotMetadata) -> FormerCounts:
        """Return these counts together with those of the subtasks of a snapshot."""
        emitted, received = dict(self.emitted), dict(self.received)
        for subtask in (subtask for slot in metadata.slots for subtask in slot.subtasks):
            for state in subtask.scalars.values():
                scalars: Mapping[str, Any] = state
                emitted |= {int(emitter): rows for emitter, rows in scalars.get(EMITTED, {}).items()}
                for emitter, (_, *sums) in scalars.get(RECEIVED, {}).items():
                    channel = int(emitter), subtask.vertex
                    received[channel] = plus(received.get(channel, NOTHING), tuple(sums))
        return FormerCounts(emitted, received)


class FormerSubtasks:
    """Counts of former subtasks, by snapshot and by Generation."""

    def __init__(self) -> None:
        self._of_snapshot: dict[CheckpointId, FormerCounts] = {}
        self._of_generation: dict[GenerationId, FormerCounts] = {}

    def opened(self, generation: GenerationId, restored: SnapshotMetadata | None, rescaled: bool) -> FormerCounts:
        """Return the counts of a Generation that begins from this snapshot.

        ``rescaled``: its subtasks are others than those of the snapshot.
        """
        past = FormerCounts() if restored is None else self.of(restored)
        if restored is not None and rescaled:
            past = past.with_snapshot(restored)
        self._of_generation[generation] = past
        return past

    def completed(self, metadata: SnapshotMetadata) -> None:
        self._of_snapshot[metadata.checkpoint] = self._of_generation[metadata.generation]

    def of(self, metadata: SnapshotMetadata) -> FormerCounts:
        """Return the counts of the subtasks before those of this snapshot."""
        return self._of_snapshot.get(metadata.checkpoint, FormerCounts())

    def copy(self) -> FormerSubtasks:
        other = FormerSubtasks()
        other._of_snapshot.update(self._of_snapshot)
        return other
