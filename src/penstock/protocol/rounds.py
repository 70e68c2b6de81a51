"""Rounds of event time: readers that show no event time are brought to where others are (``docs/watermarks.md``).

A group is the readers of one source, or of all sources that have their event time in common. Its *level* is the largest
watermark that any of its readers has reached. A reader that is below the level and does not move begins a round. The
round waits until each source of the group has been looked at by a look that began after it, and until all splits that
were found by then are handed out. Then the readers below the level are told that they may rise to it, each past its own
frontier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.protocol.elements import END_OF_TIME_US
from penstock.protocol.splits import (
    Assign,
    Command,
    Discovered,
    Event,
    Progressed,
    Reader,
    Requested,
    Rise,
    SplitAssigner,
)


@dataclass
class _Round:
    """``untold``: vertices whose readers have not been told; ``begun``: those of them that a look has begun for since;
    ``unassigned``: the splits, by vertex, that have to be handed out before the readers are told."""

    level_us: int
    untold: set[int]
    begun: set[int] = field(default_factory=set)
    unassigned: dict[int, set[str]] = field(default_factory=dict)


class EventTimeRounds:
    """Machine of one group in one generation.

    Args:
        assigners: of the sources of the group.
        eager: bring readers to the level that move by themselves, too.
    """

    def __init__(self, assigners: Sequence[SplitAssigner], eager: bool = False) -> None:
        self._assigners = {assigner.vertex: assigner for assigner in assigners}
        self._eager = eager
        self._level_us: int | None = None
        self._round: _Round | None = None

    @property
    def level_us(self) -> int | None:
        """The largest watermark that a reader has reached; None before the first row with an event time."""
        return self._level_us

    @property
    def settled(self) -> bool:
        """All sources are dry, and all readers of those that may find more are at the level."""
        return all(
            assigner.dry and (assigner.finished or not any(self._is_below(reader) for reader in assigner.readers))
            for assigner in self._assigners.values()
        )

    def look_begins(self, vertex: int) -> None:
        """A look for splits of this source begins now."""
        if self._round is not None and vertex in self._round.untold:
            self._round.begun.add(vertex)

    def handled(self, vertex: int, event: Event, commands: Sequence[Command] = ()) -> list[Rise]:
        """The assigner of a source has taken an event and returned commands; what this returns follows them."""
        if self._round is not None and vertex in self._round.unassigned:
            for command in commands:
                if isinstance(command, Assign):
                    self._round.unassigned[vertex].difference_update(split.split_id for split in command.splits)
        match event:
            case Progressed() | Requested():
                self._raise_level(event)
                if self._round is None and self._waits(self._assigners[vertex].readers[event.index]):
                    self._begin()
            case Discovered() if self._round is not None and vertex in self._round.begun:
                self._round.unassigned.setdefault(vertex, self._assigners[vertex].pending_ids)
        return self._tell()

    def _raise_level(self, event: Progressed | Requested) -> None:
        reached_us = event.watermark_us
        if reached_us is not None and reached_us != END_OF_TIME_US:
            self._level_us = reached_us if self._level_us is None else max(self._level_us, reached_us)

    def _is_below(self, reader: Reader) -> bool:
        return self._level_us is not None and (reader.watermark_us is None or reader.watermark_us < self._level_us)

    def _waits(self, reader: Reader) -> bool:
        """Whether a reader needs a round: it is below the level, does not rise by itself, and was told nothing more."""
        told = reader.told_us is not None and (reader.watermark_us is None or reader.watermark_us < reader.told_us)
        return self._is_below(reader) and not told and (self._eager or reader.still)

    def _begin(self) -> None:
        assert self._level_us is not None
        self._round = _Round(self._level_us, set(self._assigners))
        for vertex, assigner in self._assigners.items():
            if assigner.finished:
                self._round.unassigned[vertex] = assigner.pending_ids

    def _tell(self) -> list[Rise]:
        commands: list[Rise] = []
        current = self._round
        if current is None:
            return commands
        for vertex in sorted(current.unassigned):
            assigner = self._assigners[vertex]
            if current.unassigned[vertex]:
                continue
            del current.unassigned[vertex]
            current.untold.discard(vertex)
            for index, reader in enumerate(assigner.readers):
                if self._waits(reader) and not assigner.finished:  # one that ends comes to a time of its own
                    reader.told_us = current.level_us
                    commands.append(Rise(vertex, index, current.level_us))
        if not current.untold:
            self._round = None
        return commands
