"""What Spark knows of the jobs that a commit runs: the same as of the jobs of a micro-batch.

Spark sets these local properties on the thread that runs a streaming query: ``StreamExecution`` the query's id and the
job group, ``MicroBatchExecution`` the batch. Code that runs on Spark's engine finds its query and its batch by them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.connectors.base import Committing, EpochCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
CONTINUOUS = "__is_continuous_processing"


def committing(spark: SparkSession, run_id: str, name: str | None) -> Committing:
    """Return what a commit runs in: the thread has Spark's properties of the query and the batch.

    Args:
        run_id: the job group, as in Spark.
        name: of the query; None if it has none.
    """

    @contextmanager
    def scope(permit: EpochCommit) -> Iterator[None]:
        context = spark.sparkContext
        if context._jsc is not None:  # None: the session was stopped, and the query is about to end
            context.setJobGroup(run_id, _description(permit, run_id, name), True)
            context.setLocalProperty(QUERY_ID, permit.writer_id)
            context.setLocalProperty(BATCH_ID, str(permit.batch))
            context.setLocalProperty(CONTINUOUS, "false")
        yield

    return scope


def _description(permit: EpochCommit, run_id: str, name: str | None) -> str:
    """As ``StreamExecution.getBatchDescriptionString`` writes it."""
    begin = "" if name is None else f"{name}\n"
    return f"{begin}id = {permit.query_id}\nrunId = {run_id}\nbatch = {permit.batch}"
