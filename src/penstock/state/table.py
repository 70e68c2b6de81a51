"""Keyed state tables: the interface between operators and state backends.

A table maps each key (several columns, of any type that Spark can group by) to one row of values. A backend has only
the working copy. Snapshots store the same content for all backends, so that a snapshot of one can be restored on
another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from penstock.state.vector import Mask, Rows, Vector

NO_ROW = -1
"""Value in ``TableRows.rows`` for a key without a row."""


@dataclass(frozen=True)
class TableSpec:
    """Specification of a table.

    Attributes:
        schema: key columns, then value columns.
        key_count: number of key columns; 0: the table has at most one row.
        max_parallelism: the number of key groups.
        initial_values: initial raw values (see ``Vector``) of a new row, by value column. The values are null until
            they are written. None: zeros.
        key_group_columns: number of leading key columns that determine the key group: the keys of the edge on which
            the rows arrive. None: all key columns.
        event_time: path to the event time of a row, a timestamp or a long in the unit of ``take_due``. The path is the
            position of a key column, then positions of struct fields; or the position, in ``schema``, of a value
            column. Rows with a null event time are never due.
        prefix: number of leading key columns for ``find_by_prefix``, less than ``key_count``; 0 if it is never called.
        indexes_keys: True if whole keys are looked up regularly. Otherwise their index is built at the first lookup,
            which takes about 0.2 s for a million rows.
        keeps_arrays: True to keep values as Arrow arrays that would be Python objects otherwise. It suits operators
            that move values without reading single values.
        marks_changes: True if the first value column (bool) marks the rows that were written since they were last
            taken. ``edit`` sets marks, ``take_marked`` and ``clear_marks`` clear them. Marks are part of the stored
            content.
    """

    schema: pa.Schema
    key_count: int
    max_parallelism: int
    initial_values: tuple[object, ...] | None = None
    key_group_columns: int | None = None
    event_time: tuple[int, ...] | None = None
    marks_changes: bool = False
    prefix: int = 0
    indexes_keys: bool = True
    keeps_arrays: bool = False

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(position) for position in range(self.key_count)])

    @property
    def timed_value(self) -> int | None:
        """Index of the value column with the event time; None if it is in a key column or there is no event time."""
        if self.event_time is None or self.event_time[0] < self.key_count:
            return None
        return self.event_time[0] - self.key_count

    @property
    def value_fields(self) -> list[pa.Field]:
        return [self.schema.field(position) for position in range(self.key_count, len(self.schema))]


@dataclass(frozen=True)
class TableRows:
    """Some rows of a table.

    Attributes:
        rows: for each row its index in the vectors of ``values``. ``edit`` and ``find`` return one index per requested
            key: equal keys have the same index, and a key without a row has ``NO_ROW``.
        values: the value columns. Vectors may be longer than ``rows``. Only vectors from ``edit`` may be written, and
            only at ``rows``.
        keys: the key columns, one value per element of ``rows``. Results of ``edit`` and ``find`` have no key columns,
            because the caller has the keys.
        marked: True for marked rows. None in results of ``edit`` and ``find``, and if the table has no marks.
    """

    rows: Rows
    values: Sequence[Vector]
    keys: Sequence[pa.Array] = ()
    marked: Mask | None = None


@dataclass(frozen=True)
class StoredRows:
    """Part of a table's stored content, from a ``TableCapture``.

    Attributes:
        batch: rows in the stored schema.
        is_delta: the last column is ``__deleted``, and the rows change those of earlier parts.
    """

    batch: pa.RecordBatch
    is_delta: bool


class TableCapture(ABC):
    """Content of a table at one moment. Later writes to the table do not change it.

    It is created on the subtask's thread, which takes milliseconds for a table of any size. All methods may be called
    on one other thread at a time while the table is in use. They copy blocks of rows on demand. No method blocks the
    table's owner for longer than a few milliseconds.

    Call order: ``base`` and ``delta`` any number of times, in any order; then ``keep`` or ``release`` once (a
    ``release`` after ``keep`` does nothing). A table may have several captures, which may be released in any order.
    ``close`` of the table releases all of them; ``base`` and ``delta`` then raise ``RuntimeError``.

    Attributes:
        schema: ``stored_schema`` of the table.
        serial: number of the capture, which rises for one table object. 0 is the initial content: empty or loaded.
        rows: number of rows.
    """

    schema: pa.Schema
    serial: int
    rows: int

    @abstractmethod
    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows of key groups ``[first, last]`` (both inclusive) in ``schema``, by ascending key group.

        Batches have up to a few MiB and are never empty. The order within a key group depends only on the table's
        history.
        """

    @abstractmethod
    def changed_since(self, serial: int) -> int | None:
        """Return an upper bound for the rows, including tombstones, of a delta since an earlier capture of this table.

        Return None if the table does not know these changes, or no longer knows them. Then only a base is possible.
        """

    @abstractmethod
    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """Yield each key of key groups ``[first, last]`` that was written or removed since capture ``since``.

        For each key there is its row at this capture, or a tombstone. Batches are like those of ``base``, in
        ``delta_schema(schema)``. A key that was created and removed in between may have a tombstone or be left out. A
        key that was written without a change may be included. ``changed_since(since)`` must not be None.
        """

    @abstractmethod
    def forget_before(self) -> None:
        """Release data that only deltas since older captures need.

        After this call no such delta may be requested from this or a later capture. May be called after ``release``.
        """

    def keep(self) -> RestorePoint | None:
        """Keep the capture after it is written, instead of releasing it, so that the table can be restored to it.

        Returns:
            The restore point. None if the backend does not support restore points; the capture is then released.
        """
        self.release()
        return None

    @abstractmethod
    def release(self) -> None:
        """Release the capture after it is written or when it is not needed."""


class RestorePoint(ABC):
    """Content of a table that ``TableCapture.keep`` keeps after the table's ``close``.

    Call ``restore`` or ``release`` once, on any thread; before ``restore`` the table's own thread must have stopped
    using the table. A table may have several restore points. ``restore`` invalidates the others.
    """

    @abstractmethod
    def restore(self) -> KeyedTable | None:
        """Return the table with its content at the capture. This content is its new capture 0, as after ``load``.

        Return None if the restore point was discarded because too many rows had changed.
        """

    @abstractmethod
    def release(self) -> None:
        """Release the restore point. Idempotent."""


class KeyedTable(ABC):
    """Table of keyed state. It is owned by its subtask's thread; only captures are read on other threads.

    Keys are equal as in Spark: null equals null, NaN equals NaN, and -0.0 equals 0.0, also inside structs and arrays.
    Returned keys have normalized floats. Key columns may be of any fixed-width type, decimals, strings, binaries, and
    structs and arrays of these. Values may be of any Arrow type that Spark knows, including nested ones.

    Every method leaves the table consistent for a capture: a row that was taken is no longer in it.
    """

    spec: TableSpec

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Estimate of the memory in use, in bytes, without rows that the backend stores elsewhere."""

    @abstractmethod
    def edit(self, keys: Sequence[pa.Array], count: int) -> AbstractContextManager[TableRows]:
        """Return the rows of keys for changes in the ``with`` block. Absent keys get new rows (see ``initial_values``).

        Changes take effect when the block ends. If it raises, the contents of these rows are undefined. Do not call
        other methods in the block.

        Args:
            keys: the key columns, each of length ``count``; a key may occur several times.
            count: their length.
        """

    def add(self, keys: Sequence[pa.Array], values: Sequence[pa.Array], count: int) -> None:
        """Add rows of absent keys. This is faster than ``edit``.

        Args:
            keys: the key columns, each of length ``count``; distinct, and absent from the table, which has no marks.
            values: the value columns.
            count: their length.
        """
        assert not self.spec.marks_changes
        with self.edit(keys, count) as new:
            for vector, column in zip(new.values, values, strict=True):
                vector.set(new.rows, column)

    @abstractmethod
    def find(self, keys: Sequence[pa.Array], count: int) -> TableRows:
        """Return the rows of keys, with ``NO_ROW`` for absent ones. Read them before the next call."""

    @abstractmethod
    def find_by_prefix(self, prefixes: Sequence[pa.Array], count: int) -> tuple[Rows, TableRows]:
        """Return all rows whose keys start with one of the prefixes (``TableSpec.prefix``), in any order.

        Args:
            prefixes: the leading key columns, each of length ``count``; distinct.
            count: their length.

        Returns:
            For each row the index of its prefix, and the rows. Read them before the next call.
        """

    @abstractmethod
    def remove(self, keys: Sequence[pa.Array], count: int) -> int:
        """Remove the rows of keys, which may be absent or repeated. Return the number of removed rows."""

    @abstractmethod
    def take_due(self, until_us: int, batch_rows: int) -> Iterator[TableRows]:
        """Remove and yield the rows with an event time up to ``until_us``, by ascending event time.

        Each step yields at most ``batch_rows`` rows, which are removed just before. Between the steps only captures are
        allowed. It costs almost nothing if no row is due. The order of rows with equal times depends only on the
        table's history.
        """

    @abstractmethod
    def forget_due(self, until_us: int, batch_rows: int) -> Iterator[int]:
        """Remove due rows in any order without returning them. Yield the number of rows removed in each step."""

    @abstractmethod
    def first_due(self) -> int | None:
        """Return a lower bound for the event times of all rows; None if no row will ever be due.

        The bound may be too early if rows were removed, or their event times changed, since the last ``take_due``.
        """

    @abstractmethod
    def take_marked(self, batch_rows: int) -> Iterator[TableRows]:
        """Yield the marked rows, at most ``batch_rows`` per step. Their marks are cleared just before.

        Between the steps only captures are allowed.
        """

    @property
    @abstractmethod
    def has_marks(self) -> bool:
        """True if any row is marked."""

    @abstractmethod
    def clear_marks(self) -> None:
        """Clear all marks."""

    @abstractmethod
    def scan(self, batch_rows: int, first: int = 0, last: int | None = None) -> Iterator[TableRows]:
        """Yield all rows of key groups ``[first, last]`` (by default all), at most ``batch_rows`` per step.

        Between the steps only captures are allowed.
        """

    @abstractmethod
    def capture(self) -> TableCapture:
        """Capture the current content."""

    @abstractmethod
    def load(self, pieces: Iterable[StoredRows]) -> None:
        """Load stored content into an empty table. Call it once, before all other methods.

        Later pieces override earlier ones. A base piece has no key of an earlier piece. The content is capture 0.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the table and all its captures. Idempotent."""


class StateBackend(ABC):
    """Factory of the tables of one subtask. Close it after its tables."""

    @abstractmethod
    def create_table(self, name: str, spec: TableSpec) -> KeyedTable:
        """Create an empty table. ``name`` must be unique in the subtask."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources, including files. Idempotent."""


class NoState(StateBackend):
    """Backend for operators without tables."""

    def create_table(self, name: str, spec: TableSpec) -> KeyedTable:
        raise AssertionError(f"table {name} of an operator that has no state")

    def close(self) -> None:
        """Do nothing."""
