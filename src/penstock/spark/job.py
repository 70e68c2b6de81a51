"""The slots of one generation as the tasks of one Spark job.

The job is ``spark.range(P).mapInArrow(slot, schema, barrier=True)``, so Spark's UI shows it in the SQL tab. Measured on
``local[4]`` with 2 slots on two cores, warm (in parentheses: a bare RDD): from submission to user code in all tasks
0.32 s (0.29 s), from ``kill -9`` of a worker to the failed job 0.04 s (0.03 s), to all tasks of the next job running
0.37 s (0.32 s), orderly end 0.05 s (0.03 s). The difference is too small to justify another form.

A canceled job ends for the driver after 0.02 s, but its Python workers are killed only 4 s later. So the quick way to
end a generation is to close its links. Cancellation is for slots that do not respond.

With dynamic allocation Spark refuses barrier stages. Then the job is an ordinary one, a *gang*: the driver waits until
all slots have registered, and cancels the generation if they do not. A task that Spark repeats does not join again.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark import InheritableThread
from pyspark.serializers import CloudPickleSerializer

from penstock.errors import GenerationFailed
from penstock.spark.commit_jobs import QUERY_ID
from penstock.spark.crash_log import CrashLog
from penstock.spark.slot_task import slot_function
from penstock.worker.slot_task import SlotTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_GROUP = "spark.jobGroup.id"

_held: dict[str, dict[str, int]] = {}
"""Number of slots of Penstock's running jobs, by Spark application and job group. Guarded by ``_held_lock``."""
_held_lock = threading.Lock()


def held_slots(application: str) -> int:
    """Return the number of slots that running Penstock queries of a Spark application hold."""
    with _held_lock:
        return sum(_held.get(application, {}).values())


def other_tasks(spark: SparkSession, query_id: str) -> int:
    """Return the number of running tasks other than slots counted by ``held_slots`` and tasks of this query's jobs.

    It is read from the scheduler, because Spark's status store may lag behind by seconds.
    """
    with _held_lock:
        held = set(_held.get(spark.sparkContext.applicationId, {}))
    count = 0
    for task_set in _task_sets(spark.sparkContext._jsc.sc().taskScheduler().rootPool()):
        properties = task_set.taskSet().properties()
        if properties is None or (
            properties.getProperty(JOB_GROUP) not in held and properties.getProperty(QUERY_ID) != query_id
        ):
            count += task_set.runningTasks()
    return count


def _task_sets(schedulable: Any) -> Iterator[Any]:
    """Yield the task sets below a pool of Spark's scheduler, including nested pools of fair scheduling."""
    queue = schedulable.schedulableQueue()
    if queue is None:
        yield schedulable
        return
    for one in queue.toArray():
        yield from _task_sets(one)


class JobThread(InheritableThread):  # type: ignore[misc]  # untyped in PySpark
    """Thread that reports its end to ``on_end``, with the error if it failed.

    Spark's part of the thread may raise, too, for example if the session was stopped.
    """

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
    """One job, run by a separate daemon thread, because Spark's job group belongs to a thread."""

    def __init__(self, spark: SparkSession, task: SlotTask, parallelism: int, *, gang: bool) -> None:
        self.parallelism = parallelism
        self.query_id = task.query_id
        self._spark = spark
        self._gang = gang
        self._group = f"penstock-{uuid.uuid4().hex[:12]}"
        self._description = f"penstock {task.name or task.query_id}: Generation {task.generation}"
        self._function = slot_function(CloudPickleSerializer().dumps(task), gang=gang)
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._application = spark.sparkContext.applicationId
        thread = JobThread(self._run, self._over, f"penstock-job-{task.generation}")
        with _held_lock:
            _held.setdefault(self._application, {})[self._group] = parallelism
        try:
            thread.start()  # Spark reads the session's properties here
        except Exception as problem:  # noqa: BLE001 - a stopped session: the job is over before it began
            self._over(problem)

    def _run(self) -> None:
        self._spark.sparkContext.setJobGroup(self._group, self._description, False)
        self._spark.sparkContext.setLocalProperty(QUERY_ID, self.query_id)  # ``foreach`` reads it from its TaskContext
        crash_log = CrashLog(self._spark.sparkContext, self._group)
        rows = self._spark.range(0, self.parallelism, 1, self.parallelism)
        try:
            rows.mapInArrow(self._function, "ended boolean", barrier=not self._gang).collect()
        finally:
            crash_log.close()

    def _over(self, problem: Exception | None) -> None:
        if problem is not None and self._error is None:
            self._error = GenerationFailed(f"Spark ended the job: {reason(problem)}")
        with _held_lock:
            del _held[self._application][self._group]
        self._ended.set()

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        return self._error

    def give_up(self, why: str) -> None:
        """Cancel the job; ``error`` is then a GenerationFailed with this reason."""
        self._error = GenerationFailed(why)
        self.cancel()

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


def reason(problem: BaseException) -> str:
    """Return the reason for a job's failure as one line.

    Spark states the reason on the last line before the first Java frame, also for an error of a Python worker.
    """
    lines = [line.strip() for line in str(problem).split("\n\tat ", 1)[0].splitlines()]
    reasons = [line for line in lines if line and not line.startswith("SQLSTATE")]
    return reasons[-1].removeprefix(": ") if reasons else type(problem).__name__


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n", 1)[0] or type(problem).__name__
