"""Requests for sinks, as a writer collects them, and the outputs made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.api.rest_options import REST_OPTIONS
from penstock.catalyst.types import repeated_fields
from penstock.config import OPTION_NAMES, nearest_name, unknown_option
from penstock.connectors.base import Sink
from penstock.errors import NotSupported
from penstock.logs import get_logger
from penstock.spark.errors import UnsupportedPlan

log = get_logger(__name__)


WRITER_OPTIONS = (*OPTION_NAMES, *REST_OPTIONS, "checkpointLocation", "startFrom", "startMode")
"""Options that belong to the writer, without prefix. All others belong to the sink."""
_ALMOST = 0.9
"""Similarity of two names that differ in about one letter of ten."""


class SinkKind(Enum):
    """Kind of sink: chosen by ``format(...)``, or by a separate method."""

    FORMAT = "format"
    FOREACH = "foreach"
    FOREACH_BATCH = "foreachBatch"
    TABLE = "toTable"


@dataclass(frozen=True)
class Output:
    """Sink of one output.

    Attributes:
        sink: the sink.
        on_commit: called in the driver after each committed epoch.
        runs_spark_jobs: True if commits run Spark jobs. Then one Spark slot must stay free for them.
    """

    sink: Sink
    on_commit: Callable[[], None] = lambda: None
    runs_spark_jobs: bool = False


_TEMPORARY_FORMATS = ("memory", "console", "noop")


@dataclass(frozen=True)
class SinkRequest:
    """Request for a sink.

    Attributes:
        options: options by name; names are in lower case.
        target: the function or writer for ``foreach`` and ``foreachBatch``, the table's name for ``toTable``.
    """

    format: str | type[DataSource]
    output_mode: str
    query_name: str | None
    options: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    kind: SinkKind = SinkKind.FORMAT
    target: object = None

    @property
    def temporary(self) -> bool:
        """True if a query without a ``checkpointLocation`` gets a temporary one, as in Spark.

        The temporary location is removed when the query ends. Such a sink keeps no rows over a restart, or none that
        Penstock knows of.
        """
        if self.kind is SinkKind.FORMAT:
            return self.format in _TEMPORARY_FORMATS
        return self.kind in (SinkKind.FOREACH, SinkKind.FOREACH_BATCH)


def time_zone(spark: SparkSession) -> str:
    """Return the time zone of the session."""
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def refuse_unknown(sink: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise ConfigError for the first option that neither the sink nor Penstock knows."""
    unknown = sorted(set(options) - {name.lower() for name in known})
    if unknown:
        raise unknown_option(unknown[0], f"the {sink} sink", known, WRITER_OPTIONS)


def warn_of_misspelled(sink: str, options: Mapping[str, str]) -> None:
    """Log a warning for each option whose name is almost the name of one of Penstock's own options.

    For sinks whose options Penstock does not know and so cannot refuse.
    """
    for name in options:
        meant = nearest_name(name, WRITER_OPTIONS, _ALMOST)
        if meant is not None:
            log.warning("option %s is an option of %s; did you mean Penstock's option %s?", name, sink, meant)


def refuse_repeated_fields(sink: str, schema: StructType, case_sensitive: bool) -> None:
    """Raise NotSupported for a struct with several fields of one name, which Spark could not read from files."""
    for column in schema:
        for path, name in repeated_fields(column.name, column.dataType.jsonValue(), case_sensitive):
            raise NotSupported(
                f"column {path} is a struct with more than one field {name}, which {sink} cannot hold: rename them, "
                "for example with cast(... as struct<a: ..., b: ...>)"
            )


def refuse_all_but_append(source: str, request: SinkRequest) -> None:
    """Raise UnsupportedPlan, with Spark's message, for modes other than append: files are only ever added."""
    if request.output_mode != "append":
        raise UnsupportedPlan(
            f"Invalid streaming output mode: {request.output_mode}. This output mode is not supported in Data Source "
            f"{source}; use outputMode('append'), or a sink that takes updates",
            "STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE",
            {"className": source, "outputMode": request.output_mode},
        )
