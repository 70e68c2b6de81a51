"""Interface between the driver and the launcher of slots: a Spark job, or plain processes in tests."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Protocol

from penstock.worker.slot_task import SlotTask


@dataclass(frozen=True)
class ControlAddress:
    """Address of the control server: the driver binds to ``bind``, and slots connect to ``host``."""

    host: str
    bind: str

    @property
    def is_loopback(self) -> bool:
        """True if slots can run on the driver's machine only."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class SlotJob(Protocol):
    """Job that runs the slots of one Generation."""

    @property
    def done(self) -> bool:
        """True if no slot of the job runs any more, as far as the launcher can tell."""

    @property
    def error(self) -> BaseException | None:
        """Reason of its end, once it is done; None for an orderly end."""

    def cancel(self) -> None:
        """End it without asking the slots. Does not block; idempotent."""

    def wait(self, timeout_s: float) -> bool:
        """Block until ``done``, at most ``timeout_s``; return ``done``."""


class SlotLauncher(Protocol):
    """Launcher of slots. Each started task calls ``penstock.worker.slot.slot_main(task_number, task)``."""

    def control_address(self) -> ControlAddress:
        """Return the address at which the driver listens."""

    def usable_slots(self) -> int:
        """Return the number of slots that a query could have now: those of its newest job, and those that neither other
        queries hold nor other jobs occupy."""

    def total_slots(self) -> int:
        """Return the number of slots that the cluster has now, whatever uses them."""

    def launch(self, task: SlotTask, parallelism: int) -> SlotJob:
        """Start tasks with numbers ``0..parallelism-1``. Does not wait for them.

        Raises:
            ResourceError: there are fewer free slots; says what to do.
        """
