"""The one way into a subtask: any thread appends, the owner drains."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Event = TypeVar("Event")


def _nobody_waits() -> None:
    """The default wake hook."""


class Inbox(Generic[Event]):
    """A thread-safe, append-only queue of events (``deque.append`` and ``popleft`` are atomic).

    Attributes:
        wake: called after every append, on the appending thread; must be quick and must not raise. The host sets it
            once, before other threads know the inbox.
    """

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self.wake: Callable[[], None] = _nobody_waits

    def append(self, event: Event) -> None:
        """Add an event behind all others and wake the owner."""
        self._events.append(event)
        self.wake()

    def pop(self) -> Event | None:
        """The oldest event, removed, or None. Owner only."""
        return self._events.popleft() if self._events else None

    def __len__(self) -> int:
        return len(self._events)
