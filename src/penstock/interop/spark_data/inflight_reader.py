"""Reads the rows in flight on one exchange, each once, with the channel that it was on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.errors import CorruptSnapshot, LocationError
from penstock.interop.spark_data.columns import Projection
from penstock.interop.spark_data.reading import Place, SnapshotReader
from penstock.model.manifest import InflightEntry, PlanManifest, SnapshotMetadata
from penstock.snapshots.commands.snapshot_sizes import inflight_entries
from penstock.snapshots.format.sections import read_content
from penstock.snapshots.format.type_texts import parse_column
from penstock.snapshots.portable.columns import declared_schema
from penstock.snapshots.portable.layout import column_names
from penstock.snapshots.restoring.narrowing import consumer_row_positions
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at

_CHANNEL = pa.schema([("producer", pa.int32()), ("consumer", pa.int32()), ("layer", pa.int32()), ("side", pa.string())])


@dataclass(frozen=True)
class InflightRows:
    """Of one exchange. ``schema``: its columns; ``keys``: positions of those that rows are hashed by; ``entries``: in
    the order in which they are restored, by consumer."""

    exchange: str
    schema: pa.Schema
    keys: tuple[int, ...]
    max_parallelism: int
    entries: tuple[InflightEntry, ...]

    @property
    def shown_schema(self) -> pa.Schema:
        """The exchange's columns, then ``producer``, ``consumer``, ``layer``, ``side``; names that are there already
        get a number."""
        fields = [*self.schema, *_CHANNEL]
        names = column_names([field.name for field in fields])
        return pa.schema([field.with_name(name) for field, name in zip(fields, names, strict=True)])


def find_inflight(store: Store, metadata: SnapshotMetadata, plan: PlanManifest, exchange: str) -> InflightRows:
    """The rows on an exchange; reads one section.

    Raises:
        LocationError: there is no such exchange; those that there are are listed.
        CorruptSnapshot: the section is missing or changed, or the plan has other columns.
    """
    edge = plan.edges.get(exchange)
    if edge is None:
        known = ", ".join(plan.edges) or "none"
        raise LocationError(f"{metadata.id} has no exchange {exchange!r}; it has: {known}")
    columns, keys = edge["schema"], edge["keys"]
    if not isinstance(columns, list) or not isinstance(keys, list):
        raise CorruptSnapshot(f"the snapshot's plan does not tell the columns of exchange {exchange}")
    found = [entry for entry in inflight_entries(metadata) if entry.edge == edge["id"]]
    schema = _schema(store, [str(column) for column in columns], found, exchange)
    positions = tuple(schema.names.index(str(key)) for key in keys)
    ordered = sorted(found, key=lambda entry: (entry.consumer, entry.layer, entry.side != "consumer"))
    return InflightRows(exchange, schema, positions, metadata.max_parallelism, tuple(ordered))


def _schema(store: Store, columns: Sequence[str], entries: Sequence[InflightEntry], exchange: str) -> pa.Schema:
    if entries:
        smallest = min(entries, key=lambda entry: entry.section.length)
        return declared_schema(columns, read_content(store, smallest.section).schema, f"exchange {exchange}")
    fields = [parse_column(column) for column in columns]
    if any(field is None for field in fields):
        raise LocationError(
            f"no rows are in flight on exchange {exchange}, and nothing else tells its columns' types for sure; read a "
            "snapshot that holds some"
        )
    return pa.schema(fields)


class InflightPartition(InputPartition):  # type: ignore[misc]
    """Some entries."""

    def __init__(self, entries: list[InflightEntry]) -> None:
        super().__init__(None)
        self.entries = entries


class InflightReader(SnapshotReader):
    """Args: ``partition_bytes``: stored, of a task; an entry's section is read as a whole."""

    def __init__(self, place: Place, rows: InflightRows, projection: Projection, partition_bytes: int) -> None:
        super().__init__(projection)
        self._place = place
        self._inflight = rows
        self._partition_bytes = partition_bytes

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: each has its entries in its partition."""
        return self.__dict__ | {"_inflight": replace(self._inflight, entries=())}

    def partitions(self) -> list[InputPartition]:
        found: list[InflightPartition] = []
        room = 0
        for entry in self._inflight.entries:
            if not found or room < entry.section.length:
                found.append(InflightPartition([]))
                room = self._partition_bytes
            found[-1].entries.append(entry)
            room -= entry.section.length
        return list(found) or [InflightPartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._place.watched(self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store, schema = store_at(self._place.location), self._inflight.shown_schema
        for entry in partition.entries:
            for batch in load_inflight(store, entry, self._inflight.schema):
                own = self._own(batch, entry)
                channel = (entry.producer, entry.consumer, entry.layer, entry.side)
                said = [
                    pa.repeat(pa.scalar(value, field.type), own.num_rows)
                    for value, field in zip(channel, _CHANNEL, strict=True)
                ]
                if own.num_rows:
                    yield self._projection.apply(pa.RecordBatch.from_arrays([*own.columns, *said], schema=schema))

    def _own(self, batch: pa.RecordBatch, entry: InflightEntry) -> pa.RecordBatch:
        """Without the rows of other consumers: their entries have them, too."""
        if not entry.narrowed:
            return batch
        return batch.take(
            pa.array(consumer_row_positions(batch, self._inflight.keys, self._inflight.max_parallelism, entry))
        )
