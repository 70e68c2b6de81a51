"""Executors that were told to leave (``spark.decommission.enabled``), asked of Spark's own scheduler.

Spark has a listener event of executors that are gone, but none of those that are about to go; a listener would need a
Java interface besides. So whoever wants to know asks, every second or so: a few calls per executor.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


def leaving_executors(spark: SparkSession) -> set[str]:
    """Ids of executors that are being decommissioned and still run tasks."""
    java_context = spark.sparkContext._jsc
    if java_context is None:
        return set()
    context = java_context.sc()
    scheduler, ids = context.taskScheduler(), context.getExecutorIds()
    known = [str(ids.apply(index)) for index in range(ids.size())]
    return {one for one in known if scheduler.isExecutorDecommissioned(one) and scheduler.isExecutorBusy(one)}
