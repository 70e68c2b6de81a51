"""Checkpoints that have ended go into the history of their location, on a thread of its own and behind their backs.

A checkpoint hands over what is shown of it already and goes on. Some seconds' worth of them is written at a time; a
driver that is killed loses these from the history, and nothing else. A store that fails costs history alone, too.
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

WAITING_AT_MOST = 200
"""Not written yet, those that the driver shows anyway; of more, the oldest are given up."""
MANY = 100
"""So many are written at once, however soon after the last ones."""
PAUSE_S = 5.0
"""Between the end of a checkpoint and its being written: small ones share a file."""
RETRY_S = 30.0
"""Behind a store's failure."""


class HistoryWriter:
    """Thread-safe. The thread begins with the first checkpoint that ends."""

    def __init__(self, segments: SegmentWriter, *, pause_s: float = PAUSE_S, retry_s: float = RETRY_S) -> None:
        self._segments = segments
        self._pause_s = pause_s
        self._retry_s = retry_s
        self._changed = threading.Condition()
        self._waiting: deque[CheckpointView] = deque(maxlen=WAITING_AT_MOST)
        self._closing = False
        self._warned = False
        self._thread: threading.Thread | None = None

    def ended(self, checkpoint: CheckpointView) -> None:
        """It is complete, or failed. Never blocks, never raises."""
        with self._changed:
            if self._closing:
                return
            self._waiting.append(checkpoint)
            if self._thread is None:
                with suppress(RuntimeError):  # no thread can be had now; the next checkpoint tries again
                    thread = daemon_thread(self._run, "penstock-history")
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Write what waits, if that can be done in time. Nothing is taken any more."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                log.warning("the newest checkpoints were not written to the history: the store takes too long")

    def _run(self) -> None:
        while batch := self._next_batch():
            if self._tried(lambda: self._segments.append([recorded(one) for one in batch])):
                self._written(batch)
                self._tried(self._segments.compact)
            elif self._closing:
                return
            else:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, self._retry_s)

    def _next_batch(self) -> Sequence[CheckpointView]:
        """Empty when this is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: len(self._waiting) >= MANY or self._closing, self._pause_s)
            return tuple(self._waiting)

    def _written(self, batch: Sequence[CheckpointView]) -> None:
        """They wait no more, those among them that have not been given up meanwhile."""
        written = {id(one) for one in batch}
        with self._changed:
            while self._waiting and id(self._waiting[0]) in written:
                self._waiting.popleft()

    def _tried(self, step: Callable[[], None]) -> bool:
        """Whether it is over, one way or the other; False: it may be tried again."""
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


def recorded(checkpoint: CheckpointView) -> StoredCheckpoint:
    """What the history keeps of it."""
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
    """What a user's exception says need not be Unicode."""
    return text.encode(errors="replace").decode()
