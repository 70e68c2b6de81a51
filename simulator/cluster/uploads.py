"""Uploads of a simulated slot: the real queue and writer, run one blocking call at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import CheckpointFailed
from penstock.model.elements import Captured
from penstock.model.ids import CheckpointId, SubtaskId
from penstock.model.manifest import SlotManifest, SubtaskManifest
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint, FromSlot
from penstock.operators.base import OperatorState
from penstock.snapshots.writing.capture_queue import (
    BeginCheckpoint,
    CaptureLimits,
    CaptureQueue,
    EndCheckpoint,
    RecordedRows,
    ReleaseState,
    WriterTask,
)
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.testing.failure import SimulationFailure
from penstock.worker.host import SubtaskCapture
from simulator.engine.coroutine import Coroutine, coroutine_of
from simulator.engine.scheduler import Actor

if TYPE_CHECKING:
    from simulator.cluster.slot import SimulatedSlot


class SimulatedUploads:
    """The same order of things as ``worker.checkpoint_uploader.CheckpointUploader``, which adds a thread to them."""

    def __init__(self, slot: SimulatedSlot) -> None:
        world = slot.world
        self._slot = slot
        self._queue = CaptureQueue(
            CaptureLimits(world.options.checkpoint_max_inflight_bytes, world.options.checkpoint_capture_memory)
        )
        self._writer = SlotWriter(
            world.store, slot.graph, slot.generation, slot.index, whole_bytes=0, local_state=slot.kept
        )
        self._limit_bytes = world.options.checkpoint_max_inflight_bytes
        self._allowed: Counter[CheckpointId] = Counter()
        self._offered: Counter[CheckpointId] = Counter()
        self._dead: set[CheckpointId] = set()
        self._work: WriterTask | None = None
        self._writing: Coroutine | None = None
        self.actor = Actor(f"{slot.name} uploads", self._act)

    def restored(self, checkpoint: CheckpointId, manifests: Iterable[SubtaskManifest]) -> None:
        self._writer.restored(checkpoint, manifests)

    def triggered(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        self._queue.triggered(checkpoint, base)
        self._slot.world.scheduler.ready(self.actor)

    def allow(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        allowed = self._queue.allow(checkpoint, captured_bytes)
        self._slot.world.counters.count("captures that had to wait for the in-flight limit", not allowed)
        self._allowed[checkpoint] += captured_bytes if allowed else 0
        return allowed

    def room(self, checkpoint: CheckpointId) -> int:
        """Bytes that a checkpoint may still capture."""
        assert self._limit_bytes is not None
        return self._limit_bytes - self._allowed[checkpoint]

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        self._offer(RecordedRows(subtask, checkpoint, inflight))

    def captured(self, capture: SubtaskCapture) -> None:
        self._offer(capture)

    def dropped(self, states: Sequence[OperatorState]) -> None:
        self._queue.drop(states)
        self._slot.world.scheduler.ready(self.actor)

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        self._end(checkpoint, reason)

    def aborted(self, checkpoint: CheckpointId) -> None:
        self._end(checkpoint, None)

    def kill(self) -> None:
        """The slot is dead."""
        self._slot.world.scheduler.end(self.actor)
        if self._writing is not None:
            self._writing.kill(self._slot.world.store)

    def _offer(self, work: RecordedRows | SubtaskCapture) -> None:
        self._offered[work.checkpoint] += sum(captured.cost for captured in work.inflight)
        dead = work.checkpoint in self._dead
        if self._limit_bytes is not None and self._offered[work.checkpoint] > self._limit_bytes and not dead:
            message = f"{self._slot.name} captures {self._offered[work.checkpoint]} bytes for {work.checkpoint}"
            raise SimulationFailure(f"{message}, more than {self._limit_bytes}", "limits")
        reason = self._queue.offer(work)
        self._slot.world.scheduler.ready(self.actor)
        if reason is not None:
            self._slot.world.counters.count("declined: capture memory")
            self._end(work.checkpoint, reason)

    def _end(self, checkpoint: CheckpointId, reason: str | None) -> None:
        self._dead.add(checkpoint)
        is_news = self._queue.end(checkpoint)
        self._queue.check_invariants()
        self._slot.world.scheduler.ready(self.actor)
        if is_news and reason is not None:
            self._slot.tell(FromSlot(self._slot.generation, DeclineCheckpoint(self._slot.index, checkpoint, reason)))

    def _act(self) -> bool:
        if self._writing is None:
            self._work = self._queue.take()
            if self._work is None:
                return False
            self._writing = coroutine_of(self._do, self._work)
        coroutine = self._writing
        done = self._slot.blocks(coroutine)
        if done:
            self._writing = None
            self._finished(coroutine.result)
            self._queue.written()
        return done is not None and (done is False or len(self._queue) > 0)

    def _do(self, work: WriterTask) -> SlotManifest | str | None:
        """The manifest of what is durable now, or why it cannot be."""
        match work:
            case BeginCheckpoint(checkpoint, base):
                self._writer.begin(checkpoint, base)
            case EndCheckpoint(checkpoint):
                self._writer.abandon(checkpoint)
            case ReleaseState(states):
                for state in states:
                    state.release()
            case RecordedRows() | SubtaskCapture():
                try:
                    return self._writer.finish(work.checkpoint) if self._writer.write(work) else None
                except CheckpointFailed as problem:
                    return str(problem)
        return None

    def _finished(self, result: SlotManifest | str | None) -> None:
        if result is None:
            return
        assert isinstance(self._work, RecordedRows | SubtaskCapture)
        checkpoint = self._work.checkpoint
        if isinstance(result, str):
            self._slot.world.counters.count("declined: store")
            self._end(checkpoint, result)
        elif self._queue.finish(checkpoint):
            self._writer.confirm(checkpoint)
            self._slot.world.log.acknowledged(self._slot.generation, checkpoint, result)
            self._slot.tell(FromSlot(self._slot.generation, AcknowledgeCheckpoint(checkpoint, result)))
