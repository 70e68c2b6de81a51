"""Request for a sink, as a writer collects it, and the sink made from it."""

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
"""Options that the writer keeps, without prefix. All others belong to the sink."""
_ALMOST = 0.9
"""Likeness of two names that differ in about one letter of ten."""


class SinkKind(Enum):
    """Kind of sink: chosen by ``format(...)``, or by a method of its own."""

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


_TEMPORARY_FORMATS = ("memory", "console", "noop")


@dataclass(frozen=True)
class SinkRequest:
    """Request for a sink; option names are in lower case.

    ``target``: the function or writer of ``foreach`` and ``foreachBatch``, the table's name of ``toTable``.
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
        """Without a checkpointLocation the query gets one that ``stop`` removes, as in Spark: the sink itself keeps
        nothing over a restart, or nothing that Penstock knows of."""
        if self.kind is SinkKind.FORMAT:
            return self.format in _TEMPORARY_FORMATS
        return self.kind in (SinkKind.FOREACH, SinkKind.FOREACH_BATCH)


def time_zone(spark: SparkSession) -> str:
    """The session's."""
    return spark.conf.get("spark.sql.session.timeZone") or "UTC"


def refuse_unknown(sink: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise ConfigError for the first option that neither the sink nor Penstock has."""
    unknown = sorted(set(options) - {name.lower() for name in known})
    if unknown:
        raise unknown_option(unknown[0], f"the {sink} sink", known, WRITER_OPTIONS)


def warn_of_misspelled(sink: str, options: Mapping[str, str]) -> None:
    """Log options that the sink gets, but whose names are almost names of Penstock's own options.

    For sinks whose options Penstock does not know: it cannot refuse any.
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
    """Refuse other modes with Spark's message: files are added, never changed."""
    if request.output_mode != "append":
        raise UnsupportedPlan(
            f"Invalid streaming output mode: {request.output_mode}. This output mode is not supported in Data Source "
            f"{source}; use outputMode('append'), or a sink that takes updates",
            "STREAMING_OUTPUT_MODE.UNSUPPORTED_DATASOURCE",
            {"className": source, "outputMode": request.output_mode},
        )
