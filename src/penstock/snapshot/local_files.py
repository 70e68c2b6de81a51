"""Files below a folder that may be somebody else's work: what is opened is a plain file there, or nothing at all.

Links are not followed below the folder, not even those that stay within: a location is moved and copied as a whole, and
what it holds is named by paths without links. Opening anything but a plain file could block (a FIFO) or do harm (a
device). Every part of a path is opened by the one before, so that nothing changes in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from penstock.errors import CorruptSnapshot

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(root: str, path: str) -> tuple[BinaryIO, int]:
    """A plain file below ``root``, unbuffered, and its length.

    Args:
        path: a clean relative one; see ``checked_path``.

    Raises:
        FileNotFoundError: there is none.
        CorruptSnapshot: it is something else, or behind a link.
    """
    with _folder_of(root, path) as (folder, name):
        _plain_size(folder, name, path)
        file = os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb", buffering=0)
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):  # it was another one a moment ago
        file.close()
        raise _refused(path)
    return file, status.st_size


def plain_size(root: str, path: str) -> int | None:
    """The length of a plain file below ``root``; None if there is none. See ``open_plain``."""
    try:
        with _folder_of(root, path) as (folder, name):
            return _plain_size(folder, name, path)
    except FileNotFoundError:
        return None


def _plain_size(folder: int, name: str, path: str) -> int:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path)
    return status.st_size


@contextmanager
def _folder_of(root: str, path: str) -> Iterator[tuple[int, str]]:
    """The folder that a file is in, opened, and the file's name there."""
    *folders, name = path.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            inner = _inner(here, folder, path)
            os.close(here)
            here = inner
        yield here, name
    finally:
        os.close(here)


def _inner(here: int, folder: str, path: str) -> int:
    try:
        return os.open(folder, _FOLDER, dir_fd=here)
    except NotADirectoryError:  # so says the system of a link, too
        raise _refused(path) from None


def check_folders(root: str, path: str) -> None:
    """Raise CorruptSnapshot if one of the folders that ``path`` names below ``root``, itself included, is a link or the
    like; NotADirectoryError if it is a file. Those that are not there are no error."""
    here = root
    for part in path.split("/"):
        here = f"{here}/{part}"
        try:
            mode = os.lstat(here).st_mode
        except FileNotFoundError:
            return
        if stat.S_ISREG(mode):
            raise NotADirectoryError(errno.ENOTDIR, "a file is where a folder has to be", here)
        if not stat.S_ISDIR(mode):
            raise _refused(os.path.relpath(here, root))


def check_own_folders(root: Path, names: Iterable[str]) -> None:
    """As ``check_folders``, for folders that others than a store write to by path, and the folders in these."""
    for name in names:
        check_folders(str(root), name)
        for inner in (root / name).iterdir() if (root / name).is_dir() else ():
            check_folders(str(root), f"{name}/{inner.name}")


def _refused(path: str) -> CorruptSnapshot:
    return CorruptSnapshot(
        f"{path} is a link, or behind one, or no plain file; a location holds nothing but files and folders of its "
        "own: put the file itself there"
    )
