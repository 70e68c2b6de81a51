"""Model of copies of one location that write to one output: the real fence and log, drivers that pause anywhere.

Each driver takes over the log of its location, opens the fence, logs snapshots and commits their epochs. Every effect
on a store is a step. The seed decides which driver makes the next step, which driver dies or sleeps, and when a
location is copied or restored. The output may have the epochs of one history only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec

from penstock.connectors.base import FenceOpener, LogPosition
from penstock.connectors.fence import FIRST, Committed, Fence, FenceStore
from penstock.errors import Fenced, SinkError, SinkFenced
from penstock.snapshot.log import SnapshotLog
from penstock.snapshot.log_entries import GenerationOpened, MetadataRef, SnapshotComplete
from penstock.snapshot.store import MemoryStore
from penstock.testing.failure import SimulationFailure
from penstock.testing.routine import Routine, call_of, suspend

STEPS = 400
DRIVERS = 6
"""Number of drivers that are started in a schedule, one after the other."""
LONGEST_SLEEP = 60
"""Longest pause of a driver, in steps."""
_DIGITS = 32


@dataclass
class Output(FenceStore):
    """File system of the output. Every operation is one step.

    Attributes:
        work: by token of a work directory, the names in it: ``position``, and staged epochs.
        visible: every published epoch and its name, in order.
        moves: renames of work directories that are under way.
    """

    chance: random.Random
    moves: int = 0
    entries: dict[int, bytes] = field(default_factory=dict)
    work: dict[str, dict[str, bytes]] = field(default_factory=dict)
    visible: list[tuple[int, str]] = field(default_factory=list)

    def newest(self) -> int:
        suspend()
        return max(self.entries, default=0)

    def read(self, number: int) -> bytes:
        return self.entries[number]

    def create(self, number: int, entry: bytes) -> bool:
        suspend()
        created = self.entries.setdefault(number, entry) is entry
        suspend()
        return created

    def folders(self) -> list[str]:
        """List the work directories. During a rename a listing may have neither name."""
        suspend()
        misses = self.moves > 0 and self.chance.random() < 0.5
        return sorted(name for name in self.work if name == FIRST or not misses)

    def make_first(self) -> None:
        suspend()
        self.work.setdefault(FIRST, {})["position"] = msgspec.json.encode(Committed())

    def move(self, older: str, token: str) -> None:
        self.moves += 1
        suspend()
        self.moves -= 1
        if older not in self.work:
            raise FileNotFoundError(older)
        self.work[token] = self.work.pop(older)

    def recorded(self, token: str) -> bytes | None:
        suspend()
        return self.work.get(token, {}).get("position")

    def record(self, token: str, committed: bytes) -> None:
        suspend()
        if token not in self.work:
            raise FileNotFoundError(token)
        self.work[token]["position"] = committed

    def stage(self, token: str, name: str) -> None:
        """Write a file like a slot, without creating a directory."""
        suspend()
        if token not in self.work:
            raise FileNotFoundError(token)
        self.work[token][name] = b""

    def publish(self, token: str, name: str, epoch: int) -> None:
        """Rename a file out of the work directory. Raise FileNotFoundError if it does not exist."""
        suspend()
        if self.work.get(token, {}).pop(name, None) is None:
            raise FileNotFoundError(name)
        self.visible.append((epoch, name))

    def remove_others(self, token: str, needed: set[str]) -> None:
        """Remove staged files that this history does not need, if the work directory exists."""
        suspend()
        files = self.work.get(token, {})
        for name in [name for name in files if name not in needed | {"position"}]:
            del files[name]


class Copy:
    """A location, or a copy of one."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.store = _Store()
        self.store.files = dict(files or {})


class _Store(MemoryStore):
    def create_if_absent(self, path: str, data: bytes) -> bool:
        suspend()
        created = super().create_if_absent(path, data)
        suspend()
        return created

    def exists(self, path: str) -> bool:
        suspend()
        return super().exists(path)


class Driver:
    """One driver at a location, from start to end of ``run``. An epoch has the rows since the epoch before.

    Args:
        number: of the driver, for its tokens.
        lazy: it only opens the fence, and has no rows.
    """

    def __init__(self, number: int, place: Copy, output: Output, chance: random.Random, lazy: bool) -> None:
        self._number = number
        self._output = output
        self._chance = chance
        self._lazy = lazy
        self._log = SnapshotLog(place.store, self._token)
        self._fence = Fence(output, "output", patience_s=0.0)
        self._generation = 0
        self._work, self._opened_at = "", 0
        self.outcome = "killed"

    def _token(self) -> str:
        return f"{self._chance.getrandbits(4 * _DIGITS):0{_DIGITS}x}"

    def run(self) -> None:
        """Run Generations until the driver is fenced or refused, or is done."""
        try:
            for _ in range(4):
                with suppress(SinkFenced):
                    self._one_generation()
                    self.outcome = "ended"
                    return
        except Fenced:
            self.outcome = "fenced"
        except SinkError:
            self.outcome = "refused"

    def _one_generation(self) -> None:
        view = self._log.refresh()
        if self._generation and view.owner != self._generation:
            raise Fenced("another driver has the location")
        self._fence.check(self._opener())
        restored = view.lineage[-1].checkpoint if view.lineage else 0
        entry = GenerationOpened(
            view.next_generation, restored, view.next_checkpoint, view.next_checkpoint + 4, view.committed_epoch
        )
        self._log.append(entry)
        self._generation = entry.generation
        opener = self._opener()
        self._work, self._opened_at = self._fence.open(opener), opener.position.seq
        for record in self._log.view.lineage[-1:]:
            self._commit(record.checkpoint, self._log.position_of(record.checkpoint), record.label)
        for _ in range(0 if self._lazy else 3):
            self._one_epoch()

    def _one_epoch(self) -> None:
        view = self._log.view
        epoch = (view.lineage[-1].checkpoint if view.lineage else 0) + 1
        epoch = max(epoch, view.first_checkpoint)
        history = self._token()
        with self._slots():
            self._output.stage(self._work, history)
        complete = SnapshotComplete(
            self._generation, epoch, False, MetadataRef("m", 1, "0"), view.committed_epoch, view.reserved_until + 1
        )
        complete = msgspec.structs.replace(complete, label=history)
        self._log.append(complete)
        self._commit(epoch, self._log.position_of(epoch), history)

    def _commit(self, epoch: int, position: LogPosition, name: str) -> None:
        """Commit an epoch like a file sink: a visible epoch is done."""
        self._fence.record(position, f"driver {self._number}")
        if self._may_remove(position):
            self._output.remove_others(self._work, {record.label for record in self._log.view.lineage})
        if (epoch, name) in self._output.visible:
            return
        with self._slots():
            self._output.publish(self._work, name, epoch)

    def _may_remove(self, position: LogPosition) -> bool:
        """Return True if no other copy can take over the output again and need its files."""
        return position.seq > self._opened_at

    @contextmanager
    def _slots(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if self._fence.is_lost():
                raise self._fence.lost() from None
            raise SimulationFailure(
                f"driver {self._number} misses a file and has not lost the output", "fence"
            ) from None

    def _opener(self) -> FenceOpener:
        return FenceOpener(
            "query",
            self._log.position,
            f"driver {self._number}",
            self._log.contains,
            self._log.check_owned,
            self._token,
        )


class FencingSimulation:
    """One schedule.

    Args:
        seed: determines the schedule.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random(seed)
        self.output = Output(self._chance)
        self._places = [Copy()]
        self._running: list[tuple[Driver, Routine]] = []
        self._asleep: dict[int, int] = {}
        self._started = 0
        self.outcomes: dict[str, int] = {}

    def run(self) -> None:
        """Run the schedule. Raise SimulationFailure if the output has rows of two histories."""
        for step in range(STEPS * DRIVERS):
            if self._started < DRIVERS and (not self._running or self._chance.random() < 0.02):
                self._start()
            awake = [one for one in self._running if self._asleep.get(id(one[0]), 0) <= step]
            if awake:
                self._act(step, self._chance.choice(awake))
            elif not self._running and self._started >= DRIVERS:
                break
        self._judge()

    def _start(self) -> None:
        """Start a driver, usually at a location that had one before, sometimes at a new or an old copy."""
        if self._chance.random() < 0.5:
            self._places.append(Copy(self._chance.choice(self._places).store.files))
        place = self._chance.choice(self._places)
        driver = Driver(self._started, place, self.output, self._chance, lazy=self._chance.random() < 0.3)
        self._started += 1
        self._running.append((driver, call_of(driver.run)))

    def _act(self, step: int, one: tuple[Driver, Routine]) -> None:
        driver, routine = one
        chance = self._chance.random()
        if chance < 0.01:
            self._end(one, "killed")  # it never continues
        elif chance < 0.05:
            self._asleep[id(driver)] = step + self._chance.randrange(LONGEST_SLEEP)
        elif routine.resume():
            self._end(one, driver.outcome)

    def _end(self, one: tuple[Driver, Routine], outcome: str) -> None:
        self._running.remove(one)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def _judge(self) -> None:
        """Check that one log has all visible epochs, once, in order and without a gap: these are of one history."""
        shown = [name for _, name in self.output.visible]
        histories = [[record.label for record in SnapshotLog(place.store).refresh().lineage] for place in self._places]
        if not any(history[: len(shown)] == shown for history in histories):
            raise SimulationFailure(f"{shown} are the epochs of none of {histories}", "output")
        self.output.moves = 0
        last = [
            Driver(DRIVERS + number, place, self.output, self._chance, lazy=True)
            for number, place in enumerate(self._places)
        ]
        for driver in last:
            driver.run()
        if not any(driver.outcome == "ended" for driver in last):
            raise SimulationFailure("no copy may write to the output any more", "progress")
