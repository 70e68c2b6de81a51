"""A private folder that goes with its owner: what a killed process left is swept by the next one that makes one."""

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
    """A new folder; its owner holds a lock in it for as long as its process lives.

    Args:
        parent: where to make it; the system's temporary folder by default.

    Attributes:
        path: for whatever is to be kept there.

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
        unlocked.rename(self._folder / _LOCK)  # nobody finds a lock that is not held yet

    def close(self) -> None:
        """It is not there any more. Idempotent."""
        if self._lock is not None:
            shutil.rmtree(self._folder)
            os.close(self._lock)
            self._lock = None


def _sweep(parent: Path) -> None:
    """Remove folders whose lock nobody holds. Those of other users are theirs."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, in the making, or swept by another process just now
            lock = os.open(folder / _LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(lock)
