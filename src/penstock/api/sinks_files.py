"""The file sinks, with Spark's rules for their columns and options."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.api.sink_request import (
    WRITER_OPTIONS,
    Output,
    SinkRequest,
    refuse_all_but_append,
    refuse_repeated_fields,
    time_zone,
)
from penstock.connectors.files.csv.sink import csv_sink_format
from penstock.connectors.files.format import FileFormat
from penstock.connectors.files.json.sink import json_sink_format
from penstock.connectors.files.parquet.sink import parquet_sink_format
from penstock.connectors.files.partitions import partitioning
from penstock.connectors.files.sink import FileSink, file_sizes
from penstock.connectors.files.text.sink import text_sink_format
from penstock.connectors.option_texts import OptionTexts
from penstock.errors import ConfigError
from penstock.spark.errors import WrongPlan

FILE_FORMATS = ("csv", "json", "parquet", "text")


def file_output(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """Return a sink for one of ``FILE_FORMATS``.

    Raises:
        ConfigError: an option or partition column is unknown, a value is bad, the path is missing, or the names of two
            columns differ only in case.
        NotSupported: the format cannot hold a type, or the mode is not append.
    """
    assert isinstance(request.format, str)
    name = request.format.strip().lower()
    refuse_all_but_append(name, request)
    spark = df.sparkSession
    options = OptionTexts(f"{name} sink", request.options, WRITER_OPTIONS)
    path = options.text("path")
    if not path:
        raise ConfigError(f"the {name} sink needs a directory: option('path', ...) or start(path)")
    case_sensitive = _flag(spark, "spark.sql.caseSensitive", False)
    rows = _writable(name, schema, case_sensitive)
    refuse_repeated_fields(f"the {name} sink", df.schema, case_sensitive)
    partitions = None
    if request.partition_by:
        zone = options.text("timeZone", time_zone(spark))
        ansi = _flag(spark, "spark.sql.ansi.enabled", True)
        try:
            partitions = partitioning(rows, request.partition_by, zone, ansi, case_sensitive)
        except ConfigError as error:
            raise WrongPlan(str(error)) from error
        if not partitions.data_columns:
            raise WrongPlan(
                "partitionBy names all columns, so that nothing would be left for the files: leave one out",
                "ALL_PARTITION_COLUMNS_NOT_ALLOWED",
                {},
            )
        rows = pa.schema([rows.field(index) for index in partitions.data_columns])
    file_format = _format(spark, name, rows, options)
    sizes = file_sizes(options)
    options.finish()
    return Output(FileSink(path, file_format, partitions, sizes))


def _format(spark: SparkSession, name: str, rows: pa.Schema, options: OptionTexts) -> FileFormat:
    if name == "csv":
        return csv_sink_format(rows, options, time_zone(spark))
    if name == "json":
        ignore = _flag(spark, "spark.sql.jsonGenerator.ignoreNullFields", True)
        return json_sink_format(rows, options, time_zone(spark), ignore)
    if name == "text":
        return text_sink_format(rows, options)
    return parquet_sink_format(rows, options)


def _writable(name: str, schema: pa.Schema, case_sensitive: bool) -> pa.Schema:
    """Return the schema without nullability and metadata; raise WrongPlan if two columns have the same name."""
    seen: dict[str, str] = {}
    for field in schema:
        key = field.name if case_sensitive else field.name.lower()
        if key in seen:
            raise WrongPlan(
                f"the {name} sink cannot write columns {seen[key]} and {field.name}: rename one",
                "COLUMN_ALREADY_EXISTS",
                {"columnName": f"`{key}`"},
            )
        seen[key] = field.name
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _flag(spark: SparkSession, name: str, default: bool) -> bool:
    return (spark.conf.get(name, None) or str(default)).lower() == "true"
