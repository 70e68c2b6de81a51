"""A simulated slot: real subtasks, real capture files, no threads and no sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.connectors.base import SinkContext
from penstock.coordinator.commands import JobEvent
from penstock.errors import CorruptSnapshot, FunctionError
from penstock.model.elements import Barrier, Buffer, Captured, Element
from penstock.model.ids import ChannelId, CheckpointId, GenerationId, SubtaskId
from penstock.model.job_graph import Vertex
from penstock.model.manifest import InflightEntry, SubtaskManifest
from penstock.model.messages import (
    AbortCheckpoint,
    FromSlot,
    NotifyCheckpointComplete,
    PauseReaders,
    PollCompleted,
    ReaderProgressed,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    SubtaskFinished,
    ToSubtask,
    TriggerCheckpoint,
)
from penstock.operators.base import OperatorState
from penstock.snapshots.restoring.local_state import LocalStateRestore, LocalStateStore
from penstock.snapshots.restoring.narrowing import load_consumer_rows
from penstock.snapshots.restoring.restore import load_restore
from penstock.testing.failure import SimulationFailure
from penstock.worker.host import Arrived, Granted, Inbox, InboxEvent, RecoveredLoaded, SubtaskCapture, Triggered
from penstock.worker.subtask import Subtask
from penstock.worker.wiring import window_into
from simulator.cluster.links import Link
from simulator.cluster.uploads import SimulatedUploads
from simulator.engine.coroutine import Coroutine, coroutine_of
from simulator.engine.scheduler import Actor
from simulator.engine.store import Crash
from simulator.oracles.promptness import Promptness, PromptnessWithinLimit

if TYPE_CHECKING:
    from simulator.cluster.generation import SimulatedGeneration

REPORT_EVERY_MS = 100.0
NOTICE_WEIGHT = 0.1
"""A slot whose driver is gone takes its time to notice: until then it goes on, as a zombie."""


@dataclass(frozen=True)
class SlotFailed:
    """To the driver, the last thing a slot says: ``kind`` as in ``messages.SlotFailed``, or ``lost``."""

    generation: GenerationId
    kind: str
    reason: str


ToDriver = JobEvent | SlotFailed


class _Runner:
    """One subtask and its thread.

    It is busy for as long as its step took; what arrives meanwhile waits in its inbox.
    """

    def __init__(self, slot: SimulatedSlot, subtask: Subtask) -> None:
        self.subtask = subtask
        self.promptness = Promptness(subtask, slot.world)
        if slot.world.options.checkpoint_max_inflight_bytes is not None:
            self.promptness = PromptnessWithinLimit(subtask, slot.world, slot.uploads.room)
        self.actor = Actor(f"{slot.name} {subtask.subtask}", self._step, slot.world.settings.eagerness)
        self._slot = slot
        self._world = slot.world
        self._rows_at_pause: int | None = None
        self._until_check = slot.world.context.random.randrange(slot.world.settings.checks)
        subtask.inbox.wake = lambda: slot.world.scheduler.ready(self.actor)

    def pause(self, paused: bool) -> None:
        """Pause or resume the source. A step handles this before it reads."""
        self.subtask.inbox.append(PauseReaders(self.subtask.subtask.vertex, paused))
        self._rows_at_pause = self.subtask._rows_in if paused else None

    def _step(self) -> bool:
        context, scheduler = self._world.context, self._world.scheduler
        began_ms = context.now_ms
        self.promptness.step_begins(began_ms)
        try:
            result = self.subtask.step(began_ms, self._slot.takes_input)
        except FunctionError as problem:
            self._slot.fail("function", str(problem))
            return False
        self.promptness.step_ended()
        if self._rows_at_pause not in (None, self.subtask._rows_in):
            raise SimulationFailure(f"{self.actor.name} reads although it is paused", "in-flight drains")
        self._count_phases()
        self._until_check -= 1
        if self._until_check <= 0:
            self._until_check = self._world.settings.checks
            self.subtask.check_invariants()
        again = result.worked and (self._slot.takes_input or len(self.subtask.inbox) > 0)
        if context.spent_ms > 1.0:
            scheduler.busy(self.actor, began_ms + context.spent_ms)
            if again:
                scheduler.ready(self.actor)
        if result.wake_at_ms is not None:
            scheduler.wake(self.actor, max(result.wake_at_ms, self.actor.busy_until_ms))
        return again and self.actor.busy_until_ms <= context.now_ms

    def _count_phases(self) -> None:
        machine = self.subtask._checkpoints
        for checkpoint in machine.active:
            self._world.counters.count(f"a step ended {machine.phase(checkpoint).value}")

    def count_turns(self) -> None:
        """Count at the end of the subtask how often an aligned checkpoint became unaligned here."""
        machine = self.subtask._checkpoints
        self._world.counters.count("turned unaligned at an input", machine.turned_at_input)
        self._world.counters.count("turned unaligned at an output", machine.turned_at_output)


class SimulatedSlot:
    """One slot of one Generation.

    Args:
        owner: its Generation.
        receive: called with messages from this slot to the driver.
        takes_input: False blocks all input; only control messages are handled.
        restored: checkpoint of the restored manifests; 0 without any.
        paused: True if the sources start paused.
    """

    def __init__(
        self,
        index: int,
        owner: SimulatedGeneration,
        manifests: list[SubtaskManifest],
        receive: Callable[[SimulatedSlot, ToDriver], None],
        takes_input: bool = True,
        restored: CheckpointId = 0,
        paused: bool = False,
    ) -> None:
        world = owner.world
        self.name = f"g{owner.generation}/s{index}"
        self.index = index
        self.generation = owner.generation
        self.world = world
        self.alive = True
        self.orphaned = False
        self.takes_input = takes_input
        self._paused = paused
        self.links: dict[int, Link] = {}
        self.runners: dict[int, _Runner] = {}
        self._owner = owner
        self._manifests = {m.vertex: m for m in manifests}
        self._receive = receive
        self._from_driver: deque[ToSubtask] = deque()
        self._to_driver: deque[ToDriver] = deque()
        self._loads: deque[tuple[SubtaskId, InflightEntry]] = deque()
        self._starting: Coroutine | None = coroutine_of(self._start)
        self._loading: Coroutine | None = None
        self._inboxes: dict[int, Inbox[InboxEvent]] = {}
        self.graph = graph = owner.graph
        self.kept = LocalStateStore()
        left = world.workers.pop(index, LocalStateStore())
        self._local = LocalStateRestore(restored, left.take_matching(restored, manifests), self.kept)
        self.uploads = SimulatedUploads(self)
        self.uploads.restored(restored, manifests)
        self._consumers = {edge.id: edge.consumer for edge in graph.edges}
        self._producers = {edge.id: edge.producer for edge in graph.edges}
        self._windows = {vertex.id: window_into(graph, vertex.id, world.options) for vertex in graph.vertices}
        self._sources = [vertex.id for vertex in graph.vertices if vertex.source is not None]
        self._actor_start = Actor(f"{self.name} starts", self._go_on_starting)
        self._actor_hear = Actor(f"{self.name} hears", self._obey)
        self._actor_tell = Actor(f"{self.name} tells", self._tell)
        self._actor_load = Actor(f"{self.name} loads", self._load, 0.3)
        self._actor_notice = Actor(f"{self.name} notices", self._notice, NOTICE_WEIGHT)
        self._actor_report = Actor(f"{self.name} reports", self._report)
        world.scheduler.ready(self._actor_start)

    def delay_loads(self, until_ms: float) -> None:
        """Its disk is slow to read."""
        self.world.scheduler.busy(self._actor_load, until_ms)

    @property
    def running(self) -> bool:
        """Its subtasks are there: peers may be connected."""
        return self.alive and self._starting is None

    # -- life -----------------------------------------------------------------------------------------------------

    def die(self) -> None:
        """Like ``kill -9``; what it has sent before still arrives, and then its links end."""
        if not self.alive:
            return
        self._end()
        self.tell(SlotFailed(self.generation, "lost", f"{self.name} was lost"))

    def fail(self, kind: str, reason: str) -> None:
        """It reports why, and ends."""
        if self.alive:
            self._end(keep=kind == "link")
            self.tell(SlotFailed(self.generation, kind, reason))

    def orphan(self) -> None:
        """Disconnect the slot from its driver, which has died or given the Generation up.

        Its messages are lost from now on.
        """
        self.orphaned = True
        self._to_driver.clear()
        self.world.scheduler.end(self._actor_tell)
        self.world.scheduler.ready(self._actor_notice)

    def _notice(self) -> bool:
        self._end(keep=True)
        return False

    def _end(self, keep: bool = False) -> None:
        """``keep``: its worker lives on, and is what the next slot of its number runs in."""
        if not self.alive:
            return
        self.alive = False
        scheduler, store = self.world.scheduler, self.world.store
        for actor in (
            self._actor_start,
            self._actor_hear,
            self._actor_load,
            self._actor_notice,
            self._actor_report,
            *(runner.actor for runner in self.runners.values()),
        ):
            scheduler.end(actor)
        for link in self.links.values():
            link.close()
        for coroutine in (self._starting, self._loading):
            if coroutine is not None:
                coroutine.kill(store)
        self.uploads.kill()
        for runner in self.runners.values():
            runner.count_turns()
            runner.subtask.close()
        if keep:
            self.world.workers[self.index] = self.kept

    # -- SubtaskHost ----------------------------------------------------------------------------------------------

    def send(self, channel: ChannelId, element: Element) -> None:
        if isinstance(element, Barrier):
            self.runners[self._producers[channel.edge]].promptness.sent(channel, element)
        if channel.consumer == self.index:
            self.arrived(Arrived(channel, element))
        else:
            self.links[channel.consumer].send(channel, element)

    def grant(self, channel: ChannelId, credit: int) -> None:
        if channel.producer == self.index:
            self.granted(Granted(channel, credit))
        else:
            self.links[channel.producer].grant(channel, credit)

    def allow_capture(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        return self.uploads.allow(checkpoint, captured_bytes)

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        self.world.counters.count("recorded in parts")
        self._owner.capture_oracle.recorded(checkpoint, inflight)
        self.uploads.recorded(subtask, checkpoint, inflight)

    def captured(self, capture: SubtaskCapture) -> None:
        runner = self.runners[capture.subtask.vertex]
        runner.promptness.over(capture.checkpoint)
        self.world.counters.count("captures of finished subtasks", runner.subtask.finished)
        self._owner.capture_oracle.captured(capture)
        self.uploads.captured(capture)

    def dropped(self, states: Sequence[OperatorState]) -> None:
        self.world.counters.count("states captured in vain", len(states))
        self.uploads.dropped(states)

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        self.world.counters.count("declined: barriers")
        self.runners[subtask.vertex].promptness.over(checkpoint)
        self.uploads.declined(checkpoint, reason)

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        assert not isinstance(message, PollCompleted), "processAllAvailable is not simulated"
        self.tell(FromSlot(self.generation, message))

    def finished(self, subtask: SubtaskId) -> None:
        self.world.counters.count("subtasks finished")
        self.tell(FromSlot(self.generation, SubtaskFinished(subtask.vertex, subtask.index)))

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        self._loads.append((subtask, entry))
        self.world.scheduler.ready(self._actor_load)

    # -- messages -------------------------------------------------------------------------------------------------

    def arrived(self, event: Arrived) -> None:
        """Handle an element from another slot or from this one."""
        vertex = self._consumers[event.channel.edge]
        if isinstance(event.element, Barrier):
            self.runners[vertex].promptness.arrived(event.channel, event.element, self._clock_s() * 1000)
            event = Arrived(event.channel, event.element, self._clock_s())
        elif isinstance(event.element, Buffer) and event.element.cost > self._windows[vertex]:
            self.world.counters.count("rows larger than their window", event.element.rows)
        self._inboxes[vertex].append(event)

    def granted(self, event: Granted) -> None:
        self._inboxes[self._producers[event.channel.edge]].append(event)

    def command(self, message: ToSubtask) -> None:
        """The driver sends it on the control link."""
        if self.alive:
            self._from_driver.append(message)
            if self.running:
                self.world.scheduler.ready(self._actor_hear)

    def tell(self, message: ToDriver) -> None:
        """Put it on the control link."""
        if not self.orphaned:
            self._to_driver.append(message)
            self.world.scheduler.ready(self._actor_tell)

    def _tell(self) -> bool:
        if self._to_driver:
            self._receive(self, self._to_driver.popleft())
        return bool(self._to_driver)

    def _obey(self) -> bool:
        if self._from_driver:
            self._carry_out(self._from_driver.popleft())
        return bool(self._from_driver)

    def _carry_out(self, message: ToSubtask) -> None:
        match message:
            case TriggerCheckpoint(checkpoint, base=base):
                self.uploads.triggered(checkpoint, base)
                trigger = Triggered(message, self._clock_s())
                for vertex in self._sources:
                    self.runners[vertex].promptness.triggered(message, self._clock_s() * 1000)
                    self._inboxes[vertex].append(trigger)
            case NotifyCheckpointComplete(checkpoint):
                self.kept.checkpoint_completed(checkpoint)
                self._to_all(message)
            case AbortCheckpoint(checkpoint):
                self.uploads.aborted(checkpoint)
                for runner in self.runners.values():
                    runner.promptness.over(checkpoint)
                self._to_all(message)
            case PauseReaders(vertex, paused):
                self.runners[vertex].pause(paused)
            case _:
                self._inboxes[message.vertex].append(message)

    def _to_all(self, event: InboxEvent) -> None:
        for inbox in self._inboxes.values():
            inbox.append(event)

    def _report(self) -> bool:
        """Report the progress of the readers, as the heartbeat does."""
        if self.world.quiet:
            return False
        for vertex in self._sources:
            progress = ReaderProgressed(vertex, self.index, self.runners[vertex].subtask.report.watermark_us)
            self.tell(FromSlot(self.generation, progress))
        self.world.scheduler.wake(self._actor_report, self.world.context.now_ms + REPORT_EVERY_MS)
        return False

    # -- what blocks ----------------------------------------------------------------------------------------------

    def blocks(self, coroutine: Coroutine) -> bool | None:
        """Resume blocking work; return None if this slot died during it."""
        try:
            return self.world.run_as(self, coroutine)
        except Crash:
            self.die()
        except CorruptSnapshot as problem:
            self.world.counters.count("corruption noticed by a slot")
            self.fail("internal", str(problem))
        return None

    def _go_on_starting(self) -> bool:
        assert self._starting is not None
        done = self.blocks(self._starting)
        if done:
            self._starting = None
            self.world.counters.count("tables that were still in memory", self._local.reused_tables)
            self._inboxes = {vertex: runner.subtask.inbox for vertex, runner in self.runners.items()}
            scheduler = self.world.scheduler
            for vertex in self._sources if self._paused else ():
                self.runners[vertex].pause(True)
            for runner in self.runners.values():
                scheduler.ready(runner.actor)
            if self._from_driver:
                scheduler.ready(self._actor_hear)
            for link in self._owner.links_to(self.index):
                scheduler.ready(link.actor)
            scheduler.wake(self._actor_report, self.world.context.now_ms + REPORT_EVERY_MS)
            self.tell(FromSlot(self.generation, SlotRunning(self.index)))
        return done is False

    def _start(self) -> None:
        token = self.world.context.token()
        for vertex in self.graph.vertices:
            self.runners[vertex.id] = _Runner(self, self._build(vertex, token))

    def _build(self, vertex: Vertex, token: str) -> Subtask:
        graph = self.graph
        manifest = self._manifests.get(vertex.id)
        return Subtask(
            vertex,
            graph,
            SubtaskId(vertex.id, self.index),
            self.generation,
            self.world.options,
            self,
            None if manifest is None else load_restore(manifest, self.world.store, vertex.operators, self._local),
            SinkContext("query", self.generation, self.index, graph.parallelism, token),
            self.world.context.clock_s,
        )

    def _load(self) -> bool:
        if self._loading is None:
            if not self._loads:
                return False
            entry = self._loads[0][1]
            self._loading = coroutine_of(load_consumer_rows, self.world.store, entry, self.graph)
        coroutine = self._loading
        done = self.blocks(coroutine)
        if done:
            self._loading = None
            subtask, entry = self._loads.popleft()
            self.world.counters.count("restored in-flight rows", entry.rows)
            self._inboxes[subtask.vertex].append(
                RecoveredLoaded(entry, coroutine.result.batches, coroutine.result.reached)
            )
        return done is not None and (done is False or bool(self._loads))

    def _clock_s(self) -> float:
        return (self.world.context.now_ms + self.world.context.spent_ms) / 1000
