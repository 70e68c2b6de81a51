"""Progress of the Spark jobs that this thread waits for."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.logs import daemon_thread, get_logger
from penstock.snapshots.progress_meter import Meter
from penstock.spark.job import JOB_GROUP

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

EVERY_S = 0.5
_DESCRIPTION = "spark.job.description"
log = get_logger(__name__)


@contextmanager
def watched_tasks(spark: SparkSession, meter: Meter) -> Iterator[None]:
    """Report the share of ended tasks of the jobs that the block starts to ``meter``.

    The jobs of the block are put into a new job group. Nothing is done if the meter is not watched.
    """
    if not meter.is_watched:
        yield
        return
    context = spark.sparkContext
    group, ended = f"penstock-{secrets.token_hex(8)}", threading.Event()
    before = {name: context.getLocalProperty(name) for name in (JOB_GROUP, _DESCRIPTION)}
    context.setLocalProperty(JOB_GROUP, group)
    context.setLocalProperty(_DESCRIPTION, "penstock snapshot")
    watcher = daemon_thread(lambda: _watch(context, group, meter, ended), "penstock-tasks")
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # None removes the property


def _watch(context: SparkContext, group: str, meter: Meter, ended: threading.Event) -> None:
    reported = 0
    while not ended.wait(EVERY_S):
        try:
            done, total = _tasks(context, group)
        except Exception as error:  # noqa: BLE001 - the jobs are not to fail for it
            log.debug("the tasks of %s cannot be counted: %s", group, error)
            return
        share = meter.total * done // total if total else 0
        meter.add(share - reported if share > reported else 0)
        reported = max(reported, share)


def _tasks(context: SparkContext, group: str) -> tuple[int, int]:
    """Return the numbers of ended and of known tasks."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    known = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
