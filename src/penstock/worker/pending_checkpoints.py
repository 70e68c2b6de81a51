"""The checkpoints of a slot that overtake what is queued: which it has heard of and not answered yet, and since when.

A trigger tells every slot of a checkpoint some milliseconds before the barriers have come to its last subtasks, and of
one that may stay aligned for a time, all that time before.
"""

from __future__ import annotations

import math
import threading

from penstock.model.ids import CheckpointId


class PendingCheckpoints:
    """Of one slot. Any thread may call; moments are those of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._changing = threading.Lock()  # or one that ends between the look and the entry would stay for ever
        self._since_s: dict[CheckpointId, float] = {}
        self._newest_ended: CheckpointId = 0

    def began(self, checkpoint: CheckpointId, at_s: float) -> None:
        """Said for triggers and for every barrier; ``at_s``: from when on its barriers overtake, the earliest counts.
        One that comes after the end, or behind a newer one's, is too late to matter."""
        with self._changing:
            if checkpoint > self._newest_ended:
                self._since_s[checkpoint] = min(at_s, self._since_s.get(checkpoint, math.inf))

    def ended(self, checkpoint: CheckpointId) -> None:
        with self._changing:
            self._newest_ended = max(checkpoint, self._newest_ended)
            self._since_s.pop(checkpoint, None)

    def newest(self, now_s: float) -> CheckpointId | None:
        """Of those whose barriers overtake by now."""
        return max((checkpoint for checkpoint, at_s in self._all() if at_s <= now_s), default=None)

    def due_s(self, behind: CheckpointId, after_s: float) -> float:
        """When barriers overtake next, after a moment, of checkpoints newer than ``behind``; infinite: of none."""
        return min(
            (at_s for checkpoint, at_s in self._all() if checkpoint > behind and at_s > after_s), default=math.inf
        )

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._since_s

    def _all(self) -> tuple[tuple[CheckpointId, float], ...]:
        return tuple(self._since_s.items())  # a copy is atomic
