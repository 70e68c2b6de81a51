"""Identities that travel through every layer. All are plain values, ordered and hashable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

GenerationId = int
"""One execution attempt of a query; 1 for the first ever at a location, never reused."""

CheckpointId = int
"""Rises by one per trigger over the life of a location, across Generations; never reused. Checkpoint n ends epoch n."""


def snapshot_id(checkpoint: CheckpointId) -> str:
    """Return the id of a checkpoint's snapshot, for example ``chk-12``."""
    return f"chk-{checkpoint}"


class ChannelId(NamedTuple):
    """Producer subtask ``producer`` -> consumer subtask ``consumer`` on one edge."""

    edge: int
    producer: int
    consumer: int

    def __str__(self) -> str:
        return f"e{self.edge}:{self.producer}->{self.consumer}"


@dataclass(frozen=True, order=True, slots=True)
class SubtaskId:
    """One parallel instance of a vertex. Slot ``index`` hosts subtask ``index`` of every vertex."""

    vertex: int
    index: int

    def __str__(self) -> str:
        return f"v{self.vertex}[{self.index}]"


class BufferId(NamedTuple):
    """The identity of a buffer, for its whole life, wherever it is stored."""

    generation: GenerationId
    channel: ChannelId
    seq: int

    def __str__(self) -> str:
        return f"g{self.generation}/{self.channel}#{self.seq}"
