"""Time accounting of a subtask: busy, backpressured or idle."""

from __future__ import annotations

from collections.abc import Callable

LONG_S = 0.1
"""Time in seconds from which a step may be abandoned. A step should take 20 ms."""


class Abandoned(Exception):
    """Raised if the subtask was stopped in the middle of a long step."""


class Activity:
    """Accumulates times since creation.

    The time of a step that worked is busy. All other time is counted by the result of the last step: no room in the
    outputs (backpressured), rows in another process (busy), or nothing to do (idle). ``clock`` is in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._backpressured = self._away = False
        self.busy_ms = 0.0
        self.backpressured_ms = 0.0
        self.idle_ms = 0.0

    def step_begins(self) -> None:
        self._wait(self._lap())

    def abandon_if(self, stopped: bool) -> None:
        """Raise Abandoned if the subtask is stopped and its step has lasted long: few rows may become millions."""
        if stopped and self._clock() - self._since > LONG_S:
            raise Abandoned

    def step_ends(self, worked: bool, has_room: bool, away: bool = False) -> None:
        elapsed = self._lap()
        self._backpressured, self._away = not has_room, away
        if worked:
            self.busy_ms += elapsed
        else:
            self._wait(elapsed)

    def _wait(self, elapsed_ms: float) -> None:
        if self._backpressured:
            self.backpressured_ms += elapsed_ms
        elif self._away:
            self.busy_ms += elapsed_ms
        else:
            self.idle_ms += elapsed_ms

    def _lap(self) -> float:
        now = self._clock()
        elapsed_ms, self._since = (now - self._since) * 1000, now
        return elapsed_ms
