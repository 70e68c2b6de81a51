"""Executors that Spark is decommissioning (``spark.decommission.enabled``), read from Spark's own scheduler.

Spark has a listener event for executors that are lost, but none for executors that are about to leave, and a listener
would need a Java interface. So the caller polls about once a second, which costs a few calls per executor.
"""

from __future__ import annotations

from pyspark.sql import SparkSession


def leaving_executors(spark: SparkSession) -> set[str]:
    """Return the ids of executors that are being decommissioned and still run tasks."""
    java_context = spark.sparkContext._jsc
    if java_context is None:
        return set()
    context = java_context.sc()
    scheduler, ids = context.taskScheduler(), context.getExecutorIds()
    known = [str(ids.apply(index)) for index in range(ids.size())]
    return {one for one in known if scheduler.isExecutorDecommissioned(one) and scheduler.isExecutorBusy(one)}
