"""Safe file access below a folder whose content may be forged: only plain files are opened.

Links below the folder are never followed, not even those that stay within it: a location is moved and copied as a
whole, and paths of its files contain no links. Opening a FIFO could block, and opening a device could do harm. For
reading, writing and removing, each folder of a path is opened relative to its parent. So a link that replaces a folder
between a check and its use is not followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from penstock.errors import CorruptSnapshot

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_plain(root: str, path: str) -> tuple[BinaryIO, int]:
    """Open a plain file below ``root``, unbuffered; return it and its length in bytes.

    Args:
        path: a clean relative path; see ``checked_path``.

    Raises:
        FileNotFoundError: the file does not exist.
        CorruptSnapshot: it is not a plain file, or a folder of the path is a link.
    """
    with folder_of(root, path) as (folder, name):
        _plain_size(folder, name, path)
        file = os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb", buffering=0)
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):  # Another file has replaced it since the first check.
        file.close()
        raise _not_plain_error(path)
    return file, status.st_size


def plain_size(root: str, path: str) -> int | None:
    """Return the length in bytes of a plain file below ``root``; None if it is missing. Raises as ``open_plain``."""
    try:
        with folder_of(root, path) as (folder, name):
            return _plain_size(folder, name, path)
    except FileNotFoundError:
        return None


def _plain_size(folder: int, name: str, path: str) -> int:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise _not_plain_error(path)
    return status.st_size


def new_file(root: str, path: str) -> BinaryIO:
    """Create an unbuffered file below ``root`` and its missing folders.

    Raises FileExistsError if the name exists; otherwise as ``open_plain``.
    """
    with folder_of(root, path, make=True) as (folder, name):
        return os.fdopen(os.open(name, _NEW_FILE, 0o666, dir_fd=folder), "wb", buffering=0)


def remove_file(root: str, path: str) -> None:
    """Remove a file or link below ``root``. The target of a link is not removed.

    Raises FileNotFoundError; CorruptSnapshot if a folder of the path is a link.
    """
    with folder_of(root, path, change=True) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(root: str, path: str) -> None:
    """Remove an empty folder below ``root``. Raises as ``remove_file``, and OSError if it is not empty."""
    with folder_of(root, path, change=True) as (folder, name):
        os.rmdir(name, dir_fd=folder)


def sync_folder_of(root: str, path: str) -> None:
    """Make the name of a file below ``root`` durable."""
    with folder_of(root, path, change=True) as (folder, _):
        os.fsync(folder)


def create_atomically(root: str, path: str, data: bytes) -> bool:
    """Create a whole file below ``root`` durably and exclusively. Return False if its name exists."""
    with folder_of(root, path, make=True) as (folder, name):
        if _exists(folder, name):
            return False
        with _temporary(folder, name) as temporary:
            with os.fdopen(os.open(temporary, _NEW_FILE, 0o666, dir_fd=folder), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return False
        os.fsync(folder)
    return True


def link_or_copy(origin: str, source: str, root: str, path: str) -> None:
    """Link or copy the plain file ``source`` below ``origin`` to ``path`` below ``root``, durably.

    An existing file is replaced. The new file is a hard link, or on another file system a copy with the same times.
    Raises FileNotFoundError and CorruptSnapshot.
    """
    with folder_of(root, path, make=True) as (folder, name), _temporary(folder, name) as temporary:
        try:
            with folder_of(origin, source) as (from_folder, from_name):
                os.link(from_name, temporary, src_dir_fd=from_folder, dst_dir_fd=folder, follow_symlinks=False)
            _plain_size(folder, temporary, source)
        except FileNotFoundError:
            raise
        except OSError:  # Another file system, no hard links, or too many links. The copy raises any other error.
            _copy(origin, source, folder, temporary)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)


def _copy(origin: str, source: str, folder: int, name: str) -> None:
    file, _ = open_plain(origin, source)
    with file, os.fdopen(os.open(name, _NEW_FILE, 0o666, dir_fd=folder), "wb") as copy:
        shutil.copyfileobj(file, copy)
        copy.flush()
        status = os.fstat(file.fileno())
        os.utime(copy.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(copy.fileno())


@contextmanager
def _temporary(folder: int, name: str) -> Iterator[str]:
    """Yield a file name that no other process uses in the folder. Remove the file with this name at the end."""
    temporary = f".{name}.{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
    finally:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)


def _exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def folder_of(root: str, path: str, *, make: bool = False, change: bool = False) -> Iterator[tuple[int, str]]:
    """Open the folder of a file; yield its descriptor and the file's name.

    Args:
        make: create missing folders of the path, and make each durable in its parent.
        change: the caller removes a file or makes it durable. Implied by ``make``.

    Raises:
        NotADirectoryError: a file has the name of a folder, and ``make`` or ``change`` is set.
        CorruptSnapshot: a folder of the path is a link or another special file.
    """
    *folders, name = path.split("/")
    enter = _open_or_make_folder if make else _open_folder_to_change if change else _open_folder
    with _errors_with_path(f"{root}/{path}"):
        folder_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                inner = enter(folder_fd, folder, path)
                os.close(folder_fd)
                folder_fd = inner
            yield folder_fd, name
        finally:
            os.close(folder_fd)


@contextmanager
def _errors_with_path(path: str) -> Iterator[None]:
    """Add the full path to system errors. They name only the last part of the path, or none if a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def _open_folder(folder_fd: int, folder: str, path: str) -> int:
    try:
        return os.open(folder, _FOLDER, dir_fd=folder_fd)
    except NotADirectoryError:  # The system raises this error for a link, too.
        raise _not_plain_error(path) from None


def _open_folder_to_change(folder_fd: int, folder: str, path: str) -> int:
    """Open an inner folder for a change.

    If a plain file has its name, raise NotADirectoryError, an OSError like that of a full disk. A reader reports the
    same location as corrupt.
    """
    try:
        return _open_folder(folder_fd, folder, path)
    except CorruptSnapshot:
        if stat.S_ISREG(os.stat(folder, dir_fd=folder_fd, follow_symlinks=False).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a file has the name of a folder", folder) from None
        raise


def _open_or_make_folder(folder_fd: int, folder: str, path: str) -> int:
    try:
        return _open_folder_to_change(folder_fd, folder, path)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(folder, dir_fd=folder_fd)
        os.fsync(folder_fd)
        return _open_folder_to_change(folder_fd, folder, path)


def check_folders(root: str, path: str) -> None:
    """Check the folders that ``path`` names below ``root``, including the last one. Folders may be missing.

    Raises:
        CorruptSnapshot: a folder is a link or another special file.
        NotADirectoryError: a folder is a plain file.
    """
    ancestor = root
    for part in path.split("/"):
        ancestor = f"{ancestor}/{part}"
        try:
            mode = os.lstat(ancestor).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISREG(mode):
            raise NotADirectoryError(errno.ENOTDIR, "a file is where a folder has to be", ancestor)
        if not stat.S_ISDIR(mode):
            raise _not_plain_error(os.path.relpath(ancestor, root))


def check_own_folders(root: Path, names: Iterable[str]) -> None:
    """Apply ``check_folders`` to folders that sources and sinks write to by path, and to their subfolders."""
    for name in names:
        check_folders(str(root), name)
        for inner in (root / name).iterdir() if (root / name).is_dir() else ():
            check_folders(str(root), f"{name}/{inner.name}")


def _not_plain_error(path: str) -> CorruptSnapshot:
    return CorruptSnapshot(
        f"{path} is a link, or behind one, or no plain file; a location holds nothing but files and folders of its "
        "own: put the file itself there"
    )
