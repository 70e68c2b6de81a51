"""Rows gathered to row groups, so that small slices do not make small ones in a file."""

from __future__ import annotations

import pyarrow as pa

ROW_GROUP_ROWS = 1 << 17
"""A row group has this many rows ..."""
ROW_GROUP_BYTES = 32 << 20
"""... unless their Arrow bytes reach this: what a writer holds in memory is bounded."""


class RowGroup:
    """Builder of the next row group.

    Attributes:
        rows, bytes: of the batches gathered so far, in Arrow's form.
    """

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        """Return True if it has a batch, which may be empty."""
        return bool(self._batches)

    def is_full(self, most_rows: int = ROW_GROUP_ROWS) -> bool:
        """Return True if it has ``most_rows``, or as many bytes as a row group may have."""
        return self.rows >= most_rows or self.bytes >= ROW_GROUP_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch. All batches have the same schema."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def take(self) -> pa.Table:
        """Return the gathered rows, of at least one batch, and start again empty."""
        table = pa.Table.from_batches(self._batches)
        self._batches, self.rows, self.bytes = [], 0, 0
        return table
