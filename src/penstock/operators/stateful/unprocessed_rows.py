"""Unprocessed rows of a slice, which a snapshot in the middle of a slice stores as state.

They are not in a keyed table. A snapshot refers to their immutable batch. They are sorted by key group only when they
are written, so that they never delay the subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptSnapshot
from penstock.state.hashing import key_groups
from penstock.state.table import StoredRows, TableCapture

_AT_ONCE = 8192


class UnprocessedRowsCapture(TableCapture):
    """Capture of unprocessed rows. A delta is possible only if there were no rows before and there are none now.

    Args:
        table: the captured table.
        serial: serial of the capture.
        empty_since: serial of the first capture since which there have been no rows; None if there are rows.
        batch: the rows; None if there are none.
    """

    def __init__(
        self, table: UnprocessedRows, serial: int, empty_since: int | None, batch: pa.RecordBatch | None
    ) -> None:
        self.schema = table.schema
        self.serial = serial
        self.rows = 0 if batch is None else batch.num_rows
        self._keys, self._max_parallelism = table.keys, table.max_parallelism
        self._empty_since = empty_since
        self._batch = batch

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        batch = self._batch
        if batch is None:
            return
        groups = key_groups(batch, self._keys, self._max_parallelism)
        order = np.argsort(groups, kind="stable")
        order = order[slice(*np.searchsorted(groups[order], [first, last + 1]))]
        for begin in range(0, len(order), _AT_ONCE):
            indices = order[begin : begin + _AT_ONCE]
            rows = batch.take(pa.array(indices))
            keys = [rows.column(position) for position in self._keys]
            columns = [pa.array(groups[indices]), *keys, pa.array(indices, pa.int64()), *rows.columns]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def changed_since(self, serial: int) -> int | None:
        return 0 if self._empty_since is not None and serial >= self._empty_since else None

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        return iter(())

    def forget_before(self) -> None:
        """Do nothing: no changes are recorded."""

    def release(self) -> None:
        """Release the rows."""
        self._batch = None


class UnprocessedRows:
    """Table of the unprocessed rows of one subtask.

    Attributes:
        schema: schema of the table in a snapshot.
        keys: positions of the grouping-key columns in the input.
        rows: schema of the input.
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[int], rows: pa.Schema, max_parallelism: int) -> None:
        self.schema = schema
        self.keys = list(keys)
        self.rows = rows
        self.max_parallelism = max_parallelism
        self._serial = 0
        self._empty_since: int | None = 0

    def capture(self, batch: pa.RecordBatch | None) -> TableCapture:
        """Capture these input rows, with their order. None: there are no rows."""
        self._serial += 1
        if batch is not None:
            self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = self._serial
        return UnprocessedRowsCapture(self, self._serial, self._empty_since, batch)

    def restored(self, pieces: Iterable[StoredRows]) -> pa.RecordBatch | None:
        """Return the rows of a snapshot; None if there are none.

        The rows of one subtask keep their order. Rows of different subtasks are interleaved.

        Raises:
            CorruptSnapshot: a piece is a delta. The table is never stored as a delta.
        """
        batches = []
        for piece in pieces:
            if piece.is_delta:
                raise CorruptSnapshot("rows that wait are stored as changes of others; restore from another snapshot")
            batches.append(piece.batch)
        if not any(batch.num_rows for batch in batches):
            return None
        self._empty_since = None
        [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
        position = 1 + len(self.keys)
        order = np.argsort(whole.column(position).to_numpy(), kind="stable")
        return pa.RecordBatch.from_arrays(whole.columns[position + 1 :], schema=self.rows).take(pa.array(order))
