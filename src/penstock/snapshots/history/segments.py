"""A segment: one immutable file of the history. What lists need comes first, the figures of subtasks behind it.

::

    penstock-history 1 0000004711\\n      29 + 1 bytes: format version, length of the header
    {"body": {"entries": [...]}, ...}    the header, an envelope
    <figures of the first checkpoint's subtasks><of the second's>...

An entry is a ``CheckpointRecord`` and where its subtasks' figures are: a JSON list, compressed with zstd. So a page of
a list reads a header, whatever the number of subtasks, and one checkpoint the header and its own figures.
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
"""Of one segment."""
MAX_HEADER = 8 << 20
"""Bytes: that many entries with the longest texts have less than that."""
CODEC = "zstd"
_FIRST_READ = 128 << 10
"""Bytes: the header of 250 checkpoints is within, if few of them say why they failed."""
_NAME = re.compile(rf"{FOLDER}/(\d{{16}})-(\d{{16}})-(\d{{4}})-([0-9a-f]{{16}})\.segment")
_PREFIX = re.compile(rb"penstock-history (\d{1,9}) (\d{10})\n")
_PREFIX_BYTES = len(b"penstock-history 1 0000000000\n")


class Place(msgspec.Struct, frozen=True):
    """Of the packed figures of one checkpoint's subtasks. ``offset`` counts from the header's end; ``size`` is theirs
    unpacked; the checksum is taken over what is packed."""

    offset: Count
    length: Count
    size: Annotated[int, msgspec.Meta(ge=0, le=MAX_SUBTASKS_BYTES)]
    checksum: FreeText


class _Line(msgspec.Struct, frozen=True):
    checkpoint: CheckpointRecord
    subtasks: Place | None = None


class _Header(msgspec.Struct, frozen=True):
    entries: Annotated[list[_Line], msgspec.Meta(min_length=1, max_length=MAX_ENTRIES)]


@dataclass(frozen=True)
class Entry:
    """One checkpoint. ``packed``: the figures of its subtasks, empty if there are none; ``size``: unpacked."""

    record: CheckpointRecord
    packed: bytes = b""
    size: int = 0


@dataclass(frozen=True)
class Segment:
    """What the name of one says: which checkpoints lie within, by id, and how many there are."""

    path: str
    first: int
    last: int
    count: int


def segments_at(store: Store) -> list[Segment]:
    """All of them, those with the newest checkpoints first; what is not named so is none. Raises OSError."""
    found = [segment for segment in map(_named, store.list(FOLDER)) if segment]
    return sorted(found, key=lambda segment: (segment.last, segment.path), reverse=True)


@lru_cache(maxsize=4096)
def _named(path: str) -> Segment | None:
    """The same names are listed again and again: for every page that is read."""
    match = _NAME.fullmatch(path)
    return Segment(path, int(match[1]), int(match[2]), int(match[3])) if match else None


def entry_of(record: CheckpointRecord, subtasks: Sequence[CaptureMetrics]) -> Entry:
    """What is stored of a checkpoint; figures beyond all measure are left out."""
    content = msgspec.json.encode(subtasks) if subtasks else b""
    if not 0 < len(content) <= MAX_SUBTASKS_BYTES:
        return Entry(record)
    return Entry(record, pa.compress(content, codec=CODEC, asbytes=True), len(content))


def sealed(entries: Iterable[Entry], token: str) -> tuple[Segment, bytes]:
    """A segment of these, at most ``MAX_ENTRIES``, each checkpoint once.

    Args:
        token: 16 random hex digits: names are never used twice, whoever writes.
    """
    ordered = sorted(entries, key=lambda entry: entry.record.checkpoint)
    lines, offset = [], 0
    for entry in ordered:
        place = Place(offset, len(entry.packed), entry.size, digest(entry.packed)) if entry.packed else None
        lines.append(_Line(entry.record, place))
        offset += len(entry.packed)
    header = seal_envelope(msgspec.to_builtins(_Header(lines)))
    first, last = ordered[0].record.checkpoint, ordered[-1].record.checkpoint
    path = f"{FOLDER}/{first:016d}-{last:016d}-{len(ordered):04d}-{token}.segment"
    prefix = b"penstock-history %d %010d\n" % (FORMAT_VERSION, len(header))
    return Segment(path, first, last, len(ordered)), b"".join([prefix, header, *(entry.packed for entry in ordered)])


class OpenSegment:
    """The header of one, verified.

    Raises:
        CorruptSnapshot: it is not what its name and its checksum say, or of a later release.
        FileNotFoundError: it is gone: merged into another one, or dropped.
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

    def _read(self, header: bytes) -> list[_Line]:
        try:
            return decode_json(sealed_body(header, self._path), _Header).entries
        except msgspec.DecodeError as error:
            raise CorruptSnapshot(f"{self._path} is no segment of a history: {error}") from error

    @property
    def records(self) -> list[CheckpointRecord]:
        return [line.checkpoint for line in self._lines.values()]

    def subtasks_of(self, checkpoint: int) -> tuple[CaptureMetrics, ...]:
        """Of one of its checkpoints. Raises as opening it."""
        entry = self.entry(checkpoint)
        if not entry.packed:
            return ()
        try:
            content = pa.decompress(entry.packed, entry.size, codec=CODEC, asbytes=True)
            return decode_json(content, tuple[CaptureMetrics, ...])
        except (OSError, pa.ArrowException, msgspec.DecodeError) as error:
            raise CorruptSnapshot(f"{self._path}: the figures of checkpoint {checkpoint} cannot be read") from error

    def entry(self, checkpoint: int) -> Entry:
        """One of its checkpoints, as it is stored. Raises as opening it."""
        line = self._lines[checkpoint]
        place = line.subtasks
        if place is None:
            return Entry(line.checkpoint)
        packed = self._store.read_range(self._path, self._end + place.offset, min(place.length, MAX_SUBTASKS_BYTES))
        if digest(packed) != place.checksum:
            raise CorruptSnapshot(f"{self._path}: the figures of checkpoint {checkpoint} do not match their checksum")
        return Entry(line.checkpoint, packed, place.size)
