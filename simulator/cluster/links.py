"""Data links between the slots of one Generation."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.model.elements import Element
from penstock.model.ids import ChannelId
from penstock.worker.host import Arrived, Granted
from simulator.engine.scheduler import Actor

if TYPE_CHECKING:
    from simulator.cluster.slot import SimulatedSlot
    from simulator.engine.world import World

BURST_CHANCE = 0.7
"""A burst delivers all that waits on a channel; else it is one element. Credit comes in one sum."""


class Link:
    """Link from one slot to another: FIFO per channel, in any order between channels."""

    def __init__(self, world: World, producer: SimulatedSlot, consumer: SimulatedSlot) -> None:
        self.actor = Actor(f"{producer.name} -> {consumer.name}", self._deliver)
        self.ends = (producer, consumer)
        self.broken = False
        self._world = world
        self._consumer = consumer
        self._elements: dict[ChannelId, deque[Element]] = {}
        self._credit: dict[ChannelId, int] = {}

    def send(self, channel: ChannelId, element: Element) -> None:
        if self.broken:
            return
        self._elements.setdefault(channel, deque()).append(element)
        self._world.scheduler.ready(self.actor)

    def grant(self, channel: ChannelId, credit: int) -> None:
        if self.broken:
            return
        self._credit[channel] = self._credit.get(channel, 0) + credit
        self._world.scheduler.ready(self.actor)

    def close(self) -> None:
        """Close the link; elements in transit are lost."""
        self.broken = True
        self._elements.clear()
        self._credit.clear()
        self._world.scheduler.end(self.actor)

    def _deliver(self) -> bool:
        if not self._consumer.running:
            return False
        waiting = len(self._elements) + len(self._credit)
        if waiting == 0:
            return False
        random = self._world.context.random
        chosen = int(random.random() * waiting)
        if chosen < len(self._elements):
            self._deliver_elements(list(self._elements)[chosen], whole=random.random() < BURST_CHANCE)
        else:
            channel = list(self._credit)[chosen - len(self._elements)]
            self._consumer.granted(Granted(channel, self._credit.pop(channel)))
        return waiting > 1 or bool(self._elements)

    def _deliver_elements(self, channel: ChannelId, whole: bool) -> None:
        queue = self._elements[channel]
        for _ in range(len(queue) if whole else 1):
            self._consumer.arrived(Arrived(channel, queue.popleft()))
        if not queue:
            del self._elements[channel]
