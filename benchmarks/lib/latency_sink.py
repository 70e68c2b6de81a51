"""A sink that keeps no rows: it counts how late they are, by when they were due.

What it counts with are the buckets of an HDR histogram of two significant digits, 128 to each doubling: a latency is
told to within 0.8 % whatever its size. With each checkpoint (or micro-batch) a writer notes what it counted in a file
of its own, of lines ``<second it was due> <second it arrived> <the bucket's least microsecond> <rows>``, with seconds
since 1970; ``flink/job/LatencySink.java`` writes the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

SECOND_US = 1_000_000
DIGITS = 2
EXACT_BITS = 8
"""Latencies of so many bits have a bucket each: up to 255 us."""
HALF = 1 << (EXACT_BITS - 1)
MOST_US = (1 << 32) - 1
"""71 minutes; what is later is counted as that."""
SLICE = 8_192
"""Rows that are counted at a time: what is made of them on the way stays in the processor's cache."""
BUCKETS = (32 - EXACT_BITS + 2) * HALF
FORMAT = "latency"


def buckets(latencies_us: np.ndarray) -> np.ndarray:
    """The number of each one's bucket."""
    # A float's exponent is the number of bits, less 1 and with a bias of 1023; that of 0 is far below.
    bits = (latencies_us.astype(np.float64).view(np.int64) >> 52) - 1022
    shift = np.maximum(bits - EXACT_BITS, 0)
    return shift * HALF + (latencies_us >> shift)


def least_us(bucket: int) -> int:
    """The smallest latency in it."""
    if bucket < 2 * HALF:
        return bucket
    return (bucket % HALF + HALF) << (bucket // HALF - 1)


class LatencyHistogram:
    """Counts of one writer."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], np.ndarray] = {}
        """By the seconds when rows were due and when they arrived."""

    def add(self, due_us: np.ndarray, now_us: int) -> None:
        for start in range(0, len(due_us), SLICE):
            self._add(due_us[start : start + SLICE], now_us)

    def _add(self, due_us: np.ndarray, now_us: int) -> None:
        found = buckets(np.clip(now_us - due_us, 0, MOST_US))
        seconds = due_us // SECOND_US
        first = int(seconds.min())
        counts = np.bincount((seconds - first) * BUCKETS + found)
        counts.resize(-(-len(counts) // BUCKETS), BUCKETS)
        for second, row in enumerate(counts, first):
            if row.any():
                cell = (second, now_us // SECOND_US)
                self._counts[cell] = self._counts.get(cell, 0) + row

    def lines(self) -> Iterator[str]:
        for (due_s, arrived_s), row in self._counts.items():
            for bucket in np.flatnonzero(row):
                yield f"{due_s} {arrived_s} {least_us(int(bucket))} {row[bucket]}\n"


# -- what was noted ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Latencies:
    """Latencies noted by all writers. Arrays are indexed by line; ``last_s``: by writer, the last second with rows."""

    due_s: np.ndarray
    arrived_s: np.ndarray
    least_us: np.ndarray
    rows: np.ndarray
    last_s: dict[str, int]

    def due(self, seconds: range) -> int:
        """Return the number of rows due in a period that have arrived."""
        return int(self.rows[within(self.due_s, seconds)].sum())

    def arrived(self, seconds: range) -> int:
        """Return the number of rows that arrived in a period, whenever they were due."""
        return int(self.rows[within(self.arrived_s, seconds)].sum())


def within(values: np.ndarray, seconds: range) -> np.ndarray:
    chosen: np.ndarray = (values >= seconds.start) & (values < seconds.stop)
    return chosen


def read(folder: Path) -> Latencies:
    """Read the latencies noted so far."""
    parts, last_s = [np.empty((0, 4), np.int64)], {}
    for path in sorted(folder.glob(f"*.{FORMAT}")):
        part = np.array(path.read_text().split(), np.int64).reshape(-1, 4)
        parts.append(part)
        writer = path.stem.rpartition("-")[0]
        last_s[writer] = max(last_s.get(writer, 0), int(part[:, 1].max(initial=0)))
    return Latencies(*np.concatenate(parts).T, last_s=last_s)


# -- the sink, of Penstock and of Spark -------------------------------------------------------------------------------


class LatencyWriter(DataSourceStreamArrowWriter):
    """Notes what it counted when an iterator ends. A file is there whole, or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        histogram = LatencyHistogram()
        for batch in iterator:
            histogram.add(batch.column("due_us").to_numpy(), time.time_ns() // 1_000)
        draft = self._folder / f"{os.getpid()}.{threading.get_ident()}-{time.time_ns()}.draft"
        draft.write_text("".join(histogram.lines()))
        draft.rename(draft.with_suffix(f".{FORMAT}"))
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        pass


class LatencySink(DataSource):
    """``format("latency")`` with the folder as its path."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> LatencyWriter:  # noqa: N802 - PySpark's name
        return LatencyWriter(Path(self.options["path"]))
