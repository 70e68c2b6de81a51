"""Faults of a schedule: each is injected at its step, in a randomly chosen place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import CommitFailed, CommitUnknown
from penstock.model.ids import SubtaskId
from penstock.model.manifest import SnapshotMetadata
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint, FromSlot
from simulator.cluster.driver import SimulatedDriver
from simulator.cluster.generation import SimulatedGeneration
from simulator.cluster.slot import SimulatedSlot, ToDriver
from simulator.engine.store import Crash
from simulator.engine.world import Process, World
from simulator.jobs.topology import leaves
from simulator.settings import ROLLBACK

ANSWERS = (AcknowledgeCheckpoint, DeclineCheckpoint)
EFFECTS_AHEAD = 12
"""A fault in an effect comes at one of the next so many that fit."""


@dataclass
class _Armed:
    """Fault that waits for the last of a number of matching effects."""

    kind: str
    fits: Callable[[Process, str, str, str], bool]
    happens: Callable[[Process], None]
    left: int


@dataclass(frozen=True)
class _Slow:
    """Cost of rows until a time."""

    cost_ms: float
    until_ms: float


class Faults:
    """Faults of one run and their injection.

    Args:
        drivers: drivers that are alive.
        start_driver: starts another driver.
    """

    def __init__(
        self, world: World, drivers: list[SimulatedDriver], start_driver: Callable[[], SimulatedDriver]
    ) -> None:
        self._world = world
        self._drivers = drivers
        self._start_driver = start_driver
        self._random = world.context.random
        self._armed: list[_Armed] = []
        self._slow: dict[tuple[int, int], _Slow] = {}
        self._answers: list[str] = []
        self._user_errors = 0
        self._commits: list[str] = []
        self._crashes_left = 0

    def stop(self) -> None:
        """Inject no more faults, and make everything fast."""
        self._crashes_left = 0
        self._armed.clear()
        self._slow.clear()
        self._answers.clear()
        self._commits.clear()
        self._user_errors = 0

    def fire(self, kind: str) -> None:
        """Inject a fault now or at its next opportunity."""
        self._world.context.note(f"fault: {kind}")
        _FAULTS[kind](self)

    # -- Interference ---------------------------------------------------------------------------------------------

    def effect(self, process: Process, operation: str, path: str, phase: str) -> None:
        for armed in list(self._armed):
            if not armed.fits(process, operation, path, phase):
                continue
            armed.left -= 1
            if armed.left > 0:
                continue
            self._seen(armed.kind)
            self._world.context.note(f"{armed.kind}: {process.name} {phase} {operation} {path}")
            self._armed.remove(armed)
            armed.happens(process)

    def user_call(self, subtask: SubtaskId) -> bool:
        if not self._user_errors:
            return False
        self._user_errors -= 1
        if self._user_errors:
            return False
        self._seen("user error")
        return True

    def cost_ms(self, subtask: SubtaskId, rows: int) -> float | None:
        if not self._slow:
            return None
        slow = self._slow.get((subtask.vertex, subtask.index))
        if slow is None or self._world.context.now_ms >= slow.until_ms:
            return None
        return slow.cost_ms * rows

    def answer(self, driver: SimulatedDriver, slot: SimulatedSlot, message: ToDriver) -> None:
        """A slot's message reaches its driver, or does not, or twice."""
        said = message.message if isinstance(message, FromSlot) else None
        kind = self._answers.pop(0) if self._answers and isinstance(said, ANSWERS) else ""
        if kind:
            self._seen(kind)
            self._world.context.note(f"{kind}: {type(said).__name__} of {slot.name}")
        if kind == "answer late":
            self._world.later(self._random.random() * 500, lambda: driver.receive(slot, message))
        if kind == "answer twice":  # mostly soon, while the checkpoint still waits for others
            self._world.later(self._random.random() ** 3 * 500, lambda: driver.receive(slot, message))
        if kind in ("", "answer twice"):
            driver.receive(slot, message)

    def deployed(self, generation: SimulatedGeneration, inflight_rows: int) -> None:
        """Inject faults that wait for a recovery with this many in-flight rows."""
        if self._crashes_left == 1 and inflight_rows:
            until_ms = self._world.context.now_ms + 2.0 * self._world.settings.interval_ms
            for slot in generation.slots:
                slot.delay_loads(until_ms)

    def completed(self, metadata: SnapshotMetadata) -> None:
        """A snapshot exists."""
        if not self._crashes_left:
            return
        layers = {entry.layer for slot in metadata.slots for subtask in slot.subtasks for entry in subtask.inflight}
        slot = self._some_slot()
        if slot is not None and layers and (self._crashes_left == 2 or min(layers) < metadata.generation):
            self._crashes_left -= 1
            if not self._crashes_left:
                self._seen("crash in recovery")
            slot.die()

    def commits(self, phase: str) -> None:
        """Around a commit."""
        if not self._commits:
            return
        if phase == "before" and self._commits[0] == "commit fails":
            self._seen(self._commits.pop(0))
            raise CommitFailed("the simulated sink is away")
        if self._commits[0] == "commit unknown" and (phase == "after" or self._random.random() < 0.3):
            self._seen(self._commits.pop(0))
            raise CommitUnknown("the simulated sink does not answer")

    # -- processes ------------------------------------------------------------------------------------------------

    def _slot_crash(self) -> None:
        slot = self._some_slot()
        if slot is not None:
            self._seen("slot crash")
            slot.die()

    def _driver_crash(self) -> None:
        driver = self._some_driver()
        if driver is not None:
            self._seen("driver crash")
            driver.die()

    def _both_crash(self) -> None:
        slot, driver = self._some_slot(), self._some_driver()
        if slot is not None and driver is not None:
            self._seen("slot and driver crash")
            slot.die()
            driver.die()

    def _second_driver(self) -> None:
        self._seen("second driver")
        self._start_driver()

    def _slot_crash_in_effect(self) -> None:
        self._arm("slot crash in effect", lambda process, *_: isinstance(process, SimulatedSlot), self._dies)

    def _driver_crash_in_effect(self) -> None:
        self._arm("driver crash in effect", lambda process, *_: isinstance(process, SimulatedDriver), self._dies)

    def _crash_twice(self) -> None:
        """Crash after a checkpoint with in-flight rows, and again after one that carries some of them over."""
        self._crashes_left = 2

    def _dies(self, process: Process) -> None:
        process.die()
        raise Crash

    def _rollback(self) -> None:
        """Roll back by another process, forced: a running driver is fenced."""
        older = self._world.log.view.lineage[:-1]
        if older:
            self._seen(ROLLBACK)
            self._world.roll_back(self._random.choice(older))

    # -- time -----------------------------------------------------------------------------------------------------

    def _slow_subtask(self) -> None:
        settings = self._world.settings
        subtask = (
            self._random.randrange(len(settings.nodes)),
            self._random.randrange(settings.most_subtasks),
        )
        self._seen("slow subtask")
        self._slow[subtask] = self._slowness((5.0, 50.0, 300.0))

    def _blocked_sinks(self) -> None:
        settings = self._world.settings
        self._seen("blocked sinks")
        slow = self._slowness((1_000.0, 3_000.0))
        for vertex in leaves(settings.nodes):
            for index in range(settings.most_subtasks):
                self._slow[vertex, index] = slow

    def _slowness(self, costs_ms: tuple[float, ...]) -> _Slow:
        return _Slow(self._random.choice(costs_ms), self._world.context.now_ms + self._random.choice((200, 600, 1_500)))

    def _link_delay(self) -> None:
        generation = self._some_generation()
        if generation is not None and generation.links:
            self._seen("link delay")
            link = self._random.choice(generation.links)
            self._world.scheduler.busy(link.actor, self._world.context.now_ms + self._random.choice((20, 200, 1_000)))

    def _link_disconnect(self) -> None:
        generation = self._some_generation()
        if generation is not None and generation.links:
            self._seen("link disconnect")
            generation.disconnect(self._random.choice(generation.links))

    def _slow_store(self) -> None:
        generation = self._some_generation()
        if generation is not None:
            self._seen("slow store")
            until_ms = self._world.context.now_ms + self._random.choice((50, 300, 1_000))
            for slot in generation.slots:
                self._world.scheduler.busy(slot.uploads.actor, until_ms)

    # -- the store ------------------------------------------------------------------------------------------------

    def _store_fails(self) -> None:
        def fits(process: Process, operation: str, path: str, phase: str) -> bool:
            return phase == "before" and operation in ("create", "close") and path.startswith("data/")

        self._arm("store fails", fits, self._no_space)

    def _store_lies(self) -> None:
        def fits(process: Process, operation: str, path: str, phase: str) -> bool:
            is_data = operation == "close" and path.startswith("data/")
            return phase == "after" and (is_data or (operation == "create_if_absent" and path.startswith("snapshots/")))

        self._arm("store lies", fits, self._no_space)

    def _log_fails(self) -> None:
        def fits(process: Process, operation: str, path: str, phase: str) -> bool:
            return phase == "before" and operation == "create_if_absent" and path.startswith("log/")

        self._arm("log fails", fits, self._no_space)

    def _log_lies(self) -> None:
        def fits(process: Process, operation: str, path: str, phase: str) -> bool:
            return phase == "after" and operation == "create_if_absent" and path.startswith("log/")

        self._arm("log lies", fits, self._no_space)

    def _no_space(self, process: Process) -> None:
        raise OSError(28, "no space left on the simulated device")

    def _torn_file(self) -> None:
        self._tamper("torn file", lambda data: data[: len(data) * 2 // 3])

    def _flipped_byte(self) -> None:
        def flip(data: bytes) -> bytes:
            index = self._random.randrange(len(data))
            return data[:index] + bytes([data[index] ^ (1 << self._random.randrange(8))]) + data[index + 1 :]

        self._tamper("flipped byte", flip)

    def _tamper(self, kind: str, change: Callable[[bytes], bytes]) -> None:
        """Change a file of the newest snapshot. Every other time a slot dies, so that the file is read."""
        path = self._world.some_file_of_newest_snapshot()
        slot = self._some_slot()
        if path is not None and slot is not None:
            self._seen(kind)
            self._world.context.note(f"{kind}: {path}")
            self._world.tamper(path, change)
            if self._random.random() < 0.5:
                slot.die()

    # -- messages and calls ---------------------------------------------------------------------------------------

    def _slot_declines(self) -> None:
        slot = self._some_slot()
        in_flight = [c for driver in self._drivers for c in driver.job.coordinator.in_flight]
        if slot is not None and slot.running and in_flight:
            self._seen("slot declines")
            slot.uploads.declined(self._random.choice(in_flight), "a simulated refusal")

    # -- inside ---------------------------------------------------------------------------------------------------

    def _seen(self, kind: str) -> None:
        self._world.counters.count(f"fault: {kind}")
        self._world.counters.count("faults")

    def _arm(
        self, kind: str, fits: Callable[[Process, str, str, str], bool], happens: Callable[[Process], None]
    ) -> None:
        self._armed.append(_Armed(kind, fits, happens, 1 + self._random.randrange(EFFECTS_AHEAD)))

    def _some_driver(self) -> SimulatedDriver | None:
        return self._random.choice(self._drivers) if self._drivers else None

    def _some_generation(self) -> SimulatedGeneration | None:
        driver = self._some_driver()
        return None if driver is None else driver.current

    def _some_slot(self) -> SimulatedSlot | None:
        generation = self._some_generation()
        return None if generation is None else self._random.choice(generation.slots)


_FAULTS: dict[str, Callable[[Faults], None]] = {
    "slot crash": Faults._slot_crash,
    "driver crash": Faults._driver_crash,
    "slot and driver crash": Faults._both_crash,
    "second driver": Faults._second_driver,
    "slot crash in effect": Faults._slot_crash_in_effect,
    "driver crash in effect": Faults._driver_crash_in_effect,
    "crash in recovery": Faults._crash_twice,
    "slow subtask": Faults._slow_subtask,
    "blocked sinks": Faults._blocked_sinks,
    "link delay": Faults._link_delay,
    "link disconnect": Faults._link_disconnect,
    "slow store": Faults._slow_store,
    "store fails": Faults._store_fails,
    "store lies": Faults._store_lies,
    "log fails": Faults._log_fails,
    "log lies": Faults._log_lies,
    "torn file": Faults._torn_file,
    "flipped byte": Faults._flipped_byte,
    "answer late": lambda faults: faults._answers.append("answer late"),
    "answer twice": lambda faults: faults._answers.append("answer twice"),
    "answer lost": lambda faults: faults._answers.append("answer lost"),
    "slot declines": Faults._slot_declines,
    "user error": lambda faults: setattr(faults, "_user_errors", 1 + faults._random.randrange(20)),
    "commit fails": lambda faults: faults._commits.append("commit fails"),
    ROLLBACK: Faults._rollback,
    "commit unknown": lambda faults: faults._commits.append("commit unknown"),
}
