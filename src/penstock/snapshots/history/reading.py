"""Reader of a location's history. It opens only the segments that a page needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

import msgspec

from penstock.errors import CorruptSnapshot
from penstock.logs import get_logger
from penstock.snapshots.history.records import CheckpointDetails, CheckpointRecord
from penstock.snapshots.history.segments import OpenSegment, Segment, list_segments
from penstock.snapshots.store.store import Store

log = get_logger(__name__)

CACHED_HEADERS = 48
"""Number of segment headers in memory.

The first page reads the newest segments, of one checkpoint each, every time. Paging through the history reads each full
segment several times.
"""
READ_ATTEMPTS = 3
"""Maximum number of listings per read. A listed segment may be merged before it is read."""


class History:
    """History of a location. Readers in any process can use it while a driver writes the history.

    Damaged segments are skipped, with one warning. Segments are listed for each read. Their headers are cached, because
    a segment never changes and no name is used twice. Any thread may call any method.

    All methods raise OSError if the store fails.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open = lru_cache(CACHED_HEADERS)(partial(OpenSegment, store))

    def page(self, before: int | None, limit: int) -> list[CheckpointRecord]:
        """Return the newest records with ids below ``before`` (None: all), at most ``limit``, newest first."""
        for _ in range(READ_ATTEMPTS - 1):
            try:
                return self._page(before, limit)
            except FileNotFoundError:
                continue
        return self._page(before, limit, missing_ok=True)

    def _page(self, before: int | None, limit: int, missing_ok: bool = False) -> list[CheckpointRecord]:
        found: dict[int, CheckpointRecord] = {}
        for segment in list_segments(self._store):
            if before is not None and segment.first >= before:
                continue
            if len(found) == limit and segment.last < min(found):
                break
            for record in self._records(segment, missing_ok):
                if before is None or record.checkpoint < before:
                    found[record.checkpoint] = record
            found = {number: found[number] for number in sorted(found, reverse=True)[:limit]}
        return list(found.values())

    def find(self, checkpoint: int) -> CheckpointDetails | None:
        """Return one checkpoint with the metrics of its subtasks; None if it is unknown or was dropped."""
        for _ in range(READ_ATTEMPTS):
            try:
                return next(self._found(checkpoint), None)
            except FileNotFoundError:
                continue
        return None

    def _found(self, checkpoint: int) -> Iterator[CheckpointDetails]:
        for segment in list_segments(self._store):
            if segment.first <= checkpoint <= segment.last:
                try:
                    opened = self._open(segment)
                    for record in opened.records:
                        if record.checkpoint == checkpoint:
                            known = msgspec.structs.asdict(record)
                            yield CheckpointDetails(**known, subtasks=opened.subtasks_of(checkpoint))
                except CorruptSnapshot as damage:
                    warn_once(self._store.root, str(damage))

    def _records(self, segment: Segment, missing_ok: bool) -> list[CheckpointRecord]:
        try:
            return self._open(segment).records
        except CorruptSnapshot as damage:
            warn_once(self._store.root, str(damage))
        except FileNotFoundError:
            if not missing_ok:
                raise
        return []


@lru_cache(maxsize=256)
def warn_once(root: str, damage: str) -> None:
    """Log a warning about damage once, although each read detects it again."""
    log.warning("%s: %s; these checkpoints are missing from the history, and nothing else is", root, damage)
