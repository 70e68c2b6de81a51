"""Rows of several partitions on their way through one reader: handed out by timestamp where partitions are behind.

A client fetches a partition in large pieces, and of an old topic one piece may span days. Handed on as they come, the
first piece of one partition would let event time rise past the first rows of the next, and an event-time window would
drop them as late. So rows wait, in front of the query, until no partition that is behind can bring an older one. Within
a partition the order is Kafka's own. Rows of partitions that have been read to their ends wait for nothing.
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
"""Rows that wait beyond this go on unsorted: a reader is not to run out of memory."""
PATIENCE_MS = 3_000
"""How long rows wait for a partition that is behind and brings nothing: as if its leader was away."""


@dataclass
class Lane:
    """One partition's part.

    Attributes:
        at_end: nothing older than what was fetched can come.
        newest_ms: the largest timestamp fetched; None before the first.
        buffered: rows that wait.
        silent_since_ms: when it was first waited for; None while rows of it are there.
    """

    at_end: bool = False
    newest_ms: int | None = None
    buffered: int = 0
    silent_since_ms: int | None = None


class Backlog:
    """Owned by one thread. ``lanes`` is the caller's list, which only grows."""

    def __init__(self, lanes: list[Lane]) -> None:
        self._lanes = lanes
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_lanes: list[Longs] = []
        self._waiting_times: list[Longs] = []
        self._ready: pa.RecordBatch | None = None
        self._ready_lanes: Longs = np.empty(0, np.int64)

    @property
    def rows(self) -> int:
        return len(self._ready_lanes) + sum(len(lanes) for lanes in self._waiting_lanes)

    @property
    def has_ready(self) -> bool:
        return self._ready is not None

    def add(self, batch: pa.RecordBatch, lanes: Longs, times_ms: Longs) -> None:
        """Rows in the order they were fetched.

        Args:
            batch: not empty.
            lanes: of each row, its index in ``lanes``.
            times_ms: of each row; negative where it has none.
        """
        order = times_ms.copy()
        for number in np.unique(lanes):
            lane = self._lanes[number]
            mine = np.flatnonzero(lanes == number)
            before = -1 if lane.newest_ms is None else lane.newest_ms
            order[mine] = np.maximum.accumulate(np.maximum(times_ms[mine], before))
            lane.newest_ms = int(order[mine[-1]])
            lane.buffered += len(mine)
            lane.silent_since_ms = None
        self._waiting.append(batch)
        self._waiting_lanes.append(lanes)
        self._waiting_times.append(order)

    def release(self, now_ms: int) -> None:
        """Let go what need not wait; everything that was ready has been taken."""
        if not self._waiting:
            return
        bound = self._bound(now_ms)
        if bound is None and len(self._lanes) == 1 and len(self._waiting) == 1:
            self._ready, self._ready_lanes = self._waiting[0], self._waiting_lanes[0]
            self._wait_for(None, self._ready_lanes[:0], self._ready_lanes[:0])
            return
        rows = pa.concat_batches(self._waiting)
        lanes, times = np.concatenate(self._waiting_lanes), np.concatenate(self._waiting_times)
        free = np.ones(len(times), bool) if bound is None else times <= bound
        if not free.any():
            self._wait_for(rows, lanes, times)
            return
        chosen = np.flatnonzero(free)
        chosen = chosen[np.argsort(times[chosen], kind="stable")]
        self._ready, self._ready_lanes = rows.take(pa.array(chosen)), lanes[chosen]
        rest = np.flatnonzero(~free)
        self._wait_for(rows.take(pa.array(rest)) if len(rest) else None, lanes[rest], times[rest])

    def take(self, max_rows: int, max_bytes: int = BATCH_BYTES) -> tuple[pa.RecordBatch, Longs] | None:
        """The next ready rows and their lanes; at least one row."""
        if self._ready is None:
            return None
        batch, _ = first_rows(self._ready, max_rows, max_bytes)
        taken = batch.num_rows
        lanes, self._ready_lanes = self._ready_lanes[:taken], self._ready_lanes[taken:]
        self._ready = self._ready.slice(taken) if taken < self._ready.num_rows else None
        for number, count in zip(*np.unique(lanes, return_counts=True), strict=True):
            self._lanes[number].buffered -= int(count)
        return batch, lanes

    @property
    def full(self) -> bool:
        return self.rows >= FULL_ROWS or sum(batch.nbytes for batch in self._waiting) >= FULL_BYTES

    def _bound(self, now_ms: int) -> int | None:
        """Rows up to this timestamp may go; None: all may."""
        if len(self._lanes) == 1 or self.full:
            return None
        bounds = []
        for lane in self._lanes:
            if lane.at_end:
                continue
            if not lane.buffered:
                lane.silent_since_ms = now_ms if lane.silent_since_ms is None else lane.silent_since_ms
                if now_ms - lane.silent_since_ms >= PATIENCE_MS:
                    continue
            bounds.append(-1 if lane.newest_ms is None else lane.newest_ms)
        return min(bounds, default=None)

    def _wait_for(self, rows: pa.RecordBatch | None, lanes: Longs, times: Longs) -> None:
        self._waiting = [] if rows is None else [rows]
        self._waiting_lanes = [] if rows is None else [lanes]
        self._waiting_times = [] if rows is None else [times]
