"""Work that blocks - writing a file, appending to the log - as something that is suspended at its effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from penstock.testing.store import Crash, SimulatedStore


class Routine:
    """One call, on its own stack.

    Args:
        call: what to do; its result is ``result`` when it is done.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self._greenlet = _Suspendable(call)

    def resume(self) -> bool:
        """Go on to the next suspension; returns whether it is done. Raises what the call raises."""
        self.result = self._greenlet.switch()
        return bool(self._greenlet.dead)

    def kill(self, store: SimulatedStore) -> None:
        """It never goes on, and what it tries on its way out has no effect."""
        if self._greenlet.dead or self._greenlet is getcurrent():
            return
        self._greenlet.parent = getcurrent()  # to where its end leads; perhaps another routine of the same process
        store.dying = True
        try:
            self._greenlet.throw(Crash)
        except Crash:
            return
        finally:
            store.dying = False


class _Suspendable(greenlet):  # type: ignore[misc]
    """Marks the stacks that may be suspended."""


def suspend() -> None:
    """Called at an effect: whoever resumed the routine that is running goes on. Does nothing outside of one."""
    current = getcurrent()
    if isinstance(current, _Suspendable):
        current.parent.switch()


def call_of(function: Callable[..., Any], *arguments: Any) -> Routine:
    """A call as a routine."""
    return Routine(lambda: function(*arguments))
