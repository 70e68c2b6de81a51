"""Jobs that write the large files of a portable snapshot on Spark's executors, one task per file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import penstock.errors
from penstock.errors import LocationError, PenstockError
from penstock.snapshots.portable.jobs import Job, RunJobs, WrittenFile
from penstock.snapshots.progress_meter import Meter
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at
from penstock.spark.shipping import ship_to_cluster
from penstock.spark.watched_tasks import watched_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_executors(spark: SparkSession) -> RunJobs:
    """Return a function that runs jobs on the executors of a Spark application. They must have access to both stores.

    A task that Spark repeats writes its file again, with the same bytes.
    """

    def run(jobs: Sequence[Job], source: Store, target: Store, meter: Meter) -> list[WrittenFile]:
        if not jobs:
            return []
        ship_to_cluster(spark)
        roots = source.root, target.root
        try:
            with watched_tasks(spark, meter):
                done = spark.sparkContext.parallelize(jobs, len(jobs)).map(lambda job: _written(job, *roots)).collect()
        except Exception as error:
            raise LocationError(f"the Spark job that writes {target.root} failed: {error}") from error
        return [_unless_refused(one) for one in done]

    return run


def _written(job: Job, source: str, target: str) -> WrittenFile | tuple[str, str]:
    """Run a job on an executor. Return an error as the name of its class and its text."""
    try:
        directory = store_at(target)
        directory.delete(job.path)
        return job.write(store_at(source), directory)
    except PenstockError as error:
        return type(error).__name__, str(error)
    except OSError as error:
        return LocationError.__name__, str(error)


def _unless_refused(done: WrittenFile | tuple[str, str]) -> WrittenFile:
    if isinstance(done, WrittenFile):
        return done
    name, text = done
    raise getattr(penstock.errors, name)(text)
