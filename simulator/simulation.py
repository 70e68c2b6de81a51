"""One simulated run: a seed decides everything, the oracles watch.

Each turn somebody who can act does - a subtask takes a step, a message arrives, a file is written, the driver works, or
time passes - and at the steps that the settings name something goes wrong. The run ends when every sink holds exactly
what one thread would have put there (and, of a bounded job, the query has ended) and everything has come to rest. Then
one of its snapshots is restored from a copy of the location and run to the end, too.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.testing.failure import SimulationFailure
from simulator.cluster.driver import SimulatedDriver
from simulator.cluster.snapshot_commands import SimulatedCommand
from simulator.engine.chance import Chance
from simulator.engine.scheduler import Actor
from simulator.engine.store import SimulatedStore
from simulator.engine.world import World
from simulator.faults import Faults
from simulator.jobs.external_systems import Outside
from simulator.jobs.graph import build_job
from simulator.jobs.reference import expected_output
from simulator.metrics import QueryMetrics, count_snapshot
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
    """A run that passed. ``digest`` is equal for equal runs."""

    seed: int
    digest: str
    figures: QueryMetrics


class Simulation:
    """One run of one seed.

    Args:
        seed: decides the interleaving.
        settings: the job and its faults; None: what the seed says.

    Attributes:
        chance: the clock, and the story for a reader.
    """

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings.random(seed)
        self.chance = Chance(seed)
        self.figures = QueryMetrics()
        expected = expected_output(self.settings)
        self.outside = Outside(dict.fromkeys(expected) if self.settings.cut_short else expected)
        self.world = World(self.settings, self.chance, self.figures, SimulatedStore(), self.outside)
        self.world.graph = build_job(
            self.settings, self.outside, self.world, self.world.commits, lambda: self.chance.now_ms
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
            SimulationFailure: something happened that must not, or the end is never reached.
            Exception: what a machine raised, for example ``ProtocolViolation``.
        """
        self.figures.count("runs")
        self.figures.count("rows", self.settings.rows)
        self._main()
        self._settle()
        if not self.settings.cut_short and not self.outside.complete:
            raise SimulationFailure(f"rows are missing: {self._missing()}", "output")
        self.figures.count("commits made again", self.outside.recommits)
        if self.settings.cold and self._cut is not None:
            run_cold(self.settings, self.chance, self.figures, self._cut)
        self.figures.count("steps", self.chance.steps)
        return Outcome(self.seed, self.chance.digest, self.figures)

    def _main(self) -> None:
        planned: list[tuple[int, str, str]] = [(fault.step, "fault", fault.kind) for fault in self.settings.faults]
        planned += [(snapshot.step, "snapshot", snapshot.alignment) for snapshot in self.settings.snapshots]
        planned += [(command.step, "command", command.kind) for command in self.settings.commands]
        planned += [] if self.settings.drain is None else [(self.settings.drain, "drain", "")]
        ahead = deque(sorted(planned))
        scheduler, chance = self.world.scheduler, self.chance
        next_step = 0
        relief = RELIEF_STEPS
        while True:
            if not self._drivers and not self._ended:
                scheduler.ready(self._actor_driver)
            done = self._ended or (self._all_visible and any(driver.sound for driver in self._drivers))
            rested = done and (chance.steps >= next_step or not scheduler.may_go_on)
            if ahead and (chance.steps >= ahead[0][0] or rested):
                _, what, kind = ahead.popleft()
                next_step = chance.steps + LATE_FAULT_GAP
                self._ended = False
                self._plan(what, kind)
                continue
            if rested:
                return
            if chance.steps > relief:
                relief += RELIEF_STEPS
                for driver in list(self._drivers):
                    driver.relax()
            if chance.steps > MAX_STEPS:
                raise SimulationFailure(f"no end after {MAX_STEPS} steps; missing: {self._missing()}", "progress")
            scheduler.turn()

    @property
    def _all_visible(self) -> bool:
        """A job without an end has put everything out, and has had some checkpoints to do it with."""
        return not self.settings.ends and self._cuts >= MIN_CHECKPOINTS and self.outside.complete

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
        """No faults, no new checkpoints: everything that is on its way arrives; then the ledgers must agree."""
        self.faults.stop()
        self.world.quiet = True
        scheduler = self.world.scheduler
        scheduler.end(self._actor_driver)
        for driver in list(self._drivers) if self.settings.endless else ():
            driver.die()  # fenced, without knowing it: its readers would look for more for ever
        limit = self.chance.steps + MAX_STEPS
        while scheduler.may_go_on:
            if self.chance.steps > limit:
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
        elif not self.outside.complete:
            raise SimulationFailure(f"the query has ended without {self._missing()}", "output")
        self._ended = True

    # -- snapshots ------------------------------------------------------------------------------------------------

    def _snapshot_complete(self, metadata: SnapshotMetadata) -> None:
        """It exists from this moment on."""
        self.world.books.completed(metadata)
        check_splits(self.settings, metadata, self.world.books.of(metadata))
        count_snapshot(self.figures, metadata)
        self.faults.completed(metadata)
        self._cuts += 1
        if self.settings.cold and self.chance.random.random() < 1 / self._cuts:
            self._cut = Cut(self.world.untouched_files(), self.outside.copy(), self.world.log, self.world.books)

    def _missing(self) -> list[tuple[int, int, int]]:
        return [row for table in self.outside.tables.values() for row in table.some_missing()]
