"""DataFrames of the session over rows that slots staged in Parquet files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import _deduplicate_field_names
from pyspark.sql.types import StructField, StructType

from penstock.catalyst.jvm import DATA_TYPE, SESSION, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTIONS = {
    "datetimeRebaseMode": "CORRECTED",  # dates are written in the Gregorian calendar, however old
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
}
"""Options that override the session's settings, so that every staged row is read as it was written."""

_GLOB = re.compile(r"([\\*?\[\]{}])")


def with_distinct_fields(schema: StructType) -> StructType:
    """Return the columns with the names that struct fields have in Arrow, and therefore in files."""
    kinds = (_deduplicate_field_names(field.dataType) for field in schema)
    return StructType([StructField(field.name, kind) for field, kind in zip(schema, kinds, strict=True)])


def staged_frame(spark: SparkSession, files: Sequence[str], names: Sequence[str], schema: StructType) -> DataFrame:
    """Return the rows of ``files`` as a DataFrame of exactly ``schema``, including nullability and metadata.

    The files are read each time an action runs. Call this on the thread that uses the DataFrame, because it makes the
    session that thread's active one.

    Args:
        files: absolute paths on a file system that all executors share.
        names: names of the columns in the files, by position.
        schema: schema of the DataFrame.
    """
    java_class(spark, SESSION).setActiveSession(spark._jsparkSession)
    distinct = with_distinct_fields(schema)
    stored = StructType([StructField(name, field.dataType) for name, field in zip(names, distinct, strict=True)])
    paths = ["file:" + _GLOB.sub(r"\\\1", file) for file in files]
    read = spark.read.schema(stored).options(**_OPTIONS).parquet(*paths)
    rows = read._jdf.queryExecution().toRdd()
    java_schema = java_class(spark, DATA_TYPE).fromJson(schema.json())
    return DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, java_schema, False), spark)
