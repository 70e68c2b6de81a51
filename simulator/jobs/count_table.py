"""Keyed table that tracks its changes, as simple as possible, so that it does not share errors with the real one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import cast

import pyarrow as pa

from penstock.operators.base import RestoredState
from penstock.state.stored_form import delta_schema
from penstock.state.table import KeyedTable, RestorePoint, StoredRows, TableCapture
from penstock.testing.failure import SimulationFailure
from simulator.jobs.rows import group_of

Row = tuple[int, ...]
StoredCounts = tuple[tuple[Row, int, Row | None, int], ...]
"""Of every key: the key, its group, its values (None: a tombstone), and the serial of the capture before its last
write."""

AT_ONCE = 3
"""Rows per batch."""


class CountTable(MutableMapping[Row, int]):
    """Numbers by key, a tuple whose first element decides the key group.

    Args:
        schema: ``stored_schema`` of it: key group, key columns, the number.
        max_parallelism: the number of key groups.
    """

    def __init__(self, schema: pa.Schema, max_parallelism: int) -> None:
        self.schema = schema
        self.spec = schema, max_parallelism
        self.known_since = 0
        self._max_parallelism = max_parallelism
        self._serial = 0
        self._counts: dict[Row, int] = {}
        self._written: dict[Row, int] = {}

    def __getitem__(self, key: Row) -> int:
        return self._counts[key]

    def __setitem__(self, key: Row, count: int) -> None:
        self._counts[key] = count
        self._written[key] = self._serial

    def __delitem__(self, key: Row) -> None:
        del self._counts[key]
        self._written[key] = self._serial

    def __iter__(self) -> Iterator[Row]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def load(self, pieces: Iterable[StoredRows]) -> None:
        """Fill an empty one; this is capture 0."""
        self._counts = {row[:-1]: row[-1] for row in merged(pieces, len(self.schema) - 2)}

    def restore(self, stored: StoredCounts) -> None:
        """To what a capture had; this is capture 0 then."""
        self._counts = {key: values[0] for key, _, values, _ in stored if values is not None}
        self._written = {}
        self._serial = self.known_since = 0

    def close(self) -> None:
        """Do nothing: the table holds no resources."""

    def capture(self) -> CountCapture:
        """The content now."""
        self._serial += 1
        self._written = {key: written for key, written in self._written.items() if written >= self.known_since}
        keys = sorted((group_of(key[0], self._max_parallelism), key) for key in {**self._counts, **self._written})
        stored = tuple(
            (key, group, (self._counts[key],) if key in self._counts else None, self._written.get(key, -1))
            for group, key in keys
        )
        return CountCapture(self, self._serial, stored)

    def forget_before(self, serial: int) -> None:
        """Deltas since captures older than this one are not asked for any more. May be called on another thread: the
        owner forgets with its next capture."""
        self.known_since = max(self.known_since, serial)


class CountCapture(TableCapture):
    """Capture of a ``CountTable``; fails if it is read after its release, or released twice."""

    def __init__(self, table: CountTable, serial: int, stored: StoredCounts) -> None:
        self.schema = table.schema
        self.serial = serial
        self.rows = sum(values is not None for _, _, values, _ in stored)
        self._table = table
        self._stored = stored
        self._released = False
        self._kept = False

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        yield from self._batches(
            self.schema,
            [(group, *key, *values) for key, group, values, _ in self._read(first, last) if values is not None],
        )

    def changed_since(self, serial: int) -> int | None:
        if serial < self._table.known_since:
            return None
        return sum(written >= serial for _, _, _, written in self._stored)

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if since < self._table.known_since or since >= self.serial:
            raise SimulationFailure(f"a delta from {since} to {self.serial} is asked for", "state")
        yield from self._batches(
            delta_schema(self.schema),
            [
                (group, *key, *(values or (None,)), values is None)
                for key, group, values, written in self._read(first, last)
                if written >= since
            ],
        )

    def forget_before(self) -> None:
        self._table.forget_before(self.serial)

    def keep(self) -> CountRestorePoint:
        self.release()
        self._kept = True
        return CountRestorePoint(self._table, self._stored)

    def release(self) -> None:
        if self._released and not self._kept:
            raise SimulationFailure("a capture is released twice", "state")
        self._released = True

    def _read(self, first: int, last: int) -> Iterator[tuple[Row, int, Row | None, int]]:
        if self._released:
            raise SimulationFailure("a capture is read after its release", "state")
        return (count for count in self._stored if first <= count[1] <= last)

    @staticmethod
    def _batches(schema: pa.Schema, rows: Sequence[Sequence[int | None]]) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(rows), AT_ONCE):
            columns = zip(*rows[start : start + AT_ONCE], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


class CountRestorePoint(RestorePoint):
    """Restore point of a ``CountTable``; fails if it is used after its release, or twice."""

    def __init__(self, table: CountTable, stored: StoredCounts) -> None:
        self._table = table
        self._stored = stored
        self._over = False

    def restore(self) -> KeyedTable | None:
        if self._over:
            raise SimulationFailure("a table goes back to what was let go", "state")
        self._over = True
        self._table.restore(self._stored)
        return cast(KeyedTable, self._table)

    def release(self) -> None:
        self._over = True


def filled(state: RestoredState, name: str, empty: CountTable) -> CountTable:
    """Fill a table from restored state, as ``RestoredState.fill`` does, with fewer requirements on the table."""
    return cast(CountTable, state.fill(name, cast(KeyedTable, empty)))


def merged(pieces: Iterable[StoredRows], key_count: int) -> list[Row]:
    """The rows of a table without their key group, in the order in which keys came first."""
    rows: dict[Row, Row] = {}
    for piece in pieces:
        columns = [column.to_pylist() for column in piece.batch.columns[1:]]
        deleted = columns.pop() if piece.is_delta else [False] * piece.batch.num_rows
        for row, is_gone in zip(zip(*columns, strict=True), deleted, strict=True):
            key = row[:key_count]
            if is_gone:
                rows.pop(key, None)
            elif not piece.is_delta and key in rows:
                raise SimulationFailure(f"base rows of {key} come twice", "state")
            else:
                rows[key] = row
    return list(rows.values())
