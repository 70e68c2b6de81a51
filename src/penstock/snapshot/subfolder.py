"""A folder of a store as a store of its own."""

from __future__ import annotations

from penstock.snapshot.store import DataFile, Store, checked_path


class Subfolder(Store):
    """What is below one folder of another store, with the consistency that the other one has.

    Args:
        store: the other one.
        folder: a clean relative path; it need not be there yet.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = checked_path(folder)
        self.root = f"{store.root}/{folder}"

    def _at(self, path: str) -> str:
        return f"{self._folder}/{checked_path(path)}"

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return self._store.create_if_absent(self._at(path), data)

    def create(self, path: str) -> DataFile:
        return self._store.create(self._at(path))

    def read(self, path: str) -> bytes:
        return self._store.read(self._at(path))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._store.read_range(self._at(path), offset, length)

    def list(self, folder: str) -> list[str]:
        return [path[len(self._folder) + 1 :] for path in self._store.list(self._at(folder))]

    def delete(self, path: str) -> None:
        self._store.delete(self._at(path))

    def size(self, path: str) -> int | None:
        return self._store.size(self._at(path))
