"""UserIterator: runs a user's ``Iterator -> Iterator`` function with inputs that are pushed one by one.

The function pulls its input, but a subtask pushes. A greenlet connects both without a thread: the function runs on its
own stack until it asks for an input that is not available yet. It continues at the same instruction when the input
arrives. Everything runs on the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

In = TypeVar("In")
Out = TypeVar("Out")


class _NeedsInput:
    """Signal that the function needs its next input."""


class _Ended:
    """Signal that the function's iterator is exhausted. Sent to the function, it signals the end of the input."""


_NEEDS_INPUT = _NeedsInput()
_ENDED = _Ended()


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


class _Output(Generic[Out]):
    def __init__(self, value: Out) -> None:
        self.value = value


class UserIterator(Generic[In, Out]):
    """Driver of a user function that is called once per epoch.

    The call starts at the first input of the epoch and is ended by ``finish``. There is no call in an epoch without
    input. If the function returns early, the remaining input of the epoch is dropped, as in a Spark task. ``feed`` and
    ``finish`` raise the function's exceptions unchanged.
    """

    def __init__(self, function: Callable[[Iterator[In]], Iterable[Out]]) -> None:
        self._function = function
        self._coroutine: greenlet | None = None
        self._exhausted = False

    @property
    def running(self) -> bool:
        """True while a call is in progress. The function may hold a part of its input, however much it has yielded."""
        return self._coroutine is not None and not self._exhausted

    def feed(self, value: In) -> Iterator[Out]:
        """Pass one input to the function. Yield its outputs until it needs the next input."""
        if self._coroutine is None and not self._exhausted:
            self._coroutine = greenlet(self._run)
            yield from self._resume(None)  # run up to the first request for input
        if not self._exhausted:
            yield from self._resume(value)

    def finish(self) -> Iterator[Out]:
        """End the input and yield the remaining outputs. The next ``feed`` starts a new call."""
        while self._coroutine is not None and not self._exhausted:
            yield from self._resume(_ENDED)  # repeated if a ``feed`` was abandoned before its last output
        self._coroutine, self._exhausted = None, False

    def close(self) -> None:
        """Abandon a call in progress. Its ``finally`` blocks run."""
        coroutine, self._coroutine = self._coroutine, None
        if coroutine is not None and not coroutine.dead:
            coroutine.parent = getcurrent()
            coroutine.throw(GreenletExit)

    def _resume(self, value: object) -> Iterator[Out]:
        assert self._coroutine is not None
        self._coroutine.parent = getcurrent()
        signal = self._coroutine.switch(value)
        while isinstance(signal, _Output):
            yield signal.value
            self._coroutine.parent = getcurrent()
            signal = self._coroutine.switch(None)
        if signal is _NEEDS_INPUT:
            return
        self._exhausted = True
        if isinstance(signal, _Raised):
            raise signal.error

    def _run(self, _: object) -> object:
        """Run the function in the greenlet. It sends requests for input, outputs, and the end to the parent."""
        try:
            for value in self._function(self._inputs()):
                _resumer().switch(_Output(value))
        except Exception as error:  # noqa: BLE001 - handed to the caller's stack, which raises it
            return _Raised(error)
        return _ENDED

    def _inputs(self) -> Iterator[In]:
        while True:
            value = _resumer().switch(_NEEDS_INPUT)
            if value is _ENDED:
                return
            yield value


def _resumer() -> greenlet:
    """Return the greenlet that resumed the running one."""
    parent = getcurrent().parent
    assert parent is not None
    return parent
