"""Rounds of event time: readers without event time follow the watermark of others (``docs/watermarks.md``).

A group consists of the readers of one source, or of all sources with a common event time. Its *level* is the largest
watermark that any of its readers has reached. A reader that is below the level and does not move begins a round. The
round waits for one discovery of each source that began after the round, and for the assignment of all splits found
until then. After that, the readers below the level may advance to it, each after it has passed its own frontier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.coordinator.machines.splits import Reader, SplitAssigner, SplitCommand, SplitEvent, SplitsFound
from penstock.model.elements import END_OF_TIME_US
from penstock.model.messages import AdvanceWatermark, AssignSplits, ReaderProgressed, ReaderStatus


@dataclass
class _Round:
    """State of the current round.

    Attributes:
        level_us: the level at its start.
        waiting: vertices whose readers have not been advanced yet.
        begun: those of them for which a discovery has begun since.
        unassigned: splits that must be assigned before readers are advanced, by vertex whose discovery has ended.
    """

    level_us: int
    waiting: set[int]
    begun: set[int] = field(default_factory=set)
    unassigned: dict[int, set[str]] = field(default_factory=dict)


class EventTimeRounds:
    """State machine of one group in one generation.

    Args:
        assigners: the split assigners of the group's sources.
        eager: also advance readers whose watermark moves.
    """

    def __init__(self, assigners: Sequence[SplitAssigner], eager: bool = False) -> None:
        self._assigners = {assigner.vertex: assigner for assigner in assigners}
        self._eager = eager
        self._level_us: int | None = None
        self._round: _Round | None = None

    @property
    def level_us(self) -> int | None:
        """Largest watermark that a reader has reached; None before the first row with event time."""
        return self._level_us

    @property
    def is_aligned(self) -> bool:
        """True if all readers of unfinished sources are at the level."""
        return all(
            assigner.finished or not any(self._is_below(reader) for reader in assigner.readers)
            for assigner in self._assigners.values()
        )

    def discovery_begins(self, vertex: int) -> None:
        """Record that a discovery for this source begins."""
        if self._round is not None and vertex in self._round.waiting:
            self._round.begun.add(vertex)

    def handled(self, vertex: int, event: SplitEvent, commands: Sequence[SplitCommand] = ()) -> list[AdvanceWatermark]:
        """Handle an event after a source's assigner did. The returned commands follow those of the assigner."""
        if self._round is not None and vertex in self._round.unassigned:
            for command in commands:
                if isinstance(command, AssignSplits):
                    self._round.unassigned[vertex].difference_update(split.split_id for split in command.splits)
        match event:
            case ReaderProgressed() | ReaderStatus():
                self._raise_level(event)
                if self._round is None and self._needs_advance(self._assigners[vertex].readers[event.index]):
                    self._begin()
            case SplitsFound() if self._round is not None and vertex in self._round.begun:
                self._round.unassigned.setdefault(vertex, self._assigners[vertex].pending_ids)
        return self._advance()

    def _raise_level(self, event: ReaderProgressed | ReaderStatus) -> None:
        reached_us = event.seen_us if isinstance(event, ReaderStatus) else event.watermark_us
        if reached_us is not None and reached_us != END_OF_TIME_US:
            self._level_us = reached_us if self._level_us is None else max(self._level_us, reached_us)

    def _is_below(self, reader: Reader) -> bool:
        return self._level_us is not None and (reader.watermark_us is None or reader.watermark_us < self._level_us)

    def _needs_advance(self, reader: Reader) -> bool:
        """Return True if a reader needs a round.

        That is a reader below the level that has reached its last target and, unless ``eager``, does not move.
        """
        advancing = reader.target_us is not None and (
            reader.watermark_us is None or reader.watermark_us < reader.target_us
        )
        return self._is_below(reader) and not advancing and (self._eager or reader.is_stalled)

    def _begin(self) -> None:
        assert self._level_us is not None
        self._round = _Round(self._level_us, set(self._assigners))

    def _advance(self) -> list[AdvanceWatermark]:
        commands: list[AdvanceWatermark] = []
        current = self._round
        if current is None:
            return commands
        for vertex in sorted(current.waiting):
            assigner = self._assigners[vertex]
            if not assigner.finished:  # the end of a source brings its readers to its own largest watermark
                if vertex not in current.unassigned or current.unassigned[vertex]:
                    continue
                for index, reader in enumerate(assigner.readers):
                    if self._needs_advance(reader):
                        reader.target_us = current.level_us
                        commands.append(AdvanceWatermark(vertex, index, current.level_us))
            current.waiting.discard(vertex)
        if not current.waiting:
            self._round = None
        return commands
