"""One simulated run: a seed decides everything, the oracle watches.

Each turn picks one of the actions that may happen - a subtask's step, a message, an upload, a work of the driver, the
passing of time - or, at moments the seed chose beforehand, a fault. The run ends when the sink shows exactly what a
sequential run of the job would, all faults have happened, and everything has come to rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.config import Options
from penstock.protocol import coordinator_types as ct
from penstock.protocol.elements import Alignment
from penstock.snapshot.store import Effect, MemoryStore
from penstock.testing.chance import Action, Chance
from penstock.testing.driver import SimulatedDriver, SimulatedGeneration
from penstock.testing.figures import Figures
from penstock.testing.job import Shape, build_job
from penstock.testing.outside import Outside, SimulationFailure
from penstock.testing.settings import Settings
from penstock.testing.slot import SimulatedSlot

MAX_STEPS = 30_000
FAULT_HORIZON = 1_200
OPTIONS = Options(exclusive_window=120, memory_per_gate=1_200, flush_interval_ms=5, max_parallelism=8)
ALL_KINDS = ("slot", "driver", "second driver", "driver in effect", "slot in effect", "store", "snapshot")


class _Crash(BaseException):
    """A process dies in the middle of an effect on the store; no handler in the job may stop it."""


@dataclass(frozen=True)
class Outcome:
    """A run that passed. ``digest`` is equal for equal runs."""

    seed: int
    digest: str
    figures: Figures


class Simulation:
    """One run of one seed.

    Args:
        seed: decides the schedule, the policy and the faults.
        settings: the job and its faults; None: what the seed says.
    """

    def __init__(self, seed: int, settings: Settings | None = None) -> None:
        self.seed = seed
        self.settings = settings or Settings.random(seed)
        self.shape = Shape()
        self.chance = Chance(seed)
        self.store = MemoryStore()
        self.outside = Outside(self.store, self.shape.rows_per_split)
        self.figures = Figures()
        self.figures.count("runs")
        random = self.chance.random
        self._graph = build_job(self.shape, self.outside, self._slow_work)
        self._policy = ct.Policy(
            interval_ms=random.choice((150, 500, 1_500)),
            timeout_ms=random.choice((300, 5_000, 60_000)),
            alignment=random.choice((Alignment.ALIGNED, Alignment.UNALIGNED, Alignment.UNALIGNED)),
        )
        self._jammed_until = random.randrange(FAULT_HORIZON)
        self._slow = random.choice((0.02, 0.1, 1.0))
        self._faults = self._plan_faults()
        self._armed: Callable[[Effect], None] | None = None
        self.store.hook = self._on_effect
        self._generations: list[SimulatedGeneration] = []
        self._drivers: list[SimulatedDriver] = []
        self._driver_number = 0

    def run(self) -> Outcome:
        """Run to the end.

        Raises:
            SimulationFailure: something happened that must not, or the end is never reached.
            Exception: what a machine raised, for example ``ProtocolViolation``.
        """
        expected = self.shape.expected()
        done, seen = False, 0
        while not (done and not self._faults):
            if self.chance.steps > MAX_STEPS:
                raise SimulationFailure(f"no end after {MAX_STEPS} steps: {len(self.outside.rows)} rows are visible")
            self._turn()
            if len(self.outside.epochs) > seen:
                seen = len(self.outside.epochs)
                done = self.outside.check(expected)
        self._settle()
        self.outside.check(expected)
        self.figures.count("steps", self.chance.steps)
        return Outcome(self.seed, self.chance.digest, self.figures)

    # -- turns ----------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        if self._faults and self.chance.steps >= self._faults[0][0]:
            self._fault(self._faults.pop(0)[1])
        actions = self._actions()
        if all(action.weight == 0 for action in actions):
            actions = [self._time_passes(to_next_wake=True)]
        elif self.chance.random.random() < 0.05:
            actions.append(self._time_passes(to_next_wake=False))
        try:
            self.chance.pick(actions).run()
        except _Crash:
            self._armed = None
        self._generations[:] = [g for g in self._generations if g.alive]
        self._drivers = [d for d in self._drivers if d.alive]

    def _actions(self) -> list[Action]:
        actions = [a for generation in self._generations for a in generation.actions()]
        for driver in self._drivers:
            actions += driver.actions()
        if not self._drivers:
            actions.append(Action("a driver starts", 1.0, self._start_driver))
        return actions

    def _time_passes(self, *, to_next_wake: bool) -> Action:
        wakes = [at for driver in self._drivers for at in driver.wakes_ms()]
        wakes += [at for g in self._generations for slot in g.slots for at in slot.wakes_ms()]
        ahead = [at for at in wakes if at > self.chance.now_ms]
        target = min(ahead, default=self.chance.now_ms + 1_000) if to_next_wake else self.chance.now_ms + 5

        def pass_time() -> None:
            self.chance.now_ms = max(self.chance.now_ms, target)

        return Action("time passes", 1.0, pass_time)

    def _settle(self) -> None:
        """No faults, no new checkpoints: everything that is on its way arrives; then the ledgers must agree."""
        self._armed = None
        for _ in range(MAX_STEPS):
            actions = [a for a in self._actions() if not a.name.endswith((" ticks", " does Look"))]
            if actions:
                self.chance.pick(actions).run()
            elif wakes := [at for g in self._generations for slot in g.slots for at in slot.wakes_ms()]:
                self.chance.now_ms = max(self.chance.now_ms, min(wakes))
            else:
                break
        for driver in self._drivers:
            if driver.current is not None:
                _check_credit(driver.current)

    # -- faults ---------------------------------------------------------------------------------------------------

    def _plan_faults(self) -> list[tuple[int, str]]:
        random = self.chance.random
        planned = [(random.randrange(20, FAULT_HORIZON), random.choice(ALL_KINDS)) for _ in range(random.randrange(6))]
        return sorted(planned)

    def _fault(self, kind: str) -> None:
        self.chance.note(f"fault: {kind}")
        driver = self.chance.random.choice(self._drivers) if self._drivers else None
        match kind:
            case "second driver":
                self.figures.count("second drivers")
                self._start_driver()
            case "driver" if driver is not None:
                self.figures.count("driver crashes")
                driver.die()
            case "slot" if driver is not None and driver.current is not None:
                self._kill_slot(driver, self.chance.random.choice(driver.current.slots))
            case "snapshot" if driver is not None:
                driver.request_snapshot(self.chance.random.choice(list(Alignment)))
            case "store":
                self._armed = self._after(self._fail)
            case "driver in effect" if driver is not None:
                self._armed = self._after(lambda effect: self._die_in_effect(driver, effect))
            case "slot in effect" if driver is not None and driver.current is not None:
                slot = self.chance.random.choice(driver.current.slots)
                self._armed = self._after(lambda effect: self._kill_in_effect(driver, slot, effect))

    def _start_driver(self) -> None:
        self._driver_number += 1
        self._drivers.append(
            SimulatedDriver(
                f"driver{self._driver_number}",
                self._graph,
                OPTIONS,
                self._policy,
                self.store,
                self.chance,
                self.figures,
                self._generations,
                self._slow_weight,
            )
        )

    def _kill_slot(self, driver: SimulatedDriver, slot: SimulatedSlot) -> None:
        self.figures.count("slot crashes")
        slot.kill()
        driver.slot_lost(slot)

    # -- faults in the middle of an effect ------------------------------------------------------------------------

    def _on_effect(self, effect: Effect) -> None:
        if self._armed is not None:
            self._armed(effect)

    def _after(self, fault: Callable[[Effect], None]) -> Callable[[Effect], None]:
        """``fault`` at one of the next effects that others can see."""
        left = self.chance.random.randrange(12)

        def wait(effect: Effect) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                fault(effect)

        return wait

    def _fail(self, effect: Effect) -> None:
        """The store fails while a slot writes; the log's own faults are the snapshot tests' business."""
        if effect.operation in ("create", "write", "close") and effect.path.startswith("data/"):
            self._armed = None
            self.figures.count("store faults")
            self.chance.note(f"{effect.operation} {effect.path} fails")
            raise OSError(28, "no space left on the simulated device")

    def _die_in_effect(self, driver: SimulatedDriver, effect: Effect) -> None:
        if not driver.alive:
            self._armed = None
        elif driver.working:
            self.figures.count("driver crashes")
            self.chance.note(f"{driver.name} dies {effect.phase} {effect.operation} {effect.path}")
            driver.die()
            raise _Crash

    def _kill_in_effect(self, driver: SimulatedDriver, slot: SimulatedSlot, effect: Effect) -> None:
        if not slot.alive or not driver.alive:
            self._armed = None
            return
        its_file = effect.path.startswith(f"data/{slot.generation}-") and effect.path.endswith(f"-{slot.index}.arrows")
        if its_file and effect.operation in ("create", "write", "close"):
            self.chance.note(f"{slot.name} dies {effect.phase} {effect.operation} {effect.path}")
            self._kill_slot(driver, slot)
            raise _Crash

    # -- the job's speed ------------------------------------------------------------------------------------------

    def _slow_weight(self) -> float:
        return self._slow if self.chance.steps < self._jammed_until else 3.0

    def _slow_work(self, rows: int) -> None:
        self.chance.now_ms += 0.5 * rows


def _check_credit(generation: SimulatedGeneration) -> None:
    """At rest both ends of every channel agree on its credit, and nothing is queued or blocked."""
    for producer in generation.slots:
        for subtask in producer.subtasks:
            for channel, output in subtask.outputs.channels.items():
                consumer = generation.slots[channel.consumer]
                input_ = next(s.gate.channels[channel] for s in consumer.subtasks if channel in s.gate.channels)
                if output.credit != input_.granted or output.queued_bytes or input_.queued_bytes or input_.blocked_by:
                    raise SimulationFailure(f"{channel} at rest: credit {output.credit}, granted {input_.granted}")
