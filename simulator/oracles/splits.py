"""Every split has exactly one owner: what is found, handed out, held and read adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.coordinator.commands import GenerationReady
from penstock.coordinator.machines.job import unread_splits
from penstock.model.manifest import SnapshotMetadata
from penstock.model.messages import AdvanceWatermark, AssignSplits
from penstock.testing.failure import SimulationFailure
from simulator.jobs.sources import position
from simulator.oracles.former_subtasks import FormerCounts

if TYPE_CHECKING:
    from simulator.engine.world import World
    from simulator.settings import Settings


class SplitWatch:
    """Check of one driver: the splits that each reader of the current Generation was given."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owners: dict[tuple[int, str], int] = {}

    def opened(self, ready: GenerationReady) -> None:
        self._owners = {
            (subtask.vertex, split.split_id): subtask.index
            for slot in ready.slots
            for subtask in slot
            for split in subtask.splits
        }

    def commanded(self, command: AssignSplits | AdvanceWatermark) -> None:
        if isinstance(command, AdvanceWatermark):
            self._world.counters.count("readers told to rise")
            return
        for split in command.splits:
            owner = self._owners.setdefault((command.vertex, split.split_id), command.index)
            if owner != command.index:
                raise SimulationFailure(f"{split.split_id} is given to {command.index}, but {owner} has it", "splits")


def emitted_rows(metadata: SnapshotMetadata, vertex: int, past: FormerCounts) -> int:
    """Return the number of rows of a source that all its readers have read so far."""
    return past.with_snapshot(metadata).emitted_by(vertex)


def check_splits(settings: Settings, metadata: SnapshotMetadata, past: FormerCounts) -> None:
    """Check that in a snapshot every discovered split is pending, held by one reader, or read to its end.

    The number of rows that the readers had emitted must be equal to the rows of finished splits and those read of held
    ones.
    """
    for source in metadata.sources:
        node = settings.nodes[source.vertex]
        emitted = emitted_rows(metadata, source.vertex, past)
        held = unread_splits(metadata, source.vertex)
        ids = [split.split_id for split in (*source.pending, *held)]
        if len(set(ids)) < len(ids):
            raise SimulationFailure(f"{metadata.id}: splits with two owners: {ids}", "splits")
        found = source.state if isinstance(source.state, int) else 0
        begun = sum(position(split) for split in held)
        if settings.endless:
            if emitted != begun and not source.drained:
                raise SimulationFailure(f"{metadata.id}: {emitted} rows emitted, {begun} read of {ids}", "splits")
        elif emitted != (found - len(ids)) * node.rows_per_split + begun:
            raise SimulationFailure(
                f"{metadata.id}, source {source.vertex}: {emitted} rows emitted, {found} splits found, {len(ids)} of"
                f" them unread, {begun} rows read of those",
                "splits",
            )
