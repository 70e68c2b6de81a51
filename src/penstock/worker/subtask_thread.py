"""The thread that owns a subtask: it builds, steps and closes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.logs import about, daemon_thread
from penstock.model.ids import SubtaskId
from penstock.worker.barrier_yield import POLL_S, BarrierYield, PendingCheckpoints
from penstock.worker.subtask import Subtask


class SubtaskThread:
    """Builds the subtask at ``start``, waits for ``go``, then calls ``step`` until ``stop``.

    Args:
        build: makes the subtask, on this thread (operators may be bound to the thread).
        on_built: called on this thread when the subtask waits for ``go``.
        on_failure: called on this thread with the exception that ended it early; no other callback follows.
        pending_checkpoints: the slot's pending checkpoints.

    Attributes:
        failed: True if an exception was raised, also while the thread was being stopped.
    """

    def __init__(
        self,
        subtask: SubtaskId,
        build: Callable[[], Subtask],
        on_built: Callable[[Subtask], None],
        on_failure: Callable[[SubtaskId, BaseException], None],
        pending_checkpoints: PendingCheckpoints,
    ) -> None:
        self.id = subtask
        self._build = build
        self._on_built = on_built
        self._on_failure = on_failure
        self._barrier_yield = BarrierYield(pending_checkpoints)
        self._wake = threading.Event()
        self._go = threading.Event()
        self._stopping = False
        self._subtask: Subtask | None = None
        self._reported = False
        self.failed = False
        self.thread = daemon_thread(self._run, f"penstock-{subtask}")

    def start(self) -> None:
        self.thread.start()

    def go(self) -> None:
        """Begin to step. All links must be open."""
        self._go.set()

    def stop(self) -> None:
        """Ask the thread to end. A running step is finished first, unless it has already taken long."""
        self._stopping = True
        subtask = self._subtask  # its own thread may set it to None
        if subtask is not None:
            subtask.stopped = True
        self._go.set()
        self._wake.set()

    def _run(self) -> None:
        with about(subtask=self.id):
            self._live()

    def _live(self) -> None:
        try:
            subtask = self._subtask = self._build()
            try:
                subtask.inbox.wake = self._wake_up
                self._on_built(subtask)
                self._go.wait()
                self._loop(subtask)
            except BaseException as problem:
                # Report before the tables are closed: a thread that still writes their captures then fails, and must
                # not be the first to report.
                self._failed(problem)
                raise
            finally:
                self._subtask = None
                subtask.close()
        except BaseException as problem:  # noqa: BLE001 - user code may raise anything, SystemExit too; it is reported
            self._failed(problem)

    def _failed(self, problem: BaseException) -> None:
        """Record a failure. Only the first one is reported, and none after ``stop``."""
        self.failed = True
        if not (self._stopping or self._reported):
            self._reported = True
            self._on_failure(self.id, problem)

    def _wake_up(self) -> None:
        # Setting takes a lock and a notification. While the flag is set, the owner will make another step anyway.
        if not self._wake.is_set():
            self._wake.set()

    def _loop(self, subtask: Subtask) -> None:
        while not self._stopping:
            self._wake.clear()  # cleared before the step: a later append sets it again
            must_yield = self._barrier_yield.must_yield(subtask.captured)
            began = time.monotonic()
            result = subtask.step(time.time() * 1000, not must_yield, self._barrier_yield.within_ms())
            if self._stopping:
                return
            if must_yield:
                self._wake.wait(POLL_S)
            elif result.worked:
                self._barrier_yield.stepped(time.monotonic() - began)
            else:
                self._wake.wait(_seconds_until(result.wake_at_ms))


def _seconds_until(wake_at_ms: float | None) -> float | None:
    return None if wake_at_ms is None else max(0.0, wake_at_ms / 1000 - time.time())
