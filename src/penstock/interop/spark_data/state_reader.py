"""Reader of a state table. Each task reads some key groups, and gets only the entries that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.errors import CorruptSnapshot
from penstock.interop.spark_data.columns import Projection
from penstock.interop.spark_data.key_filter import KeyFilter
from penstock.interop.spark_data.reading import SnapshotReader, SnapshotRef
from penstock.model.manifest import StateEntry
from penstock.snapshots.format.table_entries import entries_of_groups, split_key_groups
from penstock.snapshots.restoring.state_tables import StateTable, entries_with_groups, read_rows
from penstock.snapshots.store.stores import store_at
from penstock.state.hashing import key_groups


class StatePartition(InputPartition):  # type: ignore[misc]
    """Partition of key groups. ``entries``: entries of the table, limited to these key groups."""

    def __init__(self, entries: list[StateEntry]) -> None:
        super().__init__(None)
        self.entries = entries


def shown_schema(table: StateTable) -> pa.Schema:
    """Return all columns with the names that users see."""
    fields = zip(table.schema, table.display_names, strict=True)
    return pa.schema([field.with_name(name) for field, name in fields])


class StateTableReader(SnapshotReader):
    """Reader of one table of a snapshot.

    Args:
        snapshot_ref: the snapshot.
        table: the table.
        key_filter: the keys whose rows are read.
        projection: the columns to read.
        partition_bytes: see ``PARTITION_BYTES``.
    """

    def __init__(
        self,
        snapshot_ref: SnapshotRef,
        table: StateTable,
        key_filter: KeyFilter,
        projection: Projection,
        partition_bytes: int,
    ) -> None:
        super().__init__(projection)
        self._snapshot_ref = snapshot_ref
        self._table = table
        self._filter = key_filter
        self._partition_bytes = partition_bytes

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the entries: each task has its own ones in its partition."""
        return self.__dict__ | {"_table": replace(self._table, entries=())}

    def partitions(self) -> list[InputPartition]:
        """Return the partitions by key group; one partition without entries if none of the key groups has rows."""
        groups_read = self._filter.groups
        groups = int(np.flatnonzero(groups_read)[0]), int(np.flatnonzero(groups_read)[-1])
        entries = entries_with_groups(entries_of_groups(self._table.entries, groups), groups_read)
        found = [
            StatePartition(entries_with_groups(entries_of_groups(entries, some), groups_read))
            for some in split_key_groups(entries, groups, self._partition_bytes)
        ]
        return found or [StatePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from self._snapshot_ref.with_explained_errors(self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not partition.entries:
            return
        table, groups = self._table, self._filter.groups
        for batch in read_rows(store_at(self._snapshot_ref.location), partition.entries, table.schema, table.key_count):
            rows = batch
            if not groups.all():
                rows = batch.filter(pa.array(groups[batch.column(0).to_numpy(zero_copy_only=False)]))
                self._check_groups(rows)
            rows = self._filter.rows(rows)
            if rows.num_rows:
                yield self._projection.apply(rows)

    def _check_groups(self, rows: pa.RecordBatch) -> None:
        """Check that rows are in the key groups of their keys, because they are looked up by the hash of the key."""
        if self._table.hash_key_count is None:
            return
        groups = key_groups(rows, range(1, 1 + self._table.hash_key_count), self._table.max_parallelism)
        if not np.array_equal(groups, rows.column(0).to_numpy(zero_copy_only=False)):
            raise CorruptSnapshot(f"rows of {self._table.name} are not in the key groups of their keys")
