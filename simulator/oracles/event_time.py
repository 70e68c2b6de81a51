"""Oracles of event time.

Liveness: a reader reaches a level after it has read the input that existed at that time, and rises as soon as it has
passed its frontier. Safety: a reader that may rise to a level gets no split that existed before, and a source is idle
only when its readers hold no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.coordinator.commands import JobEvent
from penstock.coordinator.machines.splits import SplitsFound
from penstock.model.messages import AdvanceWatermark, AssignSplits, FromSlot, ReaderProgressed, ReaderStatus
from penstock.model.splits import Split
from penstock.testing.failure import SimulationFailure
from simulator.jobs.sources import number_of, position

if TYPE_CHECKING:
    from penstock.worker.subtask import Subtask
    from simulator.cluster.driver import SimulatedDriver
    from simulator.cluster.slot import SimulatedSlot

PATIENCE = 5
"""Reports after which a reader must have reached the level: two until it is seen to be still, one each for a discovery,
messages and the rise."""


@dataclass
class _BelowLevel:
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
class _MayRise:
    """A reader that may rise.

    Attributes:
        level_us: to this level.
        unread: the input that was there after it had received the message, as in ``_BelowLevel``; None: not known yet.
    """

    level_us: int
    unread: dict[str, int | None] | None = None


@dataclass
class _Discoveries:
    """Discoveries of one source.

    Attributes:
        began: when each began, as a number of events of the watch.
        found_by: number of the discovery that found each split.
    """

    began: list[int] = field(default_factory=list)
    found_by: dict[str, int] = field(default_factory=dict)


@dataclass
class EventTimeWatch:
    """Check of event time for one generation of a driver."""

    driver: SimulatedDriver
    _events: int = 0
    _levels: dict[int, int] = field(default_factory=dict)
    _noted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _below: dict[tuple[int, int], _BelowLevel] = field(default_factory=dict)
    _rises: dict[tuple[int, int], _MayRise] = field(default_factory=dict)
    _may_rise: dict[tuple[int, int], int] = field(default_factory=dict)
    _discoveries: dict[int, _Discoveries] = field(default_factory=dict)

    # -- events and commands of the driver ----------------------------------------------------------------------------

    def fed(self, event: JobEvent) -> None:
        """Note an event before the driver handles it: a level is reached, or a discovery ends."""
        self._events += 1
        match event:
            case FromSlot(_, ReaderProgressed(vertex=vertex, watermark_us=reached_us)):
                self._reached(vertex, reached_us)
            case FromSlot(_, ReaderStatus(vertex=vertex, seen_us=reached_us)):
                self._reached(vertex, reached_us)
            case SplitsFound(generation, vertex, discovery) if generation == self.driver.job.generation:
                discoveries = self._discoveries_of(vertex)
                discoveries.found_by |= {split.split_id: len(discoveries.began) - 1 for split in discovery.splits}
            case _:
                pass

    def discovery_begins(self, vertex: int) -> None:
        """Note that a discovery begins."""
        self._discoveries_of(vertex).began.append(self._events)

    def commanded(self, command: AssignSplits | AdvanceWatermark) -> None:
        """Check a command to a reader.

        Raises:
            SimulationFailure: a reader that may have risen to a level gets a split that was there before.
        """
        key = command.vertex, command.index
        if isinstance(command, AdvanceWatermark):
            self._may_rise[key] = command.watermark_us
            rise = self._rises.get(key)
            if rise is None:
                self._rises[key] = _MayRise(command.watermark_us)
            return
        level_us = self._may_rise.get(key)
        if level_us is None:
            return
        group = self._group(command.vertex)
        noted = next(at for at, us in self._noted[group] if us >= level_us)
        discoveries = self._discoveries_of(command.vertex)
        first = next(
            (number for number, began in enumerate(discoveries.began) if began >= noted), len(discoveries.began)
        )
        for split in command.splits:
            if discoveries.found_by.get(split.split_id, -1) <= first:
                raise SimulationFailure(
                    f"v{key[0]}[{key[1]}] may rise to {level_us}, and gets {split.split_id}, which was there before",
                    "watermark",
                )

    def reported_idle(self, vertex: int) -> None:
        """Check that a source that is reported idle is idle.

        Raises:
            SimulationFailure: a reader has rows to read, or its functions hold some.
        """
        generation = self.driver.current
        if generation is None or self.driver.sources[vertex].endless:  # new rows of endless splits may have come since
            return
        for slot in generation.slots:
            runner = slot.runners.get(vertex)
            if not slot.alive or runner is None:
                continue
            chain = runner.subtask._chain  # while it carries event time through, ``holds_rows`` says so as well
            if (chain.holds_rows and not chain.advancing) or _held(runner.subtask):
                raise SimulationFailure(f"v{vertex} is idle, but v{vertex}[{slot.index}] holds rows", "watermark")

    def _reached(self, vertex: int, us: int | None) -> None:
        group = self._group(vertex)
        noted = self._noted.setdefault(group, [])
        if us is not None and (not noted or us > noted[-1][1]):
            noted.append((self._events, us))

    def _discoveries_of(self, vertex: int) -> _Discoveries:
        return self._discoveries.setdefault(vertex, _Discoveries())

    def _group(self, vertex: int) -> int:
        """Return the group of a source: sources with one clock have one."""
        return -1 if self.driver.world.settings.clock else vertex

    # -- reports of readers -------------------------------------------------------------------------------------------

    def reported(self, progress: ReaderProgressed) -> None:
        """Check a reader's report of its event time.

        Raises:
            SimulationFailure: the reader has read the input that was there when another reader reached a higher level,
                but does not reach it; or it has passed its frontier, but does not rise.
        """
        vertex, us = progress.vertex, progress.watermark_us
        group = self._group(vertex)
        if us is not None:
            self._levels[group] = max(us, self._levels.get(group, us))
        generation, level_us = self.driver.current, self._levels.get(group)
        if generation is None or level_us is None:
            return
        assigner = next(one for one in self.driver.job.assigners if one.vertex == vertex)
        slot = generation.slots[progress.index]
        runner = slot.runners.get(vertex)
        key = vertex, progress.index
        # A dead slot has closed its subtasks; what it had sent before still comes.
        if runner is None or assigner.finished or not slot.alive:
            self._below.pop(key, None)
            self._rises.pop(key, None)
            return
        self._check_rise(key, slot, runner.subtask)
        below = self._below.get(key)
        if us is not None and us >= (below.level_us if below else level_us):
            self._below.pop(key, None)
            return
        if below is None:
            pending: dict[str, int | None] = dict.fromkeys(assigner.pending_ids)
            self._below[key] = _BelowLevel(level_us, {**pending, **self._unread_splits(vertex, runner.subtask)})
            return
        # A simulated step changes the subtask at once. Its thread handles no message before the step's time is over.
        busy = self.driver.world.context.now_ms < runner.actor.busy_until_ms
        # With many slots a reader reports more often than it handles messages.
        has_pending_rows = _has_messages(slot, runner.subtask)
        unread = _is_unread(below.unread, runner.subtask, assigner.pending_ids)
        if (
            unread
            or busy
            or has_pending_rows
            or assigner._has_enough_pending()
            or assigner.paused
            or _is_held_up(runner.subtask)
        ):
            below.reports = 0
            return
        below.reports += 1
        if below.reports > PATIENCE:
            raise SimulationFailure(
                f"v{vertex}[{progress.index}] stays at {us} although it has read the input of level {below.level_us}",
                "watermark",
            )

    def _check_rise(self, key: tuple[int, int], slot: SimulatedSlot, subtask: Subtask) -> None:
        """Check that a reader that may rise has done so after the input that was there at that time. Later messages and
        later rows change nothing."""
        rise = self._rises.get(key)
        if rise is None:
            return
        us = subtask._chain.generated_watermark()
        if us is not None and us >= rise.level_us:
            del self._rises[key]
            return
        if rise.unread is None:
            source_task = subtask._source_task
            assert source_task is not None
            waits = source_task._next_rise_us is not None or getattr(source_task._reader, "frontier_begins", False)
            if not (waits or _has_messages(slot, subtask)):
                rise.unread = self._unread_splits(key[0], subtask)
        elif not (_is_unread(rise.unread, subtask, ()) or _is_held_up(subtask)):
            raise SimulationFailure(
                f"v{key[0]}[{key[1]}] may rise to {rise.level_us} and stays at {us}, past its frontier",
                "watermark",
            )

    def _unread_splits(self, vertex: int, subtask: Subtask) -> dict[str, int | None]:
        """Return the splits of a reader as in ``_BelowLevel.unread``."""
        source = self.driver.sources[vertex]
        now_ms = int(self.driver.world.context.now_ms)
        return {
            split.split_id: source.content.partition_at(number_of(split), now_ms) if source.endless else None
            for split in _held(subtask)
        }


def _held(subtask: Subtask) -> tuple[Split, ...]:
    assert subtask._source_task is not None
    return subtask._source_task._unfinished


def _is_unread(readable: dict[str, int | None], subtask: Subtask, pending: set[str] | tuple[()]) -> bool:
    held = {split.split_id: position(split) for split in _held(subtask)}
    return any(
        split in pending or (split in held and (end is None or held[split] < end)) for split, end in readable.items()
    )


def _has_messages(slot: SimulatedSlot, subtask: Subtask) -> bool:
    return bool(slot._from_driver or len(subtask.inbox))


def _is_held_up(subtask: Subtask) -> bool:
    """Return True if it is paused, or its rows wait for room in an output or for a function."""
    paused = subtask._source_task is not None and subtask._source_task._paused
    return paused or not subtask.outputs.has_room or subtask._chain.holds_rows or not subtask._chain.is_settled
