"""Segments: immutable files of the history. The header holds the data for lists; the metrics of subtasks follow it.

::

    penstock-history 1 0000004711\\n      29 + 1 bytes: format version, length of the header
    {"body": {"entries": [...]}, ...}    the header, an envelope
    <metrics of the first checkpoint's subtasks><those of the second's>...

An entry is a ``CheckpointRecord`` and a reference to its subtasks' metrics: a JSON list, compressed with zstd. A page
of a list reads only the headers, for any number of subtasks. Details of one checkpoint also read its own metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import msgspec
import pyarrow as pa

from penstock.decoding import decode_json
from penstock.errors import CorruptSnapshot
from penstock.grammar import FreeText
from penstock.model.manifest import CaptureMetrics, Count
from penstock.snapshots.format.envelope import digest, seal_envelope, sealed_body
from penstock.snapshots.history.records import MAX_SUBTASKS_BYTES, CheckpointRecord
from penstock.snapshots.store.store import Store

FOLDER = "history"
FORMAT_VERSION = 1
MAX_ENTRIES = 1000
"""Maximum number of checkpoints of one segment."""
MAX_HEADER = 8 << 20
"""Maximum size of a header in bytes: enough for ``MAX_ENTRIES`` entries with the longest texts."""
CODEC = "zstd"
_FIRST_READ = 128 << 10
"""Number of bytes of the first read. They contain the header of 250 checkpoints if few of these have failed."""
_NAME = re.compile(rf"{FOLDER}/(\d{{16}})-(\d{{16}})-(\d{{4}})-([0-9a-f]{{16}})\.segment")
_PREFIX = re.compile(rb"penstock-history (\d{1,9}) (\d{10})\n")
_PREFIX_BYTES = len(b"penstock-history 1 0000000000\n")


class SubtaskMetricsRef(msgspec.Struct, frozen=True):
    """Reference to the compressed metrics of one checkpoint's subtasks.

    Attributes:
        offset: offset in bytes from the end of the header.
        length: compressed size in bytes.
        size: decompressed size in bytes.
        checksum: checksum of the compressed bytes.
    """

    offset: Count
    length: Count
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_SUBTASKS_BYTES)]
    checksum: FreeText


class _HeaderEntry(msgspec.Struct, frozen=True):
    checkpoint: CheckpointRecord
    subtasks: SubtaskMetricsRef | None = None


class _Header(msgspec.Struct, frozen=True):
    entries: Annotated[list[_HeaderEntry], msgspec.Meta(min_length=1, max_length=MAX_ENTRIES)]


@dataclass(frozen=True)
class StoredCheckpoint:
    """One checkpoint of a segment.

    Attributes:
        packed: compressed metrics of its subtasks; empty if there are none.
        size: decompressed size of the metrics in bytes.
    """

    record: CheckpointRecord
    packed: bytes = b""
    size: int = 0


@dataclass(frozen=True)
class Segment:
    """Segment as described by its name: the first and last checkpoint id and the number of checkpoints."""

    path: str
    first: int
    last: int
    count: int


def list_segments(store: Store) -> list[Segment]:
    """Return all segments, those with the newest checkpoints first. Other files are ignored. Raises OSError."""
    found = [segment for segment in map(_parse_name, store.list(FOLDER)) if segment]
    return sorted(found, key=lambda segment: (segment.last, segment.path), reverse=True)


@lru_cache(maxsize=4096)
def _parse_name(path: str) -> Segment | None:
    """Return the segment with this path; None for another file. Cached, because each page lists the same names."""
    match = _NAME.fullmatch(path)
    return Segment(path, int(match[1]), int(match[2]), int(match[3])) if match else None


def stored_checkpoint(record: CheckpointRecord, subtasks: Sequence[CaptureMetrics]) -> StoredCheckpoint:
    """Return a checkpoint in its stored form. Metrics above the size limit are left out."""
    content = msgspec.json.encode(subtasks) if subtasks else b""
    if not 0 < len(content) <= MAX_SUBTASKS_BYTES:
        return StoredCheckpoint(record)
    return StoredCheckpoint(record, pa.compress(content, codec=CODEC, asbytes=True), len(content))


def build_segment(entries: Iterable[StoredCheckpoint], token: str) -> tuple[Segment, bytes]:
    """Return a segment and its bytes.

    Args:
        entries: at least one and at most ``MAX_ENTRIES``, each checkpoint once.
        token: 16 random hex digits, so that no name is used twice.
    """
    ordered = sorted(entries, key=lambda entry: entry.record.checkpoint)
    lines, offset = [], 0
    for entry in ordered:
        metrics_ref = (
            SubtaskMetricsRef(offset, len(entry.packed), entry.size, digest(entry.packed)) if entry.packed else None
        )
        lines.append(_HeaderEntry(entry.record, metrics_ref))
        offset += len(entry.packed)
    header = seal_envelope(msgspec.to_builtins(_Header(lines)))
    first, last = ordered[0].record.checkpoint, ordered[-1].record.checkpoint
    path = f"{FOLDER}/{first:016d}-{last:016d}-{len(ordered):04d}-{token}.segment"
    prefix = b"penstock-history %d %010d\n" % (FORMAT_VERSION, len(header))
    return Segment(path, first, last, len(ordered)), b"".join([prefix, header, *(entry.packed for entry in ordered)])


class OpenSegment:
    """Verified header of one segment.

    Raises:
        CorruptSnapshot: the header does not match its name or checksum, or has another format version.
        FileNotFoundError: the segment was merged into another one, or dropped.
        OSError: the store fails.
    """

    def __init__(self, store: Store, segment: Segment) -> None:
        self._store = store
        self._path = segment.path
        data = store.read_range(segment.path, 0, _FIRST_READ)
        prefix = _PREFIX.match(data)
        if prefix is None:
            raise CorruptSnapshot(f"{segment.path} is no segment of a history")
        if int(prefix[1]) != FORMAT_VERSION:
            raise CorruptSnapshot(f"{segment.path} has version {int(prefix[1])}; this release reads {FORMAT_VERSION}")
        length = int(prefix[2])
        if length > MAX_HEADER:
            raise CorruptSnapshot(f"{segment.path} has a header of {length} bytes, more than {MAX_HEADER}")
        self._end = _PREFIX_BYTES + length
        if len(data) < self._end:
            data = store.read_range(segment.path, 0, self._end)
        self._lines = {line.checkpoint.checkpoint: line for line in self._read(data[_PREFIX_BYTES : self._end])}
        if (len(self._lines), min(self._lines), max(self._lines)) != (segment.count, segment.first, segment.last):
            raise CorruptSnapshot(f"{segment.path} has other checkpoints than its name says")

    def _read(self, header: bytes) -> list[_HeaderEntry]:
        try:
            return decode_json(sealed_body(header, self._path), _Header).entries
        except msgspec.DecodeError as error:
            raise CorruptSnapshot(f"{self._path} is no segment of a history: {error}") from error

    @property
    def records(self) -> list[CheckpointRecord]:
        return [line.checkpoint for line in self._lines.values()]

    def subtasks_of(self, checkpoint: int) -> tuple[CaptureMetrics, ...]:
        """Return the metrics of the subtasks of one of its checkpoints. Raises as the constructor."""
        entry = self.entry(checkpoint)
        if not entry.packed:
            return ()
        try:
            content = pa.decompress(entry.packed, entry.size, codec=CODEC, asbytes=True)
            return decode_json(content, tuple[CaptureMetrics, ...])
        except (OSError, pa.ArrowException, msgspec.DecodeError) as error:
            raise CorruptSnapshot(f"{self._path}: the figures of checkpoint {checkpoint} cannot be read") from error

    def entry(self, checkpoint: int) -> StoredCheckpoint:
        """Return one of its checkpoints in its stored form. Raises as the constructor."""
        line = self._lines[checkpoint]
        metrics_ref = line.subtasks
        if metrics_ref is None:
            return StoredCheckpoint(line.checkpoint)
        packed = self._store.read_range(
            self._path, self._end + metrics_ref.offset, min(metrics_ref.length, MAX_SUBTASKS_BYTES)
        )
        if digest(packed) != metrics_ref.checksum:
            raise CorruptSnapshot(f"{self._path}: the figures of checkpoint {checkpoint} do not match their checksum")
        return StoredCheckpoint(line.checkpoint, packed, metrics_ref.size)
