"""A model of one location whose log is compacted: the real log, drivers that pause anywhere, and readers.

Drivers of this release and of an earlier one take the location over from each other, append, act, summarize and remove.
Every effect on the store is a step, and the seed says whose step is next, which driver dies and which one sleeps.
Listings are not atomic. ``docs/log-compaction.md`` gives the rules that this checks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot, Fenced, LocationError
from penstock.model.commits import LogPosition
from penstock.snapshots.format.envelope import open_envelope
from penstock.snapshots.log.entries import (
    EMPTY_LOG,
    EpochCommitted,
    GenerationOpened,
    LogView,
    MetadataRef,
    SnapshotComplete,
    SnapshotDeleted,
    fold,
    with_writer,
)
from penstock.snapshots.log.snapshot_log import Body, SnapshotLog, entry_number, entry_path
from penstock.snapshots.store.store import MemoryStore
from penstock.testing.failure import SimulationFailure
from simulator.engine.coroutine import Coroutine, coroutine_of, suspend

STEPS = 8_000
DRIVERS = 8
"""So many are started in a schedule."""
SUMMARY_EVERY = 4
AT_ONCE = 5
"""Covered entries that a driver removes at once."""
LONGEST_SLEEP = 2_000
"""Steps."""
SLEEPINESS = (0.0, 0.0, 0.01, 0.2)
"""How often a driver or reader falls asleep at a critical step."""
UNDISTURBED = 60
"""Epochs after which a driver has removed what others have left."""
FILES = 3 + 3 * (SUMMARY_EVERY + 1)
"""Files of a log whose driver was not disturbed for a while; see ``docs/log-compaction.md``, Bounds."""


class SteppedStore(MemoryStore):
    """Store with the log of one location, and its history. Every call is a step; a listing takes several."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.parallel_calls = chance.choice((1, 3))
        self.bodies: list[Body] = []
        self.views = [EMPTY_LOG]
        self.strays: list[LogPosition] = []
        self.is_critical = False
        self._chance = chance

    def create_if_absent(self, path: str, data: bytes) -> bool:
        self._sleep_here()
        created = super().create_if_absent(path, data)
        if created:
            self._created(convert(open_envelope(data, path), Body))
        self._sleep_here()
        return created

    def list(self, folder: str, after: str = "") -> list[str]:
        """Like ``readdir``: entries that come or go meanwhile may be found or not."""
        suspend()
        later = entry_path(len(self.bodies))
        found: list[str] = []
        for is_later in self._chance.choice(((False, True), (True, False))):
            found += [name for name in self.files if after < name and (name > later) is is_later]
            self._sleep_here()
        return sorted(found)

    def read(self, path: str) -> bytes:
        suspend()
        return super().read(path)

    def size(self, path: str) -> int | None:
        suspend()
        return super().size(path)

    def delete(self, path: str) -> None:
        suspend()
        super().delete(path)
        self._check_files(entry_number(path))
        suspend()

    def _sleep_here(self) -> None:
        self.is_critical = True
        suspend()

    def _created(self, body: Body) -> None:
        if body.seq <= len(self.bodies):
            self.strays.append(LogPosition(body.seq, body.token))
            return
        if body.seq != len(self.bodies) + 1:
            raise SimulationFailure(f"entry {body.seq} follows {len(self.bodies)}", "log")
        self.bodies.append(body)
        view = fold(self.views[-1], body.entry)
        self.views.append(with_writer(view, LogPosition(body.seq, body.token)))

    def _check_files(self, removed: int) -> None:
        """Check that the remaining files have the content of the whole log and that only older ones were removed."""
        strays = {stray.seq for stray in self.strays}
        lower = set(range(self.views[-1].head + 1, removed)) - strays
        if left := [seq for seq in lower if entry_path(seq) in self.files]:
            raise SimulationFailure(f"entry {removed} is removed before {left}", "removal")
        now = MemoryStore()
        now.files = dict(self.files)
        try:
            view = SnapshotLog(now).refresh()
        except CorruptSnapshot as problem:
            raise SimulationFailure(f"after a removal: {problem}", "removal") from problem
        if view != self.views[-1]:
            raise SimulationFailure(f"after a removal the log says {view}, not {self.views[-1]}", "removal")


class EarlierLog(SnapshotLog):
    """The log as an earlier release reads and writes it: without stems, and without a look above."""

    def refresh(self) -> LogView:
        view = super().refresh()
        if view.head:
            raise LocationError("it has a summary (format version 3)")
        return view

    def summarise(self) -> LogView:
        return self.view

    def remove_covered(self, at_most: int | None = None) -> None:
        """Earlier releases remove nothing."""

    def _next_token(self) -> str:
        return self._token()

    def check_owned(self) -> None:
        if self._store.exists(entry_path(self._view.next_seq)):
            raise Fenced("another driver has the next entry")

    def _check_newest(self, seq: int) -> None:
        """It has created the entry, so it owns it."""


class Driver:
    """Driver of a location; ``run`` is its whole life."""

    def __init__(self, store: SteppedStore, chance: random.Random, epochs: int, *, is_earlier: bool) -> None:
        kind = EarlierLog if is_earlier else SnapshotLog
        self._log = kind(store, lambda: f"{chance.getrandbits(128):032x}", summary_every=SUMMARY_EVERY)
        self._store = store
        self._chance = chance
        self._epochs = epochs
        self.outcome = "killed"

    def run(self) -> None:
        try:
            self._open()
            for _ in range(self._epochs):
                self._one_epoch()
            view = self._log.view
            self._append(EpochCommitted(view.owner, view.committed_epoch, view.reserved_until, ended=True))
            self.outcome = "ended"
        except Fenced:
            self.outcome = "fenced"
        except LocationError:
            self.outcome = "refused"

    def _open(self) -> None:
        view = self._log.refresh()
        first, restored = view.next_checkpoint, view.lineage[-1].checkpoint if view.lineage else 0
        self._append(GenerationOpened(view.next_generation, restored, first, first + 100, view.committed_epoch))
        self._log.summarise()

    def _one_epoch(self) -> None:
        self._check_owned()
        view = self._log.view
        checkpoint = max([view.first_checkpoint, *(record.checkpoint + 1 for record in view.lineage)])
        ref = MetadataRef("m", 1, "0")
        self._append(SnapshotComplete(view.owner, checkpoint, False, ref, 0, checkpoint + 100, next_batch=checkpoint))
        for record in self._log.view.snapshots[:-2]:
            self._append(SnapshotDeleted(view.owner, record.checkpoint))
        self._log.summarise()
        self._log.remove_covered(AT_ONCE)

    def _append(self, entry: Any) -> None:
        """Append, and then do something that only the owner of the entry may do."""
        self._log.append(entry)
        position = self._log.position
        if self._store.bodies[position.seq - 1].token != position.token:
            raise SimulationFailure(f"a driver acts on {position}, which it does not own", "owner")

    def _check_owned(self) -> None:
        if self._log.view.next_seq - 1 == self._log.view.head:
            return  # no entry of this driver can be missing; outputs are never opened then
        newest = len(self._store.bodies)
        self._log.check_owned()
        if newest != self._log.view.next_seq - 1:
            raise SimulationFailure(f"a driver with entry {self._log.view.next_seq - 1} is behind {newest}", "owner")


class Reader:
    """Reader that repeatedly reads the log and looks positions up; ``run`` is its whole life."""

    def __init__(self, store: SteppedStore, chance: random.Random) -> None:
        self._store = store
        self._chance = chance

    def run(self) -> None:
        log = SnapshotLog(self._store)
        for _ in range(6):
            if self._chance.random() < 0.3:
                log = SnapshotLog(self._store)
            self._read(log)
            self._ask(log)

    def _read(self, log: SnapshotLog) -> None:
        before = log.view.next_seq
        try:
            view = log.refresh()
        except CorruptSnapshot as problem:
            raise SimulationFailure(f"a reader finds: {problem}", "reader") from problem
        if view.next_seq < before or view != self._store.views[view.next_seq - 1]:
            raise SimulationFailure(f"a reader takes {view} for the log", "reader")

    def _ask(self, log: SnapshotLog) -> None:
        known: Sequence[Body] = self._store.bodies[: log.view.next_seq - 1]
        if not known:
            return
        body = self._chance.choice(known)
        self._expect(log, LogPosition(body.seq, body.token), contained=True)
        for stray in [one for one in self._store.strays if log.view.is_covered(one.seq)][-1:]:
            self._expect(log, stray, contained=False)
        self._expect(log, LogPosition(body.seq, f"{self._chance.getrandbits(128):032x}"), contained=False)

    @staticmethod
    def _expect(log: SnapshotLog, position: LogPosition, *, contained: bool) -> None:
        if log.contains(position) is not contained:
            raise SimulationFailure(f"{position} is {'not ' if contained else ''}contained in the log", "positions")


class CompactionSimulation:
    """One schedule.

    Args:
        seed: says everything.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self._store = SteppedStore(self._chance)
        self._running: list[tuple[Driver | Reader, Coroutine]] = []
        self._asleep: dict[int, int] = {}
        self._sleepiness: dict[int, float] = {}
        self._started = 0
        self._earlier = self._chance.choice((0, 0, 2))
        self.outcomes: dict[str, int] = {}

    def run(self) -> None:
        """Raises SimulationFailure if a rule is broken."""
        for step in range(STEPS):
            if self._started < DRIVERS and (not self._running or self._chance.random() < 0.005):
                self._start()
            awake = [one for one in self._running if self._asleep.get(id(one[0]), 0) <= step]
            if awake:
                self._act(step, self._chance.choice(awake))
            elif not self._running:
                break
        Driver(self._store, self._chance, UNDISTURBED, is_earlier=False).run()
        Reader(self._store, self._chance).run()
        self._count("strays", len(self._store.strays))
        if left := [stray for stray in self._store.strays if entry_path(stray.seq) in self._store.files]:
            raise SimulationFailure(f"{left} are left", "bound")
        if len(self._store.files) > FILES + max(0, self._store.views[-1].head - 3):
            raise SimulationFailure(f"{sorted(self._store.files)} are left", "bound")

    def _start(self) -> None:
        is_earlier = self._started < self._earlier
        epochs = self._chance.randrange(3 if is_earlier else 20)
        driver = Driver(self._store, self._chance, epochs, is_earlier=is_earlier)
        self._begin(driver)
        self._started += 1
        if self._chance.random() < 0.5:
            self._begin(Reader(self._store, self._chance))

    def _begin(self, actor: Driver | Reader) -> None:
        self._running.append((actor, coroutine_of(actor.run)))
        self._sleepiness[id(actor)] = self._chance.choice(SLEEPINESS)

    def _act(self, step: int, one: tuple[Driver | Reader, Coroutine]) -> None:
        actor, coroutine = one
        chance = self._chance.random()
        self._store.is_critical = False
        if chance < 0.003:
            self._end(one)  # it never goes on
        elif chance < 0.006:
            self._asleep[id(actor)] = step + self._chance.randrange(LONGEST_SLEEP)
        elif coroutine.resume():
            self._end(one)
        elif self._store.is_critical and self._chance.random() < self._sleepiness[id(actor)]:
            self._asleep[id(actor)] = step + self._chance.randrange(LONGEST_SLEEP)

    def _end(self, one: tuple[Driver | Reader, Coroutine]) -> None:
        self._running.remove(one)
        if isinstance(one[0], Driver):
            self._count(one[0].outcome, 1)

    def _count(self, outcome: str, count: int) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + count
