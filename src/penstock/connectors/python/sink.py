"""Sink of a ``pyspark.sql.datasource.DataSource`` with a ``streamWriter``.

These writers commit in two phases: ``write`` in the tasks returns a message, and ``commit(messages, batchId)`` on the
driver makes the batch visible. Here a batch is an epoch with rows. ``write`` is called once in each subtask that has
rows, and ``batchId`` is the epoch's batch id (docs/batch-ids.md). Epochs without rows are not committed, except in
complete mode.

``abort`` is never called. Spark calls it when tasks of a micro-batch failed, with the messages of the other tasks, and
then repeats the batch with the same number. Here a message becomes part of a snapshot as soon as it exists. Messages
that are in no complete snapshot are lost. All other messages are committed, repeatedly if necessary, with the same
messages and ``batchId``. The user must clean up data that a ``write`` staged and that is never committed, as after a
kill of Spark's driver. If a slot ends normally during a ``write``, the ``finally`` blocks of ``write`` run.

If the query was edited while a batch was pending, ``commit`` is called on a writer that ``streamWriter`` created for
the schema with which the rows were written.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.connectors.arrow_message import empty_batch
from penstock.connectors.base import COLUMNS_NOT_STORED, FenceOpener, Sink, SinkCommitter, SinkContext, SinkWriter
from penstock.connectors.python.commit_messages import decode_message, encode_message
from penstock.connectors.python.fence_cell import FenceCell, FencedWriter
from penstock.connectors.python.signed import load_key
from penstock.connectors.row_columns import columns_of_epoch, parsed_columns
from penstock.connectors.spark.rows import to_rows
from penstock.errors import CommitFailed, CommitInterrupted, DataError, FunctionError, SinkError
from penstock.logs import get_logger
from penstock.model.commits import EpochCommit, LogPosition
from penstock.operators.python.user_code import to_session_zone, user_errors
from penstock.operators.python.user_iterator import UserIterator

log = get_logger(__name__)


class PythonSink(Sink):
    """Sink that writes to a data source of the user.

    Args:
        name: short name of the data source, for messages.
        factory: the DataSource class (called with the options), or a function without arguments that creates a
            DataSource.
        options: options of the writer. The user gets them with case-insensitive keys, as in Spark.
        schema: the Arrow schema of the rows.
        spark_schema_json: the same schema as ``StructType.json()``.
        overwrite: argument of ``streamWriter``, as in Spark (True for complete mode).
        time_zone: time zone of the session, for timestamps in RecordBatches.
    """

    target_is_unknown = True

    def __init__(
        self,
        name: str,
        factory: type[DataSource] | Callable[[], DataSource],
        options: Mapping[str, str],
        schema: pa.Schema,
        spark_schema_json: str,
        overwrite: bool = False,
        time_zone: str = "UTC",
    ) -> None:
        self.name = name
        self.schema = schema
        self.time_zone = time_zone
        # Slots sign messages with this key, and the driver verifies them. The key is sent in the task and never stored.
        self.key = load_key()
        self._factory = factory
        self._options = dict(options)
        self.columns = spark_schema_json
        self._overwrite = overwrite

    def describe(self) -> str:
        return f"PythonDataSourceV2[{self.name}]"

    def create_writer(self) -> SinkWriter:
        return _PythonSinkWriter(self)

    def create_committer(self) -> SinkCommitter:
        return _PythonSinkCommitter(self)

    def spark_schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.columns))

    def make_writer(self, columns: str, operator: str = "") -> DataSourceStreamWriter:
        """Create the user's writer for rows with these columns (``row_columns``).

        Args:
            operator: name of the operator in errors; empty: the name of the sink.

        Raises:
            FunctionError: user code raised.
            DataError: user code did not return a stream writer.
            SinkError: the columns cannot be decoded.
        """
        schema = parsed_columns(columns, self.columns)
        with user_errors(operator or f"sink {self.name}"):
            if isinstance(self._factory, type):
                source = self._factory(options=cast("dict[str, str]", CaseInsensitiveDict(self._options)))
            else:
                source = self._factory()
            writer = source.streamWriter(schema, self._overwrite)
        if not isinstance(writer, DataSourceStreamWriter):
            raise DataError(f"sink {self.name}: streamWriter returned a {type(writer).__name__}")
        return writer


class _PythonSinkWriter(SinkWriter):
    def __init__(self, sink: PythonSink) -> None:
        self._sink = sink
        self._context = SinkContext("", 0, 0, 0, "")
        self._operator = ""
        self._writer: DataSourceStreamWriter | None = None
        self._call: UserIterator[pa.RecordBatch, Any] | None = None
        self._returned: list[Any] = []

    def open(self, context: SinkContext) -> None:
        self._context = context
        self._operator = f"{context.operator_id} (sink {self._sink.name})"

    def write(self, batch: pa.RecordBatch) -> None:
        if self._call is None:
            self._writer = self._writer or self._sink.make_writer(self._sink.columns, self._operator)
            self._call = UserIterator(self._write_epoch)
        with user_errors(self._operator):
            self._returned += self._call.feed(pa.RecordBatch.from_arrays(batch.columns, schema=self._sink.schema))

    def replace(self) -> None:
        """Call ``write`` also for an empty result. It gets no rows, or one empty RecordBatch."""
        if self._call is None:
            self.write(empty_batch(self._sink.schema))

    def prepare(self, epoch: int) -> bytes | None:
        if self._call is None:
            return None
        with user_errors(self._operator):
            self._returned += self._call.finish()
        (message,), self._returned, self._call = self._returned, [], None
        if not isinstance(message, WriterCommitMessage):
            raise SinkError(
                f"sink {self._sink.name}: write returned a {type(message).__name__}, not a WriterCommitMessage"
            )
        return encode_message(message, self._sink.key, self._context.query_id, epoch, self._sink.columns)

    def close(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            with user_errors(self._operator):
                call.close()

    def _write_epoch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        assert self._writer is not None
        if isinstance(self._writer, DataSourceStreamArrowWriter):
            yield self._writer.write(_in_session_zone(batch, self._sink.time_zone) for batch in batches)
        else:
            schema = self._sink.spark_schema()
            yield self._writer.write(row for batch in batches for row in to_rows(batch, schema))


def _in_session_zone(batch: pa.RecordBatch, time_zone: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([to_session_zone(c, time_zone) for c in batch.columns], names=batch.schema.names)


class _PythonSinkCommitter(SinkCommitter):
    def __init__(self, sink: PythonSink) -> None:
        self._sink = sink
        self._writers: dict[str, DataSourceStreamWriter] = {}
        """Writers, by the columns of the rows."""
        self._fence: FenceCell | None = None
        self._lock = threading.Lock()
        """Held while a position is recorded, and until the commit that relies on it has ended."""

    def open(self, query_id: str) -> None:
        writer = self._writer(self._sink.columns)
        methods = [hasattr(writer, name) for name in ("readFence", "replaceFence")]
        if any(methods) and not all(methods):
            raise SinkError(f"sink {self._sink.name}: the writer has readFence or replaceFence; a fence needs both")
        if isinstance(writer, FencedWriter):
            self._fence = FenceCell(self._fenced_writer, query_id, f"sink {self._sink.name}")

    def check_pending(self, permit: EpochCommit, same_columns: bool) -> None:
        messages = self._decoded(permit)
        if not same_columns and not all(columns for _, columns in messages):
            raise SinkError(COLUMNS_NOT_STORED)
        self._writer(columns_of_epoch((columns for _, columns in messages), self._sink.columns))

    def check_fence(self, opener: FenceOpener) -> bool:
        return self._fence is None or self._fence.check(opener)

    def written_from(self) -> str:
        return "" if self._fence is None else self._fence.written_from()

    def fence(self, opener: FenceOpener) -> str:
        return "" if self._fence is None else self._fence.open(opener)

    def hold(self, position: LogPosition, next_batch: int = 0) -> None:
        with self._lock:
            self._record(position, next_batch)

    def _record(self, position: LogPosition, next_batch: int) -> bytes | None:
        if self._fence is None:
            return None
        try:
            return self._fence.record(position, next_batch)
        except FunctionError as error:
            self._writers.clear()
            raise CommitFailed(str(error)) from error

    def next_batch(self) -> int:
        return 0 if self._fence is None else self._fence.next_batch

    def check_held(self) -> None:
        try:
            if self._fence is not None and self._fence.is_lost():
                raise self._fence.lost()
        except FunctionError as error:
            self._writers.clear()
            log.warning("%s; the fence is read again before the next commit", error)

    def commit(self, permit: EpochCommit) -> None:
        if not permit.messages:
            return
        try:
            messages = self._decoded(permit)
            columns = columns_of_epoch((columns for _, columns in messages), self._sink.columns)
            writer = self._writer(columns)
        except (SinkError, FunctionError) as error:
            raise CommitFailed(f"sink {self._sink.name}, epoch {permit.epoch}: {error}") from error
        with self._lock:
            self._commit(writer, [message for message, _ in messages], permit)

    def _commit(self, writer: DataSourceStreamWriter, messages: list[WriterCommitMessage], permit: EpochCommit) -> None:
        if permit.position is not None and (value := self._record(permit.position, permit.batch + 1)) is not None:
            writer.fence = value
        try:
            writer.commit(messages, permit.batch)
        except Exception as error:
            self._writers.clear()  # the writer's state may be broken; the next driver would also create a new writer
            self.check_held()
            raise CommitInterrupted(
                f"sink {self._sink.name}: commit of batch {permit.batch} raised {type(error).__name__}: {error}; it "
                "is called again with the same batchId and messages"
            ) from error

    def _decoded(self, permit: EpochCommit) -> list[tuple[WriterCommitMessage, str]]:
        return [
            decode_message(data, self._sink.key, permit.query_id, permit.epoch)
            for _, data in sorted(permit.messages.items())
        ]

    def _fenced_writer(self) -> FencedWriter:
        return cast("FencedWriter", self._writer(self._sink.columns))

    def _writer(self, columns: str) -> DataSourceStreamWriter:
        if columns not in self._writers:
            self._writers[columns] = self._sink.make_writer(columns)
        return self._writers[columns]
