"""The operators of simulated jobs. Their output as a multiset does not depend on who is quicker; see ``reference``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.model.job_graph import OperatorSpec
from penstock.operators.base import Operator, OperatorContext, RestoredState
from penstock.operators.watermark import WatermarkOperator, WatermarkSpec
from penstock.state.table import TableCapture
from penstock.testing.failure import SimulationFailure
from simulator.jobs.checked_operator import CheckedOperator, Inbound, Workload
from simulator.jobs.count_table import CountTable, filled
from simulator.jobs.rows import MS, ROW, TIME, state_rows, state_schema, state_table
from simulator.jobs.topology import Node

COUNTS = state_schema("key", "period", "count")
WINDOWS = state_schema("key", "window", "count")
WAITING = state_schema("key", "time", "origin")
KEY_COUNTS = {"counts": 2, "windows": 2}
"""Key columns of the tables that are stored as chains."""

PERIOD_US = 16 * MS
EVER = -1
"""Instead of a period: of all event time."""

AT_ONCE = 8
"""Rows that a watermark makes due come in batches of so many, so that it can be suspended."""


@dataclass(frozen=True, kw_only=True)
class SimulatedSpec(OperatorSpec):
    """``make`` is called in the slot."""

    operator_id: str
    name: str
    make: Callable[[], Operator]
    output_schema: pa.Schema = ROW

    def create(self) -> Operator:
        return self.make()


def new_key(time: int, keys: int) -> int:
    """Return the key that ``rekey`` gives a row."""
    return 1_000 + time // MS * 5 % (keys + 2)


def window_origin(vertex: int, count: int) -> int:
    """The origin of a window's result; it says who made it and how many rows it has."""
    return -(1 + vertex + 64 * count)


def joined_origin(left: int, right: int) -> int:
    return ((left % 1_000_003) * 31 + (right % 1_000_003) * 17 + 5) % 1_000_000_007


@dataclass(frozen=True, kw_only=True)
class BlindWatermarkSpec(WatermarkSpec):
    """Watermark of a source in which some rows have no event time."""

    node: Node

    def create(self) -> Operator:
        return _BlindWatermark(self, self.node)


class _BlindWatermark(WatermarkOperator):
    def __init__(self, spec: WatermarkSpec, node: Node) -> None:
        super().__init__(spec)
        self._node = node

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self._node.blind:
            return super().process(batch)
        times = [us for us in batch.column(TIME).to_pylist() if self._node.shows_time(us // MS)]
        if times:
            self.advance_generated(max(times))
        return iter((batch,))


class Relay(CheckedOperator):
    """Operator that passes rows on."""

    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        yield self.stamp.batch(origins, keys, times, notes)


class Rekey(CheckedOperator):
    """Operator that derives new keys from event time."""

    def __init__(self, vertex: int, inputs: tuple[Inbound, ...], workload: Workload, keys: int) -> None:
        super().__init__(vertex, inputs, workload)
        self._keys = keys

    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        others = [new_key(time, self._keys) for time in times]
        yield self.stamp.batch(origins, others, times, [0] * len(times))


class Count(CheckedOperator):
    """Operator that notes on each row how many of its key came so far.

    It also keeps the number of rows of each period of event time, so that some of its state does not change any more.
    """

    def __init__(self, vertex: int, inputs: tuple[Inbound, ...], workload: Workload) -> None:
        super().__init__(vertex, inputs, workload)
        self._counts: CountTable

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._counts = CountTable(COUNTS, context.max_parallelism)

    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        counts = []
        for key, time in zip(keys, times, strict=True):
            for period in (EVER, time // PERIOD_US):
                self._counts[key, period] = self._counts.get((key, period), 0) + 1
            counts.append(self._counts[key, EVER])
        yield self.stamp.batch(origins, keys, times, counts)

    def tables(self) -> dict[str, TableCapture]:
        return {"counts": self._counts.capture()}

    def restore_tables(self, state: RestoredState) -> None:
        self._counts = filled(state, "counts", self._counts)
        came: dict[int, int] = {}
        for (key, period), count in self._counts.items():
            came[key] = came.get(key, 0) + (-count if period == EVER else count)
        if any(came.values()):
            raise SimulationFailure(f"{self._subtask}: rows by period and ever differ by {came}", "restore")


class Window(CheckedOperator):
    """Operator that counts rows per key and tumbling window, once the watermark has closed it."""

    def __init__(self, vertex: int, inputs: tuple[Inbound, ...], workload: Workload, length_ms: int) -> None:
        super().__init__(vertex, inputs, workload)
        self._length_us = length_ms * MS
        self._counts: CountTable

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._counts = CountTable(WINDOWS, context.max_parallelism)

    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        for key, time in zip(keys, times, strict=True):
            key_and_window = key, time // self._length_us
            self._counts[key_and_window] = self._counts.get(key_and_window, 0) + 1
        return iter(())

    def due(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        closed = sorted(key for key in self._counts if (key[1] + 1) * self._length_us <= watermark_us)
        for first in range(0, len(closed), AT_ONCE):
            part = closed[first : first + AT_ONCE]
            counts = [self._counts.pop(key) for key in part]
            yield self.stamp.batch(
                [window_origin(self._vertex, count) for count in counts],
                [key for key, _ in part],
                [(window + 1) * self._length_us - 1 for _, window in part],
                [0] * len(part),
            )

    def tables(self) -> dict[str, TableCapture]:
        return {"windows": self._counts.capture()}

    def restore_tables(self, state: RestoredState) -> None:
        self._counts = filled(state, "windows", self._counts)


class Sort(CheckedOperator):
    """Operator that keeps rows until the watermark has passed them, then emits them in the order of event time."""

    def __init__(self, vertex: int, inputs: tuple[Inbound, ...], workload: Workload) -> None:
        super().__init__(vertex, inputs, workload)
        self._waiting: list[tuple[int, int, int]] = []

    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        self._waiting += zip(times, keys, origins, strict=True)
        return iter(())

    def due(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self._waiting.sort()
        while self._waiting and self._waiting[0][0] < watermark_us:
            passed = [row for row in self._waiting[:AT_ONCE] if row[0] < watermark_us]
            del self._waiting[: len(passed)]
            times, keys, origins = (list(column) for column in zip(*passed, strict=True))
            yield self.stamp.batch(origins, keys, times, [0] * len(passed))

    def tables(self) -> dict[str, TableCapture]:
        rows = [(key, time, origin) for time, key, origin in self._waiting]
        return {"waiting": state_table(WAITING, rows, self._max_parallelism)}

    def restore_tables(self, state: RestoredState) -> None:
        self._waiting = [(time, key, origin) for key, time, origin in state_rows(state.rows("waiting"))]


class Join(CheckedOperator):
    """Operator that pairs rows of both inputs with equal key and event time; it keeps all rows of both."""

    def __init__(self, vertex: int, inputs: tuple[Inbound, ...], workload: Workload) -> None:
        super().__init__(vertex, inputs, workload)
        self._sides: tuple[dict[tuple[int, int], list[int]], ...] = ({}, {})

    def rows(
        self, number: int, origins: list[int], keys: list[int], times: list[int], notes: list[int]
    ) -> Iterator[pa.RecordBatch]:
        mine, other = self._sides[number], self._sides[1 - number]
        pairs: list[tuple[int, int, int]] = []
        for origin, key, time in zip(origins, keys, times, strict=True):
            mine.setdefault((key, time), []).append(origin)
            for match in other.get((key, time), ()):
                left, right = (origin, match) if number == 0 else (match, origin)
                pairs.append((joined_origin(left, right), key, time))
        if pairs:
            joined, of_keys, at = (list(column) for column in zip(*pairs, strict=True))
            yield self.stamp.batch(joined, of_keys, at, [0] * len(pairs))

    def tables(self) -> dict[str, TableCapture]:
        return {
            name: state_table(
                WAITING,
                [(key, time, origin) for (key, time), origins in side.items() for origin in origins],
                self._max_parallelism,
            )
            for name, side in zip(("left", "right"), self._sides, strict=True)
        }

    def restore_tables(self, state: RestoredState) -> None:
        for name, side in zip(("left", "right"), self._sides, strict=True):
            for key, time, origin in state_rows(state.rows(name)):
                side.setdefault((key, time), []).append(origin)
