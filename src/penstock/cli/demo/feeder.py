"""Feeder of input files: renames prepared files into the input directory, one after the other, while the query runs."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path


class Feeder:
    """Feeder that adds files up to a goal at a steady pace, on its own thread. ``feed_until`` raises the goal.

    Args:
        files: prepared files, in the order in which they arrive.
        inbox: the query's input directory, on the same file system.
        seconds_per_file: time between two files.
    """

    def __init__(self, files: Sequence[Path], inbox: Path, seconds_per_file: float) -> None:
        self._files = list(files)
        self._inbox = inbox
        self._pace_s = seconds_per_file
        self._goal = 0
        self._fed = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="penstock-demo-feeder", daemon=True)
        inbox.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    @property
    def fed(self) -> int:
        return self._fed

    @property
    def total(self) -> int:
        return len(self._files)

    @property
    def arrived(self) -> bool:
        """True if all files up to the goal have arrived."""
        return self._fed >= self._goal

    def feed_until(self, share: float) -> None:
        """Raise the goal to this share (0 to 1) of all files. Returns at once."""
        with self._changed:
            self._goal = max(self._goal, round(share * len(self._files)))
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or self._fed < self._goal)
                if self._stopped:
                    return
                file = self._files[self._fed]
            os.replace(file, self._inbox / file.name)
            with self._changed:
                self._fed += 1
                self._changed.wait_for(lambda: self._stopped, timeout=self._pace_s)
