"""Spark session of a call."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import ResourceError


def current_session() -> SparkSession:
    """The active session of this thread, else the application's default one; never makes one.

    Raises:
        ResourceError: there is none.
    """
    session: SparkSession | None = SparkSession.getActiveSession()
    if session is not None:
        return session
    if SparkContext._active_spark_context is None:
        raise ResourceError("there is no Spark session in this process: make one, for example with penstock.session()")
    return SparkSession.Builder().getOrCreate()


def session_key(spark: SparkSession) -> str:
    """Equal for every handle to one session, and for no other session."""
    return str(spark._jsparkSession.sessionUUID())
