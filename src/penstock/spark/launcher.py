"""Launcher of slots on a Spark session: checks of the session's slots, and the jobs that run slots."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from penstock.coordinator.launching import ControlAddress
from penstock.errors import ConfigError, NotSupported, QueryFailed, ResourceError
from penstock.logs import get_logger
from penstock.spark.decommission import leaving_executors
from penstock.spark.job import SparkJob, held_slots, other_tasks
from penstock.spark.memory import check_memory, worker_limit
from penstock.spark.shipping import ship
from penstock.worker.slot_task import SlotTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.config import Options
    from penstock.model.job_graph import JobGraph

log = get_logger(__name__)

LOOPBACK = "127.0.0.1"
_IMPORT_TIMEOUT_S = 60
_MAX_EXECUTORS = "spark.dynamicAllocation.maxExecutors"


class SparkLauncher:
    """Launches slots on ``spark``, a classic (not Connect) session.

    Attributes:
        decommissions: True if Spark may decommission the session's executors.

    Raises:
        NotSupported: speculation is on.
        ResourceError: Spark's workers would run another Python that cannot import Penstock.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        context = spark.sparkContext
        self._application = context.applicationId
        self._conf = context._conf  # getConf() would copy the settings one by one
        self._local = context.master == "local" or str(context.master).startswith("local[")
        self._job: SparkJob | None = None
        self.decommissions = not self._local and self._on("spark.decommission.enabled")
        self._gang = not self._local and self._on("spark.dynamicAllocation.enabled")
        if self._on("spark.speculation"):
            raise NotSupported("spark.speculation is on: Spark would start slots twice; switch it off")
        if self._local:
            _require_penstock_in_workers(context.pythonExec)

    def control_address(self) -> ControlAddress:
        """Return the address of Spark's driver; on a local master the loopback address."""
        if self._local:
            return ControlAddress(LOOPBACK, LOOPBACK)
        host = str(self._conf.get("spark.driver.host"))
        return ControlAddress(host, str(self._conf.get("spark.driver.bindAddress", host)))

    def free_slots(self) -> int:
        """Return the number of slots that no Penstock query holds, even if other Spark jobs use them now."""
        return max(0, self.total_slots() - held_slots(self._application))

    def usable_slots(self) -> int:
        total, job = self.total_slots(), self._job
        own = 0 if job is None or job.done else job.parallelism
        others = other_tasks(self._spark, "" if job is None else job.query_id)
        return max(0, total - held_slots(self._application) + own - others)

    def default_parallelism(self, at_most: int) -> int:
        """Return the number of free slots minus one for the session's other jobs; at least 1, at most ``at_most``.

        Raises:
            ConfigError: dynamic allocation has no upper bound, so there is no number of free slots.
        """
        if self._gang and self._conf.get(_MAX_EXECUTORS) is None:
            raise ConfigError(
                "with spark.dynamicAllocation.enabled the free slots are not known: say how many the query takes with "
                f"spark.penstock.parallelism, or set {_MAX_EXECUTORS}"
            )
        return max(1, min(self.free_slots() - 1, at_most))

    def prepare(self, graph: JobGraph, options: Options) -> None:
        """Check memory and ship Penstock before the first slot starts. Do nothing on a local master.

        May take as long as Spark needs to start Python workers.

        Raises:
            ResourceError: memory cannot suffice, or the executors' Python lacks something. The message names it.
        """
        if self._local:
            return
        warning = check_memory(graph, options, worker_limit(self._spark.sparkContext.master, self._conf.get))
        if warning:
            log.warning("%s", warning)
        ship(self._spark, graph.parallelism)

    def launch(self, task: SlotTask, parallelism: int) -> SparkJob:
        self.require(parallelism)
        self._job = SparkJob(self._spark, task, parallelism, gang=self._gang)
        return self._job

    def leaving_executors(self) -> set[str]:
        """Return the executors that Spark is decommissioning and that still run tasks. They get no new tasks."""
        return leaving_executors(self._spark)

    def give_up_job(self, why: str) -> None:
        """End the newest job as failed. Spark then chooses executors for the next generation."""
        if self._job is not None:
            self._job.give_up(why)

    def require(self, parallelism: int) -> None:
        """Raise ResourceError if fewer than ``parallelism`` slots are free. The message says what to do."""
        free = self.free_slots()
        if parallelism > free:
            total = self.total_slots()
            more = f'master("local[{parallelism + total - free + 1}]")' if self._local else "more executor cores"
            raise ResourceError(
                f"the query needs {parallelism} task slots, {free} of {total} are free: start the session with {more}, "
                f"stop another query, or set spark.penstock.parallelism to {max(free, 1)}"
            )

    def _on(self, setting: str) -> bool:
        return str(self._conf.get(setting, "false")).lower() == "true"

    def total_slots(self) -> int:
        """Return the number of slots of the session now, used or not; with dynamic allocation, its upper bound.

        Raises:
            QueryFailed: the session was stopped.
        """
        if self._spark.sparkContext._jsc is None:
            raise QueryFailed("the Spark session was stopped, and the query with it; start it again in a new session")
        context = self._spark.sparkContext._jsc.sc()
        profile = context.resourceProfileManager().defaultResourceProfile()
        now = int(context.maxNumConcurrentTasks(profile))
        return max(now, self._most_slots()) if self._gang else now

    def _most_slots(self) -> int:
        """Return the upper bound of slots with dynamic allocation; ``sys.maxsize`` if none is set."""
        executors = self._conf.get(_MAX_EXECUTORS)
        if executors is None:
            return sys.maxsize
        cores = int(self._conf.get("spark.executor.cores", "1"))
        return int(executors) * (cores // int(self._conf.get("spark.task.cpus", "1")))


def _require_penstock_in_workers(python_exec: str) -> None:
    python = shutil.which(python_exec) or python_exec
    if os.path.abspath(python) == sys.executable:
        return
    try:
        probe = [python, "-c", "import penstock.worker.slot"]
        subprocess.run(probe, check=True, capture_output=True, timeout=_IMPORT_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as problem:
        raise ResourceError(
            f"Spark's workers run {python}, which cannot import penstock: set PYSPARK_PYTHON={sys.executable} "
            "before the session starts"
        ) from problem
