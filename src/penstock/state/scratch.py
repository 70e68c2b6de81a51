"""Private temporary folder of a process. Each new process that creates one removes the folders of killed processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from penstock.errors import ResourceError

PREFIX = "penstock-state-"
_LOCK = "lock"


class ScratchFolder:
    """New temporary folder. Its owner holds a lock in it until the process ends.

    Args:
        parent: parent of the folder, by default the system's temporary folder.

    Attributes:
        path: folder for the owner's files.

    Raises:
        ResourceError: the disk is full or fails.
    """

    def __init__(self, parent: str | None = None) -> None:
        _sweep(Path(parent or tempfile.gettempdir()))
        try:
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            try:
                self._fill()
            except OSError:
                shutil.rmtree(self._folder)
                raise
        except OSError as error:
            raise ResourceError(f"no folder for state can be made on local disk: {error}") from error

    def _fill(self) -> None:
        self.path = self._folder / "content"
        self.path.mkdir()
        unlocked = self._folder / f"{_LOCK}.new"
        self._lock: int | None = os.open(unlocked, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self._folder / _LOCK)  # other processes see the lock only when it is held

    def close(self) -> None:
        """Remove the folder. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self._folder)
            os.close(self._lock)
            self._lock = None


def _sweep(parent: Path) -> None:
    """Remove folders whose lock no process holds, except those of other users."""
    for folder in parent.glob(f"{PREFIX}*"):
        # Errors mean that the folder belongs to another user, is being created, is in use, or was removed meanwhile.
        with contextlib.suppress(OSError):
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
