"""Where snapshots live: the few operations they need, and the consistency those must have.

What everything rests on:

* ``create_if_absent`` is atomic and exclusive among all processes and machines that share the store: of any number of
  callers exactly one gets True, no reader ever sees a part of the file, and once it returned the file survives a crash.
* Reads and listings see every file whose creation returned before they began.
* Data files are written once, by one writer, and are durable when ``close`` returns. Until then nothing refers to
  them, so a reader never meets a half-written one.

Paths are relative, with ``/`` and without ``.`` or ``..`` parts; anything else raises ``ValueError``. What is read may
be somebody else's work, so no call follows a link below the root, or opens anything but a plain file
(``CorruptSnapshot``).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from penstock.errors import CorruptSnapshot
from penstock.snapshots.store.local_files import (
    check_folders,
    create_whole,
    link_or_copy,
    new_file,
    open_plain,
    plain_size,
    remove_file,
    remove_folder,
    sync_folder_of,
)

WHOLE_AT_MOST = 128 << 20
"""Bytes that ``read`` gives: a summary of 10,000 snapshots with the longest notes has less than that."""
BROUGHT_AT_ONCE = 8 << 20
"""Bytes."""
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def checked_path(path: str) -> str:
    """The path itself if it is a clean relative one.

    Raises:
        ValueError: absolute, empty, or leading out of the store.
    """
    if not is_clean(path):
        raise ValueError(f"{path!r} is not a clean relative path")
    return path


def is_clean(path: str) -> bool:
    """Whether ``checked_path`` takes it."""
    return not (any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path)


class DataFile(ABC):
    """One data file being written by one thread."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append. Raises OSError when the store is full or fails."""

    @abstractmethod
    def close(self) -> None:
        """Make the file, and its name, durable. Raises OSError; the file must then not be referred to."""

    @abstractmethod
    def abandon(self) -> None:
        """Give up and remove what is there, best effort; never raises OSError. Harmless after ``close``."""


class Store(ABC):
    """The interface; see the module's text for the consistency that it demands.

    What slots use is picklable, and no secret travels with it. Any thread may call any method.

    Attributes:
        root: where it is, as ``store_at`` opens it and messages name it.
        at_once: how many calls are worth waiting for together; see ``read_in_parallel``.
    """

    root: str
    at_once: int = 1

    @abstractmethod
    def prepare(self, *, owner_only: bool = True) -> None:
        """Make the place if there is none, and see that it can be written.

        Args:
            owner_only: a folder that is created has mode 0700; if False, the process's umask applies.

        Raises:
            LocationError: it does not keep what this interface promises.
            OSError: it cannot be written.
        """

    @abstractmethod
    def names(self) -> list[str]:
        """Of files and folders at the top, sorted; none if there is no file at all.

        Raises:
            FileNotFoundError: there is no such place; one that need not be made is merely empty.
            OSError: it cannot be read.
        """

    @abstractmethod
    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a whole small file durably, or return False because it exists (then nothing changed).

        Raises:
            PermissionError: refused; nothing happened.
            OSError: any other: the outcome is unknown; read the path back to tell.
        """

    @abstractmethod
    def create(self, path: str) -> DataFile:
        """Begin a new data file. Raises FileExistsError, OSError.

        That nobody else creates the same one meanwhile is for the caller to see to: names of data files are its own.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError; CorruptSnapshot for more than ``WHOLE_AT_MOST`` bytes."""

    @abstractmethod
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Bytes ``[offset, offset + length)``, neither negative; fewer where the file ends before, and no memory for
        those that there are not. Raises FileNotFoundError."""

    @abstractmethod
    def list(self, folder: str, after: str = "") -> list[str]:
        """Paths of all files below a folder, sorted, of those behind the path ``after``; empty if there is no such
        folder."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file; no error if there is none."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Length in bytes, or None if there is no such file."""

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """As ``size`` of each; those that are not there are left out."""
        found = {path: self.size(path) for path in paths}
        return {path: size for path, size in found.items() if size is not None}

    def delete_all(self, paths: Sequence[str]) -> None:
        """As ``delete`` of each; if it fails, some may be gone."""
        for path in paths:
            self.delete(path)

    def bring(self, path: str, origin: Store, name: str = "") -> None:
        """Have a file that another store has, durably; the other one may then go. What is here already, as long as it
        is there, is taken for the same: names are never used twice.

        Args:
            name: the path here; that of the other one if it is empty.

        Raises:
            FileNotFoundError: the other store has no such file.
            OSError: the store is full or fails; nothing of the file stays.
        """
        length, name = origin.size(path), name or path
        if length is None:
            raise FileNotFoundError(path)
        if self.size(name) == length:
            return
        self.delete(name)
        file = self.create(name)
        try:
            for offset in range(0, length, BROUGHT_AT_ONCE):
                file.write(origin.read_range(path, offset, BROUGHT_AT_ONCE))
            file.close()
        except BaseException:
            file.abandon()
            raise


class _LocalFile(DataFile):
    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path
        self._file = new_file(root, path)
        self._durable = False

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while len(view):
            view = view[self._file.write(view) :]

    def close(self) -> None:
        try:
            os.fsync(self._file.fileno())
        finally:
            self._file.close()
        sync_folder_of(self._root, self._path)
        self._durable = True

    def abandon(self) -> None:
        if self._durable:
            return
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError, CorruptSnapshot):
            remove_file(self._root, self._path)


class LocalStore(Store):
    """A folder of a local or shared POSIX file system.

    Exclusive creation: write a temporary file, fsync it, ``link`` it to its name (fails if the name exists, on NFS
    too), unlink the temporary name, fsync the folder. The object is picklable: slots open their own from the root.

    Args:
        root: an existing folder.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)

    def prepare(self, *, owner_only: bool = True) -> None:
        folder = Path(self.root)
        folder.mkdir(mode=0o700 if owner_only else 0o777, parents=True, exist_ok=True)
        probe = folder / f".probe.{secrets.token_hex(8)}.tmp"
        try:
            descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.close(descriptor)
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def names(self) -> list[str]:
        folder = Path(self.root)
        names = sorted(entry.name for entry in folder.iterdir())
        return [] if _is_hollow(folder) else names

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return create_whole(self.root, checked_path(path), data)

    def create(self, path: str) -> DataFile:
        return _LocalFile(self.root, checked_path(path))

    def bring(self, path: str, origin: Store, name: str = "") -> None:
        """A hard link within a file system, a copy with its times otherwise."""
        if not isinstance(origin, LocalStore):
            return super().bring(path, origin, name)
        length, name = origin.size(path), name or path
        if length is None:
            raise FileNotFoundError(path)
        if self.size(name) == length:
            return None
        link_or_copy(origin.root, checked_path(path), self.root, checked_path(name))
        return None

    def read(self, path: str) -> bytes:
        file, size = open_plain(self.root, checked_path(path))
        with file:
            if size > WHOLE_AT_MOST:
                raise CorruptSnapshot(f"{path} has {size} bytes; no file of its kind has more than {WHOLE_AT_MOST}")
            return _read(file, size)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        file, size = open_plain(self.root, checked_path(path))
        with file:
            if offset >= size:
                return b""
            file.seek(offset)
            return _read(file, min(length, size - offset))

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """A listing of snapshots asks for tens of thousands: three times as quick as ``size`` of each, which looks at
        every folder. Whoever reads such a file does."""
        found = {}
        for path in paths:
            try:
                found[path] = os.lstat(f"{self.root}/{checked_path(path)}").st_size
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
        return found

    def list(self, folder: str, after: str = "") -> list[str]:
        top = f"{self.root}/{checked_path(folder)}"
        check_folders(self.root, folder)
        found = []
        for parent, _, names in os.walk(top):
            inside = folder + parent[len(top) :]
            found += [f"{inside}/{name}" for name in names if not name.endswith(".tmp")]
        return sorted(path for path in found if path > after)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            remove_file(self.root, checked_path(path))
        if path.count("/") > 1:
            with contextlib.suppress(OSError):  # the folder of a snapshot goes with its last file
                remove_folder(self.root, path.rpartition("/")[0])

    def size(self, path: str) -> int | None:
        return plain_size(self.root, checked_path(path))


def _read(file: BinaryIO, length: int) -> bytes:
    """Fewer bytes where the file has become shorter."""
    data = bytearray()
    while len(data) < length and (piece := file.read(length - len(data))):
        if not data and len(piece) == length:
            return piece  # as a rule, and without another copy
        data += piece
    return bytes(data)


def _is_hollow(path: Path) -> bool:
    """A folder without any file below it: what a start that was taken back leaves. Raises OSError where it cannot be
    listed."""

    def give_up(error: OSError) -> None:
        raise error

    return not any(names for _, _, names in os.walk(path, onerror=give_up))


def fsync(path: Path) -> None:
    """Of a file its content, of a folder its names."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Effect:
    """One call that others can see. ``phase``: ``before`` it takes effect, or ``after`` it has."""

    operation: str
    path: str
    phase: str


FaultHook = Callable[[Effect], None]
"""Called around every effect of a ``MemoryStore``. It may raise (before: nothing happened; after: it happened, but the
caller cannot know), switch to another simulated process, or change the store."""


class MemoryStore(Store):
    """Files in a dict, for simulation: every visible effect is exactly one call, with a hook before and after it.

    Attributes:
        files: whole contents by path; a test may read and change them.
        hook: see ``FaultHook``; None for no faults.
    """

    def __init__(self) -> None:
        self.root = "memory:"
        self.files: dict[str, bytes] = {}
        self.hook: FaultHook | None = None

    def _effect(self, operation: str, path: str, phase: str) -> None:
        if self.hook is not None:
            self.hook(Effect(operation, path, phase))

    def prepare(self, *, owner_only: bool = True) -> None:
        """Nothing to do."""

    def names(self) -> list[str]:
        return sorted({path.partition("/")[0] for path in self.files})

    def create_if_absent(self, path: str, data: bytes) -> bool:
        self._effect("create_if_absent", checked_path(path), "before")
        created = path not in self.files
        if created:
            self.files[path] = bytes(data)
        self._effect("create_if_absent", path, "after")
        return created

    def create(self, path: str) -> DataFile:
        self._effect("create", checked_path(path), "before")
        if path in self.files:
            raise FileExistsError(path)
        self.files[path] = b""
        self._effect("create", path, "after")
        return _MemoryFile(self, path)

    def read(self, path: str) -> bytes:
        self._effect("read", checked_path(path), "before")
        try:
            return self.files[path]
        except KeyError:
            raise FileNotFoundError(path) from None

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self.read(path)[offset : offset + length]

    def list(self, folder: str, after: str = "") -> list[str]:
        self._effect("list", checked_path(folder), "before")
        return sorted(path for path in self.files if path.startswith(f"{folder}/") and path > after)

    def delete(self, path: str) -> None:
        self._effect("delete", checked_path(path), "before")
        self.files.pop(path, None)
        self._effect("delete", path, "after")

    def size(self, path: str) -> int | None:
        self._effect("size", checked_path(path), "before")
        data = self.files.get(path)
        return None if data is None else len(data)


class _MemoryFile(DataFile):
    """What is written shows at once, as on a disk: a crash before ``close`` leaves a part of a file behind."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._closed = False

    def write(self, data: bytes) -> None:
        self._store._effect("write", self._path, "before")
        if self._path in self._store.files:  # else it was deleted meanwhile: as on a disk, the bytes go nowhere
            self._store.files[self._path] += bytes(data)

    def close(self) -> None:
        self._store._effect("close", self._path, "before")
        self._closed = True

    def abandon(self) -> None:
        if not self._closed:
            self._store.files.pop(self._path, None)
