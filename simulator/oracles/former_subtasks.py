"""What subtasks of former parallelisms had emitted and received: nobody holds it any more once the job was rescaled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model.ids import CheckpointId, GenerationId
from penstock.model.manifest import SnapshotMetadata
from simulator.jobs.rows import vertex_of
from simulator.jobs.tap import EMITTED, RECEIVED

Sums = tuple[int, int, int]
"""Rows, the sum of their ``seq``, and the sum of squares."""
NOTHING: Sums = (0, 0, 0)


def plus(one: Sums, other: Sums) -> Sums:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@dataclass(frozen=True)
class Past:
    """``emitted`` by via; ``received`` by via and the vertex that received."""

    emitted: Mapping[int, int] = field(default_factory=dict)
    received: Mapping[tuple[int, int], Sums] = field(default_factory=dict)

    def emitted_by(self, vertex: int) -> int:
        return sum(rows for via, rows in self.emitted.items() if vertex_of(via) == vertex)

    def with_snapshot(self, metadata: SnapshotMetadata) -> Past:
        """And what the subtasks of this snapshot had."""
        emitted, received = dict(self.emitted), dict(self.received)
        for subtask in (subtask for slot in metadata.slots for subtask in slot.subtasks):
            for state in subtask.scalars.values():
                scalars: Mapping[str, Any] = state
                emitted |= {int(via): rows for via, rows in scalars.get(EMITTED, {}).items()}
                for via, (_, *sums) in scalars.get(RECEIVED, {}).items():
                    place = int(via), subtask.vertex
                    received[place] = plus(received.get(place, NOTHING), tuple(sums))
        return Past(emitted, received)


class RescaledBooks:
    """By snapshot, and by Generation."""

    def __init__(self) -> None:
        self._of_snapshot: dict[CheckpointId, Past] = {}
        self._of_generation: dict[GenerationId, Past] = {}

    def opened(self, generation: GenerationId, restored: SnapshotMetadata | None, rescaled: bool) -> Past:
        """A Generation begins from this snapshot. ``rescaled``: its subtasks are others than those of the snapshot."""
        past = Past() if restored is None else self.of(restored)
        if restored is not None and rescaled:
            past = past.with_snapshot(restored)
        self._of_generation[generation] = past
        return past

    def completed(self, metadata: SnapshotMetadata) -> None:
        self._of_snapshot[metadata.checkpoint] = self._of_generation[metadata.generation]

    def of(self, metadata: SnapshotMetadata) -> Past:
        """Before the subtasks of this snapshot."""
        return self._of_snapshot.get(metadata.checkpoint, Past())

    def copy(self) -> RescaledBooks:
        other = RescaledBooks()
        other._of_snapshot.update(self._of_snapshot)
        return other
