"""Sinks that pass rows to the user's function or to Spark: ``foreach``, ``foreachBatch`` and ``toTable``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.api.sink_request import (
    Output,
    SinkRequest,
    refuse_all_but_append,
    refuse_repeated_fields,
    refuse_unknown,
    warn_of_misspelled,
)
from penstock.connectors.foreach import ForeachSink
from penstock.connectors.row_columns import parsed_columns
from penstock.connectors.spark.foreach_batch import ForeachBatchSink
from penstock.connectors.spark.staged_rows import positional_names
from penstock.connectors.spark.table_sink import TableSink
from penstock.errors import NotSupported, SinkError
from penstock.spark.catalog_tables import (
    PROVIDERS,
    FileTable,
    check_write_options,
    create_table,
    files_were_added,
    find_table,
    qualified,
    rows_to_insert,
)
from penstock.spark.errors import WrongPlan
from penstock.spark.staged_frames import staged_frame, with_distinct_fields


def foreach(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """Return the sink of ``foreach(f)``."""
    _refuse_partitions("foreach", request)
    refuse_unknown("foreach", request.options, ())
    return Output(ForeachSink(schema, df.schema.json(), request.target))


def foreach_batch(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """Return the sink of ``foreachBatch(func)``."""
    _refuse_partitions("foreachBatch", request)
    refuse_unknown("foreachBatch", request.options, ())
    func, spark, columns = request.target, df.sparkSession, df.schema.json()
    assert callable(func)
    refuse_repeated_fields("a staged file", with_distinct_fields(df.schema), _case_sensitive(spark))

    def call(files: Sequence[str], stored: str, batch: int) -> None:
        func(_staged(spark, files, stored, columns), batch)

    return Output(ForeachBatchSink(schema, columns, call), runs_spark_jobs=True)


def _staged(spark: SparkSession, files: Sequence[str], columns: str, current: str) -> DataFrame:
    """Return the rows of staged files with the columns of their epoch. ``current``: the query's columns now."""
    schema = parsed_columns(columns, current)
    return staged_frame(spark, files, positional_names(len(schema)), schema)


def _case_sensitive(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def to_table(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """Return the sink of ``toTable(name)``.

    An existing table is checked now. A missing table is created when the query starts.

    Raises:
        ConfigError: the table has another format or other partition columns, or the rows do not fit it.
        NotSupported: the table's provider cannot write each epoch exactly once.
    """
    name, provider = request.target, request.format
    if not isinstance(name, str) or not name.strip():
        raise WrongPlan(f"toTable takes a table's name, not {name!r}")
    if not isinstance(provider, str) or provider.lower() not in PROVIDERS:
        raise NotSupported(
            f"toTable({name!r}): a commit to a table of provider {provider} cannot be repeated safely; choose "
            f"{', '.join(PROVIDERS)}, or write with foreachBatch"
        )
    provider = provider.lower()
    refuse_all_but_append(provider, request)
    spark, spark_schema = df.sparkSession, df.schema
    refuse_repeated_fields(f"the table {name}", spark_schema, _case_sensitive(spark))
    options = {option: value for option, value in request.options.items() if option != "path"}

    def writer() -> SparkTableWriter:
        return SparkTableWriter(
            spark, name, spark_schema, provider, request.partition_by, request.options.get("path"), options
        )

    table = find_table(spark, name)
    if table is None:
        _check_columns(spark, name, spark_schema, request.partition_by)
    else:
        _check_table(name, table, provider, request)
        rows_to_insert(spark, table, spark.createDataFrame([], spark_schema))
    if options:
        warn_of_misspelled(f"the table {name}", options)
        check_write_options(spark, name, provider, options, spark_schema)
    return Output(TableSink(name, schema, spark_schema.json(), writer), runs_spark_jobs=True)


def _check_columns(spark: SparkSession, name: str, schema: StructType, partition_by: tuple[str, ...]) -> None:
    missing = [column for column in partition_by if column not in schema.fieldNames()]
    if missing:
        parameters = {
            "colType": "partition",
            "colName": f"`{missing[0]}`",
            "tableName": qualified(spark, name),
            "tableCols": ", ".join(f"`{column}`" for column in schema.fieldNames()),
        }
        text = f"toTable({name!r}): partitionBy column {missing[0]} is none of {schema.fieldNames()}"
        raise WrongPlan(text, "COLUMN_NOT_DEFINED_IN_TABLE", parameters)


def _check_table(name: str, table: FileTable, provider: str, request: SinkRequest) -> None:
    partition_by, path = request.partition_by, request.options.get("path")
    if provider != table.provider:
        raise WrongPlan(
            f"The input source({provider}) is different from the table {name}'s data source provider"
            f"({table.provider}): say format({table.provider!r})"
        )
    if partition_by and partition_by != table.partition_columns:
        raise WrongPlan(
            f"toTable({name!r}): the table is partitioned by {list(table.partition_columns)}, not by "
            f"{list(partition_by)}; leave partitionBy out"
        )
    if path is not None and not _is_at(table.location, path):
        raise WrongPlan(
            f"toTable({name!r}): the table is at {table.location}, not at path {path!r}; leave option('path') out"
        )


def _is_at(location: str, path: str) -> bool:
    """Return True if the path may name the location.

    Spark chooses the directory in which it resolves a relative path, so only the end of the location is compared.
    """
    plain = path.removeprefix("file:")
    if os.path.isabs(plain):
        return os.path.realpath(plain) == os.path.realpath(location)
    return location.endswith(os.path.normpath(f"/{plain}"))


class SparkTableWriter:
    """Spark's part of a table's commits; implements ``TableWriter``. The arguments are the user's own."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        schema: StructType,
        provider: str,
        partition_by: tuple[str, ...],
        path: str | None,
        options: Mapping[str, str],
    ) -> None:
        self._spark = spark
        self._name = name
        self._schema = schema
        self._provider = provider
        self._partition_by = partition_by
        self._path = path
        self._options = options

    def open(self) -> str:
        if find_table(self._spark, self._name) is None:
            create_table(self._spark, self._name, self._schema, self._provider, self._partition_by, self._path)
        return self._table().location

    def check(self, columns: str) -> None:
        table = find_table(self._spark, self._name)
        if table is None:
            raise SinkError(
                f"table {self._name} no longer exists, and the query would create it with other columns than the rows "
                "of a pending epoch have"
            )
        rows_to_insert(self._spark, table, self._spark.createDataFrame([], parsed_columns(columns)))

    def write(self, files: Sequence[str], columns: str, directory: str) -> None:
        table = self._table()
        staged = _staged(self._spark, files, columns, self._schema.json())
        rows = rows_to_insert(self._spark, table, staged)
        writer = rows.write.format(table.provider).options(**{**table.options, **self._options})
        if table.partition_columns:
            writer = writer.partitionBy(*table.partition_columns)
        writer.save(f"file:{directory}")

    def published(self, partitions: Sequence[Mapping[str, str | None]]) -> None:
        files_were_added(self._spark, self._table(), partitions)

    def _table(self) -> FileTable:
        table = find_table(self._spark, self._name)
        if table is None:
            raise SinkError(f"table {self._name} is gone: someone dropped it; start the query again to make it anew")
        return table


def _refuse_partitions(method: str, request: SinkRequest) -> None:
    if request.partition_by:
        raise NotSupported(f"'{method}' does not support partitioning: leave partitionBy out")
