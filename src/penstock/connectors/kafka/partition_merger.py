"""Merge of the rows of several Kafka partitions by timestamp, so that old rows of a partition do not become late.

A client fetches a partition in large pieces, and one piece of an old topic may span days. If the first piece of one
partition were emitted immediately, event time would advance past the first rows of the next partition, and an
event-time window would drop these rows as late. So a row is held back until no partition with a backlog can have an
older row. Within a partition the order does not change. A partition that has been read to its end does not hold back
rows of other partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.connectors.base import BATCH_BYTES
from penstock.operators.batches import first_rows

Longs = np.ndarray[tuple[int], np.dtype[np.int64]]

FULL_ROWS = 100_000
FULL_BYTES = 32 << 20
"""Limits for the number and size of rows held back, to bound the memory. When one is reached, all rows are emitted."""
PATIENCE_MS = 3_000
"""Longest wait of rows, in milliseconds, for a partition that delivers no rows despite a backlog (e.g. no leader)."""


@dataclass
class PartitionProgress:
    """Progress of one partition.

    Attributes:
        at_end: True if the partition has been read to its end, so that other rows need not wait for it.
        newest_ms: the largest timestamp fetched; None before the first row.
        buffered: number of rows of the partition in the merger.
        silent_since_ms: time from which other rows have waited for the partition, which has no rows in the merger; None
            if they do not wait.
    """

    at_end: bool = False
    newest_ms: int | None = None
    buffered: int = 0
    silent_since_ms: int | None = None


class PartitionMerger:
    """Buffer of fetched rows, which are emitted by timestamp. Owned by one thread.

    Args:
        partitions: the caller's list. The caller may append to it, but not change it otherwise. Rows refer to
            partitions by their index in this list.
    """

    def __init__(self, partitions: list[PartitionProgress]) -> None:
        self._partitions = partitions
        self._held: list[pa.RecordBatch] = []
        self._held_indexes: list[Longs] = []
        self._held_times: list[Longs] = []
        self._ready: pa.RecordBatch | None = None
        self._ready_indexes: Longs = np.empty(0, np.int64)

    @property
    def rows(self) -> int:
        return len(self._ready_indexes) + sum(len(indexes) for indexes in self._held_indexes)

    @property
    def has_ready(self) -> bool:
        return self._ready is not None

    def add(self, batch: pa.RecordBatch, indexes: Longs, times_ms: Longs) -> None:
        """Add rows in the order in which they were fetched.

        Args:
            batch: one or more rows.
            indexes: index of the partition of each row.
            times_ms: timestamp of each row; negative if the row has none.
        """
        order = times_ms.copy()
        for index in np.unique(indexes):
            partition = self._partitions[index]
            own = np.flatnonzero(indexes == index)
            before = -1 if partition.newest_ms is None else partition.newest_ms
            order[own] = np.maximum.accumulate(np.maximum(times_ms[own], before))
            partition.newest_ms = int(order[own[-1]])
            partition.buffered += len(own)
            partition.silent_since_ms = None
        self._held.append(batch)
        self._held_indexes.append(indexes)
        self._held_times.append(order)

    def release(self, now_ms: int) -> None:
        """Make the rows ready that need not be held back. Call it only after all ready rows have been taken."""
        if not self._held:
            return
        bound = self._bound(now_ms)
        if bound is None and len(self._partitions) == 1 and len(self._held) == 1:
            self._ready, self._ready_indexes = self._held[0], self._held_indexes[0]
            self._hold(None, self._ready_indexes[:0], self._ready_indexes[:0])
            return
        rows = pa.concat_batches(self._held)
        indexes, times = np.concatenate(self._held_indexes), np.concatenate(self._held_times)
        free = np.ones(len(times), bool) if bound is None else times <= bound
        if not free.any():
            self._hold(rows, indexes, times)
            return
        chosen = np.flatnonzero(free)
        chosen = chosen[np.argsort(times[chosen], kind="stable")]
        self._ready, self._ready_indexes = rows.take(pa.array(chosen)), indexes[chosen]
        rest = np.flatnonzero(~free)
        self._hold(rows.take(pa.array(rest)) if len(rest) else None, indexes[rest], times[rest])

    def take(self, max_rows: int, max_bytes: int = BATCH_BYTES) -> tuple[pa.RecordBatch, Longs] | None:
        """Return the next ready rows and the indexes of their partitions; None if no row is ready."""
        if self._ready is None:
            return None
        batch, _ = first_rows(self._ready, max_rows, max_bytes)
        taken = batch.num_rows
        indexes, self._ready_indexes = self._ready_indexes[:taken], self._ready_indexes[taken:]
        self._ready = self._ready.slice(taken) if taken < self._ready.num_rows else None
        for index, count in zip(*np.unique(indexes, return_counts=True), strict=True):
            self._partitions[index].buffered -= int(count)
        return batch, indexes

    @property
    def full(self) -> bool:
        return self.rows >= FULL_ROWS or sum(batch.nbytes for batch in self._held) >= FULL_BYTES

    def _bound(self, now_ms: int) -> int | None:
        """Return the timestamp up to which rows may be emitted; None if all rows may be emitted."""
        if len(self._partitions) == 1 or self.full:
            return None
        bounds = []
        for partition in self._partitions:
            if partition.at_end:
                continue
            if not partition.buffered:
                if partition.silent_since_ms is None:
                    partition.silent_since_ms = now_ms
                if now_ms - partition.silent_since_ms >= PATIENCE_MS:
                    continue
            bounds.append(-1 if partition.newest_ms is None else partition.newest_ms)
        return min(bounds, default=None)

    def _hold(self, rows: pa.RecordBatch | None, indexes: Longs, times: Longs) -> None:
        self._held = [] if rows is None else [rows]
        self._held_indexes = [] if rows is None else [indexes]
        self._held_times = [] if rows is None else [times]
