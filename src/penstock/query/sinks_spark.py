"""The sinks that hand rows to the user or to Spark: ``foreach``, ``foreachBatch`` and ``toTable``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter as SparkWriter

from penstock.connectors.foreach import ForeachSink
from penstock.connectors.foreach_batch import ForeachBatchSink
from penstock.connectors.staged_rows import positional_names
from penstock.errors import ConfigError, NotSupported, NotYet
from penstock.query.sink_request import Output, SinkRequest
from penstock.spark.staged_frames import staged_frame


def foreach(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """``foreach(f)``: PySpark's own check says what ``f`` has to be."""
    _refuse_partitions("foreach", request)
    f = request.target
    try:
        SparkWriter._construct_foreach_function(f)  # type: ignore[arg-type]
    except PySparkException as error:
        raise ConfigError(
            f"foreach takes a function of one row, or an object with process(row) and, optionally, "
            f"open(partition_id, epoch_id) and close(error), not {type(f).__name__}: {error}"
        ) from error
    return Output(ForeachSink(schema, df.schema.json(), f))


def foreach_batch(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """``foreachBatch(func)``."""
    _refuse_partitions("foreachBatch", request)
    func, spark, spark_schema = request.target, df.sparkSession, df.schema
    if not callable(func):
        raise ConfigError(f"foreachBatch takes a function of a DataFrame and a batch id, not {type(func).__name__}")
    names = positional_names(len(schema))

    def call(files: Sequence[str], batch: int) -> None:
        func(staged_frame(spark, files, names, spark_schema), batch)

    return Output(ForeachBatchSink(schema, call), runs_spark_jobs=True)


def to_table(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    raise NotYet("toTable is not run yet")


def _refuse_partitions(method: str, request: SinkRequest) -> None:
    if request.partition_by:
        raise NotSupported(f"'{method}' does not support partitioning: leave partitionBy out")
