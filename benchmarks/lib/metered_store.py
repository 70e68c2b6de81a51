"""A local store that counts the CPU time that is spent in it, the kernel's included, by the thread that asks."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from penstock.snapshots.store.store import LocalStore


class MeteredStore(LocalStore):
    """``cpu_s``: of all calls so far that the driver's brain and hands make, one at a time."""

    cpu_s = 0.0

    @contextmanager
    def _metered(self) -> Iterator[None]:
        began_s = time.thread_time()
        try:
            yield
        finally:
            self.cpu_s += time.thread_time() - began_s

    def create_if_absent(self, path: str, data: bytes) -> bool:
        with self._metered():
            return super().create_if_absent(path, data)

    def read(self, path: str) -> bytes:
        with self._metered():
            return super().read(path)

    def list(self, folder: str, after: str = "") -> list[str]:
        with self._metered():
            return super().list(folder, after)

    def delete(self, path: str) -> None:
        with self._metered():
            super().delete(path)

    def size(self, path: str) -> int | None:
        with self._metered():
            return super().size(path)

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        with self._metered():
            return super().sizes(paths)
