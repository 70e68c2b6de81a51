"""Slots of one generation on the driver's side: launch, registration, heartbeats, messages and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product

from penstock.config import CONF_PREFIX, Options
from penstock.connectors.base import Committing
from penstock.coordinator.commands import GenerationReady
from penstock.coordinator.launching import SlotJob, SlotLauncher
from penstock.coordinator.rendezvous import ControlServer, SlotLost, SlotMessageReceived, peers_of
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
"""Maximum silence of a slot in seconds, longer than any call that holds the GIL.

It detects frozen slots; a dead slot is detected by the end of its link. A slot that does not run yet may be silent for
``slot.startTimeout`` longer, because it waits for others or restores state.
"""
CAUSE_GRACE_S = 0.2
"""Time for which the driver waits for the last messages of slots after their job has ended: they name the cause."""
JOB_GRACE_S = 0.5
"""Time for slots to end after their links were closed. After it the job is canceled, which takes Spark seconds."""


@dataclass(frozen=True)
class GenerationPlan:
    """Constant part of all generations of a query.

    Attributes:
        until_available: see ``QueryExecution``.
        forked: first log entry of a fork.
        access: credentials for the location. They contain secrets and are sent only over control links.
        refuse_copy_of, committing: see ``CommandExecutor``.
    """

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
    """Slots of one generation; the constructor launches them. Owned by the coordinator thread.

    Args:
        ready: the opened generation.
        paused: True if the sources start paused.
        now_s: time of the monotonic clock in seconds, here and in all methods.

    Raises:
        ResourceError: too few free slots.
    """

    def __init__(
        self,
        ready: GenerationReady,
        plan: GenerationPlan,
        launcher: SlotLauncher,
        loop: IoLoop,
        on_event: Callable[[SlotMessageReceived | SlotLost], None],
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
        self._task_numbers: list[int] = list(range(self._parallelism))
        self.registered: dict[int, Register] = {}
        self.running: set[int] = set()
        self._stopped: set[int] = set()
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

    # -- messages from slots -------------------------------------------------------------------------------------------

    def heard(self, slot: int, now_s: float) -> None:
        self._heard_s[slot] = now_s

    def slot_of(self, task_number: int) -> int:
        """Return the slot that runs in a task. Until all tasks have registered, it is the task's own number."""
        return self._task_numbers.index(task_number)

    def register(self, task_number: int, message: Register) -> bool:
        """Register a task. After the last one, assign the slots, send ``Deploy`` to each and return True.

        A worker that still has a slot's tables in memory becomes that slot again.
        """
        self.registered[task_number] = message
        if not self.complete:
            return False
        self._task_numbers = match_slots_to_tasks(
            [self.registered[number].remembers for number in range(self._parallelism)]
        )
        self.registered = {slot: self.registered[number] for slot, number in enumerate(self._task_numbers)}
        self._heard_s = {slot: self._heard_s[number] for slot, number in enumerate(self._task_numbers)}
        peers, access = peers_of(self.registered), self._access
        for slot in range(self._parallelism):
            self.send(
                slot, Deploy(slot, peers, self._ready.slots[slot], self._ready.opened.restored, access, self._paused)
            )
        return True

    def run(self, slot: int) -> bool:
        """Record that a slot runs. Return True once all do."""
        self.running.add(slot)
        return self.runs

    @property
    def runs(self) -> bool:
        """True once all slots run."""
        return len(self.running) == self._parallelism

    @property
    def complete(self) -> bool:
        """True once all slots have registered."""
        return len(self.registered) == self._parallelism

    def note_stopped(self, slot: int) -> None:
        """Record that a slot has stopped or lost its link."""
        self._stopped.add(slot)

    @property
    def all_stopped(self) -> bool:
        """True if all registered slots have stopped or lost their link."""
        return self._stopped >= set(self.registered)

    def describe(self, slot: int) -> str:
        register = self.registered.get(slot)
        return f"slot {slot}" + ("" if register is None else f" (pid {register.pid} on {register.data_host})")

    def overdue(self, now_s: float) -> str | None:
        """Return why this generation must be given up although no link broke, or None."""
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

    # -- messages to slots --------------------------------------------------------------------------------------

    def send(self, slot: int, message: ToSlot) -> None:
        self._server.send(self._task_numbers[slot], message)

    def broadcast(self, message: ToSlot) -> None:
        for slot in range(self._parallelism):
            self.send(slot, message)

    def tell(self, message: ToSubtask) -> None:
        """Send a message for one reader to its slot, any other message to all slots."""
        match message:
            case AssignSplits(index=index) | AdvanceWatermark(index=index):
                self.send(index, message)
            case _:
                self.broadcast(message)

    def stop(self) -> None:
        """Request an orderly end. Each slot answers with ``Stopped``."""
        self.broadcast(Stop())

    def close(self, now_s: float) -> None:
        """Close all links. Slots then end at once, even in the middle of a step. Idempotent."""
        if self._closed_s is None:
            self._closed_s = now_s
            self._server.close()

    def ended(self, now_s: float) -> bool:
        """Return True if the slots have ended after ``close``. Cancels the job after ``JOB_GRACE_S``."""
        if self._job.done:
            return True
        assert self._closed_s is not None
        if not self._cancelled and now_s - self._closed_s > JOB_GRACE_S:
            self._cancelled = True
            self._job.cancel()
        return False

    def wait(self, timeout_s: float) -> bool:
        """Block until the job has ended, at most ``timeout_s``. Return True if it has."""
        return self._job.wait(timeout_s)

    def cancel(self) -> None:
        self._job.cancel()


def match_slots_to_tasks(remembered: Sequence[Sequence[int]]) -> list[int]:
    """Return the task number of every slot.

    A slot goes to a task whose worker still has its tables in memory, otherwise to the task with the same number,
    otherwise to any.

    Args:
        remembered: by task number, the slots whose tables its worker has in memory.
    """
    task_of: dict[int, int] = {}
    count = len(remembered)
    preferred = [(slot, task) for task, slots in enumerate(remembered) for slot in slots if slot < count]
    for slot, task in [*preferred, *((n, n) for n in range(count)), *product(range(count), range(count))]:
        if slot not in task_of and task not in task_of.values():
            task_of[slot] = task
    return [task_of[slot] for slot in range(count)]
