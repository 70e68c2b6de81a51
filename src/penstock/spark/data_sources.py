"""Python data sources that the user registered with ``spark.dataSource.register``."""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


def registered_data_source(spark: SparkSession, name: str) -> type[DataSource] | None:
    """The class registered in this session under ``name``, or None.

    The class travels through the JVM as the user's own cloudpickle bytes and never leaves the session's processes.
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    if not manager.dataSourceExists(name):
        return None
    function = manager.lookupDataSource(name).dataSourceCls()
    if function is None:
        return None
    found: Any = CloudPickleSerializer().loads(bytes(function.command().unsafeArray()))
    return found if isinstance(found, type) and issubclass(found, DataSource) else None
