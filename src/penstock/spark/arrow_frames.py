"""DataFrames from Arrow tables. Larger tables are converted when they are read, not when the DataFrame is created."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin

from penstock.catalyst.jvm import frame_of

LOCAL_BYTES = 65_536
"""Size of the largest table that Spark converts at once, so that reading it needs no job."""
_CONF = {
    "spark.sql.execution.arrow.localRelationThreshold": str(LOCAL_BYTES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # one task reads one batch
}


class ArrowFrames:
    """Factory of DataFrames of one session. It uses the session's settings of its creation, except for ``_CONF``."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._making = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        for name, value in _CONF.items():
            self._making.conf.set(name, value)

    def frame(self, table: pa.Table) -> DataFrame:
        # The method of the cloned session would make that session the active one for the whole program.
        made = SparkConversionMixin.createDataFrame(self._making, table)
        return frame_of(self._spark, made._jdf.logicalPlan())
