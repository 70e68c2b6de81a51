"""Process-all-available tracker: determines when all input that existed at a ``processAllAvailable`` is committed.

A call waits until all sources are idle, except those that always have more input. For each source, a discovery that
began after the call must have ended, or its discovery must be finished. Each reader must have completed a poll that
began after the call, including the rows that it found, because some readers have splits that never end. Then a strictly
aligned checkpoint follows the last rows, and the call returns when the epoch of that checkpoint is committed. All
waiting calls share one checkpoint. If the generation or the checkpoint fails in between, the wait starts again, because
the rows that are read again may not be committed yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.model.ids import CheckpointId


@dataclass
class _Call:
    """One waiting call.

    Attributes:
        discoveries: the first discovery that counts for it, by source vertex.
        poll: number of the first ``PollAgain`` that counts for it.
    """

    ticket: int
    discoveries: dict[int, int]
    poll: int


class ProcessAllTracker:
    """State machine of one query, over all its generations.

    Args:
        sources: vertices with a source.
        readers: number of readers of each source.
    """

    def __init__(self, sources: Sequence[int], readers: int = 0) -> None:
        self._readers = [(vertex, index) for vertex in sources for index in range(readers)]
        self._newest_poll = self._sent_poll = 0
        self._completed_polls = dict.fromkeys(self._readers, 0)
        self._begun = dict.fromkeys(sources, 0)
        self._ended = dict.fromkeys(sources, 0)
        self._waiting: list[_Call] = []
        self._covered: list[int] = []
        self._in_checkpoint = False
        self._is_void = False
        self._epoch: int | None = None

    def rescaled(self, readers: int) -> None:
        """Set the number of readers per source of the next generation."""
        self._readers = [(vertex, index) for vertex in self._begun for index in range(readers)]
        self._completed_polls = {reader: self._completed_polls.get(reader, 0) for reader in self._readers}

    def add(self, ticket: int) -> None:
        """Register a waiting call."""
        self._newest_poll += 1
        self._waiting.append(_Call(ticket, self._next_discoveries(), self._newest_poll))

    def next_poll(self) -> int | None:
        """Return the number of the next poll that all readers must start, once; None if none is needed.

        Call it while all readers run.
        """
        if not self._waiting or self._waiting[-1].poll <= self._sent_poll:
            return None
        self._sent_poll = self._waiting[-1].poll
        return self._sent_poll

    def poll_completed(self, vertex: int, index: int, number: int) -> None:
        """Record the ``PollCompleted`` of a reader."""
        self._completed_polls[vertex, index] = number

    def discovery_begins(self, vertex: int) -> None:
        """Record that a discovery was commanded."""
        self._begun[vertex] += 1

    def discovery_ended(self, vertex: int) -> None:
        """Record that a discovery was executed."""
        self._ended[vertex] += 1

    def begin_checkpoint(self, is_idle: bool, without_discovery: Collection[int] = ()) -> bool:
        """Return True if the checkpoint must be triggered now. The caller then triggers it.

        Args:
            is_idle: True if all sources are idle, except those that always have more input.
            without_discovery: sources whose discoveries need not be awaited.
        """
        if self._in_checkpoint or not is_idle:
            return False
        ready = [
            call
            for call in self._waiting
            if all(self._ended[v] >= n or v in without_discovery for v, n in call.discoveries.items())
            and all(number >= call.poll for number in self._completed_polls.values())
        ]
        if not ready:
            return False
        self._waiting = [call for call in self._waiting if call not in ready]
        self._covered = [call.ticket for call in ready]
        self._in_checkpoint = True
        return True

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        """Record that the checkpoint is complete. It does not count if its generation failed before."""
        if self._is_void:
            self.checkpoint_failed()
        else:
            self._epoch = checkpoint

    def checkpoint_failed(self) -> None:
        """Make the calls covered by the checkpoint wait again."""
        discoveries = self._next_discoveries()
        self._newest_poll += bool(self._covered)
        self._waiting += [_Call(ticket, discoveries, self._newest_poll) for ticket in self._covered]
        self._covered, self._in_checkpoint, self._epoch, self._is_void = [], False, None, False

    def committed(self, epoch: int) -> list[int]:
        """Record that every epoch up to this one is visible. Return the tickets of calls that may return."""
        if self._epoch is None or epoch < self._epoch:
            return []
        done, self._covered, self._in_checkpoint, self._epoch = self._covered, [], False, None
        return done

    def generation_ended(self) -> None:
        """Make the calls wait for the next generation.

        A checkpoint that is still requested does not count: the next generation would take it before it has read
        everything.
        """
        self._is_void = self._in_checkpoint and self._epoch is None
        self._sent_poll, self._completed_polls = 0, dict.fromkeys(self._readers, 0)
        for call in self._waiting:
            call.discoveries = self._next_discoveries()

    def _next_discoveries(self) -> dict[int, int]:
        return {vertex: begun + 1 for vertex, begun in self._begun.items()}
