"""Calls that may take long, on a thread of their own: their caller waits for a short time and comes again."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.logs import daemon_thread

T = TypeVar("T")

PATIENCE_S = 0.02
"""The time for which the caller waits at once."""

_CLOSING_S = 0.3
"""The time for which ``close`` waits for a call that runs."""


class NotDone(Exception):
    """The call still runs."""


class PatientCalls(Generic[T]):
    """Runs one call at a time. Owned by one thread; the thread of the calls begins with the first of them.

    A thread that nobody waits for ends after the call that it runs.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[Callable[[], T] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._runs = False

    def result(self, call: Callable[[], T]) -> T:
        """Return the result of the call, or raise what it raised.

        Raises:
            NotDone: the call runs longer than ``PATIENCE_S``. The next call of this method waits for the same result;
                its argument does not matter.
        """
        if self._thread is None:
            self._thread = daemon_thread(self._run, f"penstock-{self._name}")
            self._thread.start()
        if not self._runs:
            self._calls.put(call)
            self._runs = True
        try:
            outcome, error = self._outcomes.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise NotDone from None
        self._runs = False
        if error is not None:
            raise error
        return outcome  # type: ignore[return-value]

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._outcomes.put((call(), None))
            except BaseException as error:  # noqa: BLE001 - raised on the caller's thread
                self._outcomes.put((None, error))
            del call  # it would keep what it read until the next one comes

    def close(self) -> None:
        """End the thread, after the call that runs."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join(_CLOSING_S)
