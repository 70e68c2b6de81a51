"""Slots as the tasks of one Spark barrier job.

The job is ``spark.range(P).mapInArrow(slot, schema, barrier=True)``, so it shows in Spark UI's SQL tab. Measured on
``local[4]`` with 2 slots, two cores, warm: submit to user code in all tasks 0.32 s (bare RDD: 0.29 s), ``kill -9`` of a
worker to job failed 0.04 s (0.03 s), to all tasks of the next job running 0.37 s (0.32 s), orderly end 0.05 s (0.03 s).
The difference does not pay for another form.

A cancelled job is over for the driver after 0.02 s, but its Python workers are killed only 4 s later: the way to end a
Generation quickly is to close its links, cancelling is for slots that do not listen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.serializers import CloudPickleSerializer

from penstock.errors import GenerationFailed, NotSupported, NotYet, QueryFailed, ResourceError
from penstock.runtime.launching import SlotTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IMPORT_TIMEOUT_S = 60

_held: dict[str, int] = {}
"""Slots held by running jobs of ours, by Spark application; guarded by ``_held_lock``."""
_held_lock = threading.Lock()


class _JobThread(InheritableThread):  # type: ignore[misc]  # untyped in PySpark
    """Tells how it ended, also where Spark's own part of it raises: the session may have been stopped."""

    def __init__(self, target: Callable[[], None], on_end: Callable[[Exception | None], None], name: str) -> None:
        super().__init__(target=target, name=name, daemon=True)
        self._on_end = on_end

    def run(self) -> None:
        problem: Exception | None = None
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - Py4J, Spark and socket errors alike mean that the job is over
            problem = error
        self._on_end(problem)


class SparkJob:
    """One barrier job, watched by a daemon thread of its own (Spark's job group belongs to a thread)."""

    def __init__(self, spark: SparkSession, task: SlotTask, parallelism: int) -> None:
        self._spark = spark
        self._parallelism = parallelism
        self._group = f"penstock-{uuid.uuid4().hex[:12]}"
        self._description = f"penstock {task.name or task.query_id}: Generation {task.generation}"
        self._function = slot_function(CloudPickleSerializer().dumps(task))
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._application = spark.sparkContext.applicationId
        thread = _JobThread(self._run, self._over, f"penstock-job-{task.generation}")
        with _held_lock:
            _held[self._application] = _held.get(self._application, 0) + parallelism
        try:
            thread.start()  # Spark reads the session's properties here
        except Exception as problem:  # noqa: BLE001 - a stopped session: the job is over before it began
            self._over(problem)

    def _run(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, self._description, False)
        rows = self._spark.range(0, self._parallelism, 1, self._parallelism)
        rows.mapInArrow(self._function, "ended boolean", barrier=True).collect()

    def _over(self, problem: Exception | None) -> None:
        if problem is not None:
            self._error = GenerationFailed(f"Spark ended the job: {_reason(problem)}")
        with _held_lock:
            _held[self._application] -= self._parallelism
        self._ended.set()

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        return self._error

    def cancel(self) -> None:
        if not self.done:
            threading.Thread(target=self._cancel, name="penstock-cancel", daemon=True).start()

    def _cancel(self) -> None:
        try:
            self._spark.sparkContext.cancelJobGroup(self._group)
        except Exception as problem:  # noqa: BLE001 - a stopped context has no job left to cancel
            self._error = self._error or GenerationFailed(f"cannot cancel: {_first_line(problem)}")

    def wait(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)


class SparkLauncher:
    """Starts slots on ``spark``, a classic (not Connect) session.

    Raises:
        NotYet: dynamic allocation is on. NotSupported: speculation is on. ResourceError: Spark's workers would run
            another Python that does not have Penstock.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        _refuse_unfit(spark)
        self._application = spark.sparkContext.applicationId

    def control_address(self) -> str:
        if self._is_local():
            return "127.0.0.1"
        return str(self._spark.sparkContext.getConf().get("spark.driver.host"))

    def free_slots(self) -> int:
        with _held_lock:
            held = _held.get(self._application, 0)
        return max(0, self._total_slots() - held)

    def launch(self, task: SlotTask, parallelism: int) -> SparkJob:
        self.require(parallelism)
        return SparkJob(self._spark, task, parallelism)

    def require(self, parallelism: int) -> None:
        """Raises: ResourceError: fewer slots are free; says what to do."""
        free = self.free_slots()
        if parallelism > free:
            total = self._total_slots()
            more = f'master("local[{parallelism + total - free + 1}]")' if self._is_local() else "more executor cores"
            raise ResourceError(
                f"the query needs {parallelism} task slots, {free} of {total} are free: start the session with {more}, "
                f"stop another query, or set spark.penstock.parallelism to {max(free, 1)}"
            )

    def _is_local(self) -> bool:
        return str(self._spark.sparkContext.master).startswith("local")

    def _total_slots(self) -> int:
        if self._spark.sparkContext._jsc is None:
            raise QueryFailed("the Spark session was stopped, and the query with it; start it again in a new session")
        context = self._spark.sparkContext._jsc.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))


def slot_function(pickled_task: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark runs in each task."""

    def run_slot(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext
        from pyspark.serializers import CloudPickleSerializer

        from penstock.runtime.slot import slot_main

        for _ in batches:  # Spark waits until its input is read
            continue
        context = TaskContext.get()
        assert context is not None
        slot_main(context.partitionId(), CloudPickleSerializer().loads(pickled_task), own_process=True)
        return iter(())

    return run_slot


def _refuse_unfit(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        raise NotYet("spark.dynamicAllocation.enabled is on: Spark runs no barrier jobs then; switch it off")
    if conf.get("spark.speculation", "false").lower() == "true":
        raise NotSupported("spark.speculation is on: Spark would start slots twice; switch it off")
    python = shutil.which(spark.sparkContext.pythonExec) or spark.sparkContext.pythonExec
    if os.path.abspath(python) != sys.executable and spark.sparkContext.master.startswith("local"):
        _refuse_without_penstock(python)


def _refuse_without_penstock(python: str) -> None:
    try:
        probe = [python, "-c", "import penstock.runtime.slot"]
        subprocess.run(probe, check=True, capture_output=True, timeout=_IMPORT_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as problem:
        raise ResourceError(
            f"Spark's workers run {python}, which cannot import penstock: set PYSPARK_PYTHON={sys.executable} "
            "before the session starts"
        ) from problem


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n", 1)[0] or type(problem).__name__


def _reason(problem: BaseException) -> str:
    """Why a job failed, as one line: Spark says it last, before the first Java frame (a worker's Python error, too)."""
    lines = [line.strip() for line in str(problem).split("\n\tat ", 1)[0].splitlines()]
    told = [line for line in lines if line and not line.startswith("SQLSTATE")]
    return told[-1].removeprefix(": ") if told else type(problem).__name__
