"""Coroutines for blocking work, such as file writes and log appends. They are suspended at each effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from simulator.engine.store import Crash, SimulatedStore


class Coroutine:
    """One call on a stack of its own.

    Args:
        call: function to run; its return value becomes ``result``.
    """

    def __init__(self, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self._call: Callable[[], Any] | None = call
        self._stack: _Stack | None = None

    def resume(self) -> bool:
        """Continue to the next suspension; return True if the call has returned. Raises what the call raises."""
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
        """Unwind the call for good; effects that it attempts meanwhile do not happen."""
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
    """Suspend the current coroutine at an effect and return to its caller. Does nothing outside of a coroutine."""
    current = getcurrent()
    if isinstance(current, _Stack):
        current.parent.switch(None)


def coroutine_of(function: Callable[..., Any], *arguments: Any) -> Coroutine:
    """Return a coroutine that calls a function."""
    return Coroutine(lambda: function(*arguments))
