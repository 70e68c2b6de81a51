"""From ``format(...)`` and its options to a sink."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from penstock.config import boolean, whole_number
from penstock.connectors.base import Sink
from penstock.connectors.console import ConsoleSink
from penstock.connectors.memory import MemorySink
from penstock.connectors.noop import NoopSink
from penstock.connectors.parquet_sink import ParquetSink
from penstock.connectors.python_sink import PythonSink
from penstock.errors import ConfigError, NotSupported, NotYet
from penstock.spark.data_sources import registered_data_source

BUILT_IN = ("console", "memory", "noop", "parquet")
_NOT_YET = ("csv", "delta", "iceberg", "json", "kafka", "orc", "text")


class SinkKind(Enum):
    """How the writer was told where to write: by ``format(...)``, or by a method of its own."""

    FORMAT = "format"
    FOREACH = "foreach"
    FOREACH_BATCH = "foreachBatch"
    TABLE = "toTable"


@dataclass(frozen=True)
class Output:
    """A sink, and what the session does after each committed epoch. ``runs_spark_jobs``: its commits do, so that a slot
    has to be left free for them."""

    sink: Sink
    on_commit: Callable[[], None] = lambda: None
    runs_spark_jobs: bool = False


@dataclass(frozen=True)
class SinkRequest:
    """What the user said about the sink; option names are in lower case.

    ``target``: the function or writer of ``foreach`` and ``foreachBatch``, the table's name of ``toTable``.
    """

    format: str | type[DataSource]
    output_mode: str
    query_name: str | None
    options: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    kind: SinkKind = SinkKind.FORMAT
    target: object = None


def choose_sink(df: DataFrame, request: SinkRequest, schema: pa.Schema) -> Output:
    """The sink of one query; ``schema`` is of the rows that reach it.

    Raises:
        ConfigError: an unknown format or sink option, or a missing one.
        NotSupported: the sink cannot take the output mode.
    """
    spark = df.sparkSession
    if request.kind is not SinkKind.FORMAT:
        raise NotYet(f"{request.kind.value} is not run yet; write a Python DataSource with a streamWriter")
    if request.partition_by:
        raise NotYet("partitionBy is not run yet; filter by the column where the output is read")
    if not isinstance(request.format, str):
        return _python(df, request, request.format, schema)
    name = request.format.strip().lower()
    if name in BUILT_IN:
        return _CREATE[name](spark, request, schema)
    source = registered_data_source(spark, request.format)
    if source is not None:
        return _python(df, request, source, schema)
    if name in _NOT_YET:
        raise NotYet(f"format {name!r} is not written yet; use parquet, or a Python DataSource with a streamWriter")
    raise ConfigError(
        f"format {request.format!r} is unknown: choose {', '.join(BUILT_IN)}, or register a Python DataSource "
        "of this name with spark.dataSource.register"
    )


def _python(df: DataFrame, request: SinkRequest, source: type[DataSource], schema: pa.Schema) -> Output:
    zone = _time_zone(df.sparkSession)
    return Output(PythonSink(source.name(), source, request.options, schema, df.schema.json(), time_zone=zone))


def _time_zone(spark: SparkSession) -> str:
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def _parquet(spark: SparkSession, request: SinkRequest, schema: pa.Schema) -> Output:
    if request.output_mode == "update":
        raise NotSupported("parquet files cannot be updated: use outputMode('append'), or a sink that takes updates")
    path = request.options.get("path")
    if not path:
        raise ConfigError("the parquet sink needs a directory: option('path', ...) or start(path)")
    return Output(ParquetSink(path, schema, request.options))


def _console(spark: SparkSession, request: SinkRequest, schema: pa.Schema) -> Output:
    _refuse_unknown("console", request.options, ("numrows", "truncate"))
    rows = whole_number("numRows", request.options.get("numrows", "20"))
    truncate = boolean("truncate", request.options.get("truncate", "true"))
    return Output(ConsoleSink(schema, rows, truncate, _time_zone(spark)))


def _noop(spark: SparkSession, request: SinkRequest, schema: pa.Schema) -> Output:
    _refuse_unknown("noop", request.options, ())
    return Output(NoopSink())


def _memory(spark: SparkSession, request: SinkRequest, schema: pa.Schema) -> Output:
    _refuse_unknown("memory", request.options, ())
    if request.query_name is None:
        raise ConfigError("the memory sink's table is called as the query is: give a name with queryName(...)")
    sink = MemorySink(request.query_name, schema)
    return Output(sink, MemoryView(spark, sink).refresh)


class MemoryView:
    """The temporary view of a memory sink, replaced after every commit that added rows.

    A DataFrame taken from the view keeps the rows it had then; read ``spark.table(name)`` again for the newest.
    """

    def __init__(self, spark: SparkSession, sink: MemorySink) -> None:
        self._spark = spark
        self._sink = sink
        self._lock = threading.Lock()
        self._shown_rows = -1

    def refresh(self) -> None:
        """Show what is committed now. May be called from any thread."""
        with self._lock:
            table = self._sink.table()
            if table.num_rows != self._shown_rows:
                self._spark.createDataFrame(table).createOrReplaceTempView(self._sink.name)
                self._shown_rows = table.num_rows


def _refuse_unknown(sink: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    unknown = sorted(name for name in options if name not in known)
    if unknown:
        hint = f"known: {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"option {unknown[0]} of the {sink} sink is not known; {hint}")


_CREATE: dict[str, Callable[[SparkSession, SinkRequest, pa.Schema], Output]] = {
    "console": _console,
    "memory": _memory,
    "noop": _noop,
    "parquet": _parquet,
}
