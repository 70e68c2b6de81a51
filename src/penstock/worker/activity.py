"""Time accounting of a subtask: busy, backpressured or idle."""

from __future__ import annotations

from collections.abc import Callable

LONG_S = 0.1
"""A step is meant to take 20 ms: one that has taken this long may be abandoned."""


class Abandoned(Exception):
    """The subtask was stopped in the middle of a long step."""


class Activity:
    """Accumulates since creation. Time inside a step that worked is busy; all other time counts as what the last step
    ended with: no room in the outputs, rows that another process works on (busy), or nothing to do. ``clock`` is in
    seconds.
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
