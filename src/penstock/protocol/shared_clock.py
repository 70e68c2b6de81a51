"""Sources that have their event time in common, below one ``withWatermark``: as if each were a reader of one source.

A source that is dry (``splits``) would hold event time back for as long as the others read. It is lifted to the least
watermark of those that read, or, if all are dry, to the largest that there is: as of the moment when its last look
began, for what that did not find came later than the rows that the others had read by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.protocol.elements import END_OF_TIME_US
from penstock.protocol.splits import Dry, SplitAssigner


class SharedClock:
    """Of one Generation. ``assigners``: of the sources, whose figures are looked at."""

    def __init__(self, assigners: Sequence[SplitAssigner]) -> None:
        self._assigners = {assigner.vertex: assigner for assigner in assigners}
        self._begun: dict[int, int | None] = {}
        self._told: dict[int, int] = {}

    @property
    def settled(self) -> bool:
        """All sources are dry, and those that may find more stand where the one does that has come farthest."""
        reached_us = self._reached()
        return all(
            assigner.dry and (assigner.finished or reached_us is None or self._stands_at(vertex) == reached_us)
            for vertex, assigner in self._assigners.items()
        )

    def look_begins(self, vertex: int) -> None:
        """The source is looked at, from now on."""
        self._begun[vertex] = self._reached()
        if not self._assigners[vertex].dry:
            self._told.pop(vertex, None)  # a reader that was not idle any more has not heeded it

    def look_ended(self, vertex: int) -> list[Dry]:
        """Its assigner has heard what was found; to be said behind what that commands."""
        reached_us = self._begun.pop(vertex, None)
        stands_at = self._stands_at(vertex)
        if reached_us is None or not self._assigners[vertex].dry or (stands_at is not None and stands_at >= reached_us):
            return []
        self._told[vertex] = reached_us
        return [Dry(vertex, reached_us)]

    def _stands_at(self, vertex: int) -> int | None:
        known = [us for us in (self._assigners[vertex].watermark_us, self._told.get(vertex)) if us is not None]
        return max(known, default=None)

    def _reached(self) -> int | None:
        """Where event time is, of those that read or else of all; None: not known, or at its end, to which every source
        comes by itself."""
        reading = [assigner.least_us for assigner in self._assigners.values() if not assigner.dry]
        if not reading:
            stands_at = [us for vertex in self._assigners if (us := self._stands_at(vertex)) is not None]
            reached_us = max(stands_at, default=None)
        else:
            known = [us for us in reading if us is not None]
            reached_us = min(known) if len(known) == len(reading) else None
        return None if reached_us == END_OF_TIME_US else reached_us
