"""Progress of a long operation, reported to a callback."""

from __future__ import annotations

import threading
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Callback with the amounts done and in total. It may be called on any thread, but never concurrently."""


def no_progress(done: int, total: int) -> None:
    """Ignore progress."""


class Meter:
    """Progress meter of one operation. Any thread may call any method.

    Args:
        total: total amount of work, in any unit. The amount done never exceeds it.
        progress: called after every change.
    """

    def __init__(self, total: int, progress: Progress = no_progress) -> None:
        self.total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    @property
    def is_watched(self) -> bool:
        """Return True if progress is reported."""
        return self._progress is not no_progress

    def add(self, done: int) -> None:
        """Add an amount that was done."""
        with self._lock:
            self._set_done(self._done + done)

    def part(self, size: int) -> Meter:
        """Return the meter of a part of the work. Its ``finish`` adds the rest of the part."""
        return _Part(self, size)

    def finish(self) -> None:
        """Report that all work is done."""
        with self._lock:
            self._set_done(self.total)

    def _set_done(self, done: int) -> None:
        before, self._done = self._done, min(max(done, self._done), self.total)
        if self._done != before:
            self._progress(self._done, self.total)


class _Part(Meter):
    def __init__(self, whole: Meter, size: int) -> None:
        reported = 0

        def report(done: int, _: int) -> None:
            nonlocal reported
            whole.add(done - reported)
            reported = done

        super().__init__(size, report if whole.is_watched else no_progress)
