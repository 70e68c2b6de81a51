"""Serial background executors of the driver, for what may block: a thread each, created when first needed."""

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
    """Jobs of one executor run one at a time in the order they were put; executors are independent of each other.

    ``put`` and ``stop`` belong to one thread. A job must not raise: whoever puts it takes care of its errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queues: dict[str, queue.SimpleQueue[tuple[Job, bool] | None]] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._dropping = False
        self._finish = ""

    def put(self, name: str, job: Job, kept: bool = False) -> None:
        """``kept``: the job is done even if ``stop`` comes first."""
        if name not in self._threads:
            jobs: queue.SimpleQueue[tuple[Job, bool] | None] = queue.SimpleQueue()
            self._queues[name] = jobs
            thread = daemon_thread(lambda: self._run(name, jobs), f"{self._name}-{name}")
            self._threads[name] = thread
            thread.start()
        self._queues[name].put((job, kept))

    def stop(self, timeout_s: float, finish: str = "", hurried: str = "\0") -> None:
        """Let the jobs that run come to their end; those that wait are dropped, but for kept ones and those of the
        executor ``finish``.

        Executors that begin with ``hurried`` are waited for ``HURRIED_S`` only: their outcome is of no use any more.
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
