"""Commit messages that carry rows: one Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def encode_rows(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_rows(message: bytes) -> pa.Table:
    with pa.ipc.open_stream(message) as reader:
        return reader.read_all()


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)
