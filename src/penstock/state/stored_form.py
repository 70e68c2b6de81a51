"""Stored form of a keyed table: its schema in a snapshot, and a capture that consists of one batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.state.table import TableCapture

KEY_GROUP_COLUMN = "__key_group"
"""First column (int16, ascending) of every keyed state table in a snapshot."""

DELETED_COLUMN = "__deleted"
"""Last column (bool, no nulls) of a delta: True for a tombstone, which represents a removed key. The value columns of a
tombstone are null; columns that are not nullable have default values."""


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """Return a table's schema in a snapshot: ``__key_group``, then the table's columns."""
    return pa.schema([pa.field(KEY_GROUP_COLUMN, pa.int16(), nullable=False), *schema])


def delta_schema(stored: pa.Schema) -> pa.Schema:
    """Return the schema of a delta: the columns of the ``stored_schema``, then ``__deleted``."""
    return pa.schema([*stored, pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)])


class BatchCapture(TableCapture):
    """Capture whose content is one batch. It does not support deltas.

    Args:
        batch: rows in a ``stored_schema``, sorted by key group.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        if batch.schema.names[:1] != [KEY_GROUP_COLUMN]:
            raise ValueError(f"a state table does not begin with {KEY_GROUP_COLUMN}: {batch.schema.names}")
        self.batch = batch
        self.schema = batch.schema
        self.serial = 0
        self.rows = batch.num_rows

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        groups = self.batch.column(0).to_numpy(zero_copy_only=False)
        start, stop = groups.searchsorted(first, "left"), groups.searchsorted(last, "right")
        if start < stop:
            yield self.batch.slice(start, stop - start)

    def changed_since(self, serial: int) -> int | None:
        return None

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError("a whole table has no deltas: changed_since says so")

    def forget_before(self) -> None:
        """Do nothing: there are no changes."""

    def release(self) -> None:
        """Release the batch."""
        self.__dict__.pop("batch", None)
