"""Barrier yield: a subtask pauses its input so that a checkpoint's barrier waits for one slice at most.

*Slices*: a slice that begins while a barrier is on its last hops would delay it by another 20 ms. So a subtask ends its
slices when the barriers of a pending checkpoint are due. Then it takes no input until all of its own barriers have
arrived, but at most for the duration of one slice.

*Calls of user functions that cannot be cut*: a call that holds the GIL for a second stalls every thread of its slot.
When it ends, another thread gets the GIL for one switch interval only, and the next call begins. A barrier would wait
for one more call at each hop, and the upload for another. So after a long step a subtask takes no input, while it still
handles control events. It always pauses briefly. Once per unaligned checkpoint it pauses until the slot has
acknowledged the checkpoint, but no longer than the step took. Aligned checkpoints are excepted, because they may need
the input of this very subtask.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from penstock.model.ids import CheckpointId
from penstock.worker.slicing import TARGET_MS

LONG_STEP_S = 0.1
"""Duration in seconds of a long step. A step should take 20 ms, so this was a user call that could not be cut."""
MOMENT_S = 0.01
"""Duration in seconds of the brief pause.

It suffices for the I/O thread to read and write its sockets, and is 1 % of a call of one second.
"""
POLL_S = 0.002
PATIENCE_S = TARGET_MS / 1000
"""Time in seconds for which a subtask waits for barriers after they are due. A slice would delay them as long."""


class PendingCheckpoints:
    """Unaligned checkpoints that a slot has not answered yet, and the times from which their barriers overtake.

    A trigger announces a checkpoint to every slot some milliseconds before the barriers reach the last subtasks. A
    checkpoint that may stay aligned for a time is announced earlier by that time.

    Any thread may call the methods. Times are in seconds on one monotonic clock.
    """

    def __init__(self) -> None:
        # otherwise a checkpoint that ends between the check and the entry would stay forever
        self._changing = threading.Lock()
        self._since_s: dict[CheckpointId, float] = {}
        self._newest_ended: CheckpointId = 0

    def began(self, checkpoint: CheckpointId, at_s: float) -> None:
        """Record a trigger or a barrier. The barriers overtake from ``at_s`` on; the earliest such time counts.

        A checkpoint that has ended, or is older than one that has, is ignored.
        """
        with self._changing:
            if checkpoint > self._newest_ended:
                self._since_s[checkpoint] = min(at_s, self._since_s.get(checkpoint, math.inf))

    def ended(self, checkpoint: CheckpointId) -> None:
        """Record that the slot has answered the checkpoint, or that it was aborted."""
        with self._changing:
            self._newest_ended = max(checkpoint, self._newest_ended)
            self._since_s.pop(checkpoint, None)

    def newest(self, now_s: float) -> CheckpointId | None:
        """Return the newest checkpoint whose barriers overtake at time ``now_s`` or before, or None."""
        return max((checkpoint for checkpoint, at_s in self._all() if at_s <= now_s), default=None)

    def due_s(self, behind: CheckpointId, after_s: float) -> float:
        """Return the earliest time after ``after_s`` at which barriers of a checkpoint newer than ``behind`` overtake.

        It is infinite if there is no such checkpoint.
        """
        return min(
            (at_s for checkpoint, at_s in self._all() if checkpoint > behind and at_s > after_s), default=math.inf
        )

    def __contains__(self, checkpoint: CheckpointId) -> bool:
        return checkpoint in self._since_s

    def _all(self) -> tuple[tuple[CheckpointId, float], ...]:
        return tuple(self._since_s.items())  # a copy is atomic


class BarrierYield:
    """Decides for one subtask, on its thread, when it takes no input. Control events are handled in any case.

    Args:
        pending: the pending checkpoints of its slot.
        clock: seconds on a monotonic clock.
    """

    def __init__(self, pending: PendingCheckpoints, clock: Callable[[], float] = time.monotonic) -> None:
        self._pending = pending
        self._clock = clock
        self._due_s = math.inf
        self._moment_ends = self._limit = 0.0
        self._yielding_for: CheckpointId | None = None
        self._yielded_for: CheckpointId = 0

    def stepped(self, step_s: float) -> None:
        """Record the duration of a step with input. After a long one the subtask yields."""
        if step_s > LONG_STEP_S:
            now = self._clock()
            self._moment_ends, self._limit = now + MOMENT_S, now + step_s

    def must_yield(self, captured: CheckpointId) -> bool:
        """Return True if the next step must not take input. Call it before each step.

        Args:
            captured: the newest checkpoint of which all barriers have arrived and left.
        """
        now = self._clock()
        self._due_s = self._pending.due_s(captured, now - PATIENCE_S)
        return self._due_s <= now or self._yields_after_long_step(now)

    def within_ms(self) -> float:
        """Return the milliseconds until the next barriers are due and the next step must end. May be infinite."""
        return max(0.0, self._due_s - self._clock()) * 1000

    def _yields_after_long_step(self, now: float) -> bool:
        if now < self._moment_ends:
            return True
        if now >= self._limit:
            self._yielding_for = None
            return False
        if self._yielding_for is None:
            newest = self._pending.newest(now)
            if newest is None or newest == self._yielded_for:
                self._limit = 0.0
                return False
            self._yielding_for = self._yielded_for = newest
        if self._yielding_for not in self._pending:  # the answer is written but not yet sent
            self._moment_ends, self._limit = now + MOMENT_S, 0.0
        return True
