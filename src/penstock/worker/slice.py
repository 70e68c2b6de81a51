"""The newest rows that a subtask took in: where they came from, and what they have cost so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.errors import FunctionError

JOINED_FOR_S = 10.0
"""So long rows may join a slice that is under way: now and then one ends, whatever comes in."""


@dataclass
class Slice:
    """Owned by the subtask's thread.

    Attributes:
        rows: how many; 0 once their cost was told.
        bytes: how many these rows have.
        first, last: where its first and its last input came from.
        bytes_before: how many the subtask had put out before.
        away_before_ms: how long other processes had worked for it before.
        began_s: when it began, on ``clock``.
        clock: seconds on a monotonic clock.
        here_ms: how long this thread has worked on it.
    """

    rows: int
    bytes: int
    first: str
    last: str
    bytes_before: int
    away_before_ms: float
    began_s: float
    clock: Callable[[], float]
    here_ms: float = 0.0

    @property
    def position(self) -> str:
        """For errors."""
        return self.first if self.first == self.last else f"{self.first} to {self.last}"

    @property
    def open(self) -> bool:
        """Whether rows may still join it."""
        return self.clock() - self.began_s < JOINED_FOR_S

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Meanwhile. What a user function raises gets the position."""
        began_s = self.clock()
        try:
            yield
        except FunctionError as error:
            if error.position:
                raise
            raise FunctionError(error.operator, error.message, error.user_traceback, self.position) from error
        self.here_ms += (self.clock() - began_s) * 1000

    def join(self, rows: int, size: int, last: str) -> None:
        """Rows that came while it was under way, of ``size`` bytes."""
        self.rows += rows
        self.bytes += size
        self.last = last
