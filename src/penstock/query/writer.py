"""``penstock.writeStream(df)``: PySpark's ``DataStreamWriter``, started by Penstock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource

from penstock.config import CONF_PREFIX, OPTION_NAMES
from penstock.errors import ConfigError, NotYet
from penstock.query.sinks import SinkRequest
from penstock.query.start import StartRequest, start_query
from penstock.query.streaming_query import StreamingQuery

DEFAULT_FORMAT = "parquet"
_ENGINE_OPTIONS = {name.lower() for name in OPTION_NAMES}
_OTHER_TRIGGERS = ("once", "continuous", "availableNow", "realTime")

OptionValue = bool | float | int | str | None


class DataStreamWriter:
    """Says where and how a streaming DataFrame is written; every method returns the writer itself.

    Options whose name begins with ``spark.penstock.``, and the same names without the prefix, are Penstock's;
    ``checkpointLocation`` says where snapshots live; all others belong to the sink. Nothing is checked before
    ``start``.
    """

    def __init__(self, df: DataFrame) -> None:
        self._df = df
        self._format: str | type[DataSource] = DEFAULT_FORMAT
        self._output_mode = "append"
        self._query_name: str | None = None
        self._checkpoint_location: str | None = None
        self._engine_options: dict[str, str] = {}
        self._sink_options: dict[str, str] = {}

    def format(self, source: str | type[DataSource]) -> DataStreamWriter:
        """``parquet`` (default), ``console``, ``memory``, ``noop``, or a Python ``DataSource``: its class or name."""
        self._format = source
        return self

    def outputMode(self, outputMode: str) -> DataStreamWriter:  # noqa: N802, N803 - PySpark's names
        """``append`` (default) or ``update``."""
        self._output_mode = outputMode
        return self

    def option(self, key: str, value: OptionValue) -> DataStreamWriter:
        """Set one option; the last value of a name counts, names are case-insensitive. ``None`` is ignored."""
        if value is None:
            return self
        text = str(value).lower() if isinstance(value, bool) else str(value)
        lower = key.lower()
        if lower == "checkpointlocation":
            self._checkpoint_location = text
        elif lower.startswith(CONF_PREFIX):
            self._engine_options[lower[len(CONF_PREFIX) :]] = text
        elif lower in _ENGINE_OPTIONS:
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
        """A name, unique among the active queries; the memory sink's table is called so."""
        if not isinstance(queryName, str) or not queryName.strip():
            raise ConfigError(f"queryName must be a non-empty string, not {queryName!r}")
        self._query_name = queryName
        return self

    def trigger(self, *, processingTime: str | None = None, **others: Any) -> DataStreamWriter:  # noqa: N803
        """``processingTime='5 seconds'`` sets the checkpoint interval: results become visible that often.

        Raises:
            NotYet: one of Spark's other triggers.
        """
        given = [name for name, value in others.items() if value is not None]
        unknown = [name for name in given if name not in _OTHER_TRIGGERS]
        if unknown or len(given) + (processingTime is not None) != 1:
            raise ConfigError(f"give exactly one trigger of processingTime, {', '.join(_OTHER_TRIGGERS)}")
        if not given and not isinstance(processingTime, str):
            raise ConfigError(f"processingTime={processingTime!r} is not a text; write for example '5 seconds'")
        if given:
            raise NotYet(f"trigger({given[0]}=...) is not run yet; use trigger(processingTime='1 second') and stop()")
        self._engine_options["checkpoint.interval"] = _spark_interval(str(processingTime))
        return self

    def partitionBy(self, *cols: str | list[str]) -> DataStreamWriter:  # noqa: N802
        raise NotYet("partitionBy is not run yet; filter by the column where the output is read")

    def clusterBy(self, *cols: str | list[str]) -> DataStreamWriter:  # noqa: N802
        raise NotYet("clusterBy is not run yet")

    def foreach(self, f: Any) -> StreamingQuery:
        raise NotYet("foreach is not run yet; write a Python DataSource with a streamWriter and name it in format()")

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> StreamingQuery:  # noqa: N802
        raise NotYet("foreachBatch is not run yet; write a Python DataSource with a streamWriter, or read the output")

    def toTable(self, tableName: str, *args: Any, **options: Any) -> StreamingQuery:  # noqa: N802, N803
        raise NotYet(f"toTable({tableName!r}) is not run yet; use format('parquet') and a path")

    def start(
        self,
        path: str | None = None,
        format: str | type[DataSource] | None = None,  # noqa: A002 - PySpark's name
        outputMode: str | None = None,  # noqa: N803
        partitionBy: str | list[str] | None = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: OptionValue,
    ) -> StreamingQuery:
        """Compile the DataFrame, open the checkpoint location and start the query; returns while slots come up.

        Raises:
            ConfigError: an unknown option, or one out of range.
            NotSupported: the DataFrame, mode or session holds what Penstock refuses; names it and the way round.
            LocationError: the checkpoint location is missing, foreign, or does not fit the plan.
            ResourceError: too few free slots.
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
            self.option("path", path)
        request = StartRequest(
            SinkRequest(self._format, self._output_mode, self._query_name, dict(self._sink_options)),
            self._checkpoint_location,
            dict(self._engine_options),
        )
        return start_query(self._df, request)


def writeStream(df: DataFrame) -> DataStreamWriter:  # noqa: N802 - PySpark's name
    """The entry: what ``df.writeStream`` is to Structured Streaming.

    Args:
        df: any streaming DataFrame, ``spark.sql`` included.
    """
    return DataStreamWriter(df)


_UNITS = {"millisecond": "ms", "second": "s", "minute": "m", "hour": "h"}


def _spark_interval(text: str) -> str:
    """Spark's ``5 seconds`` in Penstock's spelling; ``0 seconds`` (as fast as possible) is a millisecond."""
    number, _, unit = text.strip().lower().removeprefix("interval ").partition(" ")
    short = _UNITS.get(unit.strip().rstrip("s"), unit.strip())
    return "1ms" if number == "0" else f"{number}{short}"
