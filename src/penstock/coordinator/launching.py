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
        """True if slots can run only on the driver's machine."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class SlotJob(Protocol):
    """Job that runs the slots of one generation."""

    @property
    def done(self) -> bool:
        """True if no slot of the job is running, as far as the launcher knows."""

    @property
    def error(self) -> BaseException | None:
        """Reason for the end of the job, once it is done; None for an orderly end."""

    def cancel(self) -> None:
        """End the job without asking the slots. Does not block. Idempotent."""

    def wait(self, timeout_s: float) -> bool:
        """Block until ``done``, at most ``timeout_s``; return ``done``."""


class SlotLauncher(Protocol):
    """Launcher of slots. Each started task calls ``penstock.worker.slot.slot_main(task_number, task)``."""

    def control_address(self) -> ControlAddress:
        """Return the address at which the driver listens."""

    def usable_slots(self) -> int:
        """Return the number of slots that the query could have now.

        These are the slots of its newest job and the slots that neither other queries nor other jobs occupy.
        """

    def total_slots(self) -> int:
        """Return the number of slots that the cluster has now, including occupied ones."""

    def launch(self, task: SlotTask, parallelism: int) -> SlotJob:
        """Start tasks with numbers ``0..parallelism-1``. Does not wait for them.

        Raises:
            ResourceError: there are fewer free slots. The error says what to do.
        """
