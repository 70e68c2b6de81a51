"""Scaling on the driver: counts the cluster's slots, and executes the commands of the scaling state machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from typing import assert_never

from penstock.coordinator.generation_slots import GenerationSlots
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.machines.scaling import (
    BeginGeneration,
    ClusterSlots,
    Command,
    RescaleEnded,
    Scaling,
    SlotsStatus,
    TakeSnapshot,
    Warn,
)
from penstock.errors import PenstockError, QueryFailed
from penstock.logs import get_logger
from penstock.model.ids import GenerationId
from penstock.model.manifest import SnapshotMetadata

log = get_logger(__name__)


class Scaler:
    """Connects the scaling state machine with the driver. Owned by the coordinator thread.

    Args:
        machine: the state machine.
        launcher: counts the slots of the cluster.
        snapshot: takes an unaligned snapshot of the current generation; the future is completed on this thread.
        begin_again: takes a reason; soon gives up the current generation and begins the next one.

    Attributes:
        machine: any thread may read its attributes.
    """

    def __init__(
        self,
        machine: Scaling,
        launcher: SlotLauncher,
        snapshot: Callable[[Future[SnapshotMetadata]], None],
        begin_again: Callable[[str], None],
    ) -> None:
        self.machine = machine
        self._launcher = launcher
        self._snapshot = snapshot
        self._begin_again = begin_again
        self._tickets = itertools.count(1)
        self._futures: dict[int, Future[None]] = {}

    def rescale(self, parallelism: int, future: Future[None], current: GenerationSlots | None) -> None:
        """Request a parallelism. The future is completed when a generation runs at it, or with an error."""
        ticket = next(self._tickets)
        self._futures[ticket] = future
        self._execute(self.machine.rescale(ticket, parallelism, _status(current), self._count()))

    def running(self, current: GenerationSlots) -> None:
        """Handle the event that all slots of a generation run."""
        self._execute(self.machine.running(_status_of(current), self._count()))

    def short_of_slots(self, now_ms: float) -> bool:
        """Return True if the next generation must have fewer slots, after one could not start for lack of them."""
        if not self.machine.must_count(now_ms):
            return False
        commands = self.machine.shrink(self._count(), now_ms)
        self._execute(commands)
        return bool(commands)

    def poll(self, current: GenerationSlots | None, now_ms: float) -> None:
        """Scale down or up if the cluster's slots have changed. It may be called often; it rarely asks the cluster."""
        if current is not None and self.machine.poll_due(_status(current), now_ms):
            self._execute(self.machine.polled(_status_of(current), self._count(), now_ms))

    def query_ended(self, error: PenstockError | None) -> None:
        """Complete all futures with an error."""
        for future in self._futures.values():
            future.set_exception(error or QueryFailed("the query has ended"))
        self._futures.clear()

    def _count(self) -> ClusterSlots:
        return ClusterSlots(self._launcher.usable_slots(), self._launcher.total_slots())

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case TakeSnapshot(generation):
                    self._take_snapshot(generation)
                case BeginGeneration(reason):
                    log.info("the next Generation has parallelism %d: %s", self.machine.parallelism, reason)
                    self._begin_again(reason)
                case RescaleEnded(ticket, None):
                    self._futures.pop(ticket).set_result(None)
                case RescaleEnded(ticket, error):
                    self._futures.pop(ticket).set_exception(error)
                case Warn(text):
                    log.warning("%s", text)
                case _:
                    assert_never(command)

    def _take_snapshot(self, generation: GenerationId) -> None:
        def ended(snapshot: Future[SnapshotMetadata]) -> None:
            self._execute(self.machine.snapshot_ended(generation, snapshot.exception()))

        snapshot: Future[SnapshotMetadata] = Future()
        snapshot.add_done_callback(ended)
        self._snapshot(snapshot)


def _status(slots: GenerationSlots | None) -> SlotsStatus | None:
    return None if slots is None else _status_of(slots)


def _status_of(slots: GenerationSlots) -> SlotsStatus:
    return SlotsStatus(slots.generation, slots.complete, slots.runs)
