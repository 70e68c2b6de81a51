"""Arrow tables as DataFrames of which larger ones are converted when they are read, and not at once."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.conversion import SparkConversionMixin

from penstock.catalyst.jvm import frame_of

LOCAL_BYTES = 65_536
"""Of a table that Spark converts at once, so that reading it takes no job."""
_CONF = {
    "spark.sql.execution.arrow.localRelationThreshold": str(LOCAL_BYTES),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # a task each, to read them
}


class ArrowFrames:
    """DataFrames of this session, made with its settings of now but for those above, which it keeps."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._making = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession())
        for name, value in _CONF.items():
            self._making.conf.set(name, value)

    def frame(self, table: pa.Table) -> DataFrame:
        # Not by the session's own method, which would make that session the active one, for the whole program.
        made = SparkConversionMixin.createDataFrame(self._making, table)
        return frame_of(self._spark, made._jdf.logicalPlan())
