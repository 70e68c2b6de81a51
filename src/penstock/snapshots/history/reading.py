"""The history of a location, read in pages: only the segments that a page needs are opened."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import msgspec

from penstock.errors import CorruptSnapshot
from penstock.logs import get_logger
from penstock.snapshots.history.records import CheckpointRecord, RecordedCheckpoint
from penstock.snapshots.history.segments import OpenSegment, Segment, segments_at
from penstock.snapshots.store.store import Store

log = get_logger(__name__)

KEPT_OPEN = 48
"""Headers of segments: the newest, of one checkpoint each and up to ``SMALL_ONES``, are in every look at the first
page, and who leafs through pages of 50 comes to each of the full ones, of 128, again."""
LOOKS = 3
"""How often a listing is made anew because its segments were merged before they were read."""


class History:
    """For readers, of any process, while a driver writes it. What is damaged is left out, and said once in the log.

    What segments there are is looked up each time. What one of them says is kept: none is ever changed, and no name is
    used twice. It may be used by several threads.

    All raise OSError if the store fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = lru_cache(KEPT_OPEN)(partial(OpenSegment, store))

    def page(self, before: int | None, limit: int) -> list[CheckpointRecord]:
        """The newest that are older than ``before``, at most ``limit``, newest first."""
        for _ in range(LOOKS - 1):
            try:
                return self._page(before, limit)
            except FileNotFoundError:
                continue
        return self._page(before, limit, missing_ok=True)

    def _page(self, before: int | None, limit: int, missing_ok: bool = False) -> list[CheckpointRecord]:
        found: dict[int, CheckpointRecord] = {}
        for segment in segments_at(self._store):
            if before is not None and segment.first >= before:
                continue
            if len(found) == limit and segment.last < min(found):
                break
            for record in self._records(segment, missing_ok):
                if before is None or record.checkpoint < before:
                    found[record.checkpoint] = record
            found = {number: found[number] for number in sorted(found, reverse=True)[:limit]}
        return list(found.values())

    def find(self, checkpoint: int) -> RecordedCheckpoint | None:
        """One checkpoint with the figures of its subtasks; None: it is not known, or not any more."""
        for _ in range(LOOKS):
            try:
                return next(self._found(checkpoint), None)
            except FileNotFoundError:
                continue
        return None

    def _found(self, checkpoint: int) -> Iterator[RecordedCheckpoint]:
        for segment in segments_at(self._store):
            if segment.first <= checkpoint <= segment.last:
                try:
                    opened = self._open(segment)
                    for record in opened.records:
                        if record.checkpoint == checkpoint:
                            known = msgspec.structs.asdict(record)
                            yield RecordedCheckpoint(**known, subtasks=opened.subtasks_of(checkpoint))
                except CorruptSnapshot as damage:
                    say_once(self._store.root, str(damage))

    def _records(self, segment: Segment, missing_ok: bool) -> list[CheckpointRecord]:
        try:
            return self._open(segment).records
        except CorruptSnapshot as damage:
            say_once(self._store.root, str(damage))
        except FileNotFoundError:
            if not missing_ok:
                raise
        return []


@lru_cache(maxsize=256)
def say_once(root: str, damage: str) -> None:
    """Whoever looks at a page looks again and again."""
    log.warning("%s: %s; these checkpoints are missing from the history, and nothing else is", root, damage)
