"""Background writer of ended checkpoints to the history of their location.

It writes the checkpoints of a few seconds together. If the driver is killed or the store fails, only these entries of
the history are lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.coordinator.view import CheckpointState, CheckpointView
from penstock.errors import PenstockError
from penstock.logs import daemon_thread, get_logger
from penstock.redaction import without_secrets
from penstock.snapshots.history.records import MAX_REASON, CheckpointRecord
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.history.segments import StoredCheckpoint, stored_checkpoint

log = get_logger(__name__)

MAX_QUEUED = 200
"""Maximum number of checkpoints waiting to be written; when it is exceeded, the oldest are dropped.

The driver shows as many.
"""
BATCH_SIZE = 100
"""Number of waiting checkpoints that are written without waiting for ``PAUSE_S``."""
PAUSE_S = 5.0
"""Delay of a write after the end of a checkpoint, so that small entries share a file."""
RETRY_S = 30.0
"""Delay after a failure of the store."""


class HistoryWriter:
    """Background writer of the checkpoint history. Thread-safe; its thread starts with the first checkpoint."""

    def __init__(self, segments: SegmentWriter, *, pause_s: float = PAUSE_S, retry_s: float = RETRY_S) -> None:
        self._segments = segments
        self._pause_s = pause_s
        self._retry_s = retry_s
        self._changed = threading.Condition()
        self._queued: deque[CheckpointView] = deque(maxlen=MAX_QUEUED)
        self._closing = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def ended(self, checkpoint: CheckpointView) -> None:
        """Queue a checkpoint that is complete or has failed. Never blocks, never raises."""
        with self._changed:
            if self._closing:
                return
            self._queued.append(checkpoint)
            if self._thread is None:
                with suppress(RuntimeError):  # no thread can be started now; the next checkpoint tries again
                    thread = daemon_thread(self._run, "penstock-history")
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Write the queued checkpoints within ``timeout_s`` and accept no more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                log.warning("the newest checkpoints were not written to the history: the store takes too long")

    def _run(self) -> None:
        while batch := self._next_batch():
            if self._attempt(lambda: self._segments.append([history_entry(one) for one in batch])):
                self._remove(batch)
                self._attempt(self._segments.compact)
            elif self._closing:
                return
            else:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, self._retry_s)

    def _next_batch(self) -> Sequence[CheckpointView]:
        """Wait for checkpoints and return them; return an empty batch after ``close``."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._closing)
            self._changed.wait_for(lambda: len(self._queued) >= BATCH_SIZE or self._closing, self._pause_s)
            return tuple(self._queued)

    def _remove(self, batch: Sequence[CheckpointView]) -> None:
        """Remove a written batch from the queue, except entries that the full queue has dropped meanwhile."""
        written = {id(one) for one in batch}
        with self._changed:
            while self._queued and id(self._queued[0]) in written:
                self._queued.popleft()

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Run a step; return False if it failed and may be retried."""
        try:
            step()
        except (OSError, PenstockError) as problem:
            if not self._warned:
                log.warning("the history of checkpoints cannot be written: %s; the query goes on without", problem)
            self._warned = True
            return False
        except Exception:
            log.exception("checkpoints are missing from the history; the query goes on")
        return True


def history_entry(checkpoint: CheckpointView) -> StoredCheckpoint:
    """Return the history entry of a checkpoint."""
    record = CheckpointRecord(
        checkpoint=checkpoint.checkpoint,
        generation=checkpoint.generation,
        state="complete" if checkpoint.state is CheckpointState.COMPLETE else "failed",
        alignment=checkpoint.alignment,
        requested=checkpoint.requested,
        label=_text(checkpoint.label),
        triggered_ms=checkpoint.triggered_ms,
        duration_us=round(checkpoint.duration_ms * 1000),
        acknowledged=checkpoint.acknowledged,
        reason=without_secrets(_text(checkpoint.reason))[:MAX_REASON],
        snapshot_id=checkpoint.snapshot_id,
        unaligned_subtasks=checkpoint.unaligned_subtasks,
        inflight_rows=checkpoint.inflight_rows,
        inflight_bytes=checkpoint.inflight_bytes,
        state_bytes=checkpoint.state_bytes,
        state_total_bytes=checkpoint.state_total_bytes,
    )
    return stored_checkpoint(record, checkpoint.subtasks)


def _text(text: str) -> str:
    """Replace characters that are not valid Unicode; the text of a user's exception may contain such characters."""
    return text.encode(errors="replace").decode()
