"""Data source of ``spark.read.format("penstock")``: snapshots of a checkpoint location and their data as DataFrames.

Spark creates the source in several processes: one returns the schema, another plans, tasks read. The first one selects
the snapshot. The others use its id, so that a newer snapshot does not change the result.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from penstock.errors import LocationError
from penstock.interop.spark_data import timers_reader
from penstock.interop.spark_data.columns import Projection, select_columns, spark_schema
from penstock.interop.spark_data.inflight_reader import InflightReader, find_inflight
from penstock.interop.spark_data.key_filter import parse_key_filter
from penstock.interop.spark_data.read_options import INFLIGHT, SNAPSHOTS, STATE, TIMERS, ReadOptions, parse_read_options
from penstock.interop.spark_data.reading import RowsReader, SnapshotRef
from penstock.interop.spark_data.state_reader import StateTableReader, shown_schema
from penstock.interop.spark_data.timers_reader import TimersReader, find_timers
from penstock.interop.spark_data.views import snapshot_view, snapshots_view
from penstock.model.ids import snapshot_id
from penstock.model.manifest import PlanManifest, SnapshotMetadata
from penstock.snapshots.commands.opened_location import OpenedLocation, open_location_to_read, plan_of_snapshot
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.restoring.state_tables import find_table


class PenstockSource(DataSource):  # type: ignore[misc]
    """Data source for snapshots; docs/snapshots-as-data.md has its options and columns.

    It does not change the location, so its query may run.

    Raises, from every method:
        ConfigError: an option is unknown, missing, or cannot be combined with another; a column does not exist.
        LocationError: the location, snapshot, table or exchange does not exist. The text lists the existing ones.
        CorruptSnapshot: data that is read is damaged.
    """

    _snapshot = ""
    """Id of the selected snapshot."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = parse_read_options(self.options)
        found = _ResolvedRead(options, self._snapshot)
        self._snapshot = found.snapshot
        names = list(options.columns)
        if not names and options.view == STATE and not options.bookkeeping:
            hidden = found.hidden
            names = [name for name in found.available.names if name not in hidden]
        return spark_schema(select_columns(found.available, names, found.what), found.what)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options)
        return _ResolvedRead(options, self._snapshot).reader(schema)


class _ResolvedRead:
    """Data that the options select: the snapshot, its table or rows, and the available columns."""

    def __init__(self, options: ReadOptions, snapshot: str) -> None:
        self._options = options
        self._opened = open_location_to_read(options.location, cached=True)
        self.snapshot = ""
        self.available = pa.schema([])
        self.hidden: frozenset[str] = frozenset()
        if options.view == SNAPSHOTS:
            self.what = f"the list of snapshots at {self._opened.path}"
            self._rows = snapshots_view(self._opened)
            self.available = self._rows.schema
            return
        self._record = _record(self._opened, snapshot or options.snapshot)
        self.snapshot = snapshot_id(self._record.checkpoint)
        self.what = f"{options.name or options.view} of {self.snapshot} at {self._opened.path}"
        metadata = self._opened.metadata(self._record)
        plan = plan_of_snapshot(metadata, self._opened.identity)
        self._opened.unless_deleted([self._record.checkpoint], lambda: self._resolve(metadata, plan))

    def _resolve(self, metadata: SnapshotMetadata, plan: PlanManifest) -> None:
        options, store = self._options, self._opened.store
        if options.view == STATE:
            self._table = find_table(store, metadata, plan, options.name)
            self._filter = parse_key_filter(options.keys, self._table)
            self.available = shown_schema(self._table)
            self.hidden = frozenset(self.available.names[position] for position in self._table.internal_columns)
        elif options.view == INFLIGHT:
            self._inflight = find_inflight(store, metadata, plan, options.name)
            self.available = self._inflight.shown_schema
        elif options.view == TIMERS:
            self._timers = find_timers(store, metadata, plan)
            self.available = timers_reader.SCHEMA
        else:
            self._rows = snapshot_view(options.view, metadata, plan)
            self.available = self._rows.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader. ``schema``: the user's own, or the result of ``PenstockSource.schema``."""
        options = self._options
        projection = Projection.of(self.available, schema, self.what)
        if options.view not in (STATE, INFLIGHT, TIMERS):
            return RowsReader(projection, self._rows)
        snapshot_ref = SnapshotRef(self._opened.path, self._record.checkpoint)
        if options.view == STATE:
            return StateTableReader(snapshot_ref, self._table, self._filter, projection, options.partition_bytes)
        if options.view == TIMERS:
            return TimersReader(snapshot_ref, self._timers, projection, options.partition_bytes)
        return InflightReader(snapshot_ref, self._inflight, projection, options.partition_bytes)


def _record(opened: OpenedLocation, name: str) -> SnapshotRecord:
    if name:
        return opened.record(name)
    if not opened.view.lineage:
        raise LocationError(f"{opened.path}: the query has no complete snapshot yet")
    return opened.view.lineage[-1]
