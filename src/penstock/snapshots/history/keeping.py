"""Writing the history: new segments are added, small ones merged, the oldest dropped. Nothing is ever changed in place.

The driver that owns the location does it, one thread at a time. One that was paused and does not know yet that it has
lost the location does no harm: names are never used twice, a merged segment has all that it replaces, and readers take
what is in two segments once.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.errors import CorruptSnapshot
from penstock.snapshots.history.reading import say_once
from penstock.snapshots.history.segments import Entry, OpenSegment, Segment, sealed, segments_at
from penstock.snapshots.store.store import Store

KEPT_CHECKPOINTS = 20_000
"""Two days and more at the default interval."""
KEPT_BYTES = 64 << 20
"""Whichever is reached first: with 800 subtasks a checkpoint takes about 15 KB."""
MERGED_CHECKPOINTS = 128
"""A segment with so many is not merged any more; a page of 200 reads two or three of them."""
MERGED_BYTES = 1 << 20
SMALL_ONES = 32
"""Segments that are merged at a time. So one of 128 checkpoints was written about four times."""


class HistoryKeeper:
    """See the module's text. ``token``: 16 fresh random hex digits. All raise OSError if the store fails."""

    def __init__(self, store: Store, token: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        self._store = store
        self._token = token
        self._damaged: set[str] = set()
        """Or gone: not to be merged."""
        self._until_tidy = 0
        """The first time, what earlier runs have left is looked at."""

    def append(self, entries: Sequence[Entry]) -> None:
        """Add checkpoints that have ended, at least one, at most ``MAX_ENTRIES``; durable on return."""
        self._write(entries)
        self._until_tidy -= 1

    def tidy(self) -> None:
        """Merge and drop, if that is due."""
        if self._until_tidy <= 0:
            segments = segments_at(self._store)
            sizes = self._store.sizes([segment.path for segment in segments])
            if not self._merge(segments, sizes):
                self._drop(segments, sizes)
                small = len(self._small(segments, sizes))
                self._until_tidy = max(1, SMALL_ONES - small)

    def _merge(self, segments: Sequence[Segment], sizes: dict[str, int]) -> bool:
        """Whether anything was."""
        small = self._small(segments, sizes)
        if len(small) < SMALL_ONES:
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

    def _read(self, segment: Segment) -> list[Entry]:
        """Everything in it, or nothing. It is gone where a driver that has lost the location has merged it, too."""
        try:
            with suppress(FileNotFoundError):
                opened = OpenSegment(self._store, segment)
                return [opened.entry(record.checkpoint) for record in opened.records]
        except CorruptSnapshot as damage:
            say_once(self._store.root, str(damage))
        self._damaged.add(segment.path)
        return []

    def _drop(self, segments: Sequence[Segment], sizes: dict[str, int]) -> None:
        """The oldest, but never the newest of all."""
        count, size, gone = 0, 0, []
        for segment in segments:
            if segment is not segments[0] and (count >= KEPT_CHECKPOINTS or size >= KEPT_BYTES):
                gone.append(segment.path)
            count += segment.count
            size += sizes.get(segment.path, 0)
        self._store.delete_all(gone)

    def _write(self, entries: Sequence[Entry]) -> None:
        segment, data = sealed(entries, self._token())
        self._store.create_if_absent(segment.path, data)


def _groups(small: Sequence[Segment], sizes: dict[str, int]) -> list[list[Segment]]:
    """Neighbours, as many as make one segment."""
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
