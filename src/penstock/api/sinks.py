"""Construction of sinks from ``format(...)`` and its options, or from a method of the writer."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from penstock.api.memory_view import MemoryView
from penstock.api.sink_request import (
    Output,
    SinkKind,
    SinkRequest,
    refuse_unknown,
    time_zone,
    warn_of_misspelled,
)
from penstock.api.sinks_files import FILE_FORMATS, file_output
from penstock.api.sinks_spark import foreach, foreach_batch, to_table
from penstock.config import boolean, whole_number
from penstock.connectors.console import ConsoleSink
from penstock.connectors.memory import MemorySink
from penstock.connectors.noop import NoopSink
from penstock.connectors.python.sink import PythonSink
from penstock.errors import ConfigError, NotSupported, NotYet
from penstock.spark.data_sources import registered_data_source
from penstock.spark.errors import WrongPlan

__all__ = ["BUILT_IN", "Output", "SinkKind", "SinkRequest", "choose_sink"]

BUILT_IN = ("console", "memory", "noop", *FILE_FORMATS)
_NOT_YET = {
    "delta": "",
    "iceberg": "",
    "kafka": "",
    "orc": " (Spark reads neither the timestamps nor the dates before 1582 of Arrow's ORC files as they were written)",
}


def choose_sink(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """Return the sink for one output of a query.

    Args:
        df: the DataFrame to write.
        request: what the user asked for.
        schema: schema of the rows that reach the sink.

    Raises:
        ConfigError: the format or a sink option is unknown, or a required option is missing.
        NotSupported: the sink does not support the output mode or a column.
    """
    if request.kind is not SinkKind.FORMAT:
        return _CREATE_BY_METHOD[request.kind](df, request, schema)
    if request.partition_by and str(request.format).strip().lower() not in FILE_FORMATS:
        raise NotSupported(f"partitionBy is for the file sinks: {', '.join(FILE_FORMATS)}")
    if not isinstance(request.format, str):
        return _python(df, request, request.format, schema)
    name = request.format.strip().lower()
    if name in BUILT_IN:
        return _CREATE[name](df, request, schema)
    source = registered_data_source(df.sparkSession, request.format)
    if source is not None:
        return _python(df, request, source, schema)
    if name in _NOT_YET:
        raise NotYet(
            f"format {name!r} is not written yet{_NOT_YET[name]}; use parquet, or a Python DataSource with a "
            "streamWriter"
        )
    raise ConfigError(
        f"format {request.format!r} is unknown: choose {', '.join(BUILT_IN)}, or register a Python DataSource "
        "of this name with spark.dataSource.register"
    )


def _python(df: DataFrame, request: SinkRequest, source: type[DataSource], schema: pa.Schema) -> Output:
    overwrite = request.output_mode == "complete"
    zone = time_zone(df.sparkSession)
    warn_of_misspelled(f"the sink {source.name()}", request.options)
    return Output(PythonSink(source.name(), source, request.options, schema, df.schema.json(), overwrite, zone))


def _console(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    refuse_unknown("console", request.options, ("numRows", "truncate"))
    rows = whole_number("numRows", request.options.get("numrows", "20"))
    truncate = boolean("truncate", request.options.get("truncate", "true"))
    return Output(ConsoleSink(schema, rows, truncate, time_zone(df.sparkSession)))


def _noop(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    refuse_unknown("noop", request.options, ())
    return Output(NoopSink())


def _memory(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    refuse_unknown("memory", request.options, ())
    if request.query_name is None:
        raise WrongPlan("the memory sink's table is called as the query is: give a name with queryName(...)")
    sink = MemorySink(request.query_name, schema, replaces=request.output_mode == "complete")
    return Output(sink, MemoryView(df.sparkSession, sink, df.schema).refresh)


_Create = Callable[[DataFrame, SinkRequest, pa.Schema], Output]

_CREATE: dict[str, _Create] = {
    "console": _console,
    "memory": _memory,
    "noop": _noop,
    **dict.fromkeys(FILE_FORMATS, file_output),
}
"""Constructors of sinks by format."""

_CREATE_BY_METHOD: dict[SinkKind, _Create] = {
    SinkKind.FOREACH: foreach,
    SinkKind.FOREACH_BATCH: foreach_batch,
    SinkKind.TABLE: to_table,
}
