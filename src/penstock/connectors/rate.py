"""Rate source: ``rows_per_second`` rows of (timestamp, value), for tests and demonstrations.

Row ``n`` belongs to the second ``s`` with ``value_at(s) <= n < value_at(s + 1)``. The rows of a second are spread
evenly over it. So timestamps depend only on the options and the start time, and a replay yields equal rows. Spark
spreads rows over a micro-batch, so its fractions of seconds depend on the times of its batches; its seconds and values
are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from penstock.connectors.base import Source, SourceReader
from penstock.connectors.split_forms import RATE
from penstock.errors import ConfigError
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split

Longs = np.ndarray[tuple[int], np.dtype[np.int64]]
MOST_ROWS_PER_SECOND = 1_000_000_000
"""Limit, so that a bigint can count the rows of 100 years."""
SCHEMA = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.int64())])


def value_at(second: int, rows_per_second: int, ramp_up_s: int) -> int:
    """Return the number of rows until ``second`` seconds after the start (``RateStreamProvider.valueAtSecond``)."""
    delta = rows_per_second // (ramp_up_s + 1)
    if second <= ramp_up_s:
        return delta * second * (second + 1) // 2
    return delta * ramp_up_s * (ramp_up_s + 1) // 2 + (second - ramp_up_s) * rows_per_second


class _Frontier:
    """Frontier: the time of the first poll after ``begin``. It covers the rows that are due at that time."""

    def __init__(self) -> None:
        self.at_ms: int | None = None
        self._begins = False

    def begin(self) -> None:
        self.at_ms, self._begins = None, True

    def polled(self, now_ms: int) -> None:
        if self._begins:
            self.at_ms, self._begins = now_ms, False


class RateSource(Source):
    """Source of ``spark.readStream.format("rate")``.

    Args:
        rows_per_second: number of rows per second, at least 1.
        ramp_up_s: seconds until that rate is reached.
        num_partitions: appears in the description, without any other effect. There is one split per reader of the first
            start, and rows are distributed by row number. A split never ends, and a reader requests only one. So with
            more splits, some would never be read; with fewer splits, a reader without a split would hold back the
            watermark.
    """

    schema = SCHEMA
    is_clock_driven = True

    def __init__(self, rows_per_second: int = 1, ramp_up_s: int = 0, num_partitions: int | None = None) -> None:
        for name, value, least in (("rowsPerSecond", rows_per_second, 1), ("rampUpTime", ramp_up_s, 0)):
            if value < least:
                raise ConfigError(f"option {name}={value} of the rate source: must be at least {least}")
        if rows_per_second > MOST_ROWS_PER_SECOND:
            raise ConfigError(
                f"option rowsPerSecond={rows_per_second} of the rate source: must be at most {MOST_ROWS_PER_SECOND}"
            )
        if num_partitions is not None and num_partitions < 1:
            raise ConfigError(f"option numPartitions={num_partitions} of the rate source: must be at least 1")
        self._rows_per_second = rows_per_second
        self._ramp_up_s = ramp_up_s
        self._num_partitions = num_partitions
        self._frozen = False

    def describe(self) -> str:
        return (
            f"RateStreamV2[rowsPerSecond={self._rows_per_second}, rampUpTimeSeconds={self._ramp_up_s}, "
            f"numPartitions={self._num_partitions or 'default'}]"
        )

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        if state is not None:
            return Discovery((), state, finished=self._frozen)
        start_ms = int(time.time() * 1000)
        splits = [
            Split(str(p), {"partition": p, "partitions": parallelism, "start_ms": start_ms}) for p in range(parallelism)
        ]
        return Discovery(splits, {"start_ms": start_ms, "partitions": parallelism}, finished=self._frozen)

    def freeze(self) -> None:
        self._frozen = True

    def create_reader(self) -> SourceReader:
        return RateReader(self._rows_per_second, self._ramp_up_s)


class RateReader(SourceReader):
    """Reader that polls its endless splits in turn. After a freeze it reads up to the time of the next poll."""

    interleaves_splits = True

    def __init__(self, rows_per_second: int, ramp_up_s: int) -> None:
        self._rows_per_second = rows_per_second
        self._ramp_up_s = ramp_up_s
        self._splits: list[Split] = []
        self._turn = 0
        self._frozen = False
        self._last_ms: int | None = None
        self._caught_up = False
        self._frontier, self._refresh = _Frontier(), _Frontier()

    def add_split(self, split: Split) -> None:
        RATE.check(split)
        self._splits.append(split)
        self._caught_up = False

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if self._frozen:
            now_ms = self._last_ms = now_ms if self._last_ms is None else self._last_ms
        self._frontier.polled(now_ms)
        self._refresh.polled(now_ms)
        for step in range(len(self._splits)):
            index = (self._turn + step) % len(self._splits)
            split = self._splits[index]
            values = self._due(split, max_rows, now_ms)
            if len(values):
                self._turn = index + 1
                moved = {"next": int(values[-1]) + _number(split.spec["partitions"])}
                self._splits[index] = Split(split.split_id, split.spec, cast("dict[str, Plain]", moved))
                return self._rows(values, _number(split.spec["start_ms"]))
        self._caught_up = self._frozen
        return None

    def begin_frontier(self) -> None:
        self._frontier.begin()

    def frontier_passed(self) -> bool:
        return self._is_read_up_to(self._frontier)

    def refresh(self) -> None:
        self._refresh.begin()

    def refresh_passed(self) -> bool:
        return self._is_read_up_to(self._refresh)

    def _is_read_up_to(self, frontier: _Frontier) -> bool:
        at_ms = frontier.at_ms
        return at_ms is not None and not any(len(self._due(split, 1, at_ms)) for split in self._splits)

    def freeze(self) -> None:
        self._frozen = True

    def caught_up(self) -> bool:
        """Return True if the reader is frozen and has read all rows. Otherwise more rows are always due soon."""
        return self._caught_up

    def _due(self, split: Split, max_rows: int, now_ms: int) -> Longs:
        """Return the next values of the split whose timestamps have passed."""
        step = _number(split.spec["partitions"])
        first = _number(split.position.get("next", split.spec["partition"]))
        elapsed_ms = now_ms - _number(split.spec["start_ms"])
        # No row after the end of the current second is due. This bound makes polling cheap at low rates.
        bound = value_at(elapsed_ms // 1000 + 1, self._rows_per_second, self._ramp_up_s)
        values = np.arange(first, min(first + max_rows * step, bound), step, dtype=np.int64)
        return values[self._offsets_ms(values) <= elapsed_ms] if len(values) else values

    def _offsets_ms(self, values: Longs) -> Longs:
        """Return the time of each value in milliseconds after the start."""
        first, last = self._second_of(int(values[0])), self._second_of(int(values[-1]))
        bounds = np.array(
            [value_at(s, self._rows_per_second, self._ramp_up_s) for s in range(first, last + 2)], dtype=np.int64
        )
        index = np.searchsorted(bounds, values, side="right") - 1
        within = (values - bounds[index]) * 1000 // (bounds[index + 1] - bounds[index])
        return (first + index) * 1000 + within

    def _second_of(self, value: int) -> int:
        """Return the second of row ``value``, by bisection."""
        low, high = 0, self._ramp_up_s + 1 + value // self._rows_per_second + 1
        while low < high:
            middle = (low + high + 1) // 2
            if value_at(middle, self._rows_per_second, self._ramp_up_s) <= value:
                low = middle
            else:
                high = middle - 1
        return low

    def _rows(self, values: Longs, start_ms: int) -> pa.RecordBatch:
        timestamps = (self._offsets_ms(values) + start_ms) * 1000
        return pa.record_batch([pa.array(timestamps).cast(SCHEMA.field(0).type), pa.array(values)], schema=SCHEMA)

    def snapshot(self) -> Sequence[Split]:
        return tuple(self._splits)


def _number(value: Plain) -> int:
    assert isinstance(value, int)
    return value
