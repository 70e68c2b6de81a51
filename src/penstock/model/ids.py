"""Identifiers that all layers use. All are plain values, ordered and hashable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

GenerationId = int
"""Number of one generation (one fenced run of a query between two restarts).

The first one at a location is 1. A number is never reused.
"""

CheckpointId = int
"""Number of a checkpoint. Checkpoint n ends epoch n.

It rises by one with every trigger at a location, across generations, and is never reused.
"""


def snapshot_id(checkpoint: CheckpointId) -> str:
    """Return the id of a checkpoint's snapshot, for example ``chk-12``."""
    return f"chk-{checkpoint}"


class ChannelId(NamedTuple):
    """Channel from producer subtask ``producer`` to consumer subtask ``consumer`` on one edge."""

    edge: int
    producer: int
    consumer: int

    def __str__(self) -> str:
        return f"e{self.edge}:{self.producer}->{self.consumer}"


@dataclass(frozen=True, order=True, slots=True)
class SubtaskId:
    """One parallel instance of a vertex. Slot ``index`` runs subtask ``index`` of every vertex."""

    vertex: int
    index: int

    def __str__(self) -> str:
        return f"v{self.vertex}[{self.index}]"


class BufferId(NamedTuple):
    """Identity of a buffer. It stays the same wherever the buffer is stored."""

    generation: GenerationId
    channel: ChannelId
    seq: int

    def __str__(self) -> str:
        return f"g{self.generation}/{self.channel}#{self.seq}"
