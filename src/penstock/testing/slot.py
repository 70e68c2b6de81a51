"""A simulated slot: real subtasks, real capture files, no threads and no sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.config import Options
from penstock.connectors.base import SinkContext
from penstock.errors import CheckpointFailed, CorruptSnapshot
from penstock.graph.model import JobGraph
from penstock.ids import ChannelId, CheckpointId, GenerationId, SubtaskId
from penstock.protocol import coordinator_types as ct
from penstock.protocol import splits as sp
from penstock.protocol.elements import Captured, Element
from penstock.runtime.host import (
    Aborted,
    Arrived,
    Completed,
    Granted,
    InboxEvent,
    RecoveredLoaded,
    SourcesDry,
    SplitsAssigned,
    SubtaskCapture,
    Triggered,
)
from penstock.runtime.inbox import Inbox
from penstock.runtime.subtask import Subtask
from penstock.snapshot import work as w
from penstock.snapshot.capture import load_inflight, load_restore, write_captures
from penstock.snapshot.model import InflightEntry, SubtaskManifest
from penstock.snapshot.store import Store
from penstock.testing.chance import Action, Chance

SPEEDS = {0: 3.0, 1: 3.0}
"""How often subtasks of a vertex get a turn; the last vertex is as slow as the run says."""


@dataclass
class Links:
    """What is on its way between the slots of one Generation: one FIFO per channel and direction."""

    elements: dict[ChannelId, deque[Element]] = field(default_factory=dict)
    credits: dict[ChannelId, deque[int]] = field(default_factory=dict)


class SimulatedSlot:
    """One slot of one Generation. After ``kill`` it does nothing any more; its links stay as they are."""

    def __init__(
        self,
        index: int,
        generation: GenerationId,
        graph: JobGraph,
        options: Options,
        store: Store,
        links: Links,
        manifests: list[SubtaskManifest],
        chance: Chance,
        tell_driver: Callable[[w.DriverEvent], None],
        slow_weight: Callable[[], float],
        lost: Callable[[SimulatedSlot], None],
        fenced: Callable[[], bool],
    ) -> None:
        self.name = f"g{generation}/slot{index}"
        self.index = index
        self.generation = generation
        self.alive = True
        self.orphaned = False
        self.from_driver: deque[ct.Trigger | ct.NotifyComplete | ct.Abort | sp.Assign | sp.Dry | sp.Lift] = deque()
        self.to_driver: deque[w.DriverEvent] = deque()
        self.subtasks: list[Subtask] = []
        self._graph = graph
        self._options = options
        self._store = store
        self._links = links
        self._manifests = manifests
        self._chance = chance
        self._tell_driver = tell_driver
        self._slow_weight = slow_weight
        self._lost = lost
        self._fenced = fenced
        self._step_names: list[str] = []
        self._wake_at_ms: dict[SubtaskId, float | None] = {}
        self._parts: dict[CheckpointId, list[SubtaskCapture]] = {}
        self._uploads: deque[CheckpointId] = deque()
        self._over: dict[CheckpointId, None] = {}
        self._loads: deque[tuple[SubtaskId, InflightEntry]] = deque()

    def kill(self) -> None:
        if self.alive:
            self.alive = False
            for subtask in self.subtasks:
                subtask.close()

    # -- SubtaskHost ----------------------------------------------------------------------------------------------

    def send(self, channel: ChannelId, element: Element) -> None:
        if channel.consumer == self.index:
            self._at(self._graph.edge(channel.edge).consumer).append(Arrived(channel, element))
        else:
            self._links.elements.setdefault(channel, deque()).append(element)

    def grant(self, channel: ChannelId, credit: int) -> None:
        if channel.producer == self.index:
            self._at(self._graph.edge(channel.edge).producer).append(Granted(channel, credit))
        else:
            self._links.credits.setdefault(channel, deque()).append(credit)

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        raise NotImplementedError

    def finished(self, subtask: SubtaskId) -> None:
        raise NotImplementedError

    def captured(self, capture: SubtaskCapture) -> None:
        if capture.checkpoint in self._over:
            return
        parts = self._parts.setdefault(capture.checkpoint, [])
        parts.append(capture)
        if len(parts) == len(self._graph.vertices):
            self._uploads.append(capture.checkpoint)

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        self._decline(checkpoint, reason)

    def request_split(self, subtask: SubtaskId, holding: int, watermark_us: int | None) -> None:
        request = sp.Requested(subtask.index, holding, watermark_us)
        self.to_driver.append(w.SplitRequested(self.generation, subtask.vertex, request))

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        self._loads.append((subtask, entry))

    # -- what may happen next -------------------------------------------------------------------------------------

    def actions(self) -> list[Action]:
        if not self.alive:
            return []
        if not self.subtasks:
            return [Action(f"{self.name} starts", 1.0, lambda: self._read_snapshot(self._start))]
        found = [
            Action(name, self._weight(s), lambda s=s: self._step(s))  # type: ignore[misc]
            for s, name in zip(self.subtasks, self._step_names, strict=True)
            if self._ready(s)
        ]
        if self.from_driver:
            found.append(Action(f"{self.name} hears", 2.0, self._hear))
        if self.to_driver and not self.orphaned:
            found.append(Action(f"{self.name} tells", 2.0, lambda: self._tell_driver(self.to_driver.popleft())))
        if self._uploads:
            found.append(Action(f"{self.name} uploads {self._uploads[0]}", 1.0, self._upload))
        if self._loads:
            loads = f"{self.name} loads for {self._loads[0][0]}"
            found.append(Action(loads, 0.2, lambda: self._read_snapshot(self._load)))
        if self.orphaned:
            found.append(Action(f"{self.name} notices", 0.2, self.kill))
        return found

    def wakes_ms(self) -> list[float]:
        """When subtasks want a step although nothing arrives."""
        return [at for at in self._wake_at_ms.values() if at is not None and self.alive]

    def receive(self, event: Arrived | Granted) -> None:
        """From a peer's link."""
        edge = self._graph.edge(event.channel.edge)
        self._at(edge.consumer if isinstance(event, Arrived) else edge.producer).append(event)

    # -- what it does ---------------------------------------------------------------------------------------------

    def _read_snapshot(self, read: Callable[[], None]) -> None:
        """A slot that does not know yet that it is fenced may find its snapshot collected by the new owner."""
        try:
            read()
        except CorruptSnapshot:
            if not self._fenced():
                raise
            self.kill()
            self._lost(self)

    def _start(self) -> None:
        manifests = {m.vertex: m for m in self._manifests}
        token = self._chance.token()
        for vertex in self._graph.vertices:
            manifest = manifests.get(vertex.id)
            self.subtasks.append(
                Subtask(
                    vertex,
                    self._graph,
                    SubtaskId(vertex.id, self.index),
                    self.generation,
                    self._options,
                    self,
                    None if manifest is None else load_restore(manifest, self._store),
                    SinkContext("query", self.generation, self.index, self._graph.parallelism, token),
                    self._chance.clock_s,
                )
            )
            subtask = self.subtasks[-1].subtask
            self._step_names.append(f"step {self.name} {subtask}")
            self._wake_at_ms[subtask] = self._chance.now_ms
        self.to_driver.append(w.SlotRunning(self.generation, self.index))

    def _step(self, subtask: Subtask) -> None:
        result = subtask.step(self._chance.now_ms)
        self._wake_at_ms[subtask.subtask] = self._chance.now_ms if result.worked else result.wake_at_ms
        subtask.check_invariants()

    def _hear(self) -> None:
        match self.from_driver.popleft():
            case ct.Trigger(checkpoint, alignment, remaining_ms):
                for vertex in self._graph.vertices:
                    if vertex.source is not None:
                        self._at(vertex.id).append(Triggered(checkpoint, alignment, remaining_ms=remaining_ms))
            case ct.NotifyComplete(checkpoint, committed_epoch):
                self._to_all(Completed(checkpoint, committed_epoch))
            case ct.Abort(checkpoint):
                self._end(checkpoint)
                self._to_all(Aborted(checkpoint))
            case sp.Assign(vertex_id, _, splits):
                self._at(vertex_id).append(SplitsAssigned(splits))
            case sp.Dry(vertex_id, watermark_us) | sp.Lift(vertex_id, _, watermark_us):
                self._at(vertex_id).append(SourcesDry(watermark_us))

    def _upload(self) -> None:
        checkpoint = self._uploads.popleft()
        parts = self._parts.pop(checkpoint)
        try:
            manifest = write_captures(self._store, self._graph, self.generation, self.index, parts)
        except CheckpointFailed as problem:
            self._decline(checkpoint, str(problem))
            return
        self._end(checkpoint)
        self.to_driver.append(ct.Ack(self.generation, checkpoint, manifest))

    def _load(self) -> None:
        subtask, entry = self._loads.popleft()
        self._at(subtask.vertex).append(RecoveredLoaded(entry, load_inflight(self._store, entry)))

    def _decline(self, checkpoint: CheckpointId, reason: str) -> None:
        if checkpoint not in self._over:
            self._end(checkpoint)
            self.to_driver.append(ct.Decline(self.generation, checkpoint, self.index, reason))

    def _end(self, checkpoint: CheckpointId) -> None:
        self._parts.pop(checkpoint, None)
        if checkpoint in self._uploads:
            self._uploads.remove(checkpoint)
        self._over[checkpoint] = None

    def _at(self, vertex: int) -> Inbox[InboxEvent]:
        return next(s.inbox for s in self.subtasks if s.subtask.vertex == vertex)

    def _to_all(self, event: InboxEvent) -> None:
        for subtask in self.subtasks:
            subtask.inbox.append(event)

    def _ready(self, subtask: Subtask) -> bool:
        at = self._wake_at_ms[subtask.subtask]
        return len(subtask.inbox) > 0 or (at is not None and at <= self._chance.now_ms)

    def _weight(self, subtask: Subtask) -> float:
        return SPEEDS.get(subtask.subtask.vertex, 0.0) or self._slow_weight()
