"""Python data sources that the user registered with ``spark.dataSource.register``."""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource


def registered_data_source(spark: SparkSession, name: str) -> type[DataSource] | None:
    """Return the class registered in this session under ``name``, or None.

    The JVM holds the class as the user's cloudpickle bytes, which never leave the session's processes.
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    if not manager.dataSourceExists(name):
        return None
    function = manager.lookupDataSource(name).dataSourceCls()
    if function is None:
        return None
    found: Any = CloudPickleSerializer().loads(bytes(function.command().unsafeArray()))
    return found if isinstance(found, type) and issubclass(found, DataSource) else None
