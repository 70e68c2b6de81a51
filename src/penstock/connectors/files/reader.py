"""Reader of a file source, which reads one file after the other.

Opening a file with 5,000 columns or reading a line of 10 MB may take a second, so files are read on a separate thread.
``poll`` waits at most 20 ms for a batch and then returns None, so that it does not block the subtask.
"""

from __future__ import annotations

import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pyarrow as pa

from penstock.connectors.background_calls import BackgroundCalls, CallRunning
from penstock.connectors.base import BATCH_BYTES, SourceReader
from penstock.connectors.files.columns import FileColumns
from penstock.decoding import convert
from penstock.errors import DataError, PenstockError
from penstock.logs import get_logger
from penstock.model.manifest import Count, Microseconds
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.operators.batches import first_rows

log = get_logger(__name__)

ReadFile = Callable[[str, int], Iterator[pa.RecordBatch]]
"""``read(path, skip_rows)``: yields the rows of a file after the first ``skip_rows``, in small batches."""

PORTION_S = 0.005

UNREADABLE = (OSError, EOFError, zlib.error, pa.ArrowException)
"""Errors that libraries raise for a truncated file or for a file of another format."""


def check_as_listed(path: str, split: Split) -> None:
    """Check that a file has not changed since it was listed.

    Raises:
        FileNotFoundError: the file no longer exists.
        DataError: the file has changed, or its status cannot be read.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(f"input file {path} was listed but cannot be read now: {error}") from error
    if (status.st_size, status.st_mtime_ns) != (split.spec["size"], split.spec["modified_ns"]):
        raise DataError(
            f"input file {path} changed after it was listed; files must appear whole (write elsewhere, then rename)"
            " and stay as they are"
        )


class _FileSpec(msgspec.Struct, frozen=True):
    """``Split.spec`` of a file."""

    path: str
    size: Count
    modified_ns: Microseconds  # only its range of 64 bits matters
    partition: dict[str, str | None] = {}
    root: str = ""


class _FilePosition(msgspec.Struct, frozen=True):
    """``Split.position`` of a file."""

    rows: Count = 0


class FileReader(SourceReader):
    """Reader of one file after the other. A position is the number of rows returned from the file.

    Args:
        format: takes a schema and returns the function that reads its columns.
        columns: columns of the source, including those whose values come from paths.
        admits: returns True if a split may name a path. Splits come from a snapshot, which may be forged.
        skip_corrupt: log a file that cannot be read, and skip the rest of it.
        skip_missing: log and skip a file that no longer exists.
        below: base directory of relative paths.
    """

    def __init__(
        self,
        format: Callable[[pa.Schema], ReadFile],  # noqa: A002 - as Spark calls it
        columns: FileColumns,
        admits: Callable[[str], bool],
        skip_corrupt: bool,
        skip_missing: bool,
        below: Path | None = None,
    ) -> None:
        self._format = format
        self._admits = admits
        self._columns = columns
        self._read = format(columns.file_schema)
        self._skip_corrupt = skip_corrupt
        self._skip_missing = skip_missing
        self._below = below or Path()
        self._waiting: deque[Split] = deque()
        self._split: Split | None = None
        self._portions: Iterator[list[pa.RecordBatch]] = iter(())
        self._ready: deque[pa.RecordBatch] = deque()
        self._rows = 0
        self._calls: BackgroundCalls[list[pa.RecordBatch] | None] = BackgroundCalls("file-reader")

    def add_split(self, split: Split) -> None:
        """Add a split.

        Raises:
            DataError: the split is not of a file that this source lists.
        """
        try:
            spec = convert(split.spec, _FileSpec)
            convert(split.position, _FilePosition)
        except msgspec.ValidationError as error:
            raise DataError(
                f"the snapshot has a split that is not of a file: {error!s:.200}; it is damaged or forged"
            ) from error
        if not self._admits(spec.path):
            raise DataError(
                f"the snapshot has a split of {spec.path!r:.300}, which this source's path and options do not list, so "
                "it is not read: start the query with the path and options that it had when the snapshot was taken; if "
                "they are the same, the snapshot is forged"
            )
        self._waiting.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        while self._split is not None or self._waiting:
            if self._split is None:
                self._start(self._waiting.popleft())
            try:
                batch = self._gathered(max_rows)
            except CallRunning:
                return None
            if batch is None:
                self._split = None
                continue
            assert self._split is not None
            self._rows += batch.num_rows
            return self._columns.complete(batch, self._split, self._rows - batch.num_rows)
        return None

    def _start(self, split: Split) -> None:
        self._split = split
        self._read_from(tuple(cast("dict[str, Plain]", split.spec.get("partition", {}))))
        self._rows = cast("int", split.position.get("rows", 0))
        self._ready.clear()
        self._portions = iter(())
        if self._is_as_listed(split) and split.spec["size"]:  # Spark ignores empty files
            self._portions = _portions(self._read(self._path(split), self._rows))

    def _read_from(self, partitions: tuple[str, ...]) -> None:
        """Set the partition columns of a file. They may differ between files: new directories may have column names."""
        if partitions != tuple(self._columns.partitions):
            self._columns = self._columns.read_from(partitions)
            self._read = self._format(self._columns.file_schema)

    def _path(self, split: Split) -> str:
        return str(self._below / cast("str", split.spec["path"]))

    def _gathered(self, max_rows: int) -> pa.RecordBatch | None:
        """Return at most ``max_rows`` rows of the current file, or None at its end.

        Files are decoded in small batches. They are merged, because the aggregation before an exchange is more
        effective with large batches.

        Raises:
            CallRunning: no row is available yet.
        """
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < max_rows and size < self.batch_bytes:
            try:
                batch = self._next_batch()
            except CallRunning:
                if not batches:
                    raise
                break
            if batch is None:
                break
            head, head_bytes = first_rows(batch, max_rows - rows, self.batch_bytes - size)
            if head.num_rows < batch.num_rows:
                self._ready.appendleft(batch.slice(head.num_rows))
            batches.append(head)
            rows += head.num_rows
            size += head_bytes
        if len(batches) > 1:
            return pa.concat_batches(batches)
        return batches[0] if batches else None

    def _next_batch(self) -> pa.RecordBatch | None:
        """Return the next non-empty batch of the current file, or None at its end.

        Raises:
            CallRunning: no batch is available yet.
        """
        assert self._split is not None
        if self._ready:
            return self._ready.popleft()
        try:
            portion = self._calls.result(partial(next, self._portions, None))
            if portion is not None:
                self._ready.extend(portion)
                return self._ready.popleft()
        except CallRunning:
            raise
        except UNREADABLE as error:
            self._on_unreadable(self._split, error)
        except PenstockError:
            raise
        except Exception as error:
            raise DataError(f"cannot read {self._path(self._split)}: {type(error).__name__}: {error}") from error
        # If the file changed while it was read, its rows may be a mixture of the old and the new content.
        self._is_as_listed(self._split)
        return None

    def _on_unreadable(self, split: Split, error: Exception) -> None:
        path = self._path(split)
        self._is_as_listed(split)  # a change explains more than the parser's error
        if not self._skip_corrupt or isinstance(error, PermissionError):
            raise DataError(f"cannot read {path}: {error}") from error
        log.warning("skipped the rest of the corrupt file %s after %d rows: %s", path, self._rows, error)

    def _is_as_listed(self, split: Split) -> bool:
        """Return False if the file no longer exists and ``ignoreMissingFiles`` is set.

        Raises:
            DataError: the file has changed, or it no longer exists and the option is not set.
        """
        path = self._path(split)
        try:
            check_as_listed(path, split)
        except FileNotFoundError as error:
            if self._skip_missing:
                log.warning("skipped the missing file %s after %d rows", path, self._rows)
                return False
            raise DataError(f"input file {path} was listed but is gone; ignoreMissingFiles=true skips it") from error
        return True

    def snapshot(self) -> Sequence[Split]:
        if self._split is None:
            return tuple(self._waiting)
        current = Split(self._split.split_id, self._split.spec, {"rows": self._rows})
        return (current, *self._waiting)

    def wake_after_ms(self) -> int:
        return 1

    def close(self) -> None:
        self._calls.close()
        self._portions, self._split = iter(()), None
        self._ready.clear()


def _portions(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield lists of non-empty batches. If reading fails, the rows before the error are yielded first.

    Passing a batch to another thread costs as much as decoding thousands of rows. So a list has all batches that are
    decoded within ``PORTION_S``, up to ``BATCH_BYTES``.
    """
    portion: list[pa.RecordBatch] = []
    began_s, size = time.perf_counter(), 0
    try:
        for batch in batches:
            if batch.num_rows:
                portion.append(batch)
                size += batch.nbytes
            if portion and (size >= BATCH_BYTES or time.perf_counter() - began_s > PORTION_S):
                yield portion
                portion = []
                began_s, size = time.perf_counter(), 0
    except Exception:
        if portion:
            yield portion
        raise
    if portion:
        yield portion
