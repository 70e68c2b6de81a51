"""Storage interface of snapshots, and its implementations for local folders and for simulation.

Everything else depends on these guarantees:

* ``create_if_absent`` is atomic and exclusive among all processes and machines that share the store. Exactly one of
  several callers gets True, no reader ever sees a part of the file, and after the return the file survives a crash.
* Reads and listings see every file whose creation returned before they began.
* Data files are written once, by one writer, and are durable when ``close`` returns. Nothing refers to a data file
  before, so a reader never reads an incomplete one.

Paths are relative, with ``/`` and without ``.`` or ``..`` parts; others raise ``ValueError``. Files may be forged, so
no call follows a link below the root or opens anything but a plain file (``CorruptSnapshot``).
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
    create_atomically,
    link_or_copy,
    new_file,
    open_plain,
    plain_size,
    remove_file,
    remove_folder,
    sync_folder_of,
)

MAX_READ_BYTES = 128 << 20
"""Maximum file size of ``read`` in bytes: enough for a summary of 10,000 snapshots with the longest notes."""
COPY_BYTES = 8 << 20
"""Number of bytes that ``copy_from`` reads at a time."""
_ABSENT_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


def checked_path(path: str) -> str:
    """Return the path if it is a clean relative path.

    Raises:
        ValueError: the path is absolute, empty, or leads out of the store.
    """
    if not is_clean_path(path):
        raise ValueError(f"{path!r} is not a clean relative path")
    return path


def is_clean_path(path: str) -> bool:
    """Return True if ``checked_path`` accepts the path."""
    return not (any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path)


class DataFile(ABC):
    """Data file that one thread writes."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append data. Raises OSError if the store is full or fails."""

    @abstractmethod
    def close(self) -> None:
        """Make the file and its name durable. After an OSError no other file may refer to it."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove the file, best effort; never raise OSError. Has no effect after a successful ``close``."""


class Store(ABC):
    """Interface of a store; see the module's docstring for the required consistency.

    Stores are picklable without secrets. Any thread may call any method.

    Attributes:
        root: location of the store, in the form that ``store_at`` accepts and messages print.
        parallel_calls: useful number of concurrent calls; see ``read_in_parallel``.
    """

    root: str
    parallel_calls: int = 1

    @abstractmethod
    def prepare(self, *, owner_only: bool = True) -> None:
        """Create the location if it is missing, and check that it is writable.

        Args:
            owner_only: a new folder gets mode 0700; if False, the process's umask applies.

        Raises:
            LocationError: the store lacks a guarantee of this interface.
            OSError: the location is not writable.
        """

    @abstractmethod
    def top_names(self) -> list[str]:
        """Return the names of files and folders at the top, sorted; empty if there is no file at any depth.

        Raises:
            FileNotFoundError: the folder is missing. A missing prefix of an object store is empty instead.
            OSError: the location cannot be read.
        """

    @abstractmethod
    def create_if_absent(self, path: str, data: bytes) -> bool:
        """Create a small file as a whole, durably. Return False, without a change, if it exists.

        Raises:
            PermissionError: the store refused the request; nothing was written.
            OSError: any other failure. The outcome is unknown; read the file to find out.
        """

    @abstractmethod
    def create(self, path: str) -> DataFile:
        """Begin a new data file. Raises FileExistsError, OSError.

        The caller ensures that no other writer creates the same file, by using unique names.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError; CorruptSnapshot if it exceeds ``MAX_READ_BYTES``."""

    @abstractmethod
    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return the bytes ``[offset, offset + length)``, or fewer at the end of the file. Raises FileNotFoundError.

        A forged length must not cause a large allocation.

        Args:
            offset, length: not negative.
        """

    @abstractmethod
    def list(self, folder: str, after: str = "") -> list[str]:
        """Return the sorted paths of all files below a folder.

        Return only paths that sort after ``after``. Return an empty list if the folder is missing.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file. Do nothing if it does not exist."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the length of a file in bytes, or None if there is none."""

    def exists(self, path: str) -> bool:
        return self.size(path) is not None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Return ``size`` of each existing file."""
        found = {path: self.size(path) for path in paths}
        return {path: size for path, size in found.items() if size is not None}

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete files as ``delete`` does. After an error some of them may be deleted."""
        for path in paths:
            self.delete(path)

    def copy_from(self, path: str, origin: Store, name: str = "") -> None:
        """Copy a file of another store, durably.

        An existing file with the same name and length counts as already copied. File names are never used twice, so
        comparing lengths is enough.

        Args:
            name: path of the copy; by default the same path.

        Raises:
            FileNotFoundError: the other store has no such file.
            OSError: the store is full or fails; nothing of the file remains.
        """
        length, name = origin.size(path), name or path
        if length is None:
            raise FileNotFoundError(path)
        if self.size(name) == length:
            return
        self.delete(name)
        file = self.create(name)
        try:
            for offset in range(0, length, COPY_BYTES):
                file.write(origin.read_range(path, offset, COPY_BYTES))
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
    """Folder of a local or shared POSIX file system.

    A file is created exclusively as follows: write a temporary file, fsync it, ``link`` it to its name (this fails if
    the name exists, on NFS, too), unlink the temporary name, and fsync the folder. The store is picklable, so that
    slots open the same folder.

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

    def top_names(self) -> list[str]:
        folder = Path(self.root)
        names = sorted(entry.name for entry in folder.iterdir())
        return [] if _has_no_files(folder) else names

    def create_if_absent(self, path: str, data: bytes) -> bool:
        return create_atomically(self.root, checked_path(path), data)

    def create(self, path: str) -> DataFile:
        return _LocalFile(self.root, checked_path(path))

    def copy_from(self, path: str, origin: Store, name: str = "") -> None:
        """Copy by a hard link within a file system; otherwise copy the content and its times."""
        if not isinstance(origin, LocalStore):
            return super().copy_from(path, origin, name)
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
            if size > MAX_READ_BYTES:
                raise CorruptSnapshot(f"{path} has {size} bytes; no file of its kind has more than {MAX_READ_BYTES}")
            return _read(file, size)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        file, size = open_plain(self.root, checked_path(path))
        with file:
            if offset >= size:
                return b""
            file.seek(offset)
            return _read(file, min(length, size - offset))

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        """Return ``size`` of each existing file. Skipping the check of their folders saves two thirds of the time.

        A listing of snapshots asks for tens of thousands of sizes. A later read of such a file checks its folders.
        """
        found = {}
        for path in paths:
            try:
                found[path] = os.lstat(f"{self.root}/{checked_path(path)}").st_size
            except OSError as error:
                if error.errno not in _ABSENT_ERRNOS:
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
            with contextlib.suppress(OSError):  # The folder of a snapshot is removed with its last file.
                remove_folder(self.root, path.rpartition("/")[0])

    def size(self, path: str) -> int | None:
        return plain_size(self.root, checked_path(path))


def _read(file: BinaryIO, length: int) -> bytes:
    """Read up to ``length`` bytes; fewer if the file has been truncated."""
    data = bytearray()
    while len(data) < length and (piece := file.read(length - len(data))):
        if not data and len(piece) == length:
            return piece  # the usual case, without another copy
        data += piece
    return bytes(data)


def _has_no_files(path: Path) -> bool:
    """Return True for a folder without any file at any depth, as an undone start leaves it.

    Raises OSError if the folder cannot be listed.
    """

    def give_up(error: OSError) -> None:
        raise error

    return not any(names for _, _, names in os.walk(path, onerror=give_up))


def fsync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Effect:
    """Visible effect of one call of a ``MemoryStore``. ``phase`` is ``before`` or ``after``."""

    operation: str
    path: str
    phase: str


FaultHook = Callable[[Effect], None]
"""Hook that is called before and after every effect of a ``MemoryStore``.

It may raise an error, switch to another simulated process, or change the store. An error before the effect means that
nothing happened. After an error that follows the effect, the caller cannot know that the effect happened.
"""


class MemoryStore(Store):
    """Store in memory, for simulation: each visible effect is one call, with a hook before and after it.

    Attributes:
        files: contents by path; tests may read and change them.
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
        """Do nothing."""

    def top_names(self) -> list[str]:
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
    """Data file of a ``MemoryStore``. Writes are visible at once, so a crash before ``close`` leaves a partial file."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._closed = False

    def write(self, data: bytes) -> None:
        self._store._effect("write", self._path, "before")
        if self._path in self._store.files:  # Otherwise the file was deleted, and the bytes are lost as on a disk.
            self._store.files[self._path] += bytes(data)

    def close(self) -> None:
        self._store._effect("close", self._path, "before")
        self._closed = True

    def abandon(self) -> None:
        if not self._closed:
            self._store.files.pop(self._path, None)
