"""The slot's side of a Python data source: user code on a thread, positions verified by checksum."""

from __future__ import annotations

import json
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.connectors.base import SourceReader, Split
from penstock.connectors.pump import Pump
from penstock.connectors.python_rows import RowConverter
from penstock.connectors.row_checksum import RowChecksum
from penstock.errors import DataError, FunctionError, PenstockError
from penstock.operators.base import Plain

QUEUED_ROWS = 16_384
"""Rows that user code may be ahead of the query. A RecordBatch counts by its bytes; a larger one waits alone."""
ROW_BYTES = 256
"""What a row of Python objects takes, roughly."""
IDLE_PAUSE_S = 0.1
"""How long a simple reader that had nothing new is left alone."""

StreamReader: TypeAlias = DataSourceStreamReader | SimpleDataSourceStreamReader


@dataclass(frozen=True)
class _Range:
    """The rows that follow lie between these offsets (simple readers)."""

    start: Plain
    end: Plain


@dataclass(frozen=True)
class _Idle:
    """The simple reader has nothing new."""


def _weight(item: Any) -> int:
    return max(1, item.nbytes // ROW_BYTES) if isinstance(item, pa.RecordBatch) else 1


class PythonSourceReader(SourceReader):
    """Reads one split after the other.

    Args:
        name: of the source, for messages.
        make_reader: the user's reader, one per split; called on that split's thread.
        schema: Arrow schema of the rows.
        spark_schema: the same as PySpark types.
    """

    def __init__(
        self, name: str, make_reader: Callable[[], StreamReader], schema: pa.Schema, spark_schema: StructType
    ) -> None:
        self._name = name
        self._make_reader = make_reader
        self._converter = RowConverter(name, schema, spark_schema)
        self._waiting: deque[Split] = deque()
        self._current: _OpenSplit | None = None

    def add_split(self, split: Split) -> None:
        self._waiting.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        while self._current is not None or self._waiting:
            if self._current is None:
                self._current = _OpenSplit(self._waiting.popleft(), self._name, self._make_reader, self._converter)
            batch = self._current.next_batch(max_rows)
            if batch is not None:
                return batch
            if not self._current.finished:
                return None
            self._current.close()
            self._current = None
        return None

    def snapshot(self) -> Sequence[Split]:
        current = () if self._current is None or self._current.finished else (self._current.split(),)
        return (*current, *self._waiting)

    def caught_up(self) -> bool:
        return not self._waiting and (self._current is None or self._current.idle)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


@dataclass
class _Progress:
    """``rows`` rows seen since the start; on a replay the first ``skip`` are only checked, against ``expected``."""

    rows: int = 0
    checksum: RowChecksum = field(default_factory=RowChecksum)
    skip: int = 0
    expected: str = ""


class _OpenSplit:
    """One split being read: its thread, the rows converted but not yet returned, and how far it came."""

    def __init__(
        self, split: Split, name: str, make_reader: Callable[[], StreamReader], converter: RowConverter
    ) -> None:
        self._split = split
        self._name = name
        self._make_reader = make_reader
        self._converter = converter
        self._ready: deque[pa.RecordBatch] = deque()
        self._items: deque[Any] = deque()
        self._range = _Range(
            split.position.get("start", split.spec["start"]), split.position.get("end", split.spec.get("end"))
        )
        self._progress = _Progress(
            skip=cast("int", split.position.get("rows", 0)), expected=str(split.position.get("checksum", ""))
        )
        self.idle = False
        self._pump: Pump[Any] = Pump(f"{name}-{split.split_id}", self._produce, QUEUED_ROWS, _weight)

    # ---- on the split's own thread ----

    def _produce(self, stop: threading.Event) -> Iterator[Any]:
        reader = self._make_reader()
        if isinstance(reader, SimpleDataSourceStreamReader):
            return self._simple_items(reader, stop)
        return self._range_items(reader)

    def _range_items(self, reader: DataSourceStreamReader) -> Iterator[Any]:
        spec = self._split.spec
        partitions = reader.partitions(cast("dict[str, Any]", spec["start"]), cast("dict[str, Any]", spec["end"]))
        if len(partitions) != spec["partitions"]:
            raise self._not_replayable(
                f"partitions({spec['start']}, {spec['end']}) gave {spec['partitions']} partitions first and "
                f"{len(partitions)} now"
            )
        yield from reader.read(partitions[cast("int", spec["partition"])])

    def _simple_items(self, reader: SimpleDataSourceStreamReader, stop: threading.Event) -> Iterator[Any]:
        start, end = cast("dict[str, Any]", self._range.start), cast("dict[str, Any] | None", self._range.end)
        if end is not None:
            yield from reader.readBetweenOffsets(start, end)
            start = end
        while not stop.is_set():
            rows, after = reader.read(start)
            after = json.loads(json.dumps(after))
            if after == start:
                if next(iter(rows), None) is not None:
                    raise DataError(f"source {self._name} returned rows at {start} without a new end offset")
                yield _Idle()
                stop.wait(IDLE_PAUSE_S)
                continue
            yield _Range(start, after)
            yield from rows
            start = after

    # ---- on the subtask's thread ----

    @property
    def finished(self) -> bool:
        return self._exhausted() and not self._progress.skip

    def _exhausted(self) -> bool:
        return self._pump.finished and not self._items and not self._ready

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        """The next rows that are there; None if there are none now or the split is finished."""
        if not self._ready:
            self._convert(max_rows)
        while self._ready:
            batch = self._ready.popleft()
            wanted = max_rows if not self._progress.skip else min(max_rows, self._progress.skip - self._progress.rows)
            if batch.num_rows > wanted:
                self._ready.appendleft(batch.slice(wanted))
                batch = batch.slice(0, wanted)
            self._progress.rows += batch.num_rows
            self._progress.checksum.update(batch)
            if not self._progress.skip:
                return batch
            self._end_of_prefix()
        if self._exhausted():
            self._check_prefix_is_complete()
        return None

    def _convert(self, max_rows: int) -> None:
        """Items up to the next change of range become batches; rows of two ranges never meet in one."""
        self._items.extend(self._take(max_rows))
        rows: list[Any] = []
        while self._items:
            item = self._items[0]
            if isinstance(item, _Range | _Idle):
                if rows:
                    break
                self._items.popleft()
                self._check_prefix_is_complete()
                self._turn_to(item)
            else:
                self.idle = False
                rows.append(self._items.popleft())
        try:
            self._ready.extend(self._converter.batches(rows))
        except PenstockError:
            raise
        except Exception as error:
            raise self._failure(error, traceback.format_exc()) from error

    def _take(self, max_rows: int) -> list[Any]:
        if self._items:
            return []
        try:
            return self._pump.take(max_rows)
        except PenstockError:
            raise
        except Exception as error:
            raise self._failure(error, self._pump.user_traceback) from error

    def _turn_to(self, item: _Range | _Idle) -> None:
        self.idle = isinstance(item, _Idle)
        if isinstance(item, _Range):
            self._range = item
            self._progress = _Progress()

    def _end_of_prefix(self) -> None:
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
        """The split at its present position."""
        progress = self._progress
        if progress.skip:
            return self._split  # still in the prefix: the old position holds
        position: dict[str, Plain] = {"start": self._range.start} if self._split.spec["kind"] == "simple" else {}
        if progress.rows:
            position |= {"rows": progress.rows, "checksum": progress.checksum.hexdigest()}
            if self._split.spec["kind"] == "simple":
                position["end"] = self._range.end
        return Split(self._split.split_id, self._split.spec, position)

    def close(self) -> None:
        self._pump.close()

    def _not_replayable(self, detail: str) -> DataError:
        return DataError(
            f"source {self._name} is not replayable: split {self._split.split_id} between {self._range.start} and "
            f"{self._range.end}: {detail}; reading the same offsets again must yield the same rows in the same order"
        )

    def _failure(self, error: Exception, user_traceback: str) -> FunctionError:
        message = f"{type(error).__name__}: {error}"
        position = f"split {self._split.split_id}, row {self._progress.rows}"
        return FunctionError(f"source {self._name}", message, user_traceback, position)
