"""UserIterator: a user's ``Iterator -> Iterator`` function driven from outside, input by input.

The function pulls its input when it likes; a subtask pushes. A greenlet turns one into the other without a thread:
the function runs on its own stack until it asks for input that is not there yet, and continues at the same instruction
when there is some. Everything happens on the caller's thread.
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
    """Signal that the function's iterator is exhausted; or, to the function, that there is no more input."""


_NEEDS_INPUT = _NeedsInput()
_ENDED = _Ended()


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


class _Output(Generic[Out]):
    def __init__(self, value: Out) -> None:
        self.value = value


class UserIterator(Generic[In, Out]):
    """One call of the function per epoch: it starts at the epoch's first input and is ended by ``finish``.

    An epoch without input makes no call. A function that stops early gets nothing more in that epoch: its remaining
    input is consumed and dropped, as in a Spark task. Exceptions come out of ``feed`` and ``finish`` as they are.
    """

    def __init__(self, function: Callable[[Iterator[In]], Iterable[Out]]) -> None:
        self._function = function
        self._coroutine: greenlet | None = None
        self._exhausted = False

    @property
    def running(self) -> bool:
        """True if an open call has had input: it may hold a part of it, however much it has yielded."""
        return self._coroutine is not None and not self._exhausted

    def feed(self, value: In) -> Iterator[Out]:
        """Pass one input to the function and yield its outputs before it needs more."""
        if self._coroutine is None and not self._exhausted:
            self._coroutine = greenlet(self._run)
            yield from self._resume(None)  # up to the first request for input
        if not self._exhausted:
            yield from self._resume(value)

    def finish(self) -> Iterator[Out]:
        """End the input, yield all that is left, and be ready for the next epoch."""
        while self._coroutine is not None and not self._exhausted:
            yield from self._resume(_ENDED)  # more than once if a ``feed`` was left before its last output
        self._coroutine, self._exhausted = None, False

    def close(self) -> None:
        """Abandon a call in progress; its ``finally`` blocks run."""
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
        """Run the function in the greenlet: the parent receives requests for input, outputs and the end."""
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
