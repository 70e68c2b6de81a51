"""How far a long piece of work is, for whoever watches it."""

from __future__ import annotations

import threading
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Is told how much is done, and of how much; from any thread, one call at a time."""


def untold(done: int, total: int) -> None:
    """Nobody watches."""


class Meter:
    """Adds up what is done, by any thread.

    Args:
        total: of all of it, in whatever unit; what is done never counts as more.
        progress: is told of every change.
    """

    def __init__(self, total: int, progress: Progress = untold) -> None:
        self.total = total
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    @property
    def is_watched(self) -> bool:
        return self._progress is not untold

    def add(self, done: int) -> None:
        """So much more is done."""
        with self._lock:
            self._reached(self._done + done)

    def part(self, size: int) -> Meter:
        """Of a part of the work, which ``finish`` completes whatever was told of it."""
        return _Part(self, size)

    def finish(self) -> None:
        """All of it is done."""
        with self._lock:
            self._reached(self.total)

    def _reached(self, done: int) -> None:
        before, self._done = self._done, min(max(done, self._done), self.total)
        if self._done != before:
            self._progress(self._done, self.total)


class _Part(Meter):
    def __init__(self, whole: Meter, size: int) -> None:
        told = 0

        def tell(done: int, _: int) -> None:
            nonlocal told
            whole.add(done - told)
            told = done

        super().__init__(size, tell if whole.is_watched else untold)
