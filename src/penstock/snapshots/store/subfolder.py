"""Folder of a store that acts as a store of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.snapshots.store.store import DataFile, Store, checked_path


class Subfolder(Store):
    """Store for the files below one folder of another store, with the same consistency.

    Args:
        store: the other store.
        folder: a clean relative path; it may be missing.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = checked_path(folder)
        self.root = f"{store.root}/{folder}"
        self.parallel_calls = store.parallel_calls

    def _at(self, path: str) -> str:
        return f"{self._folder}/{checked_path(path)}"

    def prepare(self, *, owner_only: bool = True) -> None:
        self._store.prepare(owner_only=owner_only)

    def top_names(self) -> list[str]:
        first = len(self._folder) + 1
        return sorted({path[first:].partition("/")[0] for path in self._store.list(self._folder)})

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._store.create_if_absent(self._at(path), data)

    def create(self, path: str) -> DataFile:
        return self._store.create(self._at(path))

    def read(self, path: str) -> bytes:
        return self._store.read(self._at(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._store.read_range(self._at(path), offset, length)

    def list(self, folder: str, after: str = "") -> list[str]:
        found = self._store.list(self._at(folder), self._at(after) if after else "")
        return [path[len(self._folder) + 1 :] for path in found]

    def delete(self, path: str) -> None:
        self._store.delete(self._at(path))

    def delete_all(self, paths: Sequence[str]) -> None:
        self._store.delete_all([self._at(path) for path in paths])

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        found = self._store.sizes([self._at(path) for path in paths])
        return {path: found[self._at(path)] for path in paths if self._at(path) in found}

    def size(self, path: str) -> int | None:
        return self._store.size(self._at(path))
