"""Background calls: long calls run on a separate thread, and the caller polls for their results."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.logs import daemon_thread

T = TypeVar("T")

PATIENCE_S = 0.02
"""Longest wait of one ``result``, in seconds."""

_CLOSING_S = 0.3
"""Longest wait of ``close`` for a running call, in seconds."""


class CallRunning(Exception):
    """The call is still running."""


class BackgroundCalls(Generic[T]):
    """Background thread that runs one call at a time. Owned by one thread.

    The background thread starts with the first call, and ends after ``close`` when its call has returned.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[Callable[[], T] | None] = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._runs = False

    def result(self, call: Callable[[], T]) -> T:
        """Return the result of the call, or raise the error that it raised.

        Raises:
            CallRunning: the call has not ended within ``PATIENCE_S``. The next ``result`` waits for the same call and
                ignores its argument.
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
            raise CallRunning from None
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
            del call  # otherwise its data would stay in memory until the next call

    def close(self) -> None:
        """End the thread after the running call. Wait for it at most ``_CLOSING_S``."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join(_CLOSING_S)
