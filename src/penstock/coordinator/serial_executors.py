"""Serial executors of the driver for blocking jobs. Each has a thread, which is created when it is first needed."""

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
    """Named executors. Each runs its jobs one at a time, in the order of ``put``; they are independent of each other.

    Only one thread may call ``put`` and ``stop``. A job must handle its own errors and must not raise.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queues: dict[str, queue.SimpleQueue[tuple[Job, bool] | None]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._dropping = False
        self._finish = ""

    def put(self, name: str, job: Job, kept: bool = False) -> None:
        """Queue a job for an executor. ``kept``: run it even if ``stop`` is called first."""
        if name not in self._threads:
            jobs: queue.SimpleQueue[tuple[Job, bool] | None] = queue.SimpleQueue()
            self._queues[name] = jobs
            thread = daemon_thread(lambda: self._run(name, jobs), f"{self._name}-{name}")
            self._threads[name] = thread
            thread.start()
        self._queues[name].put((job, kept))

    def stop(self, timeout_s: float, finish: str = "", hurried: str = "\0") -> None:
        """Wait for running jobs to end. Drop queued jobs, except kept ones and those of the executor ``finish``.

        Executors whose name begins with ``hurried`` are awaited for ``HURRIED_S`` only, because their outcome is no
        longer needed.
        """
        self._finish = finish
        self._dropping = True
        for jobs in self._queues.values():
            jobs.put(None)
        deadline = time.monotonic() + timeout_s
        for name, thread in self._threads.items():
            if thread is not threading.current_thread():
                patience_s = max(0.0, deadline - time.monotonic())
                thread.join(min(patience_s, HURRIED_S) if name.startswith(hurried) else patience_s)
                if thread.is_alive():
                    log.error("executor %s did not end in time", name)

    def _run(self, name: str, jobs: queue.SimpleQueue[tuple[Job, bool] | None]) -> None:
        while (item := jobs.get()) is not None:
            job, kept = item
            if not self._dropping or kept or name == self._finish:
                job()
            del item, job
