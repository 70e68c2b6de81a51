"""Commit messages with rows: one Arrow IPC stream, with the schema with which the rows were produced."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.errors import SinkError

MERGED_ROWS = 4096
"""Smaller batches are merged until they have this many rows.

The fixed cost of a batch is as high as the cost of several hundred rows.
"""


class RowsMessage:
    """Builder of a message with the rows of one epoch, in order.

    Rows are encoded when they are added, not at the end of the epoch, because the input waits at that time.

    Args:
        schema: schema of the rows. Batches may have other column names.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = pa.BufferOutputStream()
        self._stream = pa.ipc.new_stream(self._sink, schema)
        self._small: list[pa.RecordBatch] = []
        self._small_rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        named = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        if named.num_rows >= MERGED_ROWS:
            self._encode()
            self._stream.write_batch(named)
            return
        self._small.append(named)
        self._small_rows += named.num_rows
        if self._small_rows >= MERGED_ROWS:
            self._encode()

    def finish(self) -> bytes:
        """Return the message. Call it once, after the last ``add``."""
        self._encode()
        self._stream.close()
        return bytes(self._sink.getvalue())

    def _encode(self) -> None:
        batches, self._small, self._small_rows = self._small, [], 0
        if batches:
            self._stream.write_batch(pa.concat_batches(batches))


def decode_rows(messages: Mapping[int, bytes]) -> pa.Table:
    """Return the rows of an epoch, in the order of its subtasks.

    Args:
        messages: the epoch's messages by subtask, at least one.

    Raises:
        SinkError: a message has another format, or its columns differ from those of the other messages.
    """
    try:
        return pa.concat_tables([_table(message) for _, message in sorted(messages.items())])
    except (pa.ArrowException, OSError) as error:
        raise SinkError(f"a stored commit message holds no rows of this sink: {error!s:.200}") from error


def _table(message: bytes) -> pa.Table:
    with pa.ipc.open_stream(message) as reader:
        return reader.read_all()


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)
