"""One moment of a keyed table, to be written out later and elsewhere, whole or as what changed since an earlier one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.state.restore_point import RestorePoint

KEY_GROUP_COLUMN = "__key_group"
"""First column (int16, ascending) of every keyed state table in a snapshot."""

DELETED_COLUMN = "__deleted"
"""Last column (bool, no nulls) of a delta: True for a tombstone, a key that is not there any more. The value columns of
a tombstone are null; those that may not be are whatever an empty row holds."""


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """A table's schema in a snapshot: ``__key_group`` first."""
    return pa.schema([pa.field(KEY_GROUP_COLUMN, pa.int16(), nullable=False), *schema])


def delta_schema(stored: pa.Schema) -> pa.Schema:
    """The schema of a delta of a table whose ``stored_schema`` is given: ``__deleted`` last."""
    return pa.schema([*stored, pa.field(DELETED_COLUMN, pa.bool_(), nullable=False)])


@dataclass(frozen=True)
class StoredRows:
    """A piece of a table's stored content, as ``TableCapture`` gave it. ``is_delta``: it has ``__deleted`` as its last
    column and changes what earlier pieces say."""

    batch: pa.RecordBatch
    is_delta: bool


class TableCapture(ABC):
    """What a table held at one moment, whatever is written to the table afterwards.

    Taken on the subtask's thread, where it costs milliseconds, however large the table. Everything else may be called
    on one other thread (at a time), while the table is in use: blocks of rows are copied out as they are asked for, and
    none of these calls keeps the table's owner waiting for longer than a few milliseconds.

    Call order: ``base`` and ``delta`` any number of times, in any order; then ``keep`` or ``release``, once (a
    ``release`` after ``keep`` does nothing). The captures of one table may be outstanding several at a time, and
    released in any order. ``close`` of the table releases them all; ``base`` and ``delta`` raise ``RuntimeError`` then.

    Attributes:
        schema: ``stored_schema`` of the table.
        serial: rises with every capture of one table object. 0 stands for what the table began with: empty, or the
            content it was loaded with.
        rows: how many there are.
    """

    schema: pa.Schema
    serial: int
    rows: int

    @abstractmethod
    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """All rows of key groups ``[first, last]`` (both inclusive), by key group ascending, in ``schema``; batches of
        up to some MiB, none empty. Their order within a key group depends on the table's history alone."""

    @abstractmethod
    def changed_since(self, serial: int) -> int | None:
        """An upper bound of the rows, tombstones included, of a delta since that earlier capture of the same table;
        None if the table does not know any more (or cannot tell), so that only a base will do."""

    @abstractmethod
    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Every key of key groups ``[first, last]`` that was written to or removed after capture ``since`` and up to
        this
        one, once: its row as of this moment, or a tombstone. As ``base``, in ``delta_schema(schema)``.

        ``changed_since(since)`` must not be None. A key that was created and removed in between may be a tombstone or
        be left out; one that was written to without a change may be there.
        """

    @abstractmethod
    def forget_before(self) -> None:
        """No delta will be asked for since a capture older than this one, of this or any later capture: what only
        served these may go. May be called after ``release``, too."""

    def keep(self) -> RestorePoint | None:
        """Instead of ``release``: it is written, and the table shall be able to go back to this moment. None: the
        backend cannot, and the capture is released."""
        self.release()
        return None

    @abstractmethod
    def release(self) -> None:
        """It is written, or never will be: the table need not keep anything for it."""


class WholeTable(TableCapture):
    """A table that was put together at once, as a batch sorted by key group. Knows of no changes."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        """``batch``: in a ``stored_schema``, sorted by its first column."""
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
        """Nothing is kept."""

    def release(self) -> None:
        """Let go of the batch."""
        self.__dict__.pop("batch", None)
