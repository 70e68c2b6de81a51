"""Event time is not stuck: a reader that has read what was there when others had reached a level comes to it."""

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
"""Reports of a reader until it has to be at the level: two until it is seen to stand still, a look, messages, and the
rise."""


@dataclass
class _Below:
    """A reader that is below a level. ``unread``: what was there then: rows by split that is held, splits not handed
    out without a number. ``reports``: how many it has made since it has read that."""

    level_us: int
    unread: dict[str, int | None]
    reports: int = 0


@dataclass
class EventTimeWatch:
    """Of one generation of a driver."""

    driver: SimulatedDriver
    _levels: dict[int, int] = field(default_factory=dict)
    _below: dict[tuple[int, int], _Below] = field(default_factory=dict)

    def reported(self, vertex: int, progress: sp.Progressed) -> None:
        """A reader says how far its event time is.

        Raises:
            SimulationFailure: it has read what was there when another one reached more, and stays where it is.
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
        # A simulated step changes the subtask at once, but its thread hears nothing before the step's time has passed.
        busy = self.driver.world.chance.now_ms < runner.actor.busy_until_ms
        # With many slots a reader reports more often than messages get to their turn.
        under_way = bool(slot._from_driver or len(runner.subtask.inbox))
        if unread or busy or under_way or assigner._is_stocked() or _is_held_up(runner.subtask):
            below.reports = 0
            return
        below.reports += 1
        if below.reports > PATIENCE:
            raise SimulationFailure(
                f"v{vertex}[{progress.index}] stays at {us} and has read what was there at {below.level_us}",
                "watermark",
            )


def _held(subtask: Subtask) -> tuple[Split, ...]:
    assert subtask._feed is not None
    return subtask._feed._unfinished


def _is_held_up(subtask: Subtask) -> bool:
    """Its rows wait for room, or for a function."""
    return not subtask.outputs.has_room or subtask._chain.holds_rows or not subtask._settled
