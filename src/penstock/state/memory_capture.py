"""Capture of a table in memory. It is read from the current rows and from the undo log of rows written since then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.growable_array import GrowableArray
from penstock.state.key_store import KeyStore
from penstock.state.keys import group_rows
from penstock.state.memory_changes import Changes, KeptCapture, MemoryChangeLog, Undo
from penstock.state.stored_form import delta_schema, stored_schema
from penstock.state.table import KeyedTable, RestorePoint, TableCapture, TableSpec
from penstock.state.texts import is_text
from penstock.state.value_columns import ValueColumns
from penstock.state.vector import Rows, Vector, raw_dtype

Groups = npt.NDArray[np.int16]

_BLOCK_BYTES = 2 << 20
"""Limit for the size of blocks. Arrow's allocator would return larger blocks to the system."""
_BLOCK_ROWS = 1 << 16
_RUN_ROWS = 1 << 22
"""Number of rows that are sorted at a time."""
_CHUNK_ROWS = 1 << 20
"""Number of rows whose key groups are copied at a time."""


@dataclass(frozen=True)
class TableColumns:
    """Columns of a table by row number.

    Attributes:
        spec: specification of the table.
        keys: keys of the rows.
        groups: key groups of the rows; -1 for a row that is not in use.
        values: values of the rows.
        lock: held while the columns grow, and by readers on other threads.
    """

    spec: TableSpec
    keys: KeyStore
    groups: GrowableArray
    values: ValueColumns
    lock: threading.Lock


class _FirstPositions:
    """Index from rows to their first positions in a growing list of rows."""

    def __init__(self, rows: int) -> None:
        self._first_positions = GrowableArray(np.int32)
        self._rows = rows
        self.count = 0

    def add(self, rows: npt.NDArray[np.int32]) -> None:
        """Append rows to the list. ``rows`` are distinct."""
        self._first_positions.reserve(self._rows)
        positions = np.flatnonzero(rows < self._rows)
        first_positions = self._first_positions.data
        fresh = positions[first_positions[rows[positions]] == 0]
        first_positions[rows[fresh]] = fresh + (self.count + 1)
        self.count += len(rows)

    def named(self) -> Rows:
        """Return all rows in the list."""
        return np.flatnonzero(self._first_positions.data[: self._rows]) if self.count else np.zeros(0, np.int64)

    def find(self, rows: Rows) -> tuple[Rows, Rows]:
        """Return the indexes of the rows that are in the list, and their first positions in it."""
        if not self.count:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        positions = self._first_positions.data[rows]
        named = np.flatnonzero(positions)
        return named, positions[named] - 1


class CapturedRows:
    """Rows of a table at a capture, when all numbers were below ``size``.

    The current rows are copied first; the table's thread may write to them at the same time. Then the copies of rows
    that were written since the capture are replaced by their contents in the undo log.
    """

    def __init__(self, columns: TableColumns, size: int, undo: Undo) -> None:
        self.size = size
        self._columns = columns
        self._undo = undo
        self._chain: list[tuple[int, Undo]] = []  # undo logs, with the number of entries in earlier ones
        self._seen = _FirstPositions(size)
        self._removed = _FirstPositions(size)
        self._removed_seen = 0
        self._removed_keys: list[list[pa.Array]] = []
        self._groups: Groups | None = None

    def changed(self) -> Rows:
        """Return the numbers of the rows that were written since the capture."""
        self._catch_up()
        return self._seen.named()

    def groups(self) -> Groups:
        """Return the key group of each row; -1 if the row did not exist."""
        if self._groups is None:
            self._groups = self._past_groups()
        return self._groups

    def _past_groups(self) -> Groups:
        groups = np.empty(self.size, np.int16)
        for start in range(0, self.size, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, self.size)
            with self._columns.lock:
                groups[start:stop] = self._columns.groups.data[start:stop]
        self._catch_up()
        for _, undo, entries in reversed(list(self._entries())):
            with self._columns.lock:
                rows, old = undo.rows.data[:entries].copy(), undo.groups.data[:entries].copy()
            kept = rows < self.size
            groups[rows[kept]] = old[kept]
        return groups

    def arrays(self, rows: Rows) -> list[pa.Array]:
        """Return the key and value columns of rows that existed at the capture."""
        lock, columns = self._columns.lock, self._columns
        with lock:
            keys = columns.keys.take(rows)
        vectors = []
        for position in range(len(columns.values)):
            with lock:
                vectors.append(columns.values.read_one(position, rows))
        self._catch_up()
        vectors = self._restored_values(rows, vectors)
        return [*self._restored_keys(rows, columns.keys.decode(keys)), *(vector.to_array() for vector in vectors)]

    def _restored_values(self, rows: Rows, vectors: list[Vector]) -> list[Vector]:
        named, positions = self._seen.find(rows)
        if len(named):
            vectors = [vector.copy() for vector in vectors]
        for before, undo, entries in self._entries() if len(named) else ():
            own = (positions >= before) & (positions < before + entries)
            with self._columns.lock:
                old = undo.values.take(positions[own] - before)
            for vector, kept in zip(vectors, old, strict=True):
                data, valid = vector.write()
                data[named[own]], valid[named[own]] = kept.read()
        return vectors

    def _restored_keys(self, rows: Rows, keys: list[pa.Array]) -> list[pa.Array]:
        named, positions = self._removed.find(rows)
        if not len(named):
            return keys
        sources = np.arange(len(rows))
        sources[named] = len(rows) + positions
        return [
            pa.chunked_array([key, *(removed[number] for removed in self._removed_keys)], key.type)
            .take(pa.array(sources))
            .combine_chunks()
            for number, key in enumerate(keys)
        ]

    def _catch_up(self) -> None:
        """Read new entries of the undo log."""
        if not self._chain:
            self._chain.append((0, self._undo))
        while True:
            before, undo = self._chain[-1]
            following, count, removed = undo.next, undo.count, len(undo.removed)
            if before + count > self._seen.count:
                with self._columns.lock:
                    rows = undo.rows.data[self._seen.count - before : count].copy()
                self._seen.add(rows)
            for record in undo.removed[self._removed_seen : removed]:
                self._removed.add(record.rows)
                self._removed_keys.append(record.keys)
            self._removed_seen = removed
            if following is None:
                return
            self._chain.append((before + count, following))
            self._removed_seen = 0

    def _entries(self) -> Iterator[tuple[int, Undo, int]]:
        """Yield the undo logs of the chain with the number of entries before each, and of its entries read so far."""
        ends = [before for before, _ in self._chain[1:]] + [self._seen.count]
        for (before, undo), end in zip(self._chain, ends, strict=True):
            yield before, undo, end - before


class MemoryRestorePoint(RestorePoint):
    """Restore point: the undo logs since a capture."""

    def __init__(self, log: MemoryChangeLog, kept: KeptCapture, restore: Callable[[Undo], KeyedTable]) -> None:
        self._log = log
        self._kept = kept
        self._restore = restore

    def restore(self) -> KeyedTable | None:
        undo = self._kept.undo
        self.release()
        return None if undo is None else self._restore(undo)

    def release(self) -> None:
        self._log.discard(self._kept)


class MemoryCapture(TableCapture):
    """Capture of a ``MemoryTable``. The first write to a row after the capture saves the row's content.

    Args:
        columns: columns of the table.
        log: change log of the table.
        size: upper bound (exclusive) of the row numbers.
        rows: number of rows.
        restore: restores the table to captured rows, given their number.
    """

    def __init__(
        self,
        columns: TableColumns,
        log: MemoryChangeLog,
        size: int,
        rows: int,
        restore: Callable[[CapturedRows, int], KeyedTable],
    ) -> None:
        self._entries = log.entries
        self.serial, self._undo, self._changes = log.capture(size)
        self.schema = stored_schema(columns.spec.schema)
        self.rows = rows
        self._spec = columns.spec
        self._log = log
        self._past: CapturedRows | None = CapturedRows(columns, size, self._undo)
        self._changed: tuple[int, Rows, Groups] | None = None
        self._restore = lambda undo: restore(CapturedRows(columns, size, undo), rows)
        row_bytes = (columns.values.nbytes(size) + columns.keys.nbytes(size)) // max(1, size)
        self._block_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // max(1, row_bytes)))

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        groups = self._open().groups()
        for rows in _runs(groups, first, last):
            for start in range(0, len(rows), self._block_rows):
                block = rows[start : start + self._block_rows]
                columns = [pa.array(groups[block]), *self._open().arrays(block)]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def changed_since(self, serial: int) -> int | None:
        if not self._knows_since(serial):
            return None
        return sum(changes.count for changes in self._changes if changes.serial >= serial)

    def _knows_since(self, serial: int) -> bool:
        return serial == self.serial or any(changes.serial == serial for changes in self._changes)

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        if not self._knows_since(since):
            raise ValueError(f"capture {self.serial} does not know what changed since capture {since}")
        intervals = [changes for changes in self._changes if changes.serial >= since]
        all_rows, all_groups = self._changed_rows(since, intervals)
        kept = (all_groups >= first) & (all_groups <= last)
        rows, groups = all_rows[kept], all_groups[kept]
        tombstone_groups, tombstone_keys = self._tombstones(intervals, first, last, rows)
        all_groups = np.concatenate([groups, tombstone_groups])
        order = np.argsort(all_groups, kind="stable")
        for start in range(0, len(order), self._block_rows):
            chosen = order[start : start + self._block_rows]
            exists = chosen < len(rows)
            columns = self._open().arrays(rows[chosen[exists]])
            if not exists.all():
                columns = self._with_tombstones(columns, exists, [
                    key.take(pa.array(chosen[~exists] - len(rows))) for key in tombstone_keys
                ])  # fmt: skip
            arrays = [pa.array(all_groups[chosen]), *columns, pa.array(~exists)]
            yield pa.RecordBatch.from_arrays(arrays, schema=delta_schema(self.schema))

    def _changed_rows(self, since: int, intervals: Sequence[Changes]) -> tuple[Rows, Groups]:
        """Return the changed rows that exist, with their key groups. Cached for other ranges of key groups."""
        if self._changed is None or self._changed[0] != since:
            lists = [rows for changes in intervals for rows in changes.rows]
            rows = np.sort(np.concatenate([np.zeros(0, np.int32), *lists]))
            if len(intervals) > 1:  # the rows of one interval are distinct
                rows = rows[np.flatnonzero(np.diff(rows, prepend=-1))]
            self._changed = since, rows.astype(np.int64), self._open().groups()[rows]
        return self._changed[1:]

    def _tombstones(
        self, intervals: Sequence[Changes], first: int, last: int, rows: Rows
    ) -> tuple[Groups, list[pa.Array]]:
        """Return the key groups and keys of tombstones: keys that were removed and are not among ``rows``."""
        removed = [record for changes in intervals for record in changes.removed]
        if not removed:
            return np.zeros(0, np.int16), []
        groups = np.concatenate([record.groups for record in removed])
        kept = pa.array(np.flatnonzero((groups >= first) & (groups <= last)))
        groups = groups[kept.to_numpy()]
        keys = [
            pa.chunked_array([record.keys[number] for record in removed]).take(kept).combine_chunks()
            for number in range(self._spec.key_count)
        ]
        alive: list[pa.Array] = [[] for _ in keys]
        for start in range(0, len(rows), self._block_rows):
            for number, key in enumerate(self._open().arrays(rows[start : start + self._block_rows])[: len(keys)]):
                alive[number].append(key)
        joined = [pa.chunked_array([*live, key]).combine_chunks() for live, key in zip(alive, keys, strict=True)]
        _, firsts = group_rows(joined, len(rows) + len(groups))
        tombstones = np.sort(firsts[firsts >= len(rows)]) - len(rows)
        return groups[tombstones], [key.take(pa.array(tombstones)) for key in keys]

    def _with_tombstones(self, columns: list[pa.Array], exists: npt.NDArray[np.bool_],
                         keys: list[pa.Array]) -> list[pa.Array]:  # fmt: skip
        """Merge existing rows with tombstones. ``exists``: True at the positions of existing rows."""
        sources = np.empty(len(exists), np.int64)
        sources[exists] = np.arange(np.count_nonzero(exists))
        sources[~exists] = np.arange(np.count_nonzero(exists), len(exists))
        values = [_empty(field, int(np.count_nonzero(~exists))) for field in self._spec.value_fields]
        return [
            pa.chunked_array([column, tombstone], column.type).take(pa.array(sources)).combine_chunks()
            for column, tombstone in zip(columns, [*keys, *values], strict=True)
        ]

    def forget_before(self) -> None:
        self._log.forget_before(self.serial)

    def keep(self) -> MemoryRestorePoint | None:
        if self._past is None:
            return None
        kept = self._log.keep(self._undo, self._entries)
        self._drop()
        return MemoryRestorePoint(self._log, kept, self._restore)

    def release(self) -> None:
        if self._past is not None:
            self._log.release()
            self._drop()

    def _drop(self) -> None:
        self._past = self._changed = None
        self._changes = ()
        del self._undo

    def _open(self) -> CapturedRows:
        if self._past is None or self._log.closed:
            raise RuntimeError("the table was closed, or the capture released")
        return self._past


def _runs(groups: Groups, first: int, last: int) -> Iterator[Rows]:
    """Yield the rows of these key groups in ascending order, in runs of about ``_RUN_ROWS``."""
    chosen = (groups >= first) & (groups <= last)
    if np.count_nonzero(chosen) <= _RUN_ROWS:
        yield _in_order(groups, np.flatnonzero(chosen))
        return
    counts = np.bincount(groups[chosen], minlength=last + 1)
    low, rows = first, 0
    for group in range(first, last + 1):
        if rows and rows + counts[group] > _RUN_ROWS:
            yield _in_order(groups, np.flatnonzero((groups >= low) & (groups < group)))
            low, rows = group, 0
        rows += int(counts[group])
    yield _in_order(groups, np.flatnonzero((groups >= low) & (groups <= last)))


def _in_order(groups: Groups, rows: Rows) -> Rows:
    return rows[np.argsort(groups[rows], kind="stable")]


def _empty(field: pa.Field, count: int) -> pa.Array:
    """Return the values of tombstones in one column."""
    if field.nullable:
        return pa.nulls(count, field.type)
    if is_text(field.type):
        return pa.repeat("", count).cast(field.type)
    vector = Vector(field.type, None if raw_dtype(field.type).kind == "O" else 0)
    vector.extend(count)
    vector.write()[1][:] = raw_dtype(field.type).kind != "O"
    return vector.to_arrow(np.arange(count))
