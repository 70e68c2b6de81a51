"""Spark session of the current call."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ResourceError


def current_session() -> SparkSession:
    """Return the active session of this thread, else the application's default session. Never create an application.

    Raises:
        ResourceError: there is no Spark application in this process.
    """
    session: SparkSession | None = SparkSession.getActiveSession()
    if session is not None:
        return session
    if SparkContext._active_spark_context is None:
        raise ResourceError("there is no Spark session in this process: make one, for example with penstock.session()")
    return SparkSession.Builder().getOrCreate()


def session_key(spark: SparkSession) -> str:
    """Return a key that is equal for all handles of one session and different for other sessions."""
    return str(spark._jsparkSession.sessionUUID())
