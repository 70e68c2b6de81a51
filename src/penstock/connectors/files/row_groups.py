"""Gathering of rows into row groups, so that small batches do not become small row groups of a file."""

from __future__ import annotations

import pyarrow as pa

ROW_GROUP_ROWS = 1 << 17
"""Number of rows of a row group, unless ``ROW_GROUP_BYTES`` is reached before."""
ROW_GROUP_BYTES = 32 << 20
"""Limit for the size of a row group in Arrow's format, to bound the memory of a writer."""


class RowGroup:
    """Builder of the next row group.

    Attributes:
        rows, bytes: number of rows gathered so far, and their size in Arrow's format.
    """

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        """Return True if a batch was added, even an empty one."""
        return bool(self._batches)

    def is_full(self, most_rows: int = ROW_GROUP_ROWS) -> bool:
        """Return True if the group has ``most_rows`` rows or ``ROW_GROUP_BYTES`` bytes."""
        return self.rows >= most_rows or self.bytes >= ROW_GROUP_BYTES

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch. All batches must have the same schema."""
        self._batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    def take(self) -> pa.Table:
        """Return the gathered rows and start an empty group. At least one batch must have been added."""
        table = pa.Table.from_batches(self._batches)
        self._batches, self.rows, self.bytes = [], 0, 0
        return table
