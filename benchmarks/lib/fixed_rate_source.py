"""A Python data source whose rows come by the clock: row n is due n-ths of a second after the start, whoever asks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


@dataclass(frozen=True)
class Schedule:
    """Due times of rows. ``started_us``: microseconds since 1970 at which row 0 is due."""

    started_us: int
    rows_per_second: int

    def due_us(self, numbers: np.ndarray) -> np.ndarray:
        """Return the due times of rows by their numbers."""
        return self.started_us + numbers.astype(np.int64) * 1_000_000 // self.rows_per_second

    def rows_due(self, now_us: int) -> int:
        """Return the number of rows due by now: row n is among the first n + 1."""
        elapsed_us = now_us - self.started_us
        if elapsed_us < 0:
            return 0
        # The largest n whose moment, rounded down to a microsecond, is not after now.
        return ((elapsed_us + 1) * self.rows_per_second - 1) // 1_000_000 + 1


def mixed(numbers: np.ndarray) -> np.ndarray:
    """Numbers that look random (SplitMix64), each by the one in its place."""
    mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


class FixedRatePartition(InputPartition):
    def __init__(self, index: int, first: int, stop: int) -> None:
        super().__init__(index)
        self.index, self.first, self.stop = index, first, stop


class FixedRateReader(DataSourceStreamReader):
    """Each range of rows in ``partitions`` parts; keys as if by chance, but always the same for a row."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.schedule = Schedule(int(options["startedUs"]), int(options["rowsPerSecond"]))
        self.keys = int(options["keys"])
        self.partition_count = int(options["partitions"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - PySpark's name
        return {"rows": self.schedule.rows_due(time.time_ns() // 1_000)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[FixedRatePartition]:
        return [FixedRatePartition(index, start["rows"], end["rows"]) for index in range(self.partition_count)]

    def read(self, partition: FixedRatePartition) -> Iterator[pa.RecordBatch]:
        count = self.partition_count
        first = partition.first + (partition.index - partition.first) % count
        numbers = np.arange(first, partition.stop, count, dtype=np.int64)
        # Neighbouring rows are of different keys, and each partition has all of them.
        keys = numbers // count % self.keys
        columns = {
            "key": keys.astype(np.int32),
            "value": numbers % 1_000 / 10.0,
            "due_us": self.schedule.due_us(numbers),
        }
        yield pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in columns.items()})


class FixedRateSource(DataSource):
    """``format("fixed-rate")``: columns key int, value double, due_us long."""

    @classmethod
    def name(cls) -> str:
        return "fixed-rate"

    def schema(self) -> str:
        return "key int, value double, due_us bigint"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        return FixedRateReader(self.options)
