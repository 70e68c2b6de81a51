"""One simulated run: the seed decides everything, and the oracles watch.

Each turn one actor acts: a subtask takes a step, a message arrives, a file is written, a driver runs a command, or time
passes. At the steps that the settings name a fault occurs. The run ends when every sink holds exactly the reference
output (and, for a bounded job, the query has ended) and no actor can act any more. Then one of its snapshots is
restored from a copy of the location and run to the end, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.testing.failure import SimulationFailure
from simulator.cluster.driver import SimulatedDriver
from simulator.cluster.snapshot_commands import SimulatedCommand
from simulator.counters import Counters, count_snapshot
from simulator.engine.run_context import RunContext
from simulator.engine.scheduler import Actor
from simulator.engine.store import SimulatedStore
from simulator.engine.world import World
from simulator.faults import Faults
from simulator.jobs.external_systems import ExternalSystems
from simulator.jobs.graph import build_job
from simulator.jobs.reference import expected_output
from simulator.oracles.cold_restore import Cut, run_cold
from simulator.oracles.end_of_query import check_end
from simulator.oracles.splits import check_splits
from simulator.settings import Settings

MAX_STEPS = 60_000
RELIEF_STEPS = 4_000
"""A schedule that is not through by then may be one that never gets through: with checkpoints that always time out."""
MIN_CHECKPOINTS = 3
LATE_FAULT_GAP = 60
"""Faults that were not reached when all output is there come so many steps apart."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a run that passed. ``digest`` is equal for equal runs."""

    seed: int
    digest: str
    counters: Counters


class Simulation:
    """One run of one seed.

    Args:
        seed: decides the interleaving.
        settings: the job and its faults; None: those of the seed.

    Attributes:
        context: virtual clock, random generator and trace.
    """

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings.random(seed)
        self.context = RunContext(seed)
        self.counters = Counters()
        expected = expected_output(self.settings)
        self.external = ExternalSystems(dict.fromkeys(expected) if self.settings.cut_short else expected)
        self.world = World(self.settings, self.context, self.counters, SimulatedStore(), self.external)
        self.world.graph = build_job(
            self.settings, self.external, self.world, self.world.commits, lambda: self.context.now_ms
        )
        self.world.log.on_complete = self._snapshot_complete
        self.world.on_query_ended = self._query_ended
        self._drivers: list[SimulatedDriver] = []
        self._driver_number = 0
        self._ended = False
        self._draining = False
        self._cut: Cut | None = None
        self._cuts = 0
        self._commands = 0
        self._actor_driver = Actor("a driver starts", self._driver_starts)
        self.faults = Faults(self.world, self._drivers, self._start_driver)
        self.world.interference = self.faults

    def run(self) -> Outcome:
        """Run to the end.

        Raises:
            SimulationFailure: an oracle found an error, or the end is never reached.
            Exception: what a machine raised, for example ``ProtocolViolation``.
        """
        self.counters.count("runs")
        self.counters.count("rows", self.settings.rows)
        self._main()
        self._settle()
        if not self.settings.cut_short and not self.external.complete:
            raise SimulationFailure(f"rows are missing: {self._missing()}", "output")
        self.counters.count("commits made again", self.external.recommits)
        if self.settings.cold and self._cut is not None:
            run_cold(self.settings, self.context, self.counters, self._cut)
        self.counters.count("steps", self.context.steps)
        return Outcome(self.seed, self.context.digest, self.counters)

    def _main(self) -> None:
        planned: list[tuple[int, str, str]] = [(fault.step, "fault", fault.kind) for fault in self.settings.faults]
        planned += [(snapshot.step, "snapshot", snapshot.alignment) for snapshot in self.settings.snapshots]
        planned += [(command.step, "command", command.kind) for command in self.settings.commands]
        planned += [] if self.settings.drain is None else [(self.settings.drain, "drain", "")]
        ahead = deque(sorted(planned))
        scheduler, context = self.world.scheduler, self.context
        next_step = 0
        relief = RELIEF_STEPS
        while True:
            if not self._drivers and not self._ended:
                scheduler.ready(self._actor_driver)
            done = self._ended or (self._all_visible and any(driver.sound for driver in self._drivers))
            rested = done and (context.steps >= next_step or not scheduler.can_act)
            if ahead and (context.steps >= ahead[0][0] or rested):
                _, what, kind = ahead.popleft()
                next_step = context.steps + LATE_FAULT_GAP
                self._ended = False
                self._plan(what, kind)
                continue
            if rested:
                return
            if context.steps > relief:
                relief += RELIEF_STEPS
                for driver in list(self._drivers):
                    driver.relax()
            if context.steps > MAX_STEPS:
                raise SimulationFailure(f"no end after {MAX_STEPS} steps; missing: {self._missing()}", "progress")
            scheduler.turn()

    @property
    def _all_visible(self) -> bool:
        """True if a job without an end has made all its output visible and has completed some checkpoints."""
        return not self.settings.ends and self._cuts >= MIN_CHECKPOINTS and self.external.complete

    def _plan(self, what: str, kind: str) -> None:
        if what == "fault":
            self.faults.fire(kind)
        elif what == "drain":
            self._draining = True
            for driver in list(self._drivers):
                driver.drain()
        elif what == "command" and kind not in ("stop", "drained stop", "declined drain"):
            self._commands += 1
            SimulatedCommand(kind, self._commands, self.world)
        elif self._drivers and what == "command":
            self._drivers[-1].stop_with_snapshot(drain=kind != "stop", declined=kind == "declined drain")
        elif self._drivers:
            self._drivers[-1].request_snapshot(Alignment(kind))

    def _settle(self) -> None:
        """Deliver everything in transit without faults and new checkpoints, then check credit and captures."""
        self.faults.stop()
        self.world.quiet = True
        scheduler = self.world.scheduler
        scheduler.end(self._actor_driver)
        for driver in list(self._drivers) if self.settings.endless else ():
            driver.die()  # fenced, without knowing it: its readers would look for more for ever
        limit = self.context.steps + MAX_STEPS
        while scheduler.can_act:
            if self.context.steps > limit:
                raise SimulationFailure("it never comes to rest", "progress")
            scheduler.turn()
        for driver in self._drivers:
            if driver.current is not None:
                driver.current.check_credit()
                driver.current.count_turns()

    # -- drivers --------------------------------------------------------------------------------------------------

    def _driver_starts(self) -> bool:
        self._start_driver()
        return False

    def _start_driver(self) -> SimulatedDriver:
        self._driver_number += 1
        driver = SimulatedDriver(f"d{self._driver_number}", self.world)
        driver.on_death = self._drivers.remove
        self._drivers.append(driver)
        if self._draining:
            driver.drain()
        return driver

    def _query_ended(self, driver: SimulatedDriver) -> None:
        if self.settings.cut_short:
            check_end(self.world, driver)
        elif not self.external.complete:
            raise SimulationFailure(f"the query has ended without {self._missing()}", "output")
        self._ended = True

    # -- snapshots ------------------------------------------------------------------------------------------------

    def _snapshot_complete(self, metadata: SnapshotMetadata) -> None:
        """Check and count a snapshot that has just become complete."""
        self.world.former_subtasks.completed(metadata)
        check_splits(self.settings, metadata, self.world.former_subtasks.of(metadata))
        count_snapshot(self.counters, metadata)
        self.faults.completed(metadata)
        self._cuts += 1
        if self.settings.cold and self.context.random.random() < 1 / self._cuts:
            self._cut = Cut(
                self.world.untouched_files(), self.external.copy(), self.world.log, self.world.former_subtasks
            )

    def _missing(self) -> list[tuple[int, int, int]]:
        return [row for table in self.external.tables.values() for row in table.some_missing()]
