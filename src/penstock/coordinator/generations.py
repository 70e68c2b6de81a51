"""Generations of one query, one after another: launch, end, and the wait until the previous slots have ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.coordinator.commands import GenerationReady
from penstock.coordinator.generation_slots import GenerationPlan, GenerationSlots
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.machines.restarts import Failure
from penstock.coordinator.rendezvous import SlotLost, SlotMessageReceived
from penstock.network.transport import IoLoop

LINK_GRACE_MS = 50.0
"""Time for which a reported broken link waits for a better cause: the loss of the slot at its other end."""
STOP_TIMEOUT_S = 5.0
"""Time limit for slots to end. They end within about a second of ``Stop``, or their process exits."""
JOB_END_TIMEOUT_S = 10.0


class Generations:
    """Current generation of a query and the start of the next one. Owned by the coordinator thread.

    Args:
        on_event: called with events of slots, from any thread.

    Attributes:
        current: the generation that is running or starting; None between two generations.
        reopen_at_ms: earliest start of the next one, on the clock of ``now_ms``; None: none is due.
    """

    def __init__(
        self, launcher: SlotLauncher, loop: IoLoop, on_event: Callable[[SlotMessageReceived | SlotLost], None]
    ) -> None:
        self._launcher = launcher
        self._loop = loop
        self._on_event = on_event
        self.current: GenerationSlots | None = None
        self.reopen_at_ms: float | None = None
        self._old: GenerationSlots | None = None
        self._link_failure: tuple[float, Failure] | None = None

    def launch(self, ready: GenerationReady, plan: GenerationPlan, paused: bool) -> None:
        """Start the slots of an opened generation. ``paused``: sources start paused.

        Raises:
            ResourceError: too few free slots.
        """
        self.current = GenerationSlots(
            ready, plan, self._launcher, self._loop, self._on_event, time.monotonic(), paused
        )

    def link_broke(self, failure: Failure, now_ms: float) -> None:
        """Record that a slot has reported a broken link. Another slot may report the cause soon."""
        self._link_failure = self._link_failure or (now_ms + LINK_GRACE_MS, failure)

    def overdue(self, now_ms: float) -> Failure | None:
        """Return why the current generation must be given up although no slot reported a failure, or None."""
        if self.current is None:
            return None
        if self._link_failure is not None and now_ms >= self._link_failure[0]:
            return self._link_failure[1]
        reason = self.current.overdue(time.monotonic())
        return None if reason is None else Failure("lost", "", reason)

    def give_up(self) -> None:
        """Close the links of the current generation. Its slots end at once."""
        if self.current is not None:
            self.current.close(time.monotonic())
            self._old, self.current = self.current, None
        self._link_failure = None

    def may_reopen(self, now_ms: float) -> bool:
        """Return True if the next generation must begin now. The caller then begins it."""
        if self._old is not None and self._old.ended(time.monotonic()):
            self._old = None
        if self.reopen_at_ms is None or self._old is not None or now_ms < self.reopen_at_ms:
            return False
        self.reopen_at_ms = None
        return True

    def end(self, await_slots: Callable[[GenerationSlots], None] | None) -> int | None:
        """End all slots at the end of the query. Return the number of the generation that was running, or None.

        Args:
            await_slots: waits for the end of the slots after they were asked to stop; None: their links are closed at
                once.
        """
        current, self.current = self.current, None
        if current is not None and await_slots is not None:
            current.stop()
            await_slots(current)
        for one in (current, self._old):
            if one is not None:
                one.close(time.monotonic())
                if not one.wait(STOP_TIMEOUT_S):
                    one.cancel()
                    one.wait(JOB_END_TIMEOUT_S)
        return None if current is None else current.generation
