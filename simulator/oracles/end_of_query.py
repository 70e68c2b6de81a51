"""Oracle for a query that was ended from outside: it has read what it had to, and its output follows from that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.model.manifest import SnapshotMetadata
from penstock.testing.failure import SimulationFailure
from simulator.jobs.reference import Expected, expected_output
from simulator.oracles.former_subtasks import FormerCounts
from simulator.oracles.splits import emitted_rows

if TYPE_CHECKING:
    from simulator.cluster.driver import SimulatedDriver
    from simulator.engine.world import World
    from simulator.settings import Settings


def check_end(world: World, driver: SimulatedDriver) -> None:
    """The query of this driver has ended, or was over already when it came.

    Raises:
        SimulationFailure: something is missing, or there that should not be.
    """
    metadata = world.log.newest
    if metadata is None:
        raise SimulationFailure("a query has ended without a snapshot", "ends")
    if driver.job.is_draining != metadata.drained and driver.current is not None:
        raise SimulationFailure(f"{metadata.id} is drained: {metadata.drained}; its driver says otherwise", "ends")
    world.counters.count("queries drained", metadata.drained)
    for vertex in driver.sources:
        _check_read(world, driver, metadata, vertex)
    world.external.judge(expected_at(world.settings, metadata, world.former_subtasks.of(metadata)))


def expected_at(settings: Settings, metadata: SnapshotMetadata, past: FormerCounts) -> dict[int, Expected]:
    """Return the expected output of a query that has ended with this snapshot."""
    read = {source.vertex: emitted_rows(metadata, source.vertex, past) for source in metadata.sources}
    return expected_output(settings, read, all(source.drained for source in metadata.sources))


def _check_read(world: World, driver: SimulatedDriver, metadata: SnapshotMetadata, vertex: int) -> None:
    """All that was there when it was frozen, and nothing that came after it ended."""
    source, read = driver.sources[vertex], emitted_rows(metadata, vertex, world.former_subtasks.of(metadata))
    if world.settings.until_available and source.frozen is None and not metadata.drained:
        raise SimulationFailure(f"source {vertex} was not frozen in a run until all is read", "ends")
    content = source.content
    if source.endless:
        least = 0 if driver.frozen_ms is None else content.rows_at(int(driver.frozen_ms))  # readers know whole ones
        most = content.rows_at(world.context.now_ms)
    else:
        most = content.rows_per_split * (
            content.splits_at(world.context.now_ms) if source.frozen is None else source.frozen
        )
        least = 0 if source.frozen is None else most
    if any(one.drained for one in metadata.sources):
        least = 0  # what came after a drain that another driver had begun stays unread
    if not least <= read <= most:
        raise SimulationFailure(f"source {vertex} has read {read} rows, not {least} to {most}", "ends")
