"""Snapshot commands that run next to a simulated query: ``penstock snapshot take``, ``delete`` and ``gc``.

Each is a process of its own. It communicates with the driver by request files, as the real command does. It takes the
location over if no driver answers and the command allows it. It may be killed at any effect on the store.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.ids import CheckpointId
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.store.store import Store
from penstock.testing.failure import SimulationFailure
from simulator.engine.coroutine import coroutine_of, suspend
from simulator.engine.scheduler import Actor
from simulator.engine.store import Crash
from simulator.engine.world import World

KILLED = 0.2
"""That a command is killed before its end, if it would get so far."""
EFFECTS = 40
"""A command that is killed comes as far as one of the first so many."""
PATIENCE_S, ANSWER_S = 3.0, 8.0
"""Shorter than real ones: a schedule is to be short."""
LOOKS_EVERY_S = 0.3


class SimulatedCommand:
    """One command; it starts at once.

    Args:
        kind: one of ``settings.COMMANDS``, but for ``stop``.
        number: makes its name.
    """

    def __init__(self, kind: str, number: int, world: World) -> None:
        self.name = f"{kind} {number}"
        self.alive = True
        self._world = world
        self._kind = kind
        self._sleeps = False
        random = world.context.random
        self._left = random.randrange(1, EFFECTS) if random.random() < KILLED else 1 << 40
        self._routine = coroutine_of(self._run)
        self._actor = Actor(self.name, self._act)
        world.scheduler.ready(self._actor)

    def die(self) -> None:
        """Like ``kill -9``."""
        if self.alive:
            self.alive = False
            self._world.scheduler.end(self._actor)
            self._routine.kill(self._world.store)

    # -- the process --------------------------------------------------------------------------------------------------

    def _act(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self._world.counters.count("commands killed")
            self.die()
            return False
        try:
            done = self._world.run_as(self, self._routine)
        except Crash:
            self.die()
            return False
        except CorruptSnapshot as error:
            if not self._world.tampered:
                raise SimulationFailure(
                    f"{self.name} finds what nobody touched corrupt: {error}", "references"
                ) from error
            return False
        except (LocationError, OSError) as refusal:
            self._world.context.note(f"{self.name} is refused: {refusal}")
            self._world.counters.count(f"commands refused: {self._kind}")
            return False
        self._world.counters.count(f"commands done: {self._kind}", done)
        slept, self._sleeps = self._sleeps, False
        return not done and not slept

    def _sleep(self, _: float) -> None:
        self._sleeps = True
        self._world.scheduler.wake(self._actor, self._world.context.now_ms + LOOKS_EVERY_S * 1000)
        suspend()

    def _ask(self, store: Store, verb: rq.Command, token: str) -> rq.Answer | None:
        clock: Callable[[], float] = lambda: self._world.context.now_ms / 1000  # noqa: E731
        return rq.ask(
            store, verb, token, claim_timeout_s=PATIENCE_S, answer_timeout_s=ANSWER_S, clock=clock, sleep=self._sleep
        )

    # -- what it does -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self._kind == "take":
            self._take()
        elif self._kind.endswith("gc"):
            self._change(rq.CollectOrphans())
        else:
            self._delete()

    def _take(self) -> None:
        label = self.name
        try:
            taken = ownership.request_snapshot(
                self._world.store, rq.TakeSnapshot(label), self._ask, self._world.context.token
            )
        except LocationError as refusal:
            if "no driver answers" in str(refusal):
                self._world.log.never_taken(label)
            raise
        if not any(
            one.id == taken and one.label == label and one.requested for one in self._world.log.complete.values()
        ):
            raise SimulationFailure(f"{taken} was reported for {label}, and does not exist", "requests")

    def _delete(self) -> None:
        view = ownership.read_query_log(self._world.store)
        known = [record.checkpoint for record in view.snapshots]
        if known:
            random = self._world.context.random
            chosen = sorted(random.sample(known, min(len(known), random.choice((1, 1, 2)))))
            self._change(rq.DeleteSnapshots(chosen))
            self._check_gone(chosen)

    def _change(self, verb: rq.DeleteSnapshots | rq.CollectOrphans) -> None:
        force = self._kind.startswith("forced")
        ownership.request_change(self._world.store, verb, force=force, ask=self._ask, token=self._world.context.token)

    def _check_gone(self, checkpoints: list[CheckpointId]) -> None:
        left = [one for one in checkpoints if self._world.log.view.snapshot(one) is not None]
        if left:
            raise SimulationFailure(f"{self.name} was told that {left} are deleted, and they are there", "requests")
