"""Checkpoint uploader: makes a slot's captures durable, then acknowledges the checkpoint.

Its thread only writes files.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

import msgspec

from penstock.errors import CheckpointFailed
from penstock.logs import daemon_thread
from penstock.model.elements import Captured
from penstock.model.ids import CheckpointId, GenerationId, SubtaskId
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SubtaskManifest
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint
from penstock.operators.base import OperatorState
from penstock.snapshots.restoring.local_state import LocalStateStore
from penstock.snapshots.store.store import Store
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
from penstock.worker.host import SubtaskCapture


class CheckpointUploader:
    """Writes captured data as the subtasks pass it on, and answers after one capture per subtask.

    Args:
        limits: a checkpoint that needs more memory is declined at once, on the thread that passed the data.
        answer: takes one message per checkpoint: when all subtasks captured it, one declined it or the store failed. It
            is called on any thread, and not for a checkpoint that the driver aborted before.
        on_crash: takes an error that does not come from the store, which is a bug. The slot must end.
        local_state: tables for local state reuse after a restart; None: local state is not reused.
    """

    def __init__(
        self,
        store: Store,
        graph: JobGraph,
        generation: GenerationId,
        slot: int,
        limits: CaptureLimits,
        answer: Callable[[AcknowledgeCheckpoint | DeclineCheckpoint], None],
        on_crash: Callable[[BaseException], None],
        local_state: LocalStateStore | None = None,
    ) -> None:
        self._slot = slot
        self._local_state = local_state
        self._answer = answer
        self._on_crash = on_crash
        self._queue = CaptureQueue(limits)
        self._changed = threading.Condition()
        self._stopping = False
        self._over = False
        self._writer = SlotWriter(store, graph, generation, slot, local_state=local_state)
        self._writing_ms: dict[CheckpointId, float] = {}
        self._refused_s: dict[CheckpointId, float] = {}
        self._limit_wait_ms: dict[CheckpointId, float] = {}
        self._recovered_rows_read: dict[CheckpointId, int] = {}
        self.thread = daemon_thread(self._run, f"penstock-upload-{slot}")

    def restored(self, checkpoint: CheckpointId, manifests: Iterable[SubtaskManifest]) -> None:
        """Record the checkpoint from which the subtasks' tables are loaded. Call it before the thread is started.

        The first checkpoint may be based on it.
        """
        self._writer.restored(checkpoint, manifests)

    # -- from any thread; none of these waits for the store ---------------------------------------------------------

    def triggered(self, checkpoint: CheckpointId, base: CheckpointId) -> None:
        """Record a trigger. ``base`` is the complete checkpoint whose sections may be referenced (0: none)."""
        with self._changed:
            self._queue.triggered(checkpoint, base)
            self._changed.notify()

    def allow(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        """Implement ``SubtaskHost.allow_capture``."""
        with self._changed:
            allowed = self._queue.allow(checkpoint, captured_bytes)
            if not allowed:
                self._refused_s.setdefault(checkpoint, time.monotonic())
            return allowed

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        """Take a part of the in-flight data, before ``captured`` of the same subtask."""
        self._offer(RecordedRows(subtask, checkpoint, inflight))

    def captured(self, capture: SubtaskCapture) -> None:
        with self._changed:
            read = self._recovered_rows_read.get(capture.checkpoint, 0)
            self._recovered_rows_read[capture.checkpoint] = read + capture.recovered_rows_read
            refused_s = self._refused_s.get(capture.checkpoint)
            if refused_s is not None:
                self._limit_wait_ms[capture.checkpoint] = (time.monotonic() - refused_s) * 1000
        self._offer(capture)

    def dropped(self, states: Sequence[OperatorState]) -> None:
        """Release state that was captured but will not be written, because its checkpoint was aborted."""
        with self._changed:
            self._queue.drop(states)
            self._changed.notify()
        self._release_what_comes_late()

    def declined(self, checkpoint: CheckpointId, reason: str) -> None:
        """Decline the checkpoint for the whole slot. Captures of the other subtasks are dropped."""
        self._end(checkpoint, reason)

    def aborted(self, checkpoint: CheckpointId) -> None:
        """Drop everything held for a checkpoint that the driver aborted."""
        self._end(checkpoint, None)

    def completed(self, checkpoint: CheckpointId) -> None:
        """Record that the driver will restore no older checkpoint."""
        if self._local_state is not None:
            self._local_state.checkpoint_completed(checkpoint)

    def stop(self) -> None:
        """Drop queued data and remove partly written files. Does not wait for a running write."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    @property
    def held_bytes(self) -> int:
        """Bytes of in-flight rows that are held in memory until they are written."""
        with self._changed:
            return self._queue.held_bytes

    def _offer(self, work: RecordedRows | SubtaskCapture) -> None:
        with self._changed:
            reason = self._queue.offer(work)
            self._changed.notify()
        self._release_what_comes_late()
        if reason is not None:
            self._end(work.checkpoint, reason)

    def _end(self, checkpoint: CheckpointId, reason: str | None) -> None:
        with self._changed:
            is_news = self._queue.end(checkpoint)
            self._forget(checkpoint)
            self._changed.notify()
        if is_news and reason is not None:
            self._answer(DeclineCheckpoint(self._slot, checkpoint, reason))

    # -- on the upload thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None:
                self._do(work)
                del work  # otherwise its rows would be held until the next item
        except Exception as problem:  # noqa: BLE001 - handed on, whatever it is
            self._on_crash(problem)
        finally:
            self._writer.close()
            with self._changed:
                self._over = True
            self._release_what_comes_late()

    def _release_what_comes_late(self) -> None:
        """Release the remaining captures once the upload thread has ended."""
        with self._changed:
            left = list(self._queue.remaining_states()) if self._over else []
        for states in left:
            for state in states:
                state.release()

    def _next(self) -> WriterTask | None:
        with self._changed:
            self._queue.written()
            self._changed.wait_for(lambda: self._stopping or len(self._queue))
            return None if self._stopping else self._queue.take()

    def _do(self, work: WriterTask) -> None:
        match work:
            case BeginCheckpoint(checkpoint, base):
                self._writer.begin(checkpoint, base)
            case EndCheckpoint(checkpoint):
                self._writing_ms.pop(checkpoint, None)
                self._writer.abandon(checkpoint)
            case ReleaseState(states):
                for state in states:
                    state.release()
            case RecordedRows() | SubtaskCapture():
                self._write(work)
            case _:
                assert_never(work)

    def _write(self, work: RecordedRows | SubtaskCapture) -> None:
        checkpoint = work.checkpoint
        began = time.monotonic()
        try:
            manifest = self._writer.finish(checkpoint) if self._writer.write(work) else None
        except CheckpointFailed as problem:
            self._end(checkpoint, str(problem))
            return
        written_ms = self._writing_ms.pop(checkpoint, 0.0) + (time.monotonic() - began) * 1000
        if manifest is None:
            self._writing_ms[checkpoint] = written_ms
            return
        with self._changed:
            alive = self._queue.finish(checkpoint)
            limit_wait_ms, read = self._forget(checkpoint)
        if alive:  # otherwise the checkpoint ended while it was made durable, and its removal is the next item
            self._writer.confirm(checkpoint)
            metrics = [msgspec.structs.replace(m, async_ms=written_ms) for m in manifest.metrics]
            manifest = msgspec.structs.replace(manifest, metrics=metrics)
            self._answer(AcknowledgeCheckpoint(checkpoint, manifest, limit_wait_ms, read))

    def _forget(self, checkpoint: CheckpointId) -> tuple[float, int]:
        """Remove the statistics of a checkpoint. Return ``limit_wait_ms`` and ``recovered_rows_read``."""
        self._refused_s.pop(checkpoint, None)
        return self._limit_wait_ms.pop(checkpoint, 0.0), self._recovered_rows_read.pop(checkpoint, 0)
