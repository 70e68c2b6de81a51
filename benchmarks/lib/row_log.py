"""What a job notes about itself in files while it is made to fail, read as one account afterwards.

Every writer has a file of its own, of lines ``<wall clock in ms> <rows>``:

- ``*.processed``, one for each time that a subtask was started: the rows that it has taken, from its first one on and
  then every ``NOTE_EVERY_MS``;
- ``*.committed``: with each completed checkpoint, how many of the writer's rows completed checkpoints hold in all.

So figures of processes that are killed are not lost with them, and none is as old as a metric that is polled.
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

NOTE_EVERY_MS = 50.0
FORMAT = "diary"

Note = tuple[float, int]
"""When, in seconds of the wall clock, and how many rows."""


@dataclass(frozen=True)
class Diary:
    """``processed``: of each started subtask, its notes; ``committed``: of each writer. Times rise."""

    processed: Sequence[Sequence[Note]]
    committed: Sequence[Sequence[Note]]

    def rows_processed(self, at_s: float) -> int:
        """By then, those that were taken again after a failure included."""
        return sum(_at(notes, at_s) for notes in self.processed)

    def rows_committed(self, at_s: float) -> int:
        """Those in checkpoints that were complete then: what a failure cannot take back."""
        return sum(_at(notes, at_s) for notes in self.committed)

    def first_rows(self, after_s: float) -> list[float]:
        """When each subtask that was started after this took its first row, in order."""
        return sorted(notes[0][0] for notes in self.processed if notes[0][0] > after_s)

    def next_commit(self, after_s: float) -> float | None:
        """When the first checkpoint after this completed."""
        return min((at_s for notes in self.committed for at_s, _ in notes if at_s > after_s), default=None)


def _at(notes: Sequence[Note], at_s: float) -> int:
    before = bisect_right(notes, at_s, key=lambda note: note[0])
    return notes[before - 1][1] if before else 0


def read(folder: Path) -> Diary:
    """What is noted so far; a line that is not whole yet is left out."""
    processed = (notes for path in sorted(folder.glob("*.processed")) if (notes := _notes(path)))
    return Diary(list(processed), [_notes(path) for path in sorted(folder.glob("*.committed"))])


def _notes(path: Path) -> list[Note]:
    whole = path.read_text().rpartition("\n")[0].splitlines()
    return [(float(at_ms) / 1000, int(rows)) for at_ms, rows in map(str.split, whole)]


# -- written by Penstock's side ---------------------------------------------------------------------------------------

_own = threading.local()
"""``count``: of this thread. A subtask has a thread of its own for as long as its Generation lasts."""


class _Count:
    """The rows that one started subtask has taken."""

    def __init__(self, folder: str) -> None:
        self._file = open(os.path.join(folder, f"{time.time_ns()}-{os.getpid()}.processed"), "a")  # noqa: SIM115
        self._rows = 0
        self._noted_ms = 0.0

    def took(self, rows: int) -> None:
        self._rows += rows
        now_ms = time.time() * 1000
        if now_ms - self._noted_ms >= NOTE_EVERY_MS:
            self._noted_ms = now_ms
            self._note(now_ms)

    def end(self) -> None:
        self._note(time.time() * 1000)
        self._file.close()

    def _note(self, now_ms: float) -> None:
        self._file.write(f"{now_ms:.0f} {self._rows}\n")
        self._file.flush()


def took(folder: str, rows: int) -> None:
    """The subtask on this thread has taken so many rows more."""
    if not hasattr(_own, "count"):
        _own.count = _Count(folder)
    _own.count.took(rows)


def end() -> None:
    """The subtask on this thread is over; what the thread takes from now on is noted as another's."""
    if (count := _own.__dict__.pop("count", None)) is not None:
        count.end()


@dataclass
class Written(WriterCommitMessage):
    rows: int


class DiaryWriter(DataSourceStreamArrowWriter):
    """Keeps no rows: notes how many are committed."""

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


class DiarySink(DataSource):
    """``format("diary")`` with the folder as its path; for one start of a query."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DiaryWriter:  # noqa: N802 - PySpark's name
        return DiaryWriter(Path(self.options["path"]) / "sink.committed")
