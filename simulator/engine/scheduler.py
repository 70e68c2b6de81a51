"""Who may act, and when: picks one of all that could, by seeded chance."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from penstock.testing.failure import SimulationFailure
from simulator.engine.chance import Chance

NEVER = float("inf")
LEAP_CHANCE = 0.01
LEAP_MS = 20.0
"""Now and then time goes on although somebody could act: nobody is that quick."""


class Actor:
    """Somebody who can act.

    Args:
        name: in the story.
        act: does one thing; returns whether it could do another one at once. Harmless if there is nothing to do.
        weight: in (0, 1], how eager it is.
    """

    __slots__ = ("act", "busy_until_ms", "dead", "name", "place", "timer_ms", "weight")

    def __init__(self, name: str, act: Callable[[], bool], weight: float = 1.0) -> None:
        self.name = name
        self.act = act
        self.weight = weight
        self.place = -1
        self.timer_ms = NEVER
        self.busy_until_ms = 0.0
        self.dead = False


class Scheduler:
    """Owns the actors that are ready and the timers.

    Args:
        pace_ms: how long an action takes.
    """

    def __init__(self, chance: Chance, pace_ms: float) -> None:
        self._chance = chance
        self._pace_ms = pace_ms
        self._ready: list[Actor] = []
        self._timers: list[tuple[float, int, Actor]] = []
        self._serial = 0

    def ready(self, actor: Actor) -> None:
        """It has something to do: it will get a turn (when it is no longer busy)."""
        if actor.place >= 0 or actor.dead:
            return
        if actor.busy_until_ms > self._chance.now_ms:
            self.wake(actor, actor.busy_until_ms)
            return
        actor.place = len(self._ready)
        self._ready.append(actor)

    def rest(self, actor: Actor) -> None:
        """It has nothing to do."""
        place = actor.place
        if place < 0:
            return
        actor.place = -1
        last = self._ready.pop()
        if last is not actor:
            self._ready[place] = last
            last.place = place

    def wake(self, actor: Actor, at_ms: float) -> None:
        """It gets a turn at this time, or earlier."""
        if at_ms < actor.timer_ms and not actor.dead:
            actor.timer_ms = at_ms
            self._serial += 1
            heapq.heappush(self._timers, (at_ms, self._serial, actor))

    def busy(self, actor: Actor, until_ms: float) -> None:
        """It can do nothing before this time."""
        actor.busy_until_ms = max(actor.busy_until_ms, until_ms)
        if actor.place >= 0:
            self.rest(actor)
            self.wake(actor, actor.busy_until_ms)

    def end(self, actor: Actor) -> None:
        """It never acts again."""
        self.rest(actor)
        actor.dead = True

    @property
    def may_go_on(self) -> bool:
        """Somebody can act, now or later."""
        return bool(self._ready) or any(not actor.dead for _, _, actor in self._timers)

    def turn(self) -> None:
        """Let somebody act.

        Raises:
            SimulationFailure: nobody ever can again.
        """
        chance = self._chance
        chance.now_ms += self._pace_ms
        if chance.random.random() < LEAP_CHANCE:
            chance.now_ms += LEAP_MS * chance.random.random()
        self._wake_due()
        while not self._ready:
            if not self._timers:
                raise SimulationFailure("nothing can happen any more", "progress")
            chance.now_ms = max(chance.now_ms, self._timers[0][0])
            self._wake_due()
        actor = self._pick()
        chance.acts(actor.name)
        if not actor.act():
            self.rest(actor)

    def _pick(self) -> Actor:
        random = self._chance.random.random
        while True:
            actor = self._ready[int(random() * len(self._ready))]
            if actor.weight >= 1.0 or random() < actor.weight:
                return actor

    def _wake_due(self) -> None:
        timers, now_ms = self._timers, self._chance.now_ms
        while timers and timers[0][0] <= now_ms:
            at_ms, _, actor = heapq.heappop(timers)
            if actor.timer_ms == at_ms:
                actor.timer_ms = NEVER
            self.ready(actor)
