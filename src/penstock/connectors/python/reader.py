"""Reader of Python data sources.

User code runs on a separate thread. A checksum verifies that a replay yields equal rows.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.connectors.base import SourceReader
from penstock.connectors.python.prefetch_thread import PrefetchThread
from penstock.connectors.python.row_checksum import RowChecksum
from penstock.connectors.python.rows import RowConverter
from penstock.connectors.python.simple_read_loop import Idle, Range, SimpleReadLoop, as_iterator
from penstock.errors import DataError, FunctionError, PenstockError
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.operators.batches import first_rows

QUEUED_ROWS = 16_384
"""Limit for the rows that user code has read ahead.

A RecordBatch counts as one row per ``ROW_BYTES`` bytes. A single batch may exceed the limit.
"""
PATIENCE_MS = 10
"""Longest delay in milliseconds between two polls of a reader without rows.

The first delays are shorter, because most readers have rows immediately.
"""
ROW_BYTES = 256
"""Estimated size of a row of Python objects, in bytes."""

StreamReader: TypeAlias = DataSourceStreamReader | SimpleDataSourceStreamReader


def _weight(item: Any) -> int:
    return max(1, item.nbytes // ROW_BYTES) if isinstance(item, pa.RecordBatch) else 1


class PythonSourceReader(SourceReader):
    """Reader of one subtask, which reads one split after the other.

    Args:
        name: name of the source, for messages.
        make_reader: creates the user's reader, one per split; called on that split's thread.
        schema: Arrow schema of the rows.
        spark_schema: the same schema as PySpark types.
    """

    def __init__(
        self, name: str, make_reader: Callable[[], StreamReader], schema: pa.Schema, spark_schema: StructType
    ) -> None:
        self._name = name
        self._make_reader = make_reader
        self._converter = RowConverter(name, schema, spark_schema)
        self._waiting: deque[Split] = deque()
        self._current: _OpenSplit | None = None
        self._frozen = False
        self._frontier_begins = False
        self._empty_polls = 0

    def add_split(self, split: Split) -> None:
        self._waiting.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        while self._current is not None or self._waiting:
            if self._current is None:
                self._current = _OpenSplit(self._waiting.popleft(), self._name, self._make_reader, self._converter)
                if self._frozen:
                    self._current.freeze()
                if self._frontier_begins:
                    self.begin_frontier()
                self._empty_polls = 0
            batch = self._current.next_batch(max_rows, self.batch_bytes)
            if batch is not None:
                self._empty_polls = 0
                return batch
            if not self._current.finished:
                self._empty_polls += 1
                return None
            self._current.close()
            self._current = None
        return None

    def wake_after_ms(self) -> int:
        """Return 1, 2, 4, 8 and then ``PATIENCE_MS``, for successive polls since the last rows or the split's start."""
        return 1 << (self._empty_polls - 1) if 0 < self._empty_polls < 5 else PATIENCE_MS

    def snapshot(self) -> Sequence[Split]:
        current = () if self._current is None or self._current.finished else (self._current.split(),)
        return (*current, *self._waiting)

    def caught_up(self) -> bool:
        return not self._waiting and (self._current is None or self._current.idle)

    def refresh(self) -> None:
        if self._current is not None:
            self._current.refresh()

    def begin_frontier(self) -> None:
        self._frontier_begins = self._current is None
        if self._current is not None:
            self._current.begin_frontier()

    def frontier_passed(self) -> bool | None:
        if self._current is None:
            return False if self._waiting and self._waiting[0].spec["kind"] == "simple" else None
        return self._current.frontier_passed()

    def freeze(self) -> None:
        self._frozen = True
        if self._current is not None:
            self._current.freeze()

    def committed(self, splits: Sequence[Split]) -> None:
        if self._current is not None:
            self._current.committed(splits)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


@dataclass
class _Progress:
    """Progress within a range.

    Attributes:
        rows: number of rows read since the start of the range.
        checksum: checksum of these rows.
        skip: number of rows at the start that a replay must check and not return; 0 after they are checked.
        expected: expected checksum of these ``skip`` rows.
    """

    rows: int = 0
    checksum: RowChecksum = field(default_factory=RowChecksum)
    skip: int = 0
    expected: str = ""


class _OpenSplit:
    """Split that is being read: its thread, its progress, and its converted rows that are not returned yet."""

    def __init__(
        self, split: Split, name: str, make_reader: Callable[[], StreamReader], converter: RowConverter
    ) -> None:
        self._split = split
        self._name = name
        self._make_reader = make_reader
        self._converter = converter
        self._ready: deque[pa.RecordBatch] = deque()
        self._items: deque[Any] = deque()
        self._range = Range(
            split.position.get("start", split.spec["start"]), split.position.get("end", split.spec.get("end"))
        )
        self._progress = _Progress(
            skip=cast("int", split.position.get("rows", 0)), expected=str(split.position.get("checksum", ""))
        )
        self._simple = SimpleReadLoop(name, self._range) if split.spec["kind"] == "simple" else None
        self._idle_since_refresh = -1
        self._passed_refresh = 0
        self._frontier_refresh = 0
        self._prefetch: PrefetchThread[Any] = PrefetchThread(
            f"{name}-{split.split_id}", self._produce, QUEUED_ROWS, _weight
        )

    # ---- on the split's own thread ----

    def _produce(self, stop: threading.Event) -> Iterator[Any]:
        reader = self._make_reader()
        if isinstance(reader, SimpleDataSourceStreamReader) and self._simple is not None:
            return self._simple.items(reader, stop)
        if isinstance(reader, DataSourceStreamReader) and self._simple is None:
            return self._range_items(reader)
        raise DataError(f"source {self._name} gave a {type(reader).__name__} now, and another kind of reader before")

    def _range_items(self, reader: DataSourceStreamReader) -> Iterator[Any]:
        spec = self._split.spec
        partitions = reader.partitions(cast("dict[str, Any]", spec["start"]), cast("dict[str, Any]", spec["end"]))
        if len(partitions) != spec["partitions"]:
            raise self._not_replayable(
                f"partitions({spec['start']}, {spec['end']}) gave {spec['partitions']} partitions first and "
                f"{len(partitions)} now"
            )
        yield from as_iterator(self._name, "read", reader.read(partitions[cast("int", spec["partition"])]))

    # ---- on the subtask's thread ----

    @property
    def idle(self) -> bool:
        """True if the newest read of a simple reader found no rows and began after the last ``refresh``."""
        return self._simple is not None and self._idle_since_refresh >= self._simple.refreshes

    def refresh(self) -> None:
        if self._simple is not None:
            self._simple.request_refresh()

    def begin_frontier(self) -> None:
        if self._simple is not None:
            self._simple.request_refresh()
            self._frontier_refresh = self._simple.refreshes

    def frontier_passed(self) -> bool | None:
        """Return True if all rows of a read that began after ``begin_frontier`` were returned; None for a range."""
        if self._simple is None:
            return None
        return self._passed_refresh >= self._frontier_refresh

    def freeze(self) -> None:
        if self._simple is not None:
            self._simple.freeze()

    def committed(self, splits: Sequence[Split]) -> None:
        """Commit the start of this split's range in a complete snapshot. No row before it is read again."""
        if self._simple is not None:
            for split in splits:
                if split.split_id == self._split.split_id and "start" in split.position:
                    self._simple.commit(split.position["start"])

    @property
    def finished(self) -> bool:
        return self._exhausted() and not self._progress.skip

    def _exhausted(self) -> bool:
        return self._prefetch.finished and not self._items and not self._ready

    def next_batch(self, max_rows: int, max_bytes: int) -> pa.RecordBatch | None:
        """Return the next rows; None if none are available now or the split is finished."""
        if not self._ready:
            self._convert(max_rows)
        while self._ready:
            batch = self._ready.popleft()
            rows = max_rows if not self._progress.skip else min(max_rows, self._progress.skip - self._progress.rows)
            head, _ = first_rows(batch, rows, max_bytes)
            if head.num_rows < batch.num_rows:
                self._ready.appendleft(batch.slice(head.num_rows))
                batch = head
            self._progress.rows += batch.num_rows
            self._progress.checksum.update(batch)
            if not self._progress.skip:
                return batch
            self._check_prefix()
        if self._exhausted():
            self._check_prefix_is_complete()
        return None

    def _convert(self, max_rows: int) -> None:
        """Convert the items before the next marker to batches, so that no batch has rows of two ranges."""
        self._items.extend(self._take(max_rows))
        rows: list[Any] = []
        while self._items:
            item = self._items[0]
            if isinstance(item, Range | Idle):
                if rows:
                    break
                self._items.popleft()
                self._check_prefix_is_complete()
                self._on_marker(item)
            else:
                rows.append(self._items.popleft())
        try:
            self._ready.extend(self._converter.batches(rows, self._progress.rows))
        except PenstockError:
            raise
        except Exception as error:
            raise self._failure(error, traceback.format_exc()) from error

    def _take(self, max_rows: int) -> list[Any]:
        if self._items:
            return []
        try:
            return self._prefetch.take(max_rows)
        except PenstockError:
            raise
        except Exception as error:
            raise self._failure(error, self._prefetch.user_traceback) from error

    def _on_marker(self, item: Range | Idle) -> None:
        """Move the position to the start of a new range. All rows before the marker have been returned."""
        read = item if isinstance(item, Idle) else self._range
        self._passed_refresh = max(self._passed_refresh, read.refreshes)
        if isinstance(item, Idle):
            self._idle_since_refresh = item.refreshes
        else:
            self._idle_since_refresh = -1
        if isinstance(item, Range):
            self._range, self._progress = item, _Progress()
        elif self._range.end is not None:
            self._range, self._progress = Range(self._range.end, None), _Progress()

    def _check_prefix(self) -> None:
        progress = self._progress
        if progress.rows < progress.skip:
            return
        if progress.checksum.hexdigest() != progress.expected:
            raise self._not_replayable(f"the first {progress.skip} rows differ from those read before")
        progress.skip = 0

    def _check_prefix_is_complete(self) -> None:
        progress = self._progress
        if progress.skip:
            raise self._not_replayable(
                f"it yields {progress.rows} rows now where it had yielded {progress.skip} before"
            )

    def split(self) -> Split:
        """Return the split at its current position."""
        progress = self._progress
        if progress.skip:
            return self._split  # the prefix is not checked yet, so the old position remains valid
        position: dict[str, Plain] = {"start": self._range.start} if self._split.spec["kind"] == "simple" else {}
        if progress.rows:
            position |= {"rows": progress.rows, "checksum": progress.checksum.hexdigest()}
            if self._split.spec["kind"] == "simple":
                position["end"] = self._range.end
        return Split(self._split.split_id, self._split.spec, position)

    def close(self) -> None:
        if self._simple is not None:
            self._simple.wake()
        self._prefetch.close()

    def _not_replayable(self, detail: str) -> DataError:
        return DataError(
            f"source {self._name} is not replayable: split {self._split.split_id} between {self._range.start} and "
            f"{self._range.end}: {detail}; reading the same offsets again must yield the same rows in the same order"
        )

    def _failure(self, error: Exception, user_traceback: str) -> FunctionError:
        message = f"{type(error).__name__}: {error}"
        position = f"split {self._split.split_id}, row {self._progress.rows}"
        return FunctionError(f"source {self._name}", message, user_traceback, position)
