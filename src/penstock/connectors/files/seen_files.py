"""Set of the discovered files. It is stored in segments, so that the cost of a snapshot depends on the new files only.

An entry has a 128-bit hash of the file's name and the modification time: 24 bytes for any name. The set is a list of
sorted, immutable *segments*. The files of one discovery become a segment. The last two segments are merged while the
last one is at least as large as the one before it. If discoveries have similar sizes, there are about log2(files)
segments, and each entry is written about that often. Snapshots store a segment once and refer to it
(``snapshots/format/blobs.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from penstock.connectors.files.listing import FoundFile
from penstock.model.plain import Plain
from penstock.snapshots.format.blobs import Blob

_HASH_BYTES = 16
_KEYS = np.dtype(f"S{_HASH_BYTES}")
_SCHEMA = pa.schema([("file_hash", pa.binary(_HASH_BYTES)), ("modified_ms", pa.int64())])


@dataclass(frozen=True)
class _Segment:
    """Sorted part of the set.

    Attributes:
        keys: hashes, in ascending order.
        modified_ms: modification time of each key's file.
        content: keys and modification times as an Arrow stream.
    """

    keys: npt.NDArray[np.bytes_]
    modified_ms: npt.NDArray[np.int64]
    content: Blob

    def __len__(self) -> int:
        return len(self.keys)


def _segment(keys: npt.NDArray[np.bytes_], modified_ms: npt.NDArray[np.int64]) -> _Segment:
    order = np.argsort(keys)
    keys, modified_ms = np.ascontiguousarray(keys[order]), modified_ms[order]
    hashes = pa.Array.from_buffers(_SCHEMA.field(0).type, len(keys), [None, pa.py_buffer(keys)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch([hashes, pa.array(modified_ms)], schema=_SCHEMA))
    return _Segment(keys, modified_ms, Blob(sink.getvalue()))


def _segment_of(content: bytes) -> _Segment:
    table = pa.ipc.open_stream(content).read_all().combine_chunks()
    hashes, modified = (table.column(i).chunk(0) for i in range(2))
    keys = np.frombuffer(hashes.buffers()[1], _KEYS, count=len(hashes), offset=hashes.offset * _HASH_BYTES)
    return _Segment(keys, modified.to_numpy(), Blob(content))


def _keys_of(names: Sequence[str]) -> npt.NDArray[np.bytes_]:
    digest = xxhash.xxh3_128_digest
    return np.array([digest(name.encode("utf-8", "surrogateescape")) for name in names], _KEYS)


class SeenFiles:
    """Immutable set of files. ``with_files`` returns a new set, which shares all segments but the newest ones.

    Files that are much older than the newest file are ignored, and their entries are removed later (Spark's
    ``maxFileAge``). This bounds the size of the set.

    Args:
        segments: segments by size, largest first.
        newest_ms: the largest modification time ever added.
        horizon_ms: files with an older modification time are ignored.
    """

    def __init__(self, segments: Sequence[_Segment] = (), newest_ms: int = 0, horizon_ms: int = 0) -> None:
        self._segments = tuple(segments)
        self._newest_ms = newest_ms
        self.horizon_ms = horizon_ms

    @staticmethod
    def restored(state: Mapping[str, Any]) -> SeenFiles:
        """Create the set from a state. The state may also list all paths, as in the first release."""
        if "seen" in state:
            seen = SeenFiles(horizon_ms=state["horizon_ms"])
            return seen._with_names(list(state["seen"]), list(state["seen"].values()))
        segments = [_segment_of(content) for content in state["segments"]]
        return SeenFiles(segments, state["newest_ms"], state["horizon_ms"])

    def state(self) -> dict[str, Plain]:
        segments = cast("list[Plain]", [segment.content for segment in self._segments])
        return {"segments": segments, "newest_ms": self._newest_ms, "horizon_ms": self.horizon_ms}

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    def contains(self, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return for each name True if the set has an entry for it."""
        found = np.zeros(len(names), np.bool_)
        open_at = np.arange(len(names))
        keys = _keys_of(names)
        for segment in self._segments:
            if not len(open_at):
                break
            at = np.minimum(np.searchsorted(segment.keys, keys[open_at]), len(segment) - 1)
            hits = segment.keys[at] == keys[open_at]
            found[open_at[hits]] = True
            open_at = open_at[~hits]
        return found

    def with_files(self, names: Sequence[str], files: Sequence[FoundFile]) -> SeenFiles:
        """Return the set with these files added under these names."""
        return self._with_names(names, [file.modified_ms for file in files])

    def _with_names(self, names: Sequence[str], modified_ms: Sequence[int]) -> SeenFiles:
        if not names:
            return self
        added = _segment(_keys_of(names), np.array(modified_ms, np.int64))
        return SeenFiles(_merged([*self._segments, added]), max(self._newest_ms, *modified_ms), self.horizon_ms)

    def without_old(self, max_age_ms: int) -> SeenFiles:
        """Return the set with a horizon ``max_age_ms`` before the newest file. Older files are ignored from then on.

        Their entries are removed from a segment when at least half of the segment is too old.
        """
        horizon_ms = max(self.horizon_ms, self._newest_ms - max_age_ms)
        if horizon_ms == self.horizon_ms:
            return self
        segments = []
        for segment in self._segments:
            kept = segment.modified_ms >= horizon_ms
            if 2 * np.count_nonzero(kept) > len(segment):
                segments.append(segment)
            elif kept.any():
                segments.append(_segment(segment.keys[kept], segment.modified_ms[kept]))
        return SeenFiles(_merged(sorted(segments, key=len, reverse=True)), self._newest_ms, horizon_ms)


def _merged(segments: list[_Segment]) -> list[_Segment]:
    """Merge the last two segments until the last one is smaller than the one before it."""
    while len(segments) > 1 and len(segments[-1]) >= len(segments[-2]):
        younger, older = segments.pop(), segments.pop()
        keys = np.concatenate([older.keys, younger.keys])
        segments.append(_segment(keys, np.concatenate([older.modified_ms, younger.modified_ms])))
    return segments
