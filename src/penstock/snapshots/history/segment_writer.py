"""Writer of the history. It adds segments, merges small ones and drops the oldest. It never changes a file in place.

Only the driver that owns the location writes, one thread at a time. A paused driver that no longer owns the location
does no harm: names are never used twice, a merged segment contains all checkpoints of the segments that it replaces,
and readers count a checkpoint of two segments once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.errors import CorruptSnapshot
from penstock.snapshots.history.reading import warn_once
from penstock.snapshots.history.segments import OpenSegment, Segment, StoredCheckpoint, build_segment, list_segments
from penstock.snapshots.store.store import Store

KEPT_CHECKPOINTS = 20_000
"""Maximum number of checkpoints kept: at least two days at the default interval."""
KEPT_BYTES = 64 << 20
"""Maximum bytes kept. The limit that is reached first applies. With 800 subtasks a checkpoint takes about 15 KB."""
MERGED_CHECKPOINTS = 128
"""Number of checkpoints from which on a segment is not merged again. A page of 200 reads two or three such segments."""
MERGED_BYTES = 1 << 20
SEGMENTS_PER_MERGE = 32
"""Number of small segments from which on they are merged. So a checkpoint is written about four times."""


class SegmentWriter:
    """Writer of segments. All methods raise OSError if the store fails.

    Args:
        token: returns 16 random hex digits per call.
    """

    def __init__(self, store: Store, token: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        self._store = store
        self._token = token
        self._damaged: set[str] = set()
        """Damaged or missing segments. They are not merged."""
        self._appends_until_compaction = 0
        """It is 0 at first, so that segments of earlier runs are compacted."""

    def append(self, entries: Sequence[StoredCheckpoint]) -> None:
        """Add one to ``MAX_ENTRIES`` completed or failed checkpoints. They are durable on return."""
        self._write(entries)
        self._appends_until_compaction -= 1

    def compact(self) -> None:
        """Merge small segments or drop old ones, if enough segments were added."""
        if self._appends_until_compaction <= 0:
            segments = list_segments(self._store)
            sizes = self._store.sizes([segment.path for segment in segments])
            if not self._merge(segments, sizes):
                self._drop(segments, sizes)
                small = len(self._small(segments, sizes))
                self._appends_until_compaction = max(1, SEGMENTS_PER_MERGE - small)

    def _merge(self, segments: Sequence[Segment], sizes: dict[str, int]) -> bool:
        """Merge small segments; return True if any were merged."""
        small = self._small(segments, sizes)
        if len(small) < SEGMENTS_PER_MERGE:
            return False
        merged = False
        for group in _groups(small[::-1], sizes):
            entries = {entry.record.checkpoint: entry for segment in group for entry in self._read(segment)}
            whole = [segment.path for segment in group if segment.path not in self._damaged]
            if len(whole) > 1:
                self._write(list(entries.values()))
                self._store.delete_all(whole)
                merged = True
        return merged

    def _small(self, segments: Sequence[Segment], sizes: dict[str, int]) -> list[Segment]:
        return [
            one
            for one in segments
            if one.count < MERGED_CHECKPOINTS
            and sizes.get(one.path, MERGED_BYTES) < MERGED_BYTES
            and one.path not in self._damaged
        ]

    def _read(self, segment: Segment) -> list[StoredCheckpoint]:
        """Return all checkpoints of a segment; none if it is damaged or missing.

        A segment may be missing because a driver that no longer owns the location has merged it.
        """
        try:
            with suppress(FileNotFoundError):
                opened = OpenSegment(self._store, segment)
                return [opened.entry(record.checkpoint) for record in opened.records]
        except CorruptSnapshot as damage:
            warn_once(self._store.root, str(damage))
        self._damaged.add(segment.path)
        return []

    def _drop(self, segments: Sequence[Segment], sizes: dict[str, int]) -> None:
        """Delete the oldest segments beyond the limits, but never the newest one."""
        count, size, dropped = 0, 0, []
        for segment in segments:
            if segment is not segments[0] and (count >= KEPT_CHECKPOINTS or size >= KEPT_BYTES):
                dropped.append(segment.path)
            count += segment.count
            size += sizes.get(segment.path, 0)
        self._store.delete_all(dropped)

    def _write(self, entries: Sequence[StoredCheckpoint]) -> None:
        segment, data = build_segment(entries, self._token())
        self._store.create_if_absent(segment.path, data)


def _groups(small: Sequence[Segment], sizes: dict[str, int]) -> list[list[Segment]]:
    """Divide neighboring segments into groups. Each group becomes one merged segment."""
    groups: list[list[Segment]] = [[]]
    count = size = 0
    for segment in small:
        if count >= MERGED_CHECKPOINTS or size >= MERGED_BYTES:
            groups.append([])
            count = size = 0
        groups[-1].append(segment)
        count += segment.count
        size += sizes[segment.path]
    return groups
