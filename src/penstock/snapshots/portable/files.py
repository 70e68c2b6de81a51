"""Files of a directory. They are written with their checksums, and checked before they are read."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISREG

import xxhash

from penstock.errors import CorruptSnapshot, LocationError
from penstock.snapshots.portable.layout import FileRef
from penstock.snapshots.progress_meter import Meter
from penstock.snapshots.store.store import Store, checked_path, fsync

COPY_BYTES = 8 << 20
"""Number of bytes read at a time."""


class NewFile:
    """File that is being written, also by pyarrow. It counts and hashes its bytes. ``close`` makes it durable.

    Args:
        store: the directory.
        path: path in the directory. It must not exist.
    """

    def __init__(self, store: Store, path: str) -> None:
        self._path = path
        self._file = store.create(path)
        self._hash = xxhash.xxh3_128()
        self._length = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self._file.write(data)
        self._hash.update(data)
        self._length += len(data)
        return len(data)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Do nothing: ``close`` makes the file durable."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        if failed is None:
            self.close()
        else:
            self._file.abandon()

    def ref(self) -> FileRef:
        """Return the manifest's reference to the file. The file must be closed."""
        return FileRef(self._path, self._length, str(self._hash.hexdigest()))


@contextmanager
def new_directory(target: Path, what: str) -> Iterator[Path]:
    """Create a temporary folder beside ``target``. Rename it to ``target`` if the block succeeds.

    The folder is durable then. If the block fails, the folder is removed. Its mode is 0700.

    Raises:
        LocationError: ``target`` exists and is not an empty folder, or it cannot be written.
        FileNotFoundError: the block has raised it.
    """
    refusal = f"{what} {target} exists and is not an empty folder; name one that is not there yet"
    temporary = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
    try:
        if target.is_symlink() or (target.exists() and not (target.is_dir() and not any(target.iterdir()))):
            raise LocationError(refusal)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        try:
            yield temporary
            for folder, _, _ in os.walk(temporary):
                fsync(Path(folder))
            os.rename(temporary, target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        fsync(target.parent)
    except FileNotFoundError:
        raise  # The block has raised it for a file that it reads.
    except OSError as error:
        raise LocationError(f"{what} {target} cannot be written: {error}") from error


def checked_file(folder: Path, ref: FileRef, meter: Meter | None = None) -> Path:
    """Return the path of a file of a directory that may be forged, after checking its kind, length and checksum.

    Args:
        meter: counts the bytes that are read.

    Raises:
        CorruptSnapshot: the path leads out of the directory, or the file is missing or does not match.
    """
    try:
        path = folder
        for part in checked_path(ref.path).split("/"):
            path = path / part
            if path.is_symlink():
                raise CorruptSnapshot(f"{ref.path} in {folder} is a symbolic link")
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise CorruptSnapshot(f"{ref.path} in {folder} is not a file")
        if status.st_size != ref.length:
            raise CorruptSnapshot(f"{ref.path} in {folder} has {status.st_size} bytes instead of {ref.length}")
        actual = _digest(path, meter)
    except FileNotFoundError:
        raise CorruptSnapshot(f"{ref.path} in {folder} is missing") from None
    except (ValueError, OSError) as error:
        raise CorruptSnapshot(f"{ref.path!r:.200} in {folder}: {error!s:.300}") from None
    if actual != ref.checksum:
        raise CorruptSnapshot(f"{ref.path} in {folder} does not match its checksum; export the snapshot again")
    return path


def _digest(path: Path, meter: Meter | None) -> str:
    found = xxhash.xxh3_128()
    with path.open("rb") as file:
        while data := file.read(COPY_BYTES):
            found.update(data)
            if meter is not None:
                meter.add(len(data))
    return str(found.hexdigest())
