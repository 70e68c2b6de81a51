"""Work that blocks - writing a file, appending to the log - as something that is suspended at its effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from simulator.engine.store import Crash, SimulatedStore


class Routine:
    """One call, on its own stack.

    Args:
        call: what to do; its result is ``result`` when it is done.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self._call: Callable[[], Any] | None = call
        self._stack: _Stack | None = None

    def resume(self) -> bool:
        """Go on to the next suspension; returns whether it is done. Raises what the call raises."""
        call, self._call = self._call, None
        if call is not None:
            self._stack = _idle.pop() if _idle else _Stack()
        stack = self._stack
        assert stack is not None, "it is done"
        stack.parent = getcurrent()
        ended = stack.switch(call)
        if ended is None:
            return False
        self._release()
        self.result, problem = ended
        if problem is not None:
            raise problem
        return True

    def kill(self, store: SimulatedStore) -> None:
        """It never goes on, and what it tries on its way out has no effect."""
        stack = self._stack
        if stack is None or stack is getcurrent():
            return
        stack.parent = getcurrent()  # to where its end leads; perhaps another routine of the same process
        store.dying = True
        try:
            _, problem = stack.throw(Crash)
        finally:
            store.dying = False
        self._release()
        if not isinstance(problem, Crash | None):
            raise problem

    def _release(self) -> None:
        assert self._stack is not None
        _idle.append(self._stack)
        self._stack = None


class _Stack(greenlet):  # type: ignore[misc]
    """Runs one call after the other: a new stack costs more than most calls."""

    def run(self, call: Callable[[], Any]) -> None:
        while True:
            ended: tuple[Any, BaseException | None]
            try:
                ended = call(), None
            except GreenletExit:
                raise
            except BaseException as problem:  # noqa: BLE001 - whoever resumed it raises it
                ended = None, problem
            call = self.parent.switch(ended)


_idle: list[_Stack] = []


def suspend() -> None:
    """Called at an effect: whoever resumed the routine that is running goes on. Does nothing outside of one."""
    current = getcurrent()
    if isinstance(current, _Stack):
        current.parent.switch(None)


def call_of(function: Callable[..., Any], *arguments: Any) -> Routine:
    """A call as a routine."""
    return Routine(lambda: function(*arguments))
