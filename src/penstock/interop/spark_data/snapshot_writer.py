"""``penstock.SnapshotWriter``: makes a snapshot from DataFrames, for a query to start from."""

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
    """A snapshot in the making; every method but ``write`` only remembers what is to be done, and returns the writer.

    Made by ``from_plan`` or ``from_snapshot``. State tables are called ``<operator id>/<table>``, with the ids that
    ``penstock snapshot show`` prints; ``tables`` lists them and ``schema`` says which columns each has. A DataFrame for
    a table has exactly these columns, found by name, with one row per key: a key is any Spark value, null included, and
    NaN and -0.0 are the keys that they are for Spark's grouping. ``key_group`` may be there and is computed anew;
    ``__changed``, where the table has it, says which rows an update or complete output hands on at its next checkpoint
    though no input comes for them (without the column: none).
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
        """The first snapshot of a query: tables are empty until they are given, sources stand at their beginning.

        Args:
            df: the streaming DataFrame that will be started; or several outputs of one query, each with its mode.
            output_mode: as the query will be started with.
            parallelism: of the snapshot, and of a query that starts from it and does not say otherwise. Without it the
                session's setting, or as many subtasks as a query would have.
            max_parallelism: the number of key groups, which can never be changed. Without it the session's setting.
            watermark: how far event time has come with what the tables were made from: later rows of that time are
                late. Without a zone: UTC.

        Raises:
            ConfigError: not a streaming DataFrame, or a number is out of range.
            NotSupported: the DataFrame holds something that Penstock refuses.
        """
        outputs = [(df, output_mode)] if isinstance(df, DataFrame) else list(df)
        plan = compile_outputs(outputs)
        spark = outputs[0][0].sparkSession
        said = {"parallelism": parallelism, "maxparallelism": max_parallelism}
        options = parse_options(
            {**session_options(spark), **{name: str(value) for name, value in said.items() if value is not None}}
        )
        chosen = options.parallelism or SparkLauncher(spark).default_parallelism(options.max_parallelism)
        if chosen > options.max_parallelism:
            raise ConfigError(f"parallelism {chosen} is above maxParallelism {options.max_parallelism}")
        sinks = [SinkSpec(sink_id(number), "Sink", NoopSink()) for number in range(len(outputs))]
        graph = plan.graph(sinks, chosen, options.max_parallelism)
        return SnapshotWriter(draft_of_plan(graph, None if watermark is None else _micros(watermark)))

    @staticmethod
    @pysparks_refusals()
    def from_snapshot(location: str, snapshot: str = "") -> SnapshotWriter:
        """A snapshot that there is, to be changed: everything stays as it is but for what is said. The location is only
        read, now and by ``write``; its query may run.

        Epochs up to the snapshot count as committed in the new location: start the origin once more where it was if its
        last output is not committed yet. Rows in flight stay, and are processed on top of what tables are given.

        Args:
            snapshot: an id or a label; empty: the newest.

        Raises:
            LocationError: there is no such location or snapshot; one whose source takes its input away.
            CorruptSnapshot: it is damaged.
        """
        return SnapshotWriter(draft_of_snapshot(open_location_to_read(location), snapshot))

    @property
    def tables(self) -> list[str]:
        """The names of all state tables."""
        return list(self._draft.tables)

    @pysparks_refusals()
    def schema(self, table: str) -> StructType:
        """The columns that a DataFrame for the table has: its key, then its values. Raises ConfigError if there is no
        such table."""
        return writable_schema(self._draft.table(table))

    @pysparks_refusals()
    def with_state(self, table: str, df: DataFrame) -> SnapshotWriter:
        """The table holds the rows of ``df``, and no others. Raises ConfigError if there is no such table."""
        self._frames[self._draft.table(table).name] = df
        return self

    @property
    def sources(self) -> list[str]:
        """The ids of sources that ``with_position`` can be told of: those of ``from_plan``."""
        return list(self._draft.sources)

    @pysparks_refusals()
    def with_position(self, source: str, read: Sequence[str] | Mapping[str, Any]) -> SnapshotWriter:
        """The source does not read again what the tables were made from. Without this it begins where it would without
        a snapshot.

        Args:
            source: its operator id.
            read: of files, those that were read, as paths or as ``history.inputFiles()`` gives them. Of Kafka the next
                offset of each partition, ``{"topic": {"0": 17}}``, as its ``startingOffsets``; partitions that are not
                named begin at their first one. Of a Python data source the offset, as its reader returns it.

        Raises:
            ConfigError: there is no such source, or this is no position of it.
        """
        self._draft = start_source_after(self._draft, source, read)
        return self

    @pysparks_refusals()
    def drop_state(self, table: str) -> SnapshotWriter:
        """The table is empty: its operator begins anew. Raises ConfigError if there is no such table."""
        self._frames[self._draft.table(table).name] = None
        return self

    @pysparks_refusals()
    def rename_operator(self, operator_id: str, new: str) -> SnapshotWriter:
        """State is found by the operator's id: ``penstock.named`` gives one, and this is how state that has another
        finds it. Tables are called by the new id from here on.

        Raises:
            ConfigError: there is no such operator or one that is called so already; a sink.
        """
        before = self._draft.tables
        self._draft = rename_operator(self._draft, operator_id, new)
        names = dict(zip(before, self._draft.tables, strict=True))
        self._frames = {names[name]: df for name, df in self._frames.items()}
        return self

    @pysparks_refusals()
    def write(self, location: str, *, label: str = "", note: str = "") -> str:
        """Write the snapshot, as Spark jobs, one for each table that was given; blocks until it is whole.

        The location is then as a converted one: a query starts there by ``checkpointLocation``, or from there by
        ``startFrom``, at any parallelism. If anything fails, nothing of it stays; a crash leaves no snapshot.

        Args:
            location: a new or empty one.
            label, note: of the snapshot; without them those of the one that it was made from.

        Returns:
            The snapshot's id.

        Raises:
            ConfigError: a DataFrame does not fit its table; said before anything is written.
            DataError: two rows have one key, or a null is where none may be.
            LocationError: the location is in use or cannot be written; the snapshot that was edited is gone.
            CorruptSnapshot: that one is damaged.
        """
        checked_words(label, note)
        return write_snapshot(self._draft, self._frames, location, label, note).id


def _micros(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
