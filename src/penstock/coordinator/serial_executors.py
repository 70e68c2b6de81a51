"""Threads for what may block on the driver: one per lane, work in order. Created when first needed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from penstock.logs import daemon_thread, get_logger

log = get_logger(__name__)

Job = Callable[[], None]

HURRIED_S = 1.0


class SerialExecutors:
    """Jobs of one lane run one at a time in the order they were put; lanes are independent of each other.

    ``put`` and ``stop`` belong to one thread. A job must not raise: whoever puts it takes care of its errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queues: dict[str, queue.SimpleQueue[tuple[Job, bool] | None]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._dropping = False
        self._finish = ""

    def put(self, lane: str, job: Job, kept: bool = False) -> None:
        """``kept``: the job is done even if ``stop`` comes first."""
        if lane not in self._threads:
            jobs: queue.SimpleQueue[tuple[Job, bool] | None] = queue.SimpleQueue()
            self._queues[lane] = jobs
            thread = daemon_thread(lambda: self._run(lane, jobs), f"{self._name}-{lane}")
            self._threads[lane] = thread
            thread.start()
        self._queues[lane].put((job, kept))

    def stop(self, timeout_s: float, finish: str = "", hurried: str = "\0") -> None:
        """Let the jobs that run come to their end; those that wait are dropped, but for kept ones and the lane
        ``finish``.

        Executors that begin with ``hurried`` are waited for ``HURRIED_S`` only: their outcome is of no use any more.
        """
        self._finish = finish
        self._dropping = True
        for jobs in self._queues.values():
            jobs.put(None)
        deadline = time.monotonic() + timeout_s
        for lane, thread in self._threads.items():
            if thread is not threading.current_thread():
                patience_s = max(0.0, deadline - time.monotonic())
                thread.join(min(patience_s, HURRIED_S) if lane.startswith(hurried) else patience_s)
                if thread.is_alive():
                    log.error("the %s lane did not come to its end in time", lane)

    def _run(self, lane: str, jobs: queue.SimpleQueue[tuple[Job, bool] | None]) -> None:
        while (item := jobs.get()) is not None:
            job, kept = item
            if not self._dropping or kept or lane == self._finish:
                job()
            del item, job
