"""CPU seconds of processes and everything they have started: of this one, that is Spark's JVM and its slots, too."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from types import TracebackType

LOOK_EVERY_S = 0.2
"""Processes come and go, and what they used goes with them: what one used behind the last look is lost."""

_Process = tuple[int, int]
"""Its id, and when it was started: ids are used again."""


class CpuTime:
    """``with CpuTime() as used: ...`` and then ``used.seconds``: what was used inside.

    Args:
        of: ids of the processes; None: this one.
        without: ids of those whose time does not count, nor that of what they have started.
    """

    def __init__(self, of: Collection[int] | None = None, without: Collection[int] = ()) -> None:
        self.seconds = 0.0
        self._of = [os.getpid()] if of is None else list(of)
        self._without = frozenset(without)
        self._before: dict[_Process, int] = {}
        self._newest: dict[_Process, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="cpu-time", daemon=True)

    def __enter__(self) -> CpuTime:
        self._before = self._ticks()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        self._newest |= self._ticks()
        grown = sum(ticks - self._before.get(process, 0) for process, ticks in self._newest.items())
        self.seconds = grown / os.sysconf("SC_CLK_TCK")

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._newest |= self._ticks()

    def _ticks(self) -> dict[_Process, int]:
        """Return the CPU ticks of each live process, in user code and in the kernel."""
        children, found = _processes()
        chosen = list(self._of)
        for pid in chosen:
            chosen += (child for child in children[pid] if child not in self._without)
        return dict(found[pid] for pid in chosen if pid in found)


def _processes() -> tuple[dict[int, list[int]], dict[int, tuple[_Process, int]]]:
    """Return all processes of the machine by id, with their children and CPU ticks."""
    children: dict[int, list[int]] = defaultdict(list)
    found: dict[int, tuple[_Process, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            pid = int(entry.name)
            children[int(fields[1])].append(pid)
            found[pid] = (pid, int(fields[19])), int(fields[11]) + int(fields[12])
    return children, found
