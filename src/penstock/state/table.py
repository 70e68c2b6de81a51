"""Keyed state tables: the interface that operators see, whatever backend holds the rows.

A table maps keys (several columns, of any type that Spark can group by) to one row of values each. A backend is only
the
working copy: what a snapshot stores is the same for all, so that a snapshot taken on one restores on any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa

from penstock.state.vector import Mask, Rows, Vector

NO_ROW = -1
"""Where ``TableRows.rows`` has no row for a key."""


@dataclass(frozen=True)
class TableSpec:
    """What a table holds.

    Attributes:
        schema: key columns, then value columns.
        key_count: how many columns are the key; 0 makes a table of at most one row.
        max_parallelism: the number of key groups.
        fills: what the raw values (see ``Vector``) of a new row start with, by value column; such a row's values are
            null. None: zeros.
        spread_by: how many leading key columns decide the key group, as those of the edge that brings the rows; None:
            all of them.
        event_time: where the moment (a timestamp, or a long in whatever unit ``take_due`` is asked in) is that
            ``take_due`` goes by: the position of a key column, then field positions in a struct; or the position, in
            ``schema``, of a value column. Rows where it is null are never due.
        prefix: how many leading key columns ``find_under`` goes by, 0 if it is never asked; fewer than there are.
        looked_up: whole keys are asked for as a rule. If not, what finds them is only made when one is after all, in
            about a fifth of a second for a million rows.
        keeps_arrays: values that would be Python objects stay Arrow arrays: for whoever moves them as a whole, and does
            not work on single ones.
        marks: the first value column (bool) tells which rows were written to since they were last taken: ``edit`` sets
            it, ``take_marked`` and ``clear_marks`` clear it. It is stored with the rest.
    """

    schema: pa.Schema
    key_count: int
    max_parallelism: int
    fills: tuple[object, ...] | None = None
    spread_by: int | None = None
    event_time: tuple[int, ...] | None = None
    marks: bool = False
    prefix: int = 0
    looked_up: bool = True
    keeps_arrays: bool = False

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(position) for position in range(self.key_count)])

    @property
    def timed_value(self) -> int | None:
        """Which value column ``take_due`` goes by; None: a key column, or nothing is ever due."""
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
        rows: for each row, its place in the vectors of ``values``. From ``edit`` and ``find``: one per key that was
            asked for, the same place for the same key; ``NO_ROW`` for a key that is not there.
        values: the value columns. Only from ``edit`` may they be written to, and only at ``rows``; vectors may be
            longer than that.
        keys: the key columns, one value per element of ``rows``; empty from ``edit`` and ``find``, whose caller has
            them.
        marked: which of ``rows`` are marked; None if the table has no marks, and from ``edit`` and ``find``.
    """

    rows: Rows
    values: Sequence[Vector]
    keys: Sequence[pa.Array] = ()
    marked: Mask | None = None


@dataclass(frozen=True)
class StoredRows:
    """A piece of a table's stored content, as ``TableCapture`` gave it. ``is_delta``: it has ``__deleted`` as its last
    column and changes what earlier pieces say."""

    batch: pa.RecordBatch
    is_delta: bool


class TableCapture(ABC):
    """Content of a table at one moment. Later writes to the table do not change it.

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


class RestorePoint(ABC):
    """Content of a table that ``TableCapture.keep`` keeps after the table's ``close``.

    Call order: ``go_back`` or ``release``, once, from any thread; for ``go_back`` the table's own must be through with
    it. A table has several of these at a time, for several captures; ``go_back`` makes the others void.
    """

    @abstractmethod
    def go_back(self) -> KeyedTable | None:
        """The table as it was at the capture, in use again, as if loaded: this is its capture 0. None: so much of it
        has changed since that this was given up."""

    @abstractmethod
    def release(self) -> None:
        """Nobody will go back: the table need not keep anything for it. Idempotent."""


class KeyedTable(ABC):
    """Owned by one thread, its subtask's; only captures are read elsewhere.

    Keys are equal in Spark's sense: null equals null, NaN equals NaN, -0.0 equals 0.0, inside structs and
    arrays as well; keys come back with floats normalised so. Key columns may be of any fixed-width type, decimals,
    strings, binaries, structs and arrays of these. Values may be of any Arrow type that Spark knows, nested ones
    included.

    Every method leaves the table consistent for a capture: a row that was taken is not in it any more.
    """

    spec: TableSpec

    @abstractmethod
    def __len__(self) -> int:
        """The rows."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """An estimate of the memory in use, in bytes; of a backend that keeps rows elsewhere, without these."""

    @abstractmethod
    def edit(self, keys: Sequence[pa.Array], count: int) -> AbstractContextManager[TableRows]:
        """The rows of these keys, to be written to in the ``with`` block; absent keys get a new row (see ``fills``).

        What was written counts when the block ends; if it ends by an exception, the rows of these keys hold anything.
        No other call in between.

        Args:
            keys: the key columns, each of length ``count``; the same key may occur several times.
            count: their length.
        """

    def add(self, keys: Sequence[pa.Array], values: Sequence[pa.Array], count: int) -> None:
        """New rows; quicker than ``edit``, for a caller who knows that there is no row of these keys yet.

        Args:
            keys: the key columns, each of length ``count``; distinct, and absent from the table, which has no marks.
            values: the value columns.
            count: their length.
        """
        assert not self.spec.marks
        with self.edit(keys, count) as new:
            for vector, column in zip(new.values, values, strict=True):
                vector.set(new.rows, column)

    @abstractmethod
    def find(self, keys: Sequence[pa.Array], count: int) -> TableRows:
        """The rows of these keys, ``NO_ROW`` where there is none; to be read before the next call."""

    @abstractmethod
    def find_under(self, prefixes: Sequence[pa.Array], count: int) -> tuple[Rows, TableRows]:
        """All rows whose key begins with one of these (``TableSpec.prefix``), in no particular order, to be read before
        the next call; and by row the number of its prefix.

        Args:
            prefixes: the leading key columns, each of length ``count``; distinct.
            count: their length.
        """

    @abstractmethod
    def remove(self, keys: Sequence[pa.Array], count: int) -> int:
        """Remove the rows of these keys; absent and repeated ones are passed over. Returns how many there were."""

    @abstractmethod
    def take_due(self, until_us: int, at_once: int) -> Iterator[TableRows]:
        """Remove the rows whose event time is at or below ``until_us``, by event time ascending, at most ``at_once``
        per step: they are gone just before they are yielded. Nothing but captures in between. Costs next to nothing if
        none is due.

        Rows of equal time come in an order that depends on the table's history alone.
        """

    @abstractmethod
    def forget_due(self, until_us: int, at_once: int) -> Iterator[int]:
        """As ``take_due``, in any order, for a caller who wants none of the rows: how many are gone."""

    @abstractmethod
    def first_due(self) -> int | None:
        """No row is due before; None: none ever is. May be too early for as long as ``take_due`` was not asked."""

    @abstractmethod
    def take_marked(self, at_once: int) -> Iterator[TableRows]:
        """The marked rows, at most ``at_once`` per step; their marks are cleared just before they are yielded. Nothing
        but captures in between."""

    @property
    @abstractmethod
    def has_marks(self) -> bool:
        """Whether any row is marked."""

    @abstractmethod
    def clear_marks(self) -> None:
        """Clear every mark."""

    @abstractmethod
    def scan(self, at_once: int, first: int = 0, last: int | None = None) -> Iterator[TableRows]:
        """All rows of key groups ``[first, last]`` (by default of all), at most ``at_once`` per step. Nothing but
        captures in between."""

    @abstractmethod
    def capture(self) -> TableCapture:
        """The content now."""

    @abstractmethod
    def load(self, pieces: Iterable[StoredRows]) -> None:
        """Fill an empty table, once, before anything else: pieces in order, the later one wins. A base piece holds no
        key that an earlier piece holds. This is capture 0 of the table."""

    @abstractmethod
    def close(self) -> None:
        """Give up everything, captures included. Idempotent."""


class StateBackend(ABC):
    """Makes the tables of one subtask. ``close`` after all of them."""

    @abstractmethod
    def create_table(self, name: str, spec: TableSpec) -> KeyedTable:
        """An empty table; ``name`` is unique in the subtask."""

    @abstractmethod
    def close(self) -> None:
        """Nothing of it stays, files included. Idempotent."""


class NoState(StateBackend):
    """For operators that have no tables."""

    def create_table(self, name: str, spec: TableSpec) -> KeyedTable:
        raise AssertionError(f"table {name} of an operator that has no state")

    def close(self) -> None:
        """There is nothing."""
