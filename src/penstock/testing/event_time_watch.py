"""Liveness oracle of event time: a reader reaches a level after it has read the input that was there at that time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.connectors.base import Split
from penstock.protocol import splits as sp
from penstock.testing.failure import SimulationFailure
from penstock.testing.sources import position

if TYPE_CHECKING:
    from penstock.runtime.subtask import Subtask
    from penstock.testing.driver import SimulatedDriver

PATIENCE = 5
"""Reports after which a reader must have reached the level: two until it is seen to be still, one each for a discovery,
messages and the rise."""


@dataclass
class _Below:
    """A reader below a level.

    Attributes:
        level_us: the level.
        unread: the input that was there when the reader was found below the level: by split, the number of rows of an
            endless split; None for others.
        reports: number of its reports since it has read that input.
    """

    level_us: int
    unread: dict[str, int | None]
    reports: int = 0


@dataclass
class EventTimeWatch:
    """Liveness check of event time for one generation of a driver."""

    driver: SimulatedDriver
    _levels: dict[int, int] = field(default_factory=dict)
    _below: dict[tuple[int, int], _Below] = field(default_factory=dict)

    def reported(self, vertex: int, progress: sp.Progressed) -> None:
        """Check a reader's report of its event time.

        Raises:
            SimulationFailure: the reader has read the input that was there when another reader reached a higher level,
                but does not reach it.
        """
        us = progress.watermark_us
        if us is not None:
            self._levels[vertex] = max(us, self._levels.get(vertex, us))
        generation, level_us = self.driver.current, self._levels.get(vertex)
        if generation is None or level_us is None:
            return
        assigner = next(one for one in self.driver.core.assigners if one.vertex == vertex)
        slot = generation.slots[progress.index]
        runner = slot.runners.get(vertex)
        key = vertex, progress.index
        below = self._below.get(key)
        if runner is None or assigner.finished or (us is not None and us >= (below.level_us if below else level_us)):
            self._below.pop(key, None)
            return
        held = {split.split_id: position(split) for split in _held(runner.subtask)}
        pending = assigner.pending_ids
        if below is None:
            there = self.driver.sources[vertex].content.rows_at(int(self.driver.world.chance.now_ms))
            ends = there if self.driver.sources[vertex].endless else None
            self._below[key] = _Below(level_us, {**dict.fromkeys(pending), **dict.fromkeys(held, ends)})
            return
        unread = any(
            split in pending or (split in held and (end is None or held[split] < end))
            for split, end in below.unread.items()
        )
        # A simulated step changes the subtask at once. Its thread handles no message before the step's time is over.
        busy = self.driver.world.chance.now_ms < runner.actor.busy_until_ms
        # With many slots a reader reports more often than it handles messages.
        under_way = bool(slot._from_driver or len(runner.subtask.inbox))
        if unread or busy or under_way or assigner._is_stocked() or _is_held_up(runner.subtask):
            below.reports = 0
            return
        below.reports += 1
        if below.reports > PATIENCE:
            raise SimulationFailure(
                f"v{vertex}[{progress.index}] stays at {us} although it has read the input of level {below.level_us}",
                "watermark",
            )


def _held(subtask: Subtask) -> tuple[Split, ...]:
    assert subtask._feed is not None
    return subtask._feed._unfinished


def _is_held_up(subtask: Subtask) -> bool:
    """Return True if its rows wait for room in an output or for a function."""
    return not subtask.outputs.has_room or subtask._chain.holds_rows or not subtask._settled
