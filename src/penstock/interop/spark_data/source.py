"""``spark.read.format("penstock")``: the snapshots of a checkpoint location, and what they hold, as DataFrames.

Spark makes the source in processes of its own: one tells the schema, another plans, tasks read. Which snapshot is read
is decided once, by the first: an id is as good as a newer snapshot is not, and later looks see the same.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from penstock.errors import LocationError
from penstock.interop.spark_data import timers_reader
from penstock.interop.spark_data.columns import Projection, chosen, spark_schema
from penstock.interop.spark_data.inflight_reader import InflightReader, find_inflight
from penstock.interop.spark_data.read_options import INFLIGHT, SNAPSHOTS, STATE, TIMERS, ReadOptions, parse_read_options
from penstock.interop.spark_data.reading import Place, RowsReader
from penstock.interop.spark_data.state_reader import StateReader, shown_schema
from penstock.interop.spark_data.timers_reader import TimersReader, find_timers
from penstock.interop.spark_data.views import snapshot_view, snapshots_view
from penstock.interop.spark_data.wanted_keys import wanted_keys
from penstock.model.ids import snapshot_id
from penstock.model.manifest import PlanManifest, SnapshotMetadata
from penstock.snapshots.commands.opened_location import OpenedLocation, open_location_to_read, plan_of_snapshot
from penstock.snapshots.log.entries import SnapshotRecord
from penstock.snapshots.restoring.state_tables import find_table


class PenstockSource(DataSource):  # type: ignore[misc]
    """See docs/snapshots-as-data.md for options and columns. Nothing at the location is changed, and its query may run
    meanwhile.

    Raises, from every method:
        ConfigError: an option is unknown, missing, or does not go with another; a column is not there.
        LocationError: there is no such location, snapshot, table or exchange; those that there are are listed.
        CorruptSnapshot: something that is read is damaged.
    """

    _snapshot = ""
    """The id of the one that was chosen."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = parse_read_options(self.options)
        found = _Found(options, self._snapshot)
        self._snapshot = found.snapshot
        names = list(options.columns)
        if not names and options.view == STATE and not options.bookkeeping:
            hidden = found.hidden
            names = [name for name in found.available.names if name not in hidden]
        return spark_schema(chosen(found.available, names, found.what), found.what)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options)
        return _Found(options, self._snapshot).reader(schema)


class _Found:
    """What the options name, looked up."""

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
        self._opened.unless_deleted([self._record.checkpoint], lambda: self._look(metadata, plan))

    def _look(self, metadata: SnapshotMetadata, plan: PlanManifest) -> None:
        options, store = self._options, self._opened.store
        if options.view == STATE:
            self._table = find_table(store, metadata, plan, options.name)
            self._wanted = wanted_keys(options.keys, self._table)
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
        """``schema``: what Spark wants, the user's own or what was told before."""
        options = self._options
        projection = Projection.of(self.available, schema, self.what)
        if options.view not in (STATE, INFLIGHT, TIMERS):
            return RowsReader(projection, self._rows)
        place = Place(self._opened.path, self._record.checkpoint)
        if options.view == STATE:
            return StateReader(place, self._table, self._wanted, projection, options.partition_bytes)
        if options.view == TIMERS:
            return TimersReader(place, self._timers, projection, options.partition_bytes)
        return InflightReader(place, self._inflight, projection, options.partition_bytes)


def _record(opened: OpenedLocation, name: str) -> SnapshotRecord:
    if name:
        return opened.record(name)
    if not opened.view.lineage:
        raise LocationError(f"{opened.path}: the query has no complete snapshot yet")
    return opened.view.lineage[-1]
