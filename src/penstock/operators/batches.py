"""Functions that build and split record batches, including batches without columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa


def make_batch(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows, also if the schema has no columns.

    Spark prunes all columns before ``groupBy().count()``, but such a batch still has rows.
    """
    if len(schema) == 0:
        return pa.record_batch([pa.nulls(rows)], names=["_"]).select([])  # keeps the number of rows
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def pieces(rows: int, at_most: int) -> Iterator[tuple[int, int]]:
    """Yield the start and length of each piece of at most ``at_most`` rows.

    If ``at_most`` is 0 or less, all rows are one piece, as in Spark. Zero rows are one piece.
    """
    size = at_most if at_most > 0 else max(rows, 1)
    for first in range(0, max(rows, 1), size):
        yield first, min(size, rows - first)


def first_rows(batch: pa.RecordBatch, most_rows: int, most_bytes: int) -> tuple[pa.RecordBatch, int]:
    """Return the first rows of a batch, and their size in bytes.

    The result has at least one row; further rows are within both limits. It may have fewer rows than would fit: the
    number is estimated and halved until the rows fit, because slicing and measuring cost microseconds per column.
    """
    if batch.num_rows > most_rows:
        batch = batch.slice(0, most_rows)
    size = batch.nbytes
    if size <= most_bytes:
        return batch, size
    rows = batch.num_rows * most_bytes // size
    while rows > 1 and batch.slice(0, rows).nbytes > most_bytes:
        rows //= 2
    head = batch.slice(0, max(1, rows))
    return head, head.nbytes


def append_columns(batch: pa.RecordBatch, columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with ``columns`` appended. ``schema`` is the schema of the result."""
    return make_batch([*batch.columns, *columns], schema, batch.num_rows)
