"""Pauses, so that a checkpoint's barrier waits for one slice or user call at most, and not for several.

Of *slices*: one that began while a barrier is on its last hops would hold it up for another 20 ms. So a subtask whose
slot knows of a checkpoint ends its slices when the barriers are due, and leaves its input alone until all of its own
have come, for a slice's time at most.

Of *calls that could not be cut*: a call that holds the GIL for a second stalls every thread of its slot. When it ends,
whoever else asks for the GIL gets it for one switch interval only, and the next call begins: a barrier would wait for
one more call at each hop, and the upload for another. So a subtask whose step took long leaves its input alone, while
control goes on: always for a moment, and once per unaligned checkpoint until the slot has acknowledged it, for at most
as long as the step took. (Not for aligned ones: they may need this very subtask's input to be read.)
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from penstock.model.ids import CheckpointId
from penstock.worker.slicing import TARGET_MS

LONG_STEP_S = 0.1
"""A step is meant to take 20 ms; one this long was a user call that could not be cut."""
MOMENT_S = 0.01
"""Long enough for the I/O thread to read and write its sockets; one per cent of a call of a second."""
POLL_S = 0.002
PATIENCE_S = TARGET_MS / 1000
"""So long after barriers are due a subtask waits for its own: longer, and a slice would have held them up no more."""


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


class BarrierYield:
    """Of one subtask, on its thread: whether it is to leave its input alone for now. Control goes on.

    Args:
        pending: its slot's.
        clock: seconds on a monotonic clock.
    """

    def __init__(self, pending: PendingCheckpoints, clock: Callable[[], float] = time.monotonic) -> None:
        self._pending = pending
        self._clock = clock
        self._due_s = math.inf
        self._moment_ends = self._limit = 0.0
        self._resting_for: CheckpointId | None = None
        self._rested_for: CheckpointId = 0

    def stepped(self, step_s: float) -> None:
        """A step that took input was this long: rest behind it if that was long."""
        if step_s > LONG_STEP_S:
            now = self._clock()
            self._moment_ends, self._limit = now + MOMENT_S, now + step_s

    def resting(self, captured: CheckpointId) -> bool:
        """Asked before each step. ``captured``: the newest checkpoint whose barriers have all come and gone."""
        now = self._clock()
        self._due_s = self._pending.due_s(captured, now - PATIENCE_S)
        return self._due_s <= now or self._resting_from_long_step(now)

    def within_ms(self) -> float:
        """By when the step behind ``resting`` is to be done, as barriers are due then; infinite: no matter."""
        return max(0.0, self._due_s - self._clock()) * 1000

    def _resting_from_long_step(self, now: float) -> bool:
        if now < self._moment_ends:
            return True
        if now >= self._limit:
            self._resting_for = None
            return False
        if self._resting_for is None:
            newest = self._pending.newest(now)
            if newest is None or newest == self._rested_for:
                self._limit = 0.0
                return False
            self._resting_for = self._rested_for = newest
        if self._resting_for not in self._pending:  # the answer is written, but not yet sent
            self._moment_ends, self._limit = now + MOMENT_S, 0.0
        return True
