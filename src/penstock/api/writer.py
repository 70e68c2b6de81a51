"""``penstock.writeStream(df)``: PySpark's ``DataStreamWriter``, started by Penstock."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkAttributeError
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.readwriter import DataStreamWriter as SparkWriter

from penstock.api.sink_request import WRITER_OPTIONS
from penstock.api.sinks import SinkKind, SinkRequest
from penstock.api.start import OutputRequest, QueryRequest, start_query
from penstock.api.triggers import Trigger, parse_trigger
from penstock.config import CONF_PREFIX
from penstock.planner.checks import check_dataframe, check_output_mode
from penstock.queries.streaming_query import StreamingQuery
from penstock.spark.errors import NotCallable, NotYetSupported, WrongPlan, empty_text, pysparks_refusals, wrong_type

DEFAULT_FORMAT_CONF = "spark.sql.sources.default"
"""Spark's setting for the format of a writer without ``format``."""
_LEGACY_PATH_CONF = "spark.sql.legacy.pathOptionBehavior.enabled"
"""Spark's setting: with ``true``, the path of ``start`` replaces the option."""
_OWN_OPTIONS = {name.lower() for name in WRITER_OPTIONS}

OptionValue = bool | float | int | str | None


class DataStreamWriter:
    """Writer of a streaming DataFrame. Every method except ``start`` and ``toTable`` returns the writer itself.

    Penstock's options begin with ``spark.penstock.``; the prefix may be omitted. ``checkpointLocation`` is the
    location of the snapshots. ``startFrom`` and ``startMode`` select the snapshot of another query to start from
    (docs/resuming.md). All other options belong to the sink. Options are checked by ``start``.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._format: str | type[DataSource] | None = None
        self._output_mode = "append"
        self._query_name: str | None = None
        self._checkpoint_location: str | None = None
        self._start_from: str | None = None
        self._start_mode: str | None = None
        self._engine_options: dict[str, str] = {}
        self._sink_options: dict[str, str] = {}
        self._trigger = Trigger()
        self._partition_by: tuple[str, ...] = ()
        self._kind = SinkKind.FORMAT
        self._target: object = None

    def format(self, source: str | type[DataSource]) -> DataStreamWriter:
        """Set the format by name, such as ``parquet`` or ``memory``, or by the class of a Python ``DataSource``.

        The default is the setting ``spark.sql.sources.default``.
        """
        if not isinstance(source, str) and not (isinstance(source, type) and issubclass(source, DataSource)):
            raise wrong_type("format", source, "a string or a subclass of pyspark.sql.datasource.DataSource")
        self._format = source
        return self

    def outputMode(self, outputMode: str) -> DataStreamWriter:  # noqa: N802, N803 - PySpark's names
        """Set the output mode: ``append`` (default), ``update`` or ``complete``, with Spark's rules for each."""
        if not isinstance(outputMode, str) or not outputMode.strip():
            raise empty_text("outputMode", outputMode)
        self._output_mode = check_output_mode(outputMode)
        return self

    def option(self, key: str, value: OptionValue) -> DataStreamWriter:
        """Set one option. Names are case-insensitive, the last value of a name counts, and None is ignored."""
        if not isinstance(key, str):
            raise wrong_type("option", key, "a string")
        if value is None:
            return self
        text = str(value).lower() if isinstance(value, bool) else str(value)
        lower = key.lower()
        if lower == "checkpointlocation":
            self._checkpoint_location = text
        elif lower == "startfrom":
            self._start_from = text
        elif lower == "startmode":
            self._start_mode = text
        elif lower.startswith(CONF_PREFIX):
            self._engine_options[lower[len(CONF_PREFIX) :]] = text
        elif lower in _OWN_OPTIONS:
            self._engine_options[lower] = text
        else:
            self._sink_options[lower] = text
        return self

    def options(self, **options: OptionValue) -> DataStreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def queryName(self, queryName: str) -> DataStreamWriter:  # noqa: N802, N803
        """Set the query's name, unique among the active queries. It is also the name of the memory sink's table."""
        if not isinstance(queryName, str) or not queryName.strip():
            raise empty_text("queryName", queryName)
        self._query_name = queryName
        return self

    def trigger(self, **trigger: Any) -> DataStreamWriter:
        """Set exactly one of Spark's triggers.

        ``processingTime='5 seconds'`` (or ``continuous``, ``realTime``) sets the checkpoint interval: how often results
        become visible. With ``availableNow=True`` (or ``once``) the query reads the rows that are available and ends.

        Raises:
            ArgumentError, ArgumentTypeError, WrongSetting: see ``parse_trigger``.
        """
        self._trigger = parse_trigger(trigger)
        return self

    def partitionBy(self, *cols: str | list[str]) -> DataStreamWriter:  # noqa: N802 - PySpark's name
        """Write to directories ``column=value`` below the sink's path, in Spark's layout."""
        names = [name for col in cols for name in (col if isinstance(col, list | tuple) else [col])]
        for name in names:
            if not isinstance(name, str):
                raise wrong_type("partitionBy", name, "names of columns")
        self._partition_by = tuple(names)
        return self

    def clusterBy(self, *cols: str | list[str]) -> DataStreamWriter:  # noqa: N802
        raise NotYetSupported("clusterBy is not run yet")

    def foreach(self, f: Any) -> DataStreamWriter:
        """Pass each row to ``f`` in the slots.

        ``f`` is a function, or an object with ``process`` and optionally ``open`` and ``close``.

        Raises:
            NotCallable: ``f`` is neither.
        """
        try:
            SparkWriter._construct_foreach_function(f)
        except PySparkAttributeError as error:
            raise NotCallable(
                "foreach takes a function of one row, or an object with process(row) and, optionally, "
                f"open(partition_id, epoch_id) and close(error), not {type(f).__name__}",
                error.getCondition(),
                error.getMessageParameters(),
            ) from error
        return self._write_to(SinkKind.FOREACH, f)

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> DataStreamWriter:  # noqa: N802
        """Pass each committed epoch to ``func(DataFrame, batchId)`` on the driver."""
        if not callable(func):
            raise wrong_type("foreachBatch", func, "a function of a DataFrame and a batch id")
        return self._write_to(SinkKind.FOREACH_BATCH, func)

    def toTable(  # noqa: N802
        self,
        tableName: str,  # noqa: N803
        format: str | None = None,  # noqa: A002
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: OptionValue,
    ) -> StreamingQuery:
        """Start the query with a catalog table as its sink. For the other arguments see ``start``."""
        if not isinstance(tableName, str):
            raise wrong_type("tableName", tableName, "a string")
        self._write_to(SinkKind.TABLE, tableName).options(**options)
        return self.start(None, format, outputMode, partitionBy, queryName)

    def _write_to(self, kind: SinkKind, target: object) -> DataStreamWriter:
        self._kind, self._target = kind, target
        return self

    def start(
        self,
        path: str | os.PathLike[str] | None = None,
        format: str | type[DataSource] | None = None,  # noqa: A002 - PySpark's name
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: OptionValue,
    ) -> StreamingQuery:
        """Compile the DataFrame, open the checkpoint location and start the query. Return while the slots still start.

        Raises:
            ConfigError: an option is unknown or out of range, or the path is given twice.
            NotSupported: the DataFrame, mode or session has something that Penstock does not support. The message names
                it and the workaround.
            LocationError: the checkpoint location is missing, belongs to another query, or does not fit the plan.
            ResourceError: too few slots are free.
        """
        self.options(**options)
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        if path is not None:
            self._set_path(path)
        with pysparks_refusals():
            return start_query([self._output()], self._about_query())

    def _set_path(self, path: str | os.PathLike[str]) -> None:
        """Set the path. Like Spark, refuse a path that is also given as an option, even if both are equal."""
        if not isinstance(path, str | os.PathLike):
            raise wrong_type("path", path, "a string")
        legacy = str(self._df.sparkSession.conf.get(_LEGACY_PATH_CONF, "false")).lower() == "true"
        if "path" in self._sink_options and not legacy:
            raise WrongPlan(
                f"the path is given twice: start(path={os.fspath(path)!r}) and option('path', "
                f"{self._sink_options['path']!r}); give one of them",
            )
        self._sink_options["path"] = os.fspath(path)

    def _output(self) -> OutputRequest:
        """Return the request for this output."""
        check_dataframe(self._df)
        sink = SinkRequest(
            str(self._df.sparkSession.conf.get(DEFAULT_FORMAT_CONF)) if self._format is None else self._format,
            self._output_mode,
            self._query_name,
            dict(self._sink_options),
            self._partition_by,
            self._kind,
            self._target,
        )
        return OutputRequest(self._df, sink)

    def _about_query(self) -> QueryRequest:
        """Return the request for the query as a whole."""
        return QueryRequest(
            self._query_name,
            self._checkpoint_location,
            dict(self._engine_options),
            self._trigger,
            self._start_from,
            self._start_mode,
        )


def writeStream(df: DataFrame) -> DataStreamWriter:  # noqa: N802 - PySpark's name
    """Return a writer for ``df``, Penstock's counterpart of ``df.writeStream``.

    Args:
        df: any streaming DataFrame, also one from ``spark.sql``.

    Raises:
        WrongPlan: ``df`` is a batch DataFrame.
        ArgumentTypeError: ``df`` is not a DataFrame.
        NotSupported: ``df`` is a Spark Connect DataFrame.
    """
    check_dataframe(df)
    return DataStreamWriter(df)
