"""Sections: self-contained Arrow IPC streams, one after another in a slot's data file.

A section's checksum covers its identity and its bytes, so that an intact section in the wrong place is detected.
Nothing refers to a data file before ``SectionWriter.close`` has made it durable.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from penstock.errors import CheckpointFailed, CorruptSnapshot
from penstock.model.manifest import SectionRef
from penstock.snapshots.format.arrow_streams import check_schema, check_stream, decoding
from penstock.snapshots.store.store import DataFile, Store, checked_path, is_clean_path

FOLDER = "data"
_MEMORY_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Memory of the machine in bytes. It limits reads, because a sparse file may have any size."""
BatchMetadata = Mapping[str, str]
"""Custom metadata of one batch."""


def data_path(generation: int, checkpoint: int, slot: int) -> str:
    """Return the path of the file with one slot's in-flight rows of one checkpoint."""
    return f"{FOLDER}/{generation}-{checkpoint}-{slot}.arrows"


def state_path(generation: int, checkpoint: int, slot: int) -> str:
    """Return the path of the file with one slot's state of one checkpoint.

    State has a file of its own, because later checkpoints refer to deltas for a long time, but not to in-flight rows.
    """
    return f"{FOLDER}/{generation}-{checkpoint}-{slot}-state.arrows"


class _HashingFile:
    """File of one section. It counts and hashes the bytes that pyarrow writes."""

    closed = False

    def __init__(self, file: DataFile, identity: str) -> None:
        self._file = file
        self._hash = xxhash.xxh3_128(identity.encode() + b"\0")
        self.length = 0

    def write(self, data: bytes) -> int:
        # pyarrow passes its own Buffer objects here. Like bytes, they support the buffer protocol.
        view = memoryview(data)
        self._file.write(view)  # type: ignore[arg-type]
        self._hash.update(view)
        self.length += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: ``SectionWriter.close`` makes the file durable."""

    def hexdigest(self) -> str:
        return str(self._hash.hexdigest())


class SectionWriter:
    """Writer of one data file, section by section. One thread owns it.

    The references from ``append`` are valid only after ``close`` has returned. ``abandon`` removes the file, as does an
    exception if the writer is a context manager. Without sections no file is created.

    Args:
        store: the location.
        path: path of the new data file, which must not exist.
        compression: ``lz4`` or None. Readers detect it.

    Raises:
        CheckpointFailed: (``append``, ``close``) the store is full or fails. The file is removed.
    """

    def __init__(self, store: Store, path: str, compression: str | None = None) -> None:
        self._path = path
        self._options = pa.ipc.IpcWriteOptions(compression=compression)
        self._offset = 0
        self._store = store
        self._file: DataFile | None = None
        self._durable = False

    def append(
        self,
        identity: str,
        schema: pa.Schema,
        batches: Iterable[tuple[pa.RecordBatch, BatchMetadata | None]],
    ) -> SectionRef:
        """Write one section: batches in order, each with its custom metadata. Only the rows of a slice are written."""
        try:
            if self._file is None:
                self._file = self._create()
            sink = _HashingFile(self._file, identity)
            with pa.ipc.new_stream(pa.PythonFile(sink, mode="w"), schema, options=self._options) as writer:
                for batch, metadata in batches:
                    writer.write_batch(batch, custom_metadata=dict(metadata) if metadata else None)
        except OSError as error:
            raise self._failed(error) from error
        ref = SectionRef(self._path, self._offset, sink.length, identity, sink.hexdigest())
        self._offset += sink.length
        return ref

    @property
    def written(self) -> int:
        """Number of bytes written so far."""
        return self._offset

    def close(self) -> None:
        """Make the file durable."""
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            raise self._failed(error) from error
        self._durable = True

    def abandon(self) -> None:
        """Remove the file, even a durable one. Nothing may refer to it. Best effort; never raises OSError."""
        if self._durable:
            with contextlib.suppress(OSError, CorruptSnapshot):
                self._store.delete(self._path)
        elif self._file is not None:
            self._file.abandon()

    def _create(self) -> DataFile:
        try:
            return self._store.create(self._path)
        except FileExistsError:
            raise
        except OSError:
            # The file may exist in spite of the error. No other writer uses its name, and nothing refers to it yet.
            with contextlib.suppress(OSError, CorruptSnapshot):
                self._store.delete(self._path)
            raise

    def _failed(self, error: OSError) -> CheckpointFailed:
        self.abandon()
        return CheckpointFailed(f"cannot write {self._path} below {self._store.root}: {error}")

    def __enter__(self) -> SectionWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()


@dataclass(frozen=True)
class SectionContent:
    """Decoded content of a verified section."""

    schema: pa.Schema
    batches: list[pa.RecordBatch]
    metadata: list[dict[str, str]]


def read_content(store: Store, ref: SectionRef) -> SectionContent:
    """Read, verify and decode a section with each batch's custom metadata.

    Raises:
        CorruptSnapshot: the section is missing, short, changed, or not a stream. The message names file, offset and
            identity.
    """
    data = pa.py_buffer(read_verified(store, ref))
    what = _describe(ref)
    check_stream(data, what, compressed=True)
    batches: list[pa.RecordBatch] = []
    metadata: list[dict[str, str]] = []
    with decoding(what):
        reader = pa.ipc.open_stream(data)
        check_schema(reader.schema)
        while True:
            try:
                batch, custom = reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                break
            batch.validate(full=True)
            batches.append(batch)
            metadata.append({k.decode(): v.decode() for k, v in custom.items()} if custom else {})
    return SectionContent(reader.schema, batches, metadata)


def read_section(store: Store, ref: SectionRef) -> list[pa.RecordBatch]:
    """Return the batches of a verified section; see ``read_content``."""
    return read_content(store, ref).batches


def read_verified(store: Store, ref: SectionRef) -> bytes:
    """Return the bytes of a section after checking their length and checksum. Raises CorruptSnapshot."""
    if ref.offset < 0 or not 0 <= ref.length <= _MEMORY_BYTES // 2:
        raise CorruptSnapshot(
            f"{_describe(ref)}: there is no such place in a file, or it has more than memory can hold"
        )
    try:
        data = store.read_range(checked_path(ref.path), ref.offset, ref.length)
    except FileNotFoundError:
        raise CorruptSnapshot(f"{_describe(ref)}: the file is missing") from None
    except (ValueError, OverflowError, MemoryError) as error:
        raise CorruptSnapshot(f"{_describe(ref)}: {error or 'more than there is memory'}") from None
    if len(data) != ref.length:
        raise CorruptSnapshot(f"{_describe(ref)}: {len(data)} bytes instead of {ref.length}")
    actual = xxhash.xxh3_128(ref.identity.encode() + b"\0")
    actual.update(data)
    if actual.hexdigest() != ref.checksum:
        raise CorruptSnapshot(f"{_describe(ref)}: the checksum is {actual.hexdigest()} instead of {ref.checksum}")
    return data


def check_reference(store: Store, ref: SectionRef, sizes: Mapping[str, int] | None = None) -> None:
    """Check that the file of a section exists and is long enough, without reading its content.

    Args:
        sizes: sizes of all files, if many references are checked; see ``sizes_of_files``. None asks the store.

    Raises:
        CorruptSnapshot: the file is missing or too short.
    """
    try:
        path = checked_path(ref.path)
        size = store.size(path) if sizes is None else sizes.get(path)
    except ValueError as error:
        raise CorruptSnapshot(f"{_describe(ref)}: {error}") from None
    if size is None:
        raise CorruptSnapshot(f"{_describe(ref)}: the file is missing")
    if ref.offset < 0 or ref.length < 0 or ref.offset + ref.length > size:
        raise CorruptSnapshot(f"{_describe(ref)}: the file has only {size} bytes")


def sizes_of_files(store: Store, refs: Iterable[SectionRef]) -> dict[str, int]:
    """Return the sizes of the sections' files. Each file is asked for once. Paths that leave the store are ignored."""
    return store.sizes([path for path in dict.fromkeys(ref.path for ref in refs) if is_clean_path(path)])


def _describe(ref: SectionRef) -> str:
    return f"section {ref.identity!r} in {ref.path} at offset {ref.offset} (+{ref.length})"


__all__ = [
    "SectionContent",
    "SectionWriter",
    "check_reference",
    "data_path",
    "read_content",
    "read_section",
    "read_verified",
    "sizes_of_files",
    "state_path",
]
