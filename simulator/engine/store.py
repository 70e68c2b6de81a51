"""Checkpoint location of a simulation: an object store in memory in which every visible effect is one step.

A file appears whole when it is closed or created, and creation is exclusive. Only a crash during a write may leave a
part of a file, as a disk would.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.snapshots.store.store import DataFile, MemoryStore, checked_path

Happens = Callable[[str, str, str], None]
"""(operation, path, ``before`` or ``after``): an effect. May raise OSError, or ``Crash`` for the process that acts."""


class Crash(BaseException):
    """Death of the acting process; no handler in the job may catch this."""


class SimulatedStore(MemoryStore):
    """Object store in memory that reports each effect.

    Attributes:
        happens: called around every effect.
        on_created: called with the path of every file that was just created whole.
        on_deleted: called with the path of every file that was just deleted.
        dying: True while a dead process is unwound; its effects do not happen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.happens: Happens = _nothing_happens
        self.on_created: Callable[[str], None] = _nobody_watches
        self.on_deleted: Callable[[str], None] = _nobody_watches
        self.dying = False

    def create_if_absent(self, path: str, data: bytes) -> bool:
        self._effect("create_if_absent", checked_path(path), "before")
        created = path not in self.files
        if created:
            self.publish(path, bytes(data))
        self._effect("create_if_absent", path, "after")
        return created

    def create(self, path: str) -> DataFile:
        self._effect("create", checked_path(path), "before")
        if path in self.files:
            raise FileExistsError(path)
        return _SimulatedFile(self, path)

    def delete(self, path: str) -> None:
        self._effect("delete", checked_path(path), "before")
        self.remove(path)
        self._effect("delete", path, "after")

    def publish(self, path: str, data: bytes) -> None:
        self.files[path] = data
        self.on_created(path)

    def remove(self, path: str) -> None:
        if self.files.pop(path, None) is not None:
            self.on_deleted(path)

    def _effect(self, operation: str, path: str, phase: str) -> None:
        if self.dying:
            raise Crash
        self.happens(operation, path, phase)


class _SimulatedFile(DataFile):
    def __init__(self, store: SimulatedStore, path: str) -> None:
        self._store = store
        self._path = path
        self._parts: list[bytes] = []
        self._published = False
        self._durable = False

    def write(self, data: bytes) -> None:
        self._parts.append(bytes(data))

    def close(self) -> None:
        try:
            self._store._effect("close", self._path, "before")
        except Crash:
            self._store.files.setdefault(self._path, b"".join(self._parts)[: len(self._parts) * 7])
            raise
        self._published = True
        self._store.publish(self._path, b"".join(self._parts))
        self._store._effect("close", self._path, "after")
        self._durable = True

    def abandon(self) -> None:
        if self._published and not self._durable and not self._store.dying:
            self._store.remove(self._path)


def _nothing_happens(operation: str, path: str, phase: str) -> None:
    """Effects are watched only in a simulation."""


def _nobody_watches(path: str) -> None:
    """The default watcher."""
