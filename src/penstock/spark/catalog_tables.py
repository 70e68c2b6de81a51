"""Tables of Spark's session catalog that are stored as files: lookup, creation, checks, registration of new files."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaObject
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.catalyst.jvm import DATA_TYPE, frame_of, java_class
from penstock.errors import ConfigError, NotSupported, SinkError
from penstock.spark.errors import NoTable, WrongPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMATS = {
    "csv": "csv.CSVFileFormat",
    "json": "json.JsonFileFormat",
    "orc": "orc.OrcFileFormat",
    "parquet": "parquet.ParquetFileFormat",
    "text": "text.TextFileFormat",
}
"""Spark's file format classes, by provider."""
PROVIDERS = tuple(_FORMATS)
"""Formats that Spark writes as files. A rename makes such files visible."""
_MAX_RECORDS = "maxrecordsperfile"
_SESSION_CATALOG = "spark_catalog"
_NO_OPTIONS = ("path", "serialization.format")


@dataclass(frozen=True)
class FileTable:
    """One existing table.

    Attributes:
        name: the full name, quoted for SQL.
        location: the table's directory, as a plain path.
        options: options that the table was created with.
    """

    name: str
    provider: str
    location: str
    partition_columns: tuple[str, ...]
    options: Mapping[str, str]


def find_table(spark: SparkSession, name: str) -> FileTable | None:
    """Return the table, or None if it does not exist.

    Raises:
        ConfigError: the name cannot be parsed.
        NotSupported: the name is a view, a bucketed table, or a table of another catalog or provider.
    """
    parts = _parts(spark, name)
    catalog = parts[0] if len(parts) > 2 else spark.catalog.currentCatalog()
    if catalog != _SESSION_CATALOG:
        raise NotSupported(
            f"toTable({name!r}): catalog {catalog} commits in its own way, which cannot be repeated safely; write to "
            f"a table of {_SESSION_CATALOG}, or with foreachBatch and a merge that knows the batch id"
        )
    if not spark.catalog.tableExists(name):
        return None
    found = spark.catalog.getTable(name)
    if found.isTemporary or found.tableType == "VIEW":
        raise NotSupported(f"toTable({name!r}): it is a view, and Spark streams into tables only; name a table")
    database = found.namespace[-1] if found.namespace else spark.catalog.currentDatabase()
    return _file_table(spark, name, found.name, database)


def qualified(spark: SparkSession, name: str) -> str:
    """Return the whole name of a table of the session catalog, as Spark writes it."""
    *namespace, table = _parts(spark, name)
    database = namespace[-1] if namespace else spark.catalog.currentDatabase()
    return ".".join(_quoted(part) for part in (_SESSION_CATALOG, database, table))


def _parts(spark: SparkSession, name: str) -> list[str]:
    try:
        parsed = spark._jsparkSession.sessionState().sqlParser().parseMultipartIdentifier(name)
    except Exception as error:
        raise WrongPlan(f"toTable({name!r}): not a table's name: {str(error).strip().splitlines()[0]}") from error
    return [parsed.apply(position) for position in range(parsed.size())]


def _file_table(spark: SparkSession, asked: str, table: str, database: str) -> FileTable:
    where = java_class(spark, "scala.Option").apply(database)
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.TableIdentifier")(table, where)
    metadata = spark._jsparkSession.sessionState().catalog().getTableMetadata(identifier)
    provider = str(metadata.provider().get()).lower() if metadata.provider().isDefined() else "hive"
    if provider not in PROVIDERS:
        raise NotSupported(
            f"toTable({asked!r}): a commit to a table of provider {provider} cannot be repeated safely; tables of "
            f"{', '.join(PROVIDERS)} can be written, or write with foreachBatch"
        )
    if metadata.bucketSpec().isDefined():
        raise NotSupported(f"toTable({asked!r}): Spark does not stream into bucketed tables; leave CLUSTERED BY out")
    location = metadata.location()
    if location.getScheme() not in (None, "file"):
        raise NotSupported(
            f"toTable({asked!r}): its files lie at {location}; only local or mounted file systems so far"
        )
    columns = metadata.partitionColumnNames()
    options = java_class(spark, "scala.jdk.javaapi.CollectionConverters").asJava(metadata.storage().properties())
    return FileTable(
        ".".join(_quoted(part) for part in (_SESSION_CATALOG, database, table)),
        provider,
        str(location.getPath()).rstrip("/"),
        tuple(columns.apply(position) for position in range(columns.size())),
        {key: options[key] for key in options if key.lower() not in _NO_OPTIONS},
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def create_table(
    spark: SparkSession, name: str, schema: StructType, provider: str, partition_by: Sequence[str], path: str | None
) -> None:
    """Create a missing table as Spark's ``toTable`` does: all columns are nullable, the writer's options are not kept.

    Raises:
        SinkError: Spark cannot create the table; the message has Spark's reason.
    """
    data_type = java_class(spark, DATA_TYPE).fromJson(schema.json())
    columns = data_type.asNullable().toDDL()
    text = f"CREATE TABLE {'.'.join(_quoted(part) for part in _parts(spark, name))} ({columns}) USING {provider}"
    if partition_by:
        text += f" PARTITIONED BY ({', '.join(map(_quoted, partition_by))})"
    if path is not None:
        text += f" LOCATION '{_escaped(path)}'"
    try:
        spark.sql(text)
    except AnalysisException as error:
        reason = _reason(error).removeprefix(f"[{error.getCondition()}] ")
        message = f"table {name} cannot be created: {reason}"
        raise NoTable(message, error.getCondition(), error.getMessageParameters()) from error
    except Exception as error:
        raise SinkError(f"table {name} cannot be created: {_reason(error)}") from error


def rows_to_insert(spark: SparkSession, table: FileTable, df: DataFrame) -> DataFrame:
    """Return the rows that ``INSERT INTO table BY NAME`` would write: Spark resolves, casts and orders the columns.

    Nothing is written.

    Raises:
        ConfigError: the rows do not fit the table; the message has Spark's reason.
    """
    state = spark._jsparkSession.sessionState()
    view = f"penstock_{secrets.token_hex(8)}"
    df.createOrReplaceTempView(view)
    try:
        plan = state.sqlParser().parsePlan(f"INSERT INTO {table.name} BY NAME SELECT * FROM {view}")
        skip = java_class(spark, "org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
        execution = state.executePlan(plan, skip)
        execution.assertAnalyzed()
        command = execution.analyzed()
    except AnalysisException as error:
        raise WrongPlan(f"the rows do not fit table {table.name}: {_reason(error)}") from error
    finally:
        spark.catalog.dropTempView(view)
    names = command.outputColumnNames()
    rows = frame_of(spark, command.query())
    return rows.toDF(*(names.apply(position) for position in range(names.size())))


def check_write_options(
    spark: SparkSession, name: str, provider: str, options: Mapping[str, str], schema: StructType
) -> None:
    """Check the options of a writer as Spark does when it begins to write. Nothing is written.

    Raises:
        ConfigError: Spark refuses an option; the message has Spark's reason.
    """
    most = options.get(_MAX_RECORDS, "0")
    if not re.fullmatch(r"-?[0-9]{1,18}", most):
        raise ConfigError(f"toTable({name!r}): option maxRecordsPerFile={most!r:.100} is no number")
    try:
        _prepare_write(spark, provider, options, java_class(spark, DATA_TYPE).fromJson(schema.json()))
    except Exception as error:
        names = ", ".join(options)  # a value may be a secret
        raise ConfigError(f"toTable({name!r}): Spark refuses one of the options {names}: {_reason(error)}") from error


def _prepare_write(spark: SparkSession, provider: str, options: Mapping[str, str], schema: JavaObject) -> None:
    """Call what Spark calls on the driver before a write, and for CSV and JSON also what it calls for each file."""
    session = spark._jsparkSession
    texts = java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(dict(options))
    job = java_class(spark, "org.apache.hadoop.mapreduce.Job").getInstance(session.sessionState().newHadoopConf())
    java_class(spark, f"org.apache.spark.sql.execution.datasources.{_FORMATS[provider]}")().prepareWrite(
        session, job, texts, schema
    )
    catalyst, zone = "org.apache.spark.sql.catalyst", "UTC"
    nowhere = java_class(spark, "java.io.StringWriter")()
    if provider == "csv":
        parsed = java_class(spark, f"{catalyst}.csv.CSVOptions")(texts, False, zone)
        java_class(spark, f"{catalyst}.csv.UnivocityGenerator")(schema, nowhere, parsed)
    if provider == "json":
        parsed = java_class(spark, f"{catalyst}.json.JSONOptions")(texts, zone, "")
        java_class(spark, f"{catalyst}.json.JacksonGenerator")(schema, nowhere, parsed)


def files_were_added(spark: SparkSession, table: FileTable, partitions: Sequence[Mapping[str, str | None]]) -> None:
    """Register new partitions, and refresh the session's list of the table's files."""
    for partition in partitions:
        spec = ", ".join(
            f"{_quoted(column)} = {'NULL' if value is None else _literal(value)}" for column, value in partition.items()
        )
        spark.sql(f"ALTER TABLE {table.name} ADD IF NOT EXISTS PARTITION ({spec})")
    spark.catalog.refreshTable(table.name)


def _literal(text: str) -> str:
    return f"'{_escaped(text)}'"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _reason(error: Exception) -> str:
    return " ".join(str(error).partition("\n\nJVM stacktrace")[0].partition(";\n")[0].split())
