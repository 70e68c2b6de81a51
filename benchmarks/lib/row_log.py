"""Log of the rows that a job processes and commits while it is made to fail.

Each writer has a file of its own, of lines ``<wall clock in ms> <rows>``:

- ``*.processed``, one for each start of a subtask: the rows that it has taken so far, with its first rows and then
  every ``ENTRY_EVERY_MS``;
- ``*.committed``: with each completed checkpoint, how many of the writer's rows completed checkpoints hold in all.

So the counts of killed processes are not lost, and none is as old as a metric that is polled.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

ENTRY_EVERY_MS = 50.0
FORMAT = "row-log"

Entry = tuple[float, int]
"""Time in seconds of the wall clock, and number of rows."""


@dataclass(frozen=True)
class RowLog:
    """Entries of each start of a subtask, and of each writer. Times rise."""

    processed: Sequence[Sequence[Entry]]
    committed: Sequence[Sequence[Entry]]

    def rows_processed(self, at_s: float) -> int:
        """Count the rows processed until then; rows processed again after a failure count again."""
        return sum(_at(entries, at_s) for entries in self.processed)

    def rows_committed(self, at_s: float) -> int:
        """Count the rows in checkpoints that were complete then: a failure cannot take them back."""
        return sum(_at(entries, at_s) for entries in self.committed)

    def first_rows(self, after_s: float) -> list[float]:
        """Return when each subtask that was started after ``after_s`` took its first row, in order."""
        return sorted(entries[0][0] for entries in self.processed if entries[0][0] > after_s)

    def next_commit(self, after_s: float) -> float | None:
        """Return when the first checkpoint after ``after_s`` completed."""
        return min((at_s for entries in self.committed for at_s, _ in entries if at_s > after_s), default=None)


def _at(entries: Sequence[Entry], at_s: float) -> int:
    before = bisect_right(entries, at_s, key=lambda entry: entry[0])
    return entries[before - 1][1] if before else 0


def read(folder: Path) -> RowLog:
    """Read what is logged so far, without a line that is not whole yet."""
    processed = (entries for path in sorted(folder.glob("*.processed")) if (entries := _entries(path)))
    return RowLog(list(processed), [_entries(path) for path in sorted(folder.glob("*.committed"))])


def _entries(path: Path) -> list[Entry]:
    whole = path.read_text().rpartition("\n")[0].splitlines()
    return [(float(at_ms) / 1000, int(rows)) for at_ms, rows in map(str.split, whole)]


# -- written by Penstock's side ---------------------------------------------------------------------------------------

_own = threading.local()
"""``count``: of this thread. A subtask has a thread of its own for as long as its generation lasts."""


class _Count:
    """Rows that one start of a subtask has taken."""

    def __init__(self, folder: str) -> None:
        self._file = open(os.path.join(folder, f"{time.time_ns()}-{os.getpid()}.processed"), "a")  # noqa: SIM115
        self._rows = 0
        self._written_ms = 0.0

    def add(self, rows: int) -> None:
        self._rows += rows
        now_ms = time.time() * 1000
        if now_ms - self._written_ms >= ENTRY_EVERY_MS:
            self._written_ms = now_ms
            self._write(now_ms)

    def finish(self) -> None:
        self._write(time.time() * 1000)
        self._file.close()

    def _write(self, now_ms: float) -> None:
        self._file.write(f"{now_ms:.0f} {self._rows}\n")
        self._file.flush()


def add(folder: str, rows: int) -> None:
    """Count rows that the subtask on this thread has taken."""
    if not hasattr(_own, "count"):
        _own.count = _Count(folder)
    _own.count.add(rows)


def finish() -> None:
    """End the log of the subtask on this thread. Rows that the thread takes afterwards are those of another one."""
    if (count := _own.__dict__.pop("count", None)) is not None:
        count.finish()


@dataclass
class Written(WriterCommitMessage):
    rows: int


class RowLogWriter(DataSourceStreamArrowWriter):
    """Sink that keeps no rows and logs how many are committed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = 0
        self._batch = -1

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's name
        if batchId <= self._batch:
            return  # once more, after a failure
        self._batch = batchId
        self._rows += sum(message.rows for message in messages if isinstance(message, Written))
        with self._path.open("a") as file:
            file.write(f"{time.time() * 1000:.0f} {self._rows}\n")


class RowLogSink(DataSource):
    """``format("row-log")`` with the folder as its path; for one start of a query."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> RowLogWriter:  # noqa: N802 - PySpark's name
        return RowLogWriter(Path(self.options["path"]) / "sink.committed")
