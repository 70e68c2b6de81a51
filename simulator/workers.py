"""Schedules on all cores: a few worker processes, each running one schedule at a time.

A worker that dies or runs one schedule for too long costs that schedule only: it is reported as failed and a new worker
takes its place. Workers end with their parent: closing them stops them at once, and one whose parent was killed finds
its pipe closed.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing as mp
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from simulator.schedule import Failure, Result, Task, run_task

LIMIT_S = 120.0
"""A schedule takes a fraction of a second; one that takes this long is caught in an endless loop."""

SCHEDULES_PER_WORKER = 500
"""Schedules leave cycles behind, which take as long to collect as a seventh of the schedules: workers do not, but end
before they are large (1.5 MB a schedule) and leave it to the operating system."""

HANGS = "hangs or dies"
"""The oracle of schedules that never end."""

Run = Callable[[Task], Result]


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None
    given: int = 0

    def give(self, task: Task) -> None:
        self.task = task
        self.given += 1
        self.pipe.send(task)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Workers:
    """Worker processes; a context manager that leaves none behind.

    Args:
        count: number of processes; they are started when needed.
        limit_s: wall-clock time after which a schedule counts as failed.
        run: runs one task; must be a module's function, because it is sent to other processes.
    """

    def __init__(self, count: int, limit_s: float = LIMIT_S, run: Run = run_task) -> None:
        self.count = count
        self._limit_s = limit_s
        self._run = run
        self._context = mp.get_context("spawn")  # no worker inherits another's pipe, nor threads of this process
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Run every task once; results come in the order in which they are ready. One call at a time.

        Tasks are taken one by one, each when a worker is free. What still runs when the iterator is closed is stopped.
        """
        waiting = iter(tasks)
        try:
            while self._fill(waiting) or self._busy:
                for ready in wait(list(self._busy)):
                    assert isinstance(ready, Connection)
                    yield self._answer(self._busy.pop(ready))
        finally:
            for worker in self._busy.values():
                worker.stop()
            self._busy.clear()

    def close(self) -> None:
        for worker in [*self._idle, *self._busy.values()]:
            worker.stop()
        self._idle.clear()
        self._busy.clear()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _fill(self, waiting: Iterator[Task]) -> bool:
        """Give tasks to free workers; return False if no task is left."""
        while len(self._busy) < self.count:
            task = next(waiting, None)
            if task is None:
                return False
            worker = self._with(task)
            self._busy[worker.pipe] = worker
        return True

    def _with(self, task: Task) -> _Worker:
        """Start a task in an idle worker, or in a new one if the idle ones have died."""
        while self._idle:
            worker = self._idle.pop()
            with suppress(ConnectionError):
                worker.give(task)
                return worker
            worker.stop()
        worker = self._start()
        worker.give(task)
        return worker

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve, args=(theirs, self._limit_s, self._run), daemon=True, name="penstock-simulate"
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _answer(self, worker: _Worker) -> Result:
        """A worker's result; one that died or was stopped by its own watch is not used again."""
        assert worker.task is not None
        try:
            result = worker.pipe.recv()
        except (EOFError, ConnectionError):
            worker.process.join()
            code = worker.process.exitcode
            worker.stop()
            return Result(worker.task, failure=Failure(HANGS, f"its process ended with {code}"))
        if worker.given < SCHEDULES_PER_WORKER:
            self._idle.append(worker)
        else:
            worker.stop()
        assert isinstance(result, Result)
        return result


def cores() -> int:
    """Return the number of processes that can run at the same time."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(pipe: Connection, limit_s: float, run: Run) -> None:
    """Run tasks until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    gc.disable()
    with suppress(EOFError, ConnectionError):
        while True:
            task = pipe.recv()
            faulthandler.dump_traceback_later(limit_s, exit=True)
            result = run(task)
            faulthandler.cancel_dump_traceback_later()
            pipe.send(result)
