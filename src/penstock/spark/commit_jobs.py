"""Local properties of the Spark jobs that a commit runs: the same as those of a micro-batch.

Spark sets these properties on the thread of a streaming query: ``StreamExecution`` sets the query's id and the job
group, ``MicroBatchExecution`` sets the batch. Code in a Spark job reads its query and batch from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.connectors.base import Committing
from penstock.model.commits import EpochCommit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
CONTINUOUS = "__is_continuous_processing"


def committing(spark: SparkSession, run_id: str, name: str | None) -> Committing:
    """Return the context of a commit: it sets Spark's properties of the query and the batch on the thread.

    Args:
        run_id: id of the run; it is the job group, as in Spark.
        name: name of the query; None if it has none.
    """

    @contextmanager
    def scope(permit: EpochCommit) -> Iterator[None]:
        context = spark.sparkContext
        if context._jsc is not None:  # None: the session was stopped, so the query ends soon
            context.setJobGroup(run_id, _description(permit, run_id, name), True)
            context.setLocalProperty(QUERY_ID, permit.writer_id)
            context.setLocalProperty(BATCH_ID, str(permit.batch))
            context.setLocalProperty(CONTINUOUS, "false")
        yield

    return scope


def _description(permit: EpochCommit, run_id: str, name: str | None) -> str:
    """Return the text of ``StreamExecution.getBatchDescriptionString``."""
    begin = "" if name is None else f"{name}\n"
    return f"{begin}id = {permit.query_id}\nrunId = {run_id}\nbatch = {permit.batch}"
