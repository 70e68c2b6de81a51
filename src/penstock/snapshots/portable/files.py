"""Files of a directory that appears as a whole: written with their checksums, and looked at before they are read."""

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

AT_ONCE = 8 << 20
"""Bytes."""


class NewFile:
    """A file being written, by pyarrow too: bytes are counted and hashed on their way. ``close`` makes it durable.

    Args:
        store: the directory.
        path: in it; it must not exist.
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
        """Durability comes with ``close``."""

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
        """What the manifest says of it, once it is closed."""
        return FileRef(self._path, self._length, str(self._hash.hexdigest()))


@contextmanager
def new_directory(target: Path, what: str) -> Iterator[Path]:
    """A folder beside ``target`` that gets its name when the block ends, whole and durable; if the block fails, nothing
    of it stays. Its mode is 0700.

    Raises:
        LocationError: there is something at ``target``, or it cannot be written.
        FileNotFoundError: what the block raised.
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
        raise  # something that was to be read
    except OSError as error:
        raise LocationError(f"{what} {target} cannot be written: {error}") from error


def checked_file(folder: Path, ref: FileRef, meter: Meter | None = None) -> Path:
    """Where a file of somebody else's directory lies: a plain file there, as long and with the bytes that it says.

    Args:
        meter: of the bytes that are read.

    Raises:
        CorruptSnapshot: it leads out of the directory, is missing, or is another one.
    """
    try:
        here = folder
        for part in checked_path(ref.path).split("/"):
            here = here / part
            if here.is_symlink():
                raise CorruptSnapshot(f"{ref.path} in {folder} is a symbolic link")
        status = here.stat()
        if not S_ISREG(status.st_mode):
            raise CorruptSnapshot(f"{ref.path} in {folder} is not a file")
        if status.st_size != ref.length:
            raise CorruptSnapshot(f"{ref.path} in {folder} has {status.st_size} bytes instead of {ref.length}")
        actual = _digest(here, meter)
    except FileNotFoundError:
        raise CorruptSnapshot(f"{ref.path} in {folder} is missing") from None
    except (ValueError, OSError) as error:
        raise CorruptSnapshot(f"{ref.path!r:.200} in {folder}: {error!s:.300}") from None
    if actual != ref.checksum:
        raise CorruptSnapshot(f"{ref.path} in {folder} does not match its checksum; export the snapshot again")
    return here


def _digest(path: Path, meter: Meter | None) -> str:
    found = xxhash.xxh3_128()
    with path.open("rb") as file:
        while data := file.read(AT_ONCE):
            found.update(data)
            if meter is not None:
                meter.add(len(data))
    return str(found.hexdigest())
