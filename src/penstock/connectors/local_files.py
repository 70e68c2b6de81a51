"""Durable file operations on local file systems, and parsing of paths as Spark writes them."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from penstock.config import shown
from penstock.errors import ConfigError, NotYet

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


def local_path(text: str) -> str:
    """Return the absolute path for ``file:/in``, ``file:///in`` or a plain path.

    Raises:
        ConfigError: the text cannot be a path.
        NotYet: the path is on a file system that is not local or mounted.
    """
    if "\0" in text:
        raise ConfigError(f"path {shown(text)}: no path holds a null character")
    for scheme in ("file://", "file:"):
        if text.startswith(scheme):
            return os.path.abspath(text[len(scheme) :])
    if "://" in text:
        raise NotYet(f"path {text}: only local or mounted file systems are read and written so far")
    return os.path.abspath(text)


def fsync_directory(path: Path) -> None:
    """Make the creation and renaming of files in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_exclusively(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """Create a file durably. If several processes try, only one of them succeeds. Return False if the file exists.

    The file appears with its whole content. On a file system without hard links (SMB, exFAT) it first appears empty,
    and may remain incomplete if this process dies before it is written.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _created_in_place(path, content, mode)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)
    return True


def _created_in_place(path: Path, content: bytes, mode: int) -> bool:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(path.parent)
    return True


def replace_durably(path: Path, content: bytes) -> None:
    """Replace or create a file atomically and durably. Its directory must exist."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(content)
        fsync_file(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # on a full disk each attempt would leave another file
        raise
    fsync_directory(path.parent)


def make_folders(directory: Path, top: Path) -> None:
    """Create a directory and its parents below ``top``, which contains it.

    Raises:
        FileNotFoundError: ``top`` does not exist. This function never creates it.
    """
    if directory != top:
        make_folders(directory.parent, top)
        directory.mkdir(exist_ok=True)


def fsync_tree(directory: Path, root: Path) -> None:
    """Make the names in a directory durable, and also the path of the directory below ``root``, which contains it."""
    for path in (directory, *directory.parents):
        fsync_directory(path)
        if path == root:
            return
