"""Reader of the timers of all operators of a snapshot. Each task reads some key groups of a ``__timers`` table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.interop.spark_data.columns import Projection
from penstock.interop.spark_data.reading import SnapshotReader, SnapshotRef
from penstock.model.manifest import PlanManifest, SnapshotMetadata, StateEntry
from penstock.operators.stateful.variables import TIME_MODE, TIMERS
from penstock.snapshots.commands.snapshot_sizes import subtasks_of
from penstock.snapshots.format.table_entries import entries_of_groups, split_key_groups, table_entries
from penstock.snapshots.restoring.state_tables import StateTable, find_table, read_rows, table_name
from penstock.snapshots.store.store import Store
from penstock.snapshots.store.stores import store_at
from penstock.state.arrays import readable_rows

SCHEMA = pa.schema(
    [
        ("operator_id", pa.string()),
        ("key_group", pa.int16()),
        ("key", pa.string()),
        ("time_mode", pa.string()),
        ("expires", pa.timestamp("us", tz="UTC")),
        ("expires_ms", pa.int64()),
    ]
)
_YEAR_1_MS, _YEAR_10000_MS = -62_135_596_800_000, 253_402_300_800_000


@dataclass(frozen=True)
class OperatorTimers:
    """Timers of one operator. ``time_mode``: time mode of the operator; empty if the snapshot does not have it."""

    table: StateTable
    time_mode: str


def find_timers(store: Store, metadata: SnapshotMetadata, plan: PlanManifest) -> list[OperatorTimers]:
    """Find the tables of all operators that have timers. Reads one section of each.

    Raises:
        CorruptSnapshot: a section is missing or changed.
    """
    modes = {
        operator_id: str(scalars[TIME_MODE])
        for subtask in subtasks_of(metadata)
        for operator_id, scalars in subtask.scalars.items()
        if TIME_MODE in scalars
    }
    return [
        OperatorTimers(find_table(store, metadata, plan, table_name(operator_id, table)), modes.get(operator_id, ""))
        for operator_id, table in table_entries(metadata)
        if table == TIMERS
    ]


class _Partition(InputPartition):  # type: ignore[misc]
    def __init__(self, operator: int, entries: list[StateEntry]) -> None:
        super().__init__(None)
        self.operator = operator
        self.entries = entries


class TimersReader(SnapshotReader):
    """Reader of timers. Unlike ``StateTableReader`` it has no option ``keys``."""

    def __init__(
        self,
        snapshot_ref: SnapshotRef,
        operators: Sequence[OperatorTimers],
        projection: Projection,
        partition_bytes: int,
    ) -> None:
        super().__init__(projection)
        self._snapshot_ref = snapshot_ref
        self._operators = list(operators)
        self._partition_bytes = partition_bytes

    def partitions(self) -> list[InputPartition]:
        found: list[InputPartition] = []
        for number, operator in enumerate(self._operators):
            entries, groups = operator.table.entries, (0, operator.table.max_parallelism - 1)
            for some in split_key_groups(entries, groups, self._partition_bytes):
                found.append(_Partition(number, entries_of_groups(entries, some)))
        return found or [_Partition(-1, [])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.entries:
            yield from self._snapshot_ref.with_explained_errors(self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        operator = self._operators[partition.operator]
        table = replace(operator.table, entries=())
        for rows in read_rows(store_at(self._snapshot_ref.location), partition.entries, table.schema, table.key_count):
            yield self._projection.apply(_visible_rows(rows, operator))


def _visible_rows(rows: pa.RecordBatch, operator: OperatorTimers) -> pa.RecordBatch:
    grouping = readable_rows(rows.select(range(1, rows.num_columns - 1)))
    keys = [json.dumps(key, ensure_ascii=False, separators=(",", ":"), default=str) for key in grouping]
    moments = rows.column(rows.num_columns - 1).to_numpy(zero_copy_only=False)
    outside = (moments < _YEAR_1_MS) | (moments >= _YEAR_10000_MS)
    times = pa.array(np.where(outside, 0, moments) * 1000, pa.timestamp("us", tz="UTC"), mask=outside)
    columns = [
        pa.array([operator.table.operator_id] * len(rows), pa.string()),
        rows.column(0),
        pa.array(keys, pa.string()),
        pa.array([operator.time_mode] * len(rows), pa.string()),
        times,
        pa.array(moments, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
