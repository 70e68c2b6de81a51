"""Slots as threads of this very process: all of a job's threads, the driver's too, contend for one GIL."""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time

import psutil

from penstock.coordinator.launching import ControlAddress
from penstock.worker.slot import slot_main
from penstock.worker.slot_task import SlotTask

_MANY = 64


class ThreadJob:
    """One Generation; its slots end when their links do."""

    def __init__(self, task: SlotTask, parallelism: int) -> None:
        self.error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(index, task), name=f"penstock-slot-{index}", daemon=True)
            for index in range(parallelism)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, index: int, task: SlotTask) -> None:
        try:
            slot_main(index, task, own_process=False)
        except Exception as problem:  # noqa: BLE001 - shown to whoever asks for the job's error
            self.error = problem

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def cancel(self) -> None:
        """Nothing to do: a thread cannot be ended from outside, and the driver has closed the links before."""

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return self.done


class ThreadLauncher:
    """Remembers its jobs."""

    def __init__(self) -> None:
        self.jobs: list[ThreadJob] = []

    def control_address(self) -> ControlAddress:
        return ControlAddress("127.0.0.1", "127.0.0.1")

    def usable_slots(self) -> int:
        return _MANY

    def total_slots(self) -> int:
        return _MANY

    def launch(self, task: SlotTask, parallelism: int) -> ThreadJob:
        self.jobs.append(ThreadJob(task, parallelism))
        return self.jobs[-1]


def break_some_link(chance: random.Random) -> None:
    """Shut down one of the connections that this process has with itself: of two slots, or of a slot and the driver.

    Raises:
        IndexError: there is none.
    """
    ours = [c for c in psutil.Process().net_connections(kind="tcp") if c.status == "ESTABLISHED"]
    both_ways = [a for a, b in itertools.permutations(ours, 2) if (a.laddr, a.raddr) == (b.raddr, b.laddr)]
    with socket.socket(fileno=os.dup(chance.choice(both_ways).fd)) as sock:
        sock.shutdown(socket.SHUT_RDWR)
