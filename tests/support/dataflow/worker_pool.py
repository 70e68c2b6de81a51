"""Slots in processes that are used again, as Spark's Python workers are: any idle one may get any task."""

from __future__ import annotations

import random
import threading
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from pyspark.serializers import CloudPickleSerializer

from penstock.coordinator.launching import ControlAddress
from penstock.worker.slot_task import SlotTask
from tests.support.dataflow.process_launcher import context, threads_left


def _work(pipe: Connection) -> None:
    from penstock.worker import slot

    while True:
        try:
            task_number, pickled = pipe.recv()
        except EOFError:
            return
        slot.slot_main(task_number, CloudPickleSerializer().loads(pickled), own_process=True)
        pipe.send(threads_left())


class Worker:
    """One process; ``busy`` while a slot runs in it."""

    def __init__(self) -> None:
        self._pipe, other = context.Pipe()
        self.process: ForkServerProcess = context.Process(target=_work, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.busy = False

    def start(self, task_number: int, pickled: bytes) -> None:
        self.busy = True
        self._pipe.send((task_number, pickled))

    def look(self) -> bool:
        """Note if the process has died, or is idle because its slot has ended."""
        if self.busy and self._pipe.poll():
            try:
                assert self._pipe.recv() == []
            except (EOFError, ConnectionResetError):
                self.process.join(30)
            self.busy = False
        return self.process.is_alive()

    def end(self) -> None:
        self._pipe.close()
        self.process.join(30)


class PoolJob:
    """One Generation; as a barrier job, it is over when one task has failed."""

    def __init__(self, workers: list[Worker], task: SlotTask) -> None:
        self.error: BaseException | None = None
        self._workers = workers
        pickled = CloudPickleSerializer().dumps(task)
        for task_number, worker in enumerate(workers):
            worker.start(task_number, pickled)

    @property
    def done(self) -> bool:
        there = [worker.look() for worker in self._workers]
        return not any(worker.busy for worker, is_there in zip(self._workers, there, strict=True) if is_there)

    def cancel(self) -> None:
        for worker in self._workers:
            if worker.busy:
                worker.process.kill()

    def wait(self, timeout_s: float) -> bool:
        waiting = threading.Event()
        for _ in range(int(timeout_s / 0.01)):
            if self.done:
                return True
            waiting.wait(0.01)
        return self.done


class PoolLauncher:
    """Workers are shuffled from job to job."""

    def __init__(self) -> None:
        self._chance = random.Random(5)
        self._workers: list[Worker] = []

    def control_address(self) -> ControlAddress:
        return ControlAddress("127.0.0.1", "127.0.0.1")

    def usable_slots(self) -> int:
        return 8

    def total_slots(self) -> int:
        return 8

    def launch(self, task: SlotTask, parallelism: int) -> PoolJob:
        self._workers = [worker for worker in self._workers if worker.look()]
        idle = [worker for worker in self._workers if not worker.busy]
        idle += [Worker() for _ in range(parallelism - len(idle))]
        self._workers += [worker for worker in idle if worker not in self._workers]
        self._chance.shuffle(idle)
        return PoolJob(idle[:parallelism], task)

    def end(self) -> None:
        for worker in self._workers:
            worker.end()
