"""Scheduler of a simulation: picks the next actor among those that are ready, by a seeded random choice."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from penstock.testing.failure import SimulationFailure
from simulator.engine.run_context import RunContext

NEVER = float("inf")
LEAP_CHANCE = 0.01
LEAP_MS = 20.0
"""Now and then time goes on although somebody could act: nobody is that quick."""


class Actor:
    """Unit of work that the scheduler can run.

    Args:
        name: its name in the trace.
        act: takes one action; returns True if it could take another one at once. Does nothing if there is nothing to
            do.
        weight: relative probability of being picked, in (0, 1].
    """

    __slots__ = ("act", "busy_until_ms", "dead", "name", "ready_index", "timer_ms", "weight")

    def __init__(self, name: str, act: Callable[[], bool], weight: float = 1.0) -> None:
        self.name = name
        self.act = act
        self.weight = weight
        self.ready_index = -1
        self.timer_ms = NEVER
        self.busy_until_ms = 0.0
        self.dead = False


class Scheduler:
    """Ready actors and timers.

    Args:
        pace_ms: duration of an action.
    """

    def __init__(self, context: RunContext, pace_ms: float) -> None:
        self._context = context
        self._pace_ms = pace_ms
        self._ready: list[Actor] = []
        self._timers: list[tuple[float, int, Actor]] = []
        self._serial = 0

    def ready(self, actor: Actor) -> None:
        """Make an actor ready: it gets a turn once it is no longer busy."""
        if actor.ready_index >= 0 or actor.dead:
            return
        if actor.busy_until_ms > self._context.now_ms:
            self.wake(actor, actor.busy_until_ms)
            return
        actor.ready_index = len(self._ready)
        self._ready.append(actor)

    def rest(self, actor: Actor) -> None:
        """Remove an actor from the ready ones."""
        ready_index = actor.ready_index
        if ready_index < 0:
            return
        actor.ready_index = -1
        last = self._ready.pop()
        if last is not actor:
            self._ready[ready_index] = last
            last.ready_index = ready_index

    def wake(self, actor: Actor, at_ms: float) -> None:
        """Make an actor ready at this time, or earlier."""
        if at_ms < actor.timer_ms and not actor.dead:
            actor.timer_ms = at_ms
            self._serial += 1
            heapq.heappush(self._timers, (at_ms, self._serial, actor))

    def busy(self, actor: Actor, until_ms: float) -> None:
        """Keep an actor from acting before this time."""
        actor.busy_until_ms = max(actor.busy_until_ms, until_ms)
        if actor.ready_index >= 0:
            self.rest(actor)
            self.wake(actor, actor.busy_until_ms)

    def end(self, actor: Actor) -> None:
        """Remove an actor for good."""
        self.rest(actor)
        actor.dead = True

    @property
    def can_act(self) -> bool:
        """True if an actor can act now or later."""
        return bool(self._ready) or any(not actor.dead for _, _, actor in self._timers)

    def turn(self) -> None:
        """Run one action of one actor.

        Raises:
            SimulationFailure: no actor can ever act again.
        """
        context = self._context
        context.now_ms += self._pace_ms
        if context.random.random() < LEAP_CHANCE:
            context.now_ms += LEAP_MS * context.random.random()
        self._wake_due()
        while not self._ready:
            if not self._timers:
                raise SimulationFailure("nothing can happen any more", "progress")
            context.now_ms = max(context.now_ms, self._timers[0][0])
            self._wake_due()
        actor = self._pick()
        context.begin_action(actor.name)
        if not actor.act():
            self.rest(actor)

    def _pick(self) -> Actor:
        random = self._context.random.random
        while True:
            actor = self._ready[int(random() * len(self._ready))]
            if actor.weight >= 1.0 or random() < actor.weight:
                return actor

    def _wake_due(self) -> None:
        timers, now_ms = self._timers, self._context.now_ms
        while timers and timers[0][0] <= now_ms:
            at_ms, _, actor = heapq.heappop(timers)
            if actor.timer_ms == at_ms:
                actor.timer_ms = NEVER
            self.ready(actor)
