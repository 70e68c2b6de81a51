"""``penstock.SnapshotWriter``: writes a snapshot from DataFrames, from which a query can start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.api.start import session_options
from penstock.config import parse_options
from penstock.connectors.noop import NoopSink
from penstock.errors import ConfigError
from penstock.interop.spark_data.draft import (
    Draft,
    draft_of_plan,
    draft_of_snapshot,
    rename_operator,
    start_source_after,
)
from penstock.interop.spark_data.writing import writable_schema, write_snapshot
from penstock.model.job_graph import SinkSpec
from penstock.model.manifest import checked_words
from penstock.planner.compiler import compile_outputs, sink_id
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.spark.errors import pysparks_refusals
from penstock.spark.launcher import SparkLauncher

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SnapshotWriter:
    """Writer of a snapshot. All methods except ``write`` only record a change and return the writer.

    ``from_plan`` and ``from_snapshot`` create it. The name of a state table is ``<operator id>/<table>``, with the ids
    that ``penstock snapshot show`` prints. ``tables`` lists the tables, and ``schema`` returns the columns of one. A
    DataFrame for a table must have exactly these columns, which are matched by name, and one row per key. A key is any
    Spark value, null included; NaN and -0.0 are compared as in Spark's grouping. The column ``key_group`` is optional
    and computed again. ``__changed``, in tables that have it, marks the rows that an update or complete output emits at
    its next checkpoint without new input (without the column: none).
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._frames: dict[str, DataFrame | None] = {}

    @staticmethod
    @pysparks_refusals()
    def from_plan(
        df: DataFrame | Sequence[tuple[DataFrame, str]],
        output_mode: str = "append",
        *,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        watermark: datetime | None = None,
    ) -> SnapshotWriter:
        """Create the first snapshot of a query: sources are at their start, and tables are empty unless rows are given.

        Args:
            df: the streaming DataFrame that will be started; or several outputs of one query, each with its mode.
            output_mode: the output mode of the query.
            parallelism: parallelism of the snapshot, and default for a query that starts from it. By default the
                session's setting, or the parallelism that a query would have.
            max_parallelism: number of key groups, which can never be changed. By default the session's setting.
            watermark: watermark of the data in the tables: rows of the query at or before it are late. Without a time
                zone: UTC.

        Raises:
            ConfigError: ``df`` is not a streaming DataFrame, or a number is out of range.
            NotSupported: Penstock does not support the DataFrame.
        """
        outputs = [(df, output_mode)] if isinstance(df, DataFrame) else list(df)
        plan = compile_outputs(outputs)
        spark = outputs[0][0].sparkSession
        said = {"parallelism": parallelism, "maxparallelism": max_parallelism}
        options = parse_options(
            {**session_options(spark), **{name: str(value) for name, value in said.items() if value is not None}}
        )
        selected = options.parallelism or SparkLauncher(spark).default_parallelism(options.max_parallelism)
        if selected > options.max_parallelism:
            raise ConfigError(f"parallelism {selected} is above maxParallelism {options.max_parallelism}")
        sinks = [SinkSpec(sink_id(number), "Sink", NoopSink()) for number in range(len(outputs))]
        graph = plan.graph(sinks, selected, options.max_parallelism)
        return SnapshotWriter(draft_of_plan(graph, None if watermark is None else _micros(watermark)))

    @staticmethod
    @pysparks_refusals()
    def from_snapshot(location: str, snapshot: str = "") -> SnapshotWriter:
        """Create a changed copy of an existing snapshot. Parts without recorded changes stay as they are.

        This method and ``write`` only read the location, so its query may run. In the new location all epochs up to the
        snapshot count as committed. If the last output of the original query is not committed yet, start that query
        once more at its own location. In-flight data stays in the snapshot and is processed with the new tables.

        Args:
            location: the checkpoint location.
            snapshot: an id or a label; empty: the newest.

        Raises:
            LocationError: the location or snapshot does not exist, or reading removes the input of its source.
            CorruptSnapshot: it is damaged.
        """
        return SnapshotWriter(draft_of_snapshot(open_location_to_read(location), snapshot))

    @property
    def tables(self) -> list[str]:
        """The names of all state tables."""
        return list(self._draft.tables)

    @pysparks_refusals()
    def schema(self, table: str) -> StructType:
        """Return the columns of a DataFrame for the table: its key, then its values.

        Raises ConfigError if the table does not exist.
        """
        return writable_schema(self._draft.table(table))

    @pysparks_refusals()
    def with_state(self, table: str, df: DataFrame) -> SnapshotWriter:
        """Replace the rows of a table by those of ``df``. Raises ConfigError if the table does not exist."""
        self._frames[self._draft.table(table).name] = df
        return self

    @property
    def sources(self) -> list[str]:
        """The ids of the sources that ``with_position`` accepts: those of ``from_plan``."""
        return list(self._draft.sources)

    @pysparks_refusals()
    def with_position(self, source: str, read: Sequence[str] | Mapping[str, Any]) -> SnapshotWriter:
        """Let a source start after the input from which the tables were built.

        Without this call it starts where it would without a snapshot.

        Args:
            source: its operator id.
            read: for files, the files that were read, as paths or as ``history.inputFiles()`` returns them. For Kafka,
                the next offset of each partition, ``{"topic": {"0": 17}}``, as in ``startingOffsets``; other partitions
                start at their first offset. For a Python data source, the offset as its reader returns it.

        Raises:
            ConfigError: the source does not exist, or the position is not valid for it.
        """
        self._draft = start_source_after(self._draft, source, read)
        return self

    @pysparks_refusals()
    def drop_state(self, table: str) -> SnapshotWriter:
        """Remove all rows of a table, so that its operator starts empty. Raises ConfigError if it does not exist."""
        self._frames[self._draft.table(table).name] = None
        return self

    @pysparks_refusals()
    def rename_operator(self, operator_id: str, new: str) -> SnapshotWriter:
        """Rename an operator, so that an operator with another id (``penstock.named``) gets its state.

        From then on, names of tables have the new id.

        Raises:
            ConfigError: the operator does not exist or is a sink, or another one has the new id.
        """
        before = self._draft.tables
        self._draft = rename_operator(self._draft, operator_id, new)
        names = dict(zip(before, self._draft.tables, strict=True))
        self._frames = {names[name]: df for name, df in self._frames.items()}
        return self

    @pysparks_refusals()
    def write(self, location: str, *, label: str = "", note: str = "") -> str:
        """Write the snapshot by Spark jobs, one for each table with new rows. Blocks until it is complete.

        A query can start at the location with ``checkpointLocation``, or from it with ``startFrom``, at any
        parallelism. If anything fails, all written files are removed; a crash leaves no snapshot.

        Args:
            location: a new or empty location.
            label, note: label and note of the snapshot; by default those of the original snapshot.

        Returns:
            The id of the snapshot.

        Raises:
            ConfigError: a DataFrame does not fit its table. Nothing was written.
            DataError: two rows have the same key, or a column that must not be null is null.
            LocationError: the location is in use or cannot be written, or the original snapshot was deleted.
            CorruptSnapshot: the original snapshot is damaged.
        """
        checked_words(label, note)
        return write_snapshot(self._draft, self._frames, location, label, note).id


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
