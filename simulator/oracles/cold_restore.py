"""A snapshot restored cold: a fresh driver on a copy of the location, as it was when the snapshot began to exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from penstock.coordinator.machines.job import unread_splits
from penstock.model.elements import Alignment
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.catalog import plan_restore
from penstock.snapshots.restoring.narrowing import load_consumer_rows
from penstock.snapshots.restoring.restore import load_restore
from penstock.state.table import StoredRows
from penstock.testing.failure import SimulationFailure
from simulator.cluster.driver import SimulatedDriver
from simulator.counters import Counters
from simulator.engine.run_context import RunContext
from simulator.engine.store import SimulatedStore
from simulator.engine.world import World
from simulator.jobs.count_table import merged
from simulator.jobs.external_systems import ExternalSystems
from simulator.jobs.graph import build_job
from simulator.jobs.operators import KEY_COUNTS
from simulator.jobs.reference import expected_output
from simulator.jobs.rows import state_rows
from simulator.jobs.topology import Edit, editable
from simulator.oracles.end_of_query import check_end
from simulator.oracles.former_subtasks import FormerSubtasks
from simulator.oracles.log import LogWatch
from simulator.settings import Settings

MAX_STEPS = 20_000
RESCALE_CHANCE = 0.6
PARALLELISMS = (1, 2, 3, 4, 6)
ECHO_CHANCE = 0.4
"""How often the snapshot is first restored, taken anew before anything is processed, and compared."""


class Cut:
    """Everything outside of the query's processes at one moment. ``metadata``: that of the newest snapshot."""

    def __init__(
        self, files: dict[str, bytes], external: ExternalSystems, log: LogWatch, former_subtasks: FormerSubtasks
    ) -> None:
        self.metadata = log.complete[log.lineage[-1]]
        self.files = files
        self.external = external
        self.former_subtasks = former_subtasks.copy()
        self.log = LogWatch(SimulatedStore(), Counters())
        log.copy_to(self.log)


def run_cold(settings: Settings, context: RunContext, counters: Counters, cut: Cut) -> None:
    """Restore the snapshot and run to the end, without faults and quickly: the same output.

    Raises:
        SimulationFailure: it is not the same.
    """
    quick = msgspec.structs.replace(
        settings,
        nodes=tuple(msgspec.structs.replace(node, cost_ms=0.0) for node in settings.nodes),
        exclusive_window=1 << 20,
        memory_per_gate=32 << 20,
        max_inflight_bytes=None,
        capture_memory=512 << 20,
        inflight_target_ms=None,
        tolerable_failures=None,
        timeout_ms=60_000,
        interval_ms=200,
        faults=(),
        snapshots=(),
        until_available=False,
        drain=None,
        arrival_ms=0,
        parallelisms=_parallelisms(settings, context),
        edit=None,
    )
    context.note(f"cold: {cut.metadata.id}")
    counters.count("restored cold")
    counters.count("restored cold at another parallelism", quick.parallelisms not in ((), (cut.metadata.parallelism,)))
    counters.count("restored cold: a drain to be carried through", any(s.drained for s in cut.metadata.sources))
    counters.count("restored cold behind a run that was cut short", settings.cut_short)
    entries = (entry for slot in cut.metadata.slots for subtask in slot.subtasks for entry in subtask.inflight)
    counters.count("restored cold with several layers", len({entry.layer for entry in entries}) > 1)
    cold = _Cold(quick, context, cut)
    if context.random.random() < ECHO_CHANCE and not cut.log.drained:
        counters.count("snapshots compared")
        cold.echo(cut.metadata)
    cold.run(settings.edit, counters)


def _parallelisms(settings: Settings, context: RunContext) -> tuple[int, ...]:
    """A snapshot restores at every parallelism."""
    if settings.cold_parallelism is not None:
        return (settings.cold_parallelism,)
    anew = settings.may_rescale and context.random.random() < RESCALE_CHANCE
    return (context.random.choice(PARALLELISMS),) if anew else settings.parallelisms


class _Cold:
    def __init__(self, settings: Settings, context: RunContext, cut: Cut) -> None:
        store = SimulatedStore()
        store.files = dict(cut.files)
        self._drained = any(source.drained for source in cut.metadata.sources)
        expected = expected_output(settings)
        self._outside = cut.external.copy(dict.fromkeys(expected) if self._drained else expected)
        self._world = World(settings, context, Counters(), store, self._outside)
        cut.log.copy_to(self._world.log)
        self._world.former_subtasks = cut.former_subtasks
        self._world.log.on_complete = self._world.former_subtasks.completed
        self._context = context
        self._world.graph = self._job()

    def _job(self, edit: Edit | None = None) -> JobGraph:
        world = self._world
        return build_job(world.settings, self._outside, world, world.commits, lambda: self._context.now_ms, edit)

    def run(self, edit: Edit | None, counters: Counters) -> None:
        """Run to the end, without the trigger that cut the former run short, but through a drain that had begun.

        ``edit``: an edited job continues from the snapshot.
        """
        ended = False

        def end(driver: SimulatedDriver) -> None:
            nonlocal ended
            ended = True
            if self._drained:
                check_end(self._world, driver)

        self._world.on_query_ended = end
        if edit is None or self._drained or not editable(self._world.settings.nodes):
            SimulatedDriver("cold", self._world)
        else:
            self._begin_edited(edit, counters)
        ends = self._drained or self._world.settings.ends
        self._turns(lambda: ended if ends else self._outside.complete)
        if not self._drained and not self._outside.complete:
            raise SimulationFailure(f"the cold run ended without {self._missing()}", "restore")

    def _begin_edited(self, edit: Edit, counters: Counters) -> None:
        """Start the edited job; if it is refused for its rows in flight, after a drain of the old one."""
        world, old = self._world, self._world.graph
        newest = world.log.newest
        assert newest is not None
        in_flight: Counter[int] = Counter()
        for entry in (entry for slot in newest.slots for subtask in slot.subtasks for entry in subtask.inflight):
            in_flight[entry.edge] += entry.rows
        nodes = world.settings.nodes
        inlets = [(position, number) for position, node in enumerate(nodes) for number in range(len(node.inlets))]
        edge = max((inlets.index(inlet) for inlet in editable(nodes)), key=lambda edge: in_flight[edge])
        rows = in_flight[edge]
        new = self._job(msgspec.structs.replace(edit, inlet=inlets[edge]))
        counters.count("edited jobs", new.edges != old.edges)
        world.graph, world.edited = new, edge
        if self._starts("edited"):
            counters.count("edited jobs that started with rows in flight on the edge", rows > 0)
            return
        if not rows:
            raise SimulationFailure(f"{edit} is refused, and nothing of {newest.id} is in flight there", "restore")
        counters.count("edited jobs that were refused before a drain")
        world.graph, world.edited = old, None
        driver = SimulatedDriver("drain", world)
        driver.stop_with_snapshot(drain=True)
        self._turns(lambda: not driver.alive)
        world.graph, world.edited = new, edge
        if not self._starts("edited again"):
            raise SimulationFailure(f"{edit} is refused after a drain", "restore")

    def _starts(self, name: str) -> bool:
        """Start a driver; return False if it refuses the snapshot."""
        driver = SimulatedDriver(name, self._world)
        self._turns(lambda: driver.current is not None or not driver.alive)
        return driver.alive

    def echo(self, first: SnapshotMetadata) -> None:
        """Restore it, take a snapshot before anything is processed: its content is the same."""
        complete: list[SnapshotMetadata] = []

        def completes(metadata: SnapshotMetadata) -> None:
            complete.append(metadata)
            self._world.former_subtasks.completed(metadata)

        self._world.log.on_complete = completes
        driver = SimulatedDriver("echo", self._world, checkpoints=False, takes_input=False)
        self._turns(lambda: driver.current is not None and all(slot.running for slot in driver.current.slots))
        driver.request_snapshot(Alignment.UNALIGNED, None)
        self._turns(lambda: bool(complete))
        self._world.log.on_complete = self._world.former_subtasks.completed
        rescaled = first.parallelism != driver.job.graph.parallelism
        before, after = (self._content(one, driver.job.graph, rescaled) for one in (first, complete[0]))
        for name in before:
            if before[name] != after.get(name):
                raise SimulationFailure(
                    f"{first.id} restored and taken again as {complete[0].id} differs in {name}:"
                    f" {str(before[name])[:300]} became {str(after.get(name))[:300]}",
                    "restore",
                )
        if set(after) != set(before):
            raise SimulationFailure(f"{complete[0].id} has {sorted(set(after) - set(before))} besides", "restore")
        driver.die()

    def _turns(self, done: Callable[[], bool]) -> None:
        limit = self._context.steps + MAX_STEPS
        while not done():
            if self._context.steps > limit:
                raise SimulationFailure(f"the cold run has no end; missing: {self._missing()}", "restore")
            self._world.scheduler.turn()

    def _missing(self) -> list[tuple[int, int, int]]:
        return [row for table in self._outside.tables.values() for row in table.some_missing()]

    def _content(self, metadata: SnapshotMetadata, graph: JobGraph, rescaled: bool) -> dict[str, object]:
        """Return the content of a snapshot, independent of its files and its parallelism.

        Counts of what subtasks emitted and received are left out: new subtasks start at zero. A restored reader of
        several splits holds its watermark; a reader that got these splits while it ran may not have held it.
        """
        content: dict[str, object] = {f"source {s.vertex}": (s.state, s.drained) for s in metadata.sources}
        for source in metadata.sources:  # a split may have been handed out meanwhile
            unread = [*source.pending, *unread_splits(metadata, source.vertex)]
            content[f"source {source.vertex} unread"] = sorted(unread, key=lambda split: split.split_id)
        store = self._world.store
        for slot in plan_restore(metadata, graph, self._world.log.view.committed_epoch):
            for manifest in slot:
                restore = load_restore(manifest, store)
                name = f"v{manifest.vertex}[{manifest.index}]"
                for operator_id, state in restore.operators.items():
                    tables = {table: found for table, pieces in state.tables.items() if (found := _rows(table, pieces))}
                    scalars = {} if rescaled else dict(state.scalars)
                    if "held" in scalars and len(restore.splits) > 1:
                        scalars["held"] = True
                    content[f"{name} {operator_id}"] = tables, scalars
                content[f"{name} watermarks"] = dict(restore.channel_watermarks)
                content[f"{name} rows in"] = restore.rows_in
                for entry in restore.inflight:
                    for batch in load_consumer_rows(store, entry, graph).batches:
                        rows: Any = content.setdefault(f"{name} in flight on {entry.edge}:{entry.producer}", [])
                        rows += batch.to_pylist()
        return content


def _rows(table: str, pieces: Iterable[StoredRows]) -> list[tuple[int, ...]]:
    """All rows of a table, in an order of their own."""
    if table in KEY_COUNTS:
        return sorted(merged(pieces, KEY_COUNTS[table]))
    return sorted(state_rows(piece.batch for piece in pieces))
