"""Function of a Spark task that runs a slot.

Spark pickles this function, and it can be unpickled without Penstock. If an executor's Python lacks a module, the
function reports it by name before it imports any module of Penstock.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.errors import GenerationFailed
from penstock.version import __version__

if TYPE_CHECKING:
    from pyspark import TaskContext

    from penstock.worker.slot_task import SlotTask

REQUIRED = ("greenlet", "msgspec", "numpy", "pandas", "penstock", "pyarrow", "xxhash")
"""Modules that a slot imports."""


def worker_check(required: tuple[str, ...] = REQUIRED, version: str = __version__) -> Callable[[], str]:
    """Return a function that checks a Python worker. It returns the reason why the worker cannot run slots, or ''."""

    def check() -> str:
        import importlib
        import importlib.util
        import socket
        import sys

        interpreter = f"{sys.executable} on {socket.gethostname()}"
        missing = [name for name in required if importlib.util.find_spec(name) is None]
        if missing:
            return (
                f"{interpreter} has no {', '.join(missing)}: install what Penstock needs where Spark's executors run, "
                "or name a Python that has it with spark.pyspark.python (or PYSPARK_PYTHON)"
            )
        package = importlib.import_module("penstock")
        if package.__version__ != version:
            return (
                f"{interpreter} runs Penstock {package.__version__} from {package.__path__[0]}, the driver {version}: "
                "install one release everywhere"
            )
        return ""

    return check


def slot_function(pickled_task: bytes, *, gang: bool) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of each task. ``gang``: the job is an ordinary one, and Spark repeats its failed tasks."""
    check = worker_check()

    def become_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        trouble = check()
        if trouble:
            raise RuntimeError(trouble)
        from pyspark import TaskContext
        from pyspark.serializers import CloudPickleSerializer

        from penstock.spark.slot_task import run_slot

        for _ in batches:  # Spark waits until the task's input is read
            continue
        context = TaskContext.get()
        assert context is not None
        run_slot(context, CloudPickleSerializer().loads(pickled_task), gang)
        return iter(())

    return become_slot


def run_slot(context: TaskContext, task: SlotTask, gang: bool) -> None:
    """Run the slot of this task until the generation ends.

    Raises:
        GenerationFailed: Spark repeats the task, or the driver cannot be reached or refuses the slot.
    """
    from penstock.malloc import keep_freed_memory
    from penstock.worker.slot import slot_main

    index, attempt = context.partitionId(), context.attemptNumber()
    if gang and attempt > 0:
        raise GenerationFailed(
            f"slot {index} of Generation {task.generation} failed before, and Spark runs its task again (attempt "
            f"{attempt}): a slot joins its Generation once; see the executors' logs for the first failure"
        )
    keep_freed_memory()
    if not gc.get_freeze_count():
        gc.freeze()  # ``penstock.spark.daemon`` does it; without that daemon, each collection took 0.1 s
    slot_main(index, task, own_process=True, host=_host(context, task.control_host))


def _host(context: TaskContext, driver: str) -> str | None:
    """Return the host at which other slots reach this one. None: use the local address of the link to the driver."""
    if driver.startswith("127."):
        return None  # everything is on one machine
    of_all = context.getLocalProperty("addresses")  # of a barrier stage's tasks, as host:port
    if of_all:
        address: str = of_all.split(",")[context.partitionId()]
        return address.strip().rpartition(":")[0]
    return os.environ.get("SPARK_LOCAL_IP")
