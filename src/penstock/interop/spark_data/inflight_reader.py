"""Reader of the in-flight data of one exchange. It returns each row once, with its channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.errors import CorruptSnapshot, LocationError
from penstock.interop.spark_data.columns import Projection
from penstock.interop.spark_data.reading import SnapshotReader, SnapshotRef
from penstock.model.manifest import InflightEntry, PlanManifest, SnapshotMetadata
from penstock.snapshots.commands.snapshot_sizes import inflight_entries
from penstock.snapshots.format.sections import read_content
from penstock.snapshots.format.type_texts import parse_column
from penstock.snapshots.portable.columns import declared_schema
from penstock.snapshots.portable.layout import unique_column_names
from penstock.snapshots.restoring.narrowing import consumer_row_positions
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at

_CHANNEL = pa.schema([("producer", pa.int32()), ("consumer", pa.int32()), ("layer", pa.int32()), ("side", pa.string())])


@dataclass(frozen=True)
class InflightRows:
    """Rows in flight on one exchange.

    Attributes:
        exchange: id of the exchange.
        schema: its columns.
        keys: positions of the columns by which rows are hashed.
        max_parallelism: number of key groups.
        entries: entries by consumer, in the order in which they are restored.
    """

    exchange: str
    schema: pa.Schema
    keys: tuple[int, ...]
    max_parallelism: int
    entries: tuple[InflightEntry, ...]

    @property
    def shown_schema(self) -> pa.Schema:
        """The columns of the exchange, then ``producer``, ``consumer``, ``layer`` and ``side``.

        A number is appended to names that the exchange has already.
        """
        fields = [*self.schema, *_CHANNEL]
        names = unique_column_names([field.name for field in fields])
        return pa.schema([field.with_name(name) for field, name in zip(fields, names, strict=True)])


def find_inflight(store: Store, metadata: SnapshotMetadata, plan: PlanManifest, exchange: str) -> InflightRows:
    """Find the in-flight data of an exchange. Reads one section.

    Raises:
        LocationError: the exchange does not exist. The text lists the existing ones.
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
    """Partition with some of the entries."""

    def __init__(self, entries: list[InflightEntry]) -> None:
        super().__init__(None)
        self.entries = entries


class InflightReader(SnapshotReader):
    """Reader of the in-flight data of an exchange.

    Args:
        snapshot_ref: the snapshot.
        rows: the in-flight data.
        projection: the columns to read.
        partition_bytes: stored bytes per task. The section of an entry is not divided.
    """

    def __init__(
        self, snapshot_ref: SnapshotRef, rows: InflightRows, projection: Projection, partition_bytes: int
    ) -> None:
        super().__init__(projection)
        self._snapshot_ref = snapshot_ref
        self._inflight = rows
        self._partition_bytes = partition_bytes

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the entries: each task has its own ones in its partition."""
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
        yield from self._snapshot_ref.with_explained_errors(self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        store, schema = store_at(self._snapshot_ref.location), self._inflight.shown_schema
        for entry in partition.entries:
            for batch in load_inflight(store, entry, self._inflight.schema):
                own = self._own_rows(batch, entry)
                channel = (entry.producer, entry.consumer, entry.layer, entry.side)
                said = [
                    pa.repeat(pa.scalar(value, field.type), own.num_rows)
                    for value, field in zip(channel, _CHANNEL, strict=True)
                ]
                if own.num_rows:
                    yield self._projection.apply(pa.RecordBatch.from_arrays([*own.columns, *said], schema=schema))

    def _own_rows(self, batch: pa.RecordBatch, entry: InflightEntry) -> pa.RecordBatch:
        """Return the batch without rows of other consumers, whose entries have these rows, too."""
        if not entry.narrowed:
            return batch
        return batch.take(
            pa.array(consumer_row_positions(batch, self._inflight.keys, self._inflight.max_parallelism, entry))
        )
