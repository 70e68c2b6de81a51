"""Slots as plain processes, forked from a server that has everything imported: 20 ms to start, real to kill."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from multiprocessing.context import ForkServerProcess

from pyspark.serializers import CloudPickleSerializer

from penstock.coordinator.launching import ControlAddress
from penstock.errors import GenerationFailed, ResourceError
from penstock.worker.slot_task import SlotTask

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["forked_slots"])  # of tests/support/site, which is in PYTHONPATH


def threads_left() -> list[str]:
    """Return the threads of a process in which no slot runs; that of the local state store may stay for a while."""
    from penstock.worker.local_state_reuse import FORGETTER

    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    return [thread.name for thread in others if thread.name != FORGETTER]


def _run_slot(index: int, pickled: bytes, switch_interval_s: float | None) -> None:
    from penstock.worker import slot

    if switch_interval_s is not None:
        slot.SWITCH_INTERVAL_S = switch_interval_s
    slot.slot_main(index, CloudPickleSerializer().loads(pickled), own_process=True)
    if threads_left():
        os._exit(3)  # something was left behind: shown by the exit code


class ProcessJob:
    """One Generation; ``processes`` by slot."""

    def __init__(self, task: SlotTask, parallelism: int, switch_interval_s: float | None = None) -> None:
        pickled = CloudPickleSerializer().dumps(task)
        self.processes: list[ForkServerProcess] = [
            context.Process(target=_run_slot, args=(index, pickled, switch_interval_s), daemon=True)
            for index in range(parallelism)
        ]
        for process in self.processes:
            process.start()

    @property
    def done(self) -> bool:
        """True once one task has failed or all have ended, as for a barrier job; others may still be ending."""
        codes = [process.exitcode for process in self.processes]
        return any(codes) or None not in codes

    @property
    def error(self) -> BaseException | None:
        codes = [process.exitcode for process in self.processes]
        return GenerationFailed(f"slots ended with {codes}") if any(codes) else None

    def cancel(self) -> None:
        for process in self.processes:
            process.kill()

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return all(process.exitcode is not None for process in self.processes)


class ProcessLauncher:
    """``slots`` may run at once. Remembers its jobs. ``switch_interval_s`` (None: a slot's own) may be set by tests."""

    def __init__(self, slots: int = 8) -> None:
        self._slots = slots
        self.switch_interval_s: float | None = None
        self.jobs: list[ProcessJob] = []

    def control_address(self) -> ControlAddress:
        return ControlAddress("127.0.0.1", "127.0.0.1")

    def check_ended(self) -> None:
        """Raise AssertionError if a job goes on after 30 s, and cancel it."""
        for job in self.jobs:
            if not job.wait(30):
                job.cancel()
                raise AssertionError("a slot process was left behind")

    def lose(self, slots: int) -> None:
        """So many are not there any more; of a negative number, again."""
        self._slots -= slots

    def usable_slots(self) -> int:
        """One query alone uses the launcher."""
        return self._slots

    def total_slots(self) -> int:
        return self._slots

    def free_slots(self) -> int:
        return self._slots - sum(len(job.processes) for job in self.jobs if not job.done)

    def launch(self, task: SlotTask, parallelism: int) -> ProcessJob:
        if parallelism > self.free_slots():
            raise ResourceError(f"the query needs {parallelism} slots, {self.free_slots()} are free")
        job = ProcessJob(task, parallelism, self.switch_interval_s)
        self.jobs.append(job)
        return job
