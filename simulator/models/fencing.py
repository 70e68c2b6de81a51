"""Model of copies of one location that write to the same outputs: real fences and logs, drivers that pause anywhere.

Each driver behaves as the process of its location: it takes the log over, opens the fences, logs snapshots and commits
their epochs. Every effect on a store is a step. The seed decides which driver takes the next step, which one dies or
sleeps, when a location is copied or restored, and when the user rolls one back. Each output may contain the epochs of
one history only: those that the user has accepted for this location, and its own epochs since.
"""

from __future__ import annotations

import random
import re

from penstock.snapshots.commands.ownership import ended_entry
from penstock.snapshots.commands.rolling_back import opened_entry
from penstock.snapshots.log.entries import LogView, Retraction, SnapshotRecord
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.testing.failure import SimulationFailure
from simulator.engine.coroutine import Coroutine, coroutine_of
from simulator.models.fencing_driver import PENDING, Driver, Input, Location
from simulator.models.fencing_outputs import Directory, Function, sink_of, target_of

STEPS = 600
DRIVERS = 9
"""So many are started in a schedule, one after the other."""
LONGEST_SLEEP = 90
"""Steps."""
OUTPUTS = (
    ("files",),
    ("files",),
    ("table",),
    ("table",),
    ("database",),
    ("database",),
    ("files", "function"),
    ("database", "function"),
    ("function", "table"),
    ("files", "database"),
    ("table", "files"),
)
WAYS_OUT = 6
"""Starts and rollbacks after which some copy must be able to go on."""
_OVER = re.compile(r"--over (\S+?)`")


class FencingSimulation:
    """One schedule.

    Args:
        seed: says everything.
        compacts: drivers remove covered entries of their logs.
    """

    def __init__(self, seed: int, *, compacts: bool = False) -> None:
        self.seed = seed
        self._compacts = compacts
        self._chance = random.Random(seed)
        self._kinds = self._chance.choice(OUTPUTS)
        self._targets = [target_of(kind, self._chance) for kind in self._kinds]
        self._source = Input(cleans=self._chance.random() < 0.3)
        self._is_hasty = self._chance.random() < 0.4
        self._rolls_back = self._is_hasty or self._chance.random() < 0.4
        self._locations = [Location()]
        self._running: list[tuple[Driver, Coroutine]] = []
        self._asleep: dict[int, int] = {}
        self._started = 0
        self.outcomes: dict[str, int] = {}

    def run(self) -> None:
        """Run the schedule.

        Raises:
            SimulationFailure: an output contains rows of two histories, or no location can continue.
        """
        for step in range(STEPS * DRIVERS):
            if self._started < DRIVERS and (not self._running or self._chance.random() < 0.02):
                self._start()
            awake = [one for one in self._running if self._asleep.get(id(one[0]), 0) <= step]
            if awake:
                self._act(step, self._chance.choice(awake))
            elif not self._running and self._started >= DRIVERS:
                break
        if all(location.before is None for location in self._locations):
            self._judge()  # else a rollback may be carried out in part
        self._go_on()
        self._judge()

    def _driver(self, location: Location, lazy: bool) -> Driver:
        sinks = [sink_of(kind, target) for kind, target in zip(self._kinds, self._targets, strict=True)]
        shown = [lambda target=target: target.shown for target in self._targets]
        self._started += 1
        return Driver(self._started, location, sinks, shown, self._source, self._chance, lazy, self._compacts)

    def _start(self) -> None:
        """Usually where one ran before; now and then at a copy, made now or long ago."""
        if self._chance.random() < 0.4:
            self._locations.append(self._chance.choice(self._locations).copied())
        refused = (
            [location for location in self._locations if location.named_positions or location.too_new]
            if self._rolls_back
            else []
        )
        location = self._chance.choice(refused if refused and self._chance.random() < 0.6 else self._locations)
        if self._rolls_back and (location.named_positions or location.too_new or self._chance.random() < 0.15):
            self._roll_back(location)
        driver = self._driver(location, lazy=self._chance.random() < 0.3)
        self._running.append((driver, coroutine_of(driver.run)))

    def _act(self, step: int, one: tuple[Driver, Coroutine]) -> None:
        driver, coroutine = one
        chance = self._chance.random()
        if chance < (0.02 if self._is_hasty else 0.01):
            self._end(one, "killed")  # it never goes on
        elif chance < (0.15 if self._is_hasty else 0.05):
            self._asleep[id(driver)] = step + self._chance.randrange(LONGEST_SLEEP)
        elif coroutine.resume():
            self._end(one, driver.outcome)

    def _end(self, one: tuple[Driver, Coroutine], outcome: str) -> None:
        self._running.remove(one)
        self._note_refusal(one[0])
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _note_refusal(self, driver: Driver) -> None:
        driver.location.named_positions.update(_OVER.findall(driver.refusal))
        driver.location.too_new = driver.refusal == PENDING

    # -- the user -----------------------------------------------------------------------------------------------------

    def _roll_back(self, location: Location) -> None:
        """Run ``penstock snapshot rollback --force`` to a random snapshot of the lineage, over all positions that
        refused starts have named.
        """
        log = SnapshotLog(location.store, lambda: f"{self._chance.getrandbits(128):032x}")
        view = log.refresh()
        if not view.lineage:
            return
        record, before = self._chosen(view, location.too_new), location.copied()
        retracts = all(kind in ("files", "table") for kind in self._kinds) and self._chance.random() < 0.7
        retraction = Retraction(record.checkpoint, view.next_checkpoint, {}) if retracts else None
        log.append(opened_entry(view, record, retraction, location.named_positions.union(view.over)))
        log.append(ended_entry(log.view))
        location.named_positions.clear()
        location.before, location.decided_by, location.rolled_back = location.before or before, log.view.owner, True
        self.outcomes["rolled back"] = self.outcomes.get("rolled back", 0) + 1

    def _chosen(self, view: LogView, too_new: bool) -> SnapshotRecord:
        """Often one whose epochs were all committed."""
        committed = [record for record in view.lineage if record.checkpoint <= view.committed_epoch]
        return self._chance.choice(committed if too_new and committed else [*committed[-1:], *view.lineage])

    def _go_on(self) -> None:
        """Check that the query can continue at one location if the user follows the error messages."""
        for target in self._targets:
            if isinstance(target, Directory):
                target.moves = 0
        for _ in range(WAYS_OUT):
            for location in self._locations:
                driver = self._driver(location, lazy=True)
                driver.run()
                self._note_refusal(driver)
                if driver.outcome == "ended":
                    self._driver(location, lazy=False).run()
                    return
            for location in self._locations if self._rolls_back else ():
                self._roll_back(location)
        raise SimulationFailure("no copy may write to the outputs any more", "progress")

    # -- the oracle ---------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        if not any(self._explains(location) for location in self._locations):
            shown = [target.shown for target in self._targets]
            histories = [[record.label for record in location.lineage] for location in self._locations]
            raise SimulationFailure(f"{shown} are the epochs of none of {histories}", "output")

    def _explains(self, location: Location) -> bool:
        """One location has all that is there, each once, in order and without a gap: the rows are one history's."""
        for number, target in enumerate(self._targets):
            if isinstance(target, Function) and location.rolled_back:
                continue  # a driver from before the rollback may be within the call, and the user said that rows stay
            before = location.before is not None and _has(location.before, number, target.shown)
            if not before and not _has(location, number, target.shown):
                return False
        everything = {record.label for record in location.lineage}
        return location.rolled_back or everything.issuperset(self._source.cleaned)


def _has(location: Location, output: int, shown: list[str]) -> bool:
    given = location.given.get(output, [])
    known = [record for record in location.lineage if record.note]
    own = [record.label for record in known if record.label in given or record.checkpoint > location.committed_then]
    last = max((at for at, name in enumerate(own) if name in given), default=-1)
    return shown[: len(given)] == given and shown[len(given) :] == own[last + 1 :][: len(shown) - len(given)]
