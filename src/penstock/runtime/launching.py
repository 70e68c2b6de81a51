"""The seam between the driver and whatever runs slots: a Spark job, or plain processes in tests."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.config import Options
from penstock.graph.model import JobGraph
from penstock.logs import effective_level
from penstock.runtime.secret import Secret
from penstock.runtime.tls import Credentials


@dataclass(frozen=True)
class SlotTask:
    """What every slot of one Generation is started with. Serialised with cloudpickle by the launcher, never stored.

    ``control_host``/``control_port``: where the driver listens. ``location``: the shared checkpoint location.
    ``tls``: of its links, if they are encrypted. ``first_epoch``: the lowest of this Generation's. ``fences``: see
    ``GenerationReady``. ``log_level``: of
    the slots' log lines, which go to their process's stderr; the driver's.
    """

    query_id: str
    name: str
    generation: int
    graph: JobGraph
    options: Options
    location: str
    control_host: str
    control_port: int
    secret: Secret
    tls: Credentials | None = None
    log_level: int = field(default_factory=effective_level)
    first_epoch: int = 1
    fences: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ControlAddress:
    """Where the driver listens for slots: it binds to ``bind``, and slots connect to ``host``."""

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
    """One launched Generation."""

    @property
    def done(self) -> bool:
        """No slot of it runs any more (as far as the launcher can tell)."""

    @property
    def error(self) -> BaseException | None:
        """Why it ended, once it is done; None for an orderly end."""

    def cancel(self) -> None:
        """End it without asking the slots. Does not block; idempotent."""

    def wait(self, timeout_s: float) -> bool:
        """Block until ``done``, at most ``timeout_s``; tells whether it is."""


class SlotLauncher(Protocol):
    """Starts slots. Each started task calls ``penstock.runtime.slot.slot_main(seat, task)``."""

    def control_address(self) -> ControlAddress:
        """The driver's own address, and how slots reach it."""

    def usable_slots(self) -> int:
        """Slots that a query could have now: those of its newest job, and those that neither other queries hold nor
        other jobs occupy."""

    def total_slots(self) -> int:
        """Slots that the cluster has now, whatever uses them."""

    def launch(self, task: SlotTask, parallelism: int) -> SlotJob:
        """Start tasks with seats ``0..parallelism-1``. Does not wait for them.

        Raises:
            ResourceError: there are fewer free slots; says what to do.
        """
