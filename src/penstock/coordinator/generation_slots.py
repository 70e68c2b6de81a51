"""One Generation's slots as the driver sees them: launched, gathered, spoken to, ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product

from penstock.config import CONF_PREFIX, Options
from penstock.connectors.base import Committing
from penstock.coordinator.commands import GenerationReady
from penstock.coordinator.launching import SlotJob, SlotLauncher
from penstock.coordinator.rendezvous import ControlServer, SlotLost, SlotSaid, peers_of
from penstock.logs import now_about
from penstock.model.job_graph import JobGraph
from penstock.model.messages import AdvanceWatermark, AssignSplits, ToSubtask
from penstock.network.messages import Deploy, Register, Stop, ToSlot
from penstock.network.secret import Secret
from penstock.network.tls import Credentials
from penstock.network.transport import IoLoop
from penstock.snapshots.log.entries import Forked
from penstock.snapshots.store.store_access import StoreAccess
from penstock.worker.slot_task import SlotTask

HEARTBEAT_TIMEOUT_S = 120.0
"""A dead slot shows by the end of its link. This is for a frozen one, and longer than any call that holds the GIL.
A slot that does not run yet may be silent for ``slot.startTimeout`` longer: it waits for others, or restores state."""
CAUSE_GRACE_S = 0.2
"""A job that is over waits this long for what its slots say: that names the cause."""
JOB_GRACE_S = 0.5
"""Slots end this soon after their links; later the job is cancelled, which takes Spark seconds."""


@dataclass(frozen=True)
class GenerationPlan:
    """Constant part of all Generations of a query. ``until_available``: see ``QueryExecution``. ``forked``: how the
    log of a fork begins. ``access``: to the location; it holds secrets and goes nowhere but over control links.
    ``refuse_copy_of``, ``committing``: see ``CommandExecutor``."""

    query_id: str
    name: str
    graph: JobGraph
    options: Options
    location: str
    until_available: bool = False
    forked: Forked | None = None
    access: StoreAccess | None = None
    refuse_copy_of: Callable[[str], None] = lambda origin: None
    committing: Committing = nullcontext


class GenerationSlots:
    """Owned by the coordinator thread. The constructor launches.

    Args:
        ready: the opened Generation.
        paused: sources begin so.
        now_s: the monotonic clock, here and in all methods.

    Raises:
        ResourceError: too few free slots.
    """

    def __init__(
        self,
        ready: GenerationReady,
        plan: GenerationPlan,
        launcher: SlotLauncher,
        loop: IoLoop,
        on_event: Callable[[SlotSaid | SlotLost], None],
        now_s: float,
        paused: bool = False,
    ) -> None:
        self.generation = ready.opened.generation
        now_about(generation=ready.opened.generation)
        self._ready = ready
        self._paused = paused
        self._parallelism = plan.graph.parallelism
        self._launched_s = now_s
        self._start_timeout_s = plan.options.slot_start_timeout_ms / 1000
        self._closed_s: float | None = None
        self._job_done_s: float | None = None
        self._cancelled = False
        self._heard_s: dict[int, float] = {}
        self._seats: list[int] = list(range(self._parallelism))
        self.registered: dict[int, Register] = {}
        self.running: set[int] = set()
        self._gone: set[int] = set()
        secret = Secret.generate()
        tls = Credentials.generate() if plan.options.network_tls else None
        address = launcher.control_address()
        ports = plan.options.driver_ports
        self._server = ControlServer(
            loop,
            address.bind,
            secret,
            ready.opened.generation,
            self._parallelism,
            on_event,
            ports,
            None if tls is None else tls.contexts(),
        )
        self._address = f"{address.host}:{self._server.port}"
        self._access = plan.access
        task = SlotTask(
            plan.query_id,
            plan.name,
            ready.opened.generation,
            plan.graph,
            plan.options,
            plan.location,
            address.host,
            self._server.port,
            secret,
            tls,
            first_epoch=ready.opened.next_checkpoint,
            fences=ready.fences,
        )
        try:
            self._job: SlotJob = launcher.launch(task, self._parallelism)
        except BaseException:
            self._server.close()
            raise

    # -- what slots say -------------------------------------------------------------------------------------------

    def heard(self, slot: int, now_s: float) -> None:
        self._heard_s[slot] = now_s

    def slot_of(self, seat: int) -> int:
        """Return the slot of a task; its own number until all have registered."""
        return self._seats.index(seat)

    def register(self, seat: int, message: Register) -> bool:
        """When the last one is here, all are told who they are, where the others are, and what to restore: True. A
        worker that remembers a slot's tables becomes that slot again."""
        self.registered[seat] = message
        if not self.complete:
            return False
        self._seats = seats_of([self.registered[seat].remembers for seat in range(self._parallelism)])
        self.registered = {slot: self.registered[seat] for slot, seat in enumerate(self._seats)}
        self._heard_s = {slot: self._heard_s[seat] for slot, seat in enumerate(self._seats)}
        peers, access = peers_of(self.registered), self._access
        for slot in range(self._parallelism):
            self.send(
                slot, Deploy(slot, peers, self._ready.slots[slot], self._ready.opened.restored, access, self._paused)
            )
        return True

    def run(self, slot: int) -> bool:
        """A slot runs; True when all do."""
        self.running.add(slot)
        return self.runs

    @property
    def runs(self) -> bool:
        """All slots do."""
        return len(self.running) == self._parallelism

    @property
    def complete(self) -> bool:
        """All slots have registered, at some time."""
        return len(self.registered) == self._parallelism

    def gone(self, slot: int) -> None:
        """A slot said goodbye or lost its link."""
        self._gone.add(slot)

    @property
    def all_gone(self) -> bool:
        """All that ever registered."""
        return self._gone >= set(self.registered)

    def describe(self, slot: int) -> str:
        known = self.registered.get(slot)
        return f"slot {slot}" if known is None else f"slot {slot} (pid {known.pid} on {known.data_host})"

    def overdue(self, now_s: float) -> str | None:
        """Return why this Generation must be given up although no link broke, or None."""
        if self._job.done:
            self._job_done_s = self._job_done_s or now_s
            if now_s - self._job_done_s > CAUSE_GRACE_S:
                error = self._job.error
                return self._why_they_ended() if error is None else str(error)
        if len(self.registered) < self._parallelism and now_s - self._launched_s > self._start_timeout_s:
            return (
                f"only {len(self.registered)} of {self._parallelism} slots started within {self._start_timeout_s:g} s: "
                "other jobs may hold the cluster's cores, or its executors start slowly; free cores, or give them more "
                f"time with {CONF_PREFIX}slot.startTimeout"
            )
        for slot, heard_s in sorted(self._heard_s.items()):
            silent_s = HEARTBEAT_TIMEOUT_S + (0 if slot in self.running else self._start_timeout_s)
            if now_s - heard_s > silent_s:
                return f"{self.describe(slot)} was not heard of for {silent_s:g} s"
        return None

    def _why_they_ended(self) -> str:
        if self.registered:
            return "the slots ended"
        return f"no slot reached the driver at {self._address}: the executors must be able to connect to it"

    # -- what slots are told --------------------------------------------------------------------------------------

    def send(self, slot: int, message: ToSlot) -> None:
        self._server.send(self._seats[slot], message)

    def broadcast(self, message: ToSlot) -> None:
        for slot in range(self._parallelism):
            self.send(slot, message)

    def tell(self, message: ToSubtask) -> None:
        """Send a message for one reader to its slot, any other to all slots."""
        match message:
            case AssignSplits(index=index) | AdvanceWatermark(index=index):
                self.send(index, message)
            case _:
                self.broadcast(message)

    def stop(self) -> None:
        """Ask for an orderly end; ``Stopped`` follows from each slot."""
        self.broadcast(Stop())

    def close(self, now_s: float) -> None:
        """Close all links: slots end at once, whatever they do. Idempotent."""
        if self._closed_s is None:
            self._closed_s = now_s
            self._server.close()

    def ended(self, now_s: float) -> bool:
        """After ``close``: whether the slots are gone. Cancels the job when they take too long."""
        if self._job.done:
            return True
        assert self._closed_s is not None
        if not self._cancelled and now_s - self._closed_s > JOB_GRACE_S:
            self._cancelled = True
            self._job.cancel()
        return False

    def wait(self, timeout_s: float) -> bool:
        """Block until the job is over."""
        return self._job.wait(timeout_s)

    def cancel(self) -> None:
        self._job.cancel()


def seats_of(remembered: Sequence[Sequence[int]]) -> list[int]:
    """The seat of every slot, given which slots each seat remembers: theirs as far as it goes, then those of the same
    number, then any."""
    seats: dict[int, int] = {}
    count = len(remembered)
    wishes = [(slot, seat) for seat, slots in enumerate(remembered) for slot in slots if slot < count]
    for slot, seat in [*wishes, *((n, n) for n in range(count)), *product(range(count), range(count))]:
        if slot not in seats and seat not in seats.values():
            seats[slot] = seat
    return [seats[slot] for slot in range(count)]
