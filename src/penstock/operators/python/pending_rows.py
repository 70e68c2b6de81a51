"""Rows whose function results are pending. Batches of results may have other lengths than batches of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from penstock.operators.batches import append_columns


class PendingRows:
    """FIFO queue of rows. ``schema``: schema of the rows with the result column."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: deque[pa.RecordBatch] = deque()

    @property
    def rows(self) -> int:
        """Number of pending rows."""
        return sum(batch.num_rows for batch in self._batches)

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)

    def with_results(self, results: pa.Array) -> Iterator[pa.RecordBatch]:
        """Remove the first rows and yield them with these results as the last column.

        Raises:
            ValueError: there are more results than rows.
        """
        while len(results):
            if not self._batches:
                raise ValueError("the function's iterator yielded more rows than it was given")
            batch = self._batches.popleft()
            rows = min(batch.num_rows, len(results))
            if rows < batch.num_rows:
                self._batches.appendleft(batch.slice(rows))
            head, results = results.slice(0, rows), results.slice(rows)
            yield append_columns(batch.slice(0, rows), [head], self._schema)
