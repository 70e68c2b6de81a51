"""A pause behind user calls that could not be cut, so that a checkpoint waits for one of them and not for several.

A call that holds the GIL for a second stalls every thread of its slot. When it ends, whoever else asks for the GIL gets
it for one switch interval only, and the next call begins: a barrier would wait for one more call at each hop, and the
upload for another. So a subtask whose step took long leaves its input alone, while control goes on: always for a
moment, and once per unaligned checkpoint until the slot has acknowledged it, for at most as long as the step took.
(Not for aligned ones: they may need this very subtask's input to be read.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.ids import CheckpointId

LONG_STEP_S = 0.1
"""A step is meant to take 20 ms; one this long was a user call that could not be cut."""
MOMENT_S = 0.01
"""Long enough for the I/O thread to read and write its sockets; one per cent of a call of a second."""
POLL_S = 0.002


class Underway:
    """The unaligned checkpoints that a slot has heard of and not answered. Any thread may call."""

    def __init__(self) -> None:
        self._changing = threading.Lock()  # or one that ends between the look and the entry would stay for ever
        self._checkpoints: dict[CheckpointId, None] = {}
        self._newest_ended: CheckpointId = 0

    def began(self, checkpoint: CheckpointId) -> None:
        """Said for every barrier; one that comes after the end, or behind a newer one's, is too late to matter."""
        with self._changing:
            if checkpoint > self._newest_ended:
                self._checkpoints[checkpoint] = None

    def ended(self, checkpoint: CheckpointId) -> None:
        with self._changing:
            self._newest_ended = max(checkpoint, self._newest_ended)
            self._checkpoints.pop(checkpoint, None)

    def newest(self) -> CheckpointId | None:
        return max(tuple(self._checkpoints), default=None)  # the copy is atomic

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._checkpoints


class Breather:
    """Of one subtask, on its thread: whether it is to leave its input alone for now. Control goes on.

    Args:
        underway: its slot's.
        clock: seconds on a monotonic clock.
    """

    def __init__(self, underway: Underway, clock: Callable[[], float] = time.monotonic) -> None:
        self._underway = underway
        self._clock = clock
        self._moment_ends = self._limit = 0.0
        self._resting_for: CheckpointId | None = None
        self._rested_for: CheckpointId = 0

    def stepped(self, step_s: float) -> None:
        """A step that took input was this long: rest behind it if that was long."""
        if step_s > LONG_STEP_S:
            now = self._clock()
            self._moment_ends, self._limit = now + MOMENT_S, now + step_s

    def resting(self) -> bool:
        """Asked before each step."""
        now = self._clock()
        if now < self._moment_ends:
            return True
        if now >= self._limit:
            self._resting_for = None
            return False
        if self._resting_for is None:
            newest = self._underway.newest()
            if newest is None or newest == self._rested_for:
                self._limit = 0.0
                return False
            self._resting_for = self._rested_for = newest
        if self._resting_for not in self._underway:  # the answer is written, but not yet sent
            self._moment_ends, self._limit = now + MOMENT_S, 0.0
        return True
