"""A Python data source whose rows come by a clock that changes its pace, or as fast as they are taken.

The number of a row says when it is due, so an engine that falls behind gets what it missed and finds it late. Read in
ranges, as Spark's micro-batches do, it hands out what is due; as one endless range (option ``waits``), which Penstock's
slots read on their own, it waits for what is not due yet.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

SECOND_US = 1_000_000
BATCH_ROWS = 65_536
"""The most in one Arrow batch."""
LINGER_MS = 5
"""Of a reader that waits, from one batch to the next if it is not behind. Without it batches were of the few rows that
come due while one is made, and an engine that takes batches would do nothing else than begin and end them."""
ENDLESS = 1 << 62
SCHEMA = "key bigint, value double, due_us bigint"


@dataclass(frozen=True)
class Step:
    """So many rows a second for so long."""

    rows_per_second: int
    seconds: int


class Schedule:
    """Due times of rows. Row 0 is due at ``started_us`` (since 1970); there are no rows after the last step."""

    def __init__(self, started_us: int, steps: Sequence[Step]) -> None:
        self.started_us = started_us
        self.steps = tuple(steps)
        self._first_rows = [0, *accumulate(step.rows_per_second * step.seconds for step in steps)]
        self._first_us = [0, *accumulate(step.seconds * SECOND_US for step in steps)]

    def due_us(self, numbers: np.ndarray) -> np.ndarray:
        """Return the due times of rows by their numbers, which must rise."""
        due = np.empty(len(numbers), np.int64)
        ends = np.searchsorted(numbers, self._first_rows)
        for which, step in enumerate(self.steps):
            part = slice(ends[which], ends[which + 1])
            behind_us = (numbers[part] - self._first_rows[which]) * SECOND_US // step.rows_per_second
            due[part] = self.started_us + self._first_us[which] + behind_us
        return due

    def rows_due(self, now_us: int) -> int:
        """Return the number of rows due by now: row n is among the first n + 1."""
        elapsed_us = now_us - self.started_us
        if elapsed_us < 0:
            return 0
        which = bisect_right(self._first_us, elapsed_us) - 1
        if which == len(self.steps):
            return self._first_rows[-1]
        # The last row whose moment, rounded down to a microsecond, is not after now.
        within_us = elapsed_us - self._first_us[which]
        last = ((within_us + 1) * self.steps[which].rows_per_second - 1) // SECOND_US
        return min(self._first_rows[which] + last + 1, self._first_rows[which + 1])

    def __str__(self) -> str:
        return ",".join(f"{step.rows_per_second}:{step.seconds}" for step in self.steps)


def parsed(started_us: int, steps: str) -> Schedule:
    """Parse the result of ``str``."""
    pairs = (step.split(":") for step in steps.split(","))
    return Schedule(started_us, [Step(int(rate), int(seconds)) for rate, seconds in pairs])


class VariableRatePartition(InputPartition):
    def __init__(self, index: int, first: int, stop: int) -> None:
        super().__init__(index)
        self.index, self.first, self.stop = index, first, stop


class VariableRateReader(DataSourceStreamReader):
    """Options: ``startedUs``, ``steps`` (without: rows are there, and due, when they are asked for; of a range
    ``rangeRows``), ``keys``, ``partitions``, ``waits``, ``lingerMs``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        steps = options.get("steps")
        self.schedule = parsed(int(options["startedUs"]), steps) if steps else None
        self.range_rows = int(options.get("rangeRows", "0"))
        self.keys = int(options["keys"])
        self.partition_count = int(options["partitions"])
        self.linger_s = int(options.get("lingerMs", LINGER_MS)) / 1_000
        self.waits = options.get("waits") == "true"

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802 - PySpark's name
        if self.waits:
            return {"rows": ENDLESS}
        return {"rows": start["rows"] + self.range_rows if self.schedule is None else self._rows_due()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[VariableRatePartition]:
        return [VariableRatePartition(index, start["rows"], end["rows"]) for index in range(self.partition_count)]

    def read(self, partition: VariableRatePartition) -> Iterator[pa.RecordBatch]:
        """Every so many-th row is a partition's."""
        count = self.partition_count
        random = np.random.default_rng(partition.index)
        keys = pa.array(random.integers(0, self.keys, 2 * BATCH_ROWS, dtype=np.int64))
        values = pa.array(random.random(2 * BATCH_ROWS))
        number = partition.first + (partition.index - partition.first) % count
        while number < partition.stop:
            due = self._rows_due()
            stop = min(due, partition.stop, number + BATCH_ROWS * count)
            if number < stop:
                numbers = np.arange(number, stop, count, dtype=np.int64)
                at = slice(number // count % BATCH_ROWS, None)
                yield self._batch(keys[at], values[at], numbers)
                number += len(numbers) * count
            if stop == due:
                time.sleep(self.linger_s)

    def _batch(self, keys: pa.Array, values: pa.Array, numbers: np.ndarray) -> pa.RecordBatch:
        """``keys`` and ``values`` may have more."""
        columns = [keys[: len(numbers)], values[: len(numbers)], pa.array(self._due_us(numbers))]
        return pa.RecordBatch.from_arrays(columns, names=["key", "value", "due_us"])

    def _rows_due(self) -> int:
        return ENDLESS if self.schedule is None else self.schedule.rows_due(time.time_ns() // 1_000)

    def _due_us(self, numbers: np.ndarray) -> np.ndarray:
        if self.schedule is None:
            return np.full(len(numbers), time.time_ns() // 1_000)
        return self.schedule.due_us(numbers)


class VariableRateSource(DataSource):
    """``format("variable-rate")``."""

    @classmethod
    def name(cls) -> str:
        return "variable-rate"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        return VariableRateReader(self.options)
