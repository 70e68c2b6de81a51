"""Log lines of Spark about the slots' own job: one line is enough for a killed worker, and Penstock writes it.

Spark logs each failed task twice, with its whole Java stack: as an error of the executor (on a local master that is the
driver's process) and as a warning of the driver. Both name the stage, and a stage of the slots' job has no tasks but
slots. So a filter of Log4j drops the executor's line of that stage, and the driver's line of a killed Python worker.
Spark then kills the tasks of the other slots, because the stage is a barrier stage: the driver's line of these is
dropped, too. All other failures of a slot's task, and all failures in other stages, are logged as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from penstock.catalyst.jvm import java_class
from penstock.logs import get_logger

if TYPE_CHECKING:
    from pyspark import SparkContext

log = get_logger(__name__)

POLL_S = 0.05
KEPT_S = 5.0
"""After the end of a job, for the lines about its other slots: they end after the killed one, and after the job."""
LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


def dropped_of(stage: int) -> str:
    """Regular expression of Java: the messages about a stage that are dropped."""
    task = rf"task \S+ in stage {stage}\.\d+ \(TID \d+\)"
    return rf"(?s)Exception in {task}|.*Lost {task} .*: (Python worker exited unexpectedly|TaskKilled \().*"


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # noqa: BLE001 - Py4J and Log4j errors alike: the lines are logged, nothing is lost
        log.debug("Spark's log lines of killed workers stay as they are: %s", problem)


class CrashLog:
    """Drops the lines of one job from when its stage is known until ``KEPT_S`` after ``close``.

    No thread lives as long as the job: one waits for its stage, which is known when the first slot starts, and a timer
    ends it.

    Args:
        group: the job group of the job, which has no other job.
    """

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context = context
        self._group = group
        self._closed = threading.Event()
        self._undo: list[Callable[[], None]] = []
        threading.Thread(target=self._begin, name="penstock-crash-log", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        end = threading.Timer(KEPT_S, self._end)
        end.daemon = True
        end.start()

    def _begin(self) -> None:
        with _ignored():
            while not self._undo and not self._closed.wait(POLL_S):
                self._undo += [undo for stage in self._stages() for undo in self._drop(dropped_of(stage))]

    def _end(self) -> None:
        with _ignored():
            for undo in self._undo:
                undo()

    def _stages(self) -> list[int]:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._group)]
        return [stage for job in jobs if job is not None for stage in job.stageIds]

    def _drop(self, messages: str) -> list[Callable[[], None]]:
        """Add a filter to what configures the two loggers: mostly the root. Return what removes it.

        A configuration of their own would change which of their other lines are logged, also after ``setLogLevel``.
        """
        context = java_class(self._context, "org.apache.logging.log4j.LogManager").getContext(False)
        results = "org.apache.logging.log4j.core.Filter$Result"
        deny, neutral = (java_class(self._context, results).valueOf(name) for name in ("DENY", "NEUTRAL"))
        filters = java_class(self._context, "org.apache.logging.log4j.core.filter.RegexFilter")
        dropped = filters.createFilter(messages, None, False, deny, neutral)
        configs = {str(one.getName()): one for one in map(context.getConfiguration().getLoggerConfig, LOGGERS)}
        for config in configs.values():
            config.addFilter(dropped)
        return [partial(config.removeFilter, dropped) for config in configs.values()]
