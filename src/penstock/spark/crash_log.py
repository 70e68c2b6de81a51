"""Filter of Spark's log lines about killed slots. One line is enough for a killed worker, and Penstock writes it.

Spark logs each failed task twice, each time with its whole Java stack: as an error of the executor (on a local master
this is the driver's process) and as a warning of the driver. Both lines name the stage, and the stage of the slots' job
has no other tasks. So a Log4j filter drops the executor's line for that stage, and the driver's line for a killed
Python worker. Spark then kills the tasks of the other slots, because the stage is a barrier stage; the driver's lines
for these are dropped, too. All other failures of a slot's task, and all failures in other stages, are logged as usual.
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
"""Time for which the filter stays after the end of a job. The other slots end after the killed one, and their lines
come after the job."""
LOGGERS = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager")


def dropped_of(stage: int) -> str:
    """Return the Java regular expression for the messages about a stage that are dropped."""
    task = rf"task \S+ in stage {stage}\.\d+ \(TID \d+\)"
    return rf"(?s)Exception in {task}|.*Lost {task} .*: (Python worker exited unexpectedly|TaskKilled \().*"


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except Exception as problem:  # noqa: BLE001 - Py4J and Log4j errors alike: the lines are logged, nothing is lost
        log.debug("Spark's log lines of killed workers stay as they are: %s", problem)


class CrashLog:
    """Drops the log lines of one job, from the time its stage is known until ``KEPT_S`` seconds after ``close``.

    No thread lives as long as the job. A thread waits until the stage is known, which is when the first slot starts. A
    timer removes the filter.

    Args:
        group: the job group, which has only this job.
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
        """Add a filter to the configuration of the two loggers, which is usually the root's. Return what removes it.

        A separate configuration for the loggers would change which of their other lines are logged, even after
        ``setLogLevel``.
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
