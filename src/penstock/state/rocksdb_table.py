"""State backend ``rocksdb``: keyed state tables larger than memory, in one RocksDB database per subtask.

A batch costs one lookup of its distinct keys and one write of their rows, for a table of any size. A table also has an
index by event time, an index of marked rows and a change log (see ``rocksdb_changes``). Each is a column family, so
that a query of one reads no other rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import WriteBatch

from penstock.state.arrays import fixed_values, validity
from penstock.state.hashing import groups_of
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.rocksdb_capture import STAMP_BYTES, RocksDBCapture, RowLayout, group_key
from penstock.state.rocksdb_changes import RocksDBChangeLog
from penstock.state.rocksdb_keys import prefix_end
from penstock.state.rocksdb_store import ColumnFamily, RocksStore, keys_of
from penstock.state.table import NO_ROW, KeyedTable, StateBackend, StoredRows, TableRows, TableSpec
from penstock.state.vector import Rows, Vector

_TIME_BYTES = 8
_LOAD_ROWS = 65536
_CLEARED_ROWS = 8192
"""Number of marked rows that ``clear_marks`` rewrites at a time."""

_MAX_MOMENT = 2**63 - 1


class RocksDBBackend(StateBackend):
    """Backend with one RocksDB database for all tables.

    Args:
        memory_bytes: memory limit for all tables together, at least 8 MiB; see ``RocksStore`` for what it covers.
        folder: parent of the database's private folder, by default the system's temporary folder. It needs space for
            about twice the state.
    """

    def __init__(self, memory_bytes: int, folder: str | None = None) -> None:
        self._store = RocksStore(memory_bytes, folder)
        self._tables: list[RocksDBTable] = []

    def create_table(self, name: str, spec: TableSpec) -> RocksDBTable:
        table = RocksDBTable(self._store, name, spec)
        self._tables.append(table)
        return table

    def close(self) -> None:
        for table in self._tables:
            table.close()
        self._tables.clear()
        self._store.close()


@dataclass(frozen=True)
class _DistinctKeys:
    """Distinct keys of a batch.

    Attributes:
        numbers: for each row of the batch the index of its key.
        columns: key columns of the distinct keys.
        keys: encoded keys, ascending.
    """

    numbers: Rows
    columns: list[pa.Array]
    keys: list[bytes]


class RocksDBTable(KeyedTable):
    """Table in RocksDB. Only the numbers of rows and marks are in memory."""

    def __init__(self, store: RocksStore, name: str, spec: TableSpec) -> None:
        self.spec = spec
        self._store = store
        self._layout = RowLayout.of(spec)
        self._rows = store.create_family(f"{name}/rows")
        self._changes = store.create_family(f"{name}/changes")
        self._times = store.create_family(f"{name}/times") if spec.event_time is not None else None
        self._marks = store.create_family(f"{name}/marks") if spec.marks_changes else None
        self._mark_at = self._layout.values.location_of(0)[0] if spec.marks_changes else 0
        timed = spec.timed_value
        self._time_at = self._layout.values.location_of(timed) if timed is not None else None
        self._log = RocksDBChangeLog(self._changes)
        self._count = 0
        self._marked = 0
        self._captures: dict[int, RocksDBCapture] = {}
        self._earliest_us = _MAX_MOMENT
        """Lower bound for the event times of all rows."""
        self._closed = False

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Size of the write buffers, without the block cache, which belongs to the backend."""
        return sum(family.buffered_bytes for family in self._families())

    @contextmanager
    def edit(self, keys: Sequence[pa.Array], count: int) -> Iterator[TableRows]:
        located = self._locate(keys, count)
        stored = self._rows.get(located.keys)
        vectors = self._vectors(stored)
        yield TableRows(located.numbers, vectors)
        if self.spec.marks_changes:
            data, valid = vectors[0].write()
            data[:], valid[:] = 1, True
        everything = np.arange(len(stored))
        values = self._layout.encode_values(
            [vector.to_arrow(everything) for vector in vectors], len(stored), self._log.epoch
        )
        batch = self._put(located, values, stored)
        self._log.record(batch, self._unrecorded(located.keys, stored), False, self._count)
        self._store.write(batch)

    def find(self, keys: Sequence[pa.Array], count: int) -> TableRows:
        located = self._locate(keys, count)
        stored = self._rows.get(located.keys)
        exists = np.array([value is not None for value in stored], np.bool_)
        rows = np.where(exists, np.cumsum(exists) - 1, NO_ROW)[located.numbers]
        return TableRows(rows, self._vectors([value for value in stored if value is not None]))

    def find_by_prefix(self, prefixes: Sequence[pa.Array], count: int) -> tuple[Rows, TableRows]:
        columns = [normalize_floats(column) for column in prefixes]
        spread = columns[: self.spec.prefix if self.spec.key_group_columns is None else self.spec.key_group_columns]
        groups = groups_of(spread, count, self.spec.max_parallelism)
        view = self._rows.view()
        owners: list[int] = []
        found: list[tuple[bytes, bytes]] = []
        for owner, prefix in enumerate(self._layout.keys.encode_prefixes(columns, count, groups)):
            for block in view.blocks(prefix, prefix_end(prefix)):
                owners += [owner] * len(block)
                found += block
        return np.array(owners, np.int64), self._table_rows(keys_of(found), [value for _, value in found])

    def remove(self, keys: Sequence[pa.Array], count: int) -> int:
        located = self._locate(keys, count)
        stored = self._rows.get(located.keys)
        existing = [position for position, value in enumerate(stored) if value is not None]
        if existing:
            deleted_keys = [located.keys[position] for position in existing]
            values = [value for value in stored if value is not None]
            key_columns = [column.take(pa.array(existing)) for column in located.columns]
            times = self._time_index_keys(key_columns, deleted_keys, values)
            self._delete(deleted_keys, times, values)
        return len(existing)

    def take_due(self, until_us: int, batch_rows: int) -> Iterator[TableRows]:
        for keys, rows in self._take_due(until_us, batch_rows):
            yield self._table_rows(keys, rows)

    def forget_due(self, until_us: int, batch_rows: int) -> Iterator[int]:
        for keys, _ in self._take_due(until_us, batch_rows):
            yield len(keys)

    def _take_due(self, until_us: int, batch_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Remove due rows, and yield their stored keys and values."""
        if self._times is None or until_us < self._earliest_us:
            return
        stop = _moment_key(until_us + 1) if until_us < _MAX_MOMENT else None
        for block in self._times.view().blocks(_moment_key(self._earliest_us), stop, batch_rows):
            times = keys_of(block)
            keys = [key[_TIME_BYTES:] for key in times]
            stored = self._rows.get(keys)
            assert None not in stored, "the index by event time names a row that is not there"
            rows = [value for value in stored if value is not None]
            self._delete(keys, times, rows)
            self._earliest_us = _moment_of(times[-1])
            yield keys, rows
        self._earliest_us = min(until_us, _MAX_MOMENT - 1) + 1

    def first_due(self) -> int | None:
        if self._times is not None and self._count:
            for block in self._times.view().blocks(_moment_key(self._earliest_us), None, 1):
                self._earliest_us = _moment_of(block[0][0])
                return self._earliest_us
        return None

    def take_marked(self, batch_rows: int) -> Iterator[TableRows]:
        for keys, stored in self._clear(batch_rows):
            rows = self._table_rows(keys, stored)
            yield replace(rows, marked=np.ones(len(keys), np.bool_))

    @property
    def has_marks(self) -> bool:
        return self._marked > 0

    def clear_marks(self) -> None:
        for _ in self._clear(_CLEARED_ROWS):
            pass

    def scan(self, batch_rows: int, first: int = 0, last: int | None = None) -> Iterator[TableRows]:
        last = self.spec.max_parallelism - 1 if last is None else last
        for block in self._rows.view().blocks(group_key(first), group_key(last + 1), batch_rows):
            yield self._table_rows(keys_of(block), [value for _, value in block])

    def capture(self) -> RocksDBCapture:
        changes = self._log.end_epoch()
        capture = RocksDBCapture(
            self._layout, self._count, self._rows.view(), changes, self._log.forget_before, self._released
        )
        self._captures[capture.serial] = capture
        return capture

    def _released(self, serial: int) -> None:
        self._captures.pop(serial, None)

    def load(self, pieces: Iterable[StoredRows]) -> None:
        for piece in pieces:
            for start in range(0, piece.batch.num_rows, _LOAD_ROWS):
                self._load(StoredRows(piece.batch.slice(start, _LOAD_ROWS), piece.is_delta))
        if self._count:
            self._log.begin_with_rows()

    def _load(self, piece: StoredRows) -> None:
        columns, rows = piece.batch.columns[1:], piece.batch.num_rows
        if piece.is_delta:
            deleted = columns.pop()
            self.remove(*_chosen(columns[: self.spec.key_count], deleted))
            columns, rows = _chosen(columns, pc.invert(deleted))
        if not rows:
            return
        located = self._locate(columns[: self.spec.key_count], rows)
        row_of_key = np.empty(rows, np.int64)
        row_of_key[located.numbers] = np.arange(rows)
        values = [column.take(pa.array(row_of_key)) for column in columns[self.spec.key_count :]]
        stored = self._rows.get(located.keys) if piece.is_delta else [None] * rows
        self._store.write(self._put(located, self._layout.encode_values(values, rows, 0), stored))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for capture in list(self._captures.values()):
            capture.release()
        for family in self._families():
            family.drop()

    def _families(self) -> list[ColumnFamily]:
        return [family for family in (self._rows, self._changes, self._times, self._marks) if family is not None]

    def _locate(self, keys: Sequence[pa.Array], count: int) -> _DistinctKeys:
        columns = [normalize_floats(column) for column in keys]
        numbers, first = group_rows(columns, count)
        if len(first) < count:
            columns = [column.take(pa.array(first)) for column in columns]
            position_of = numbers
        else:
            position_of = np.arange(count)
        distinct = len(first)
        spread = self.spec.key_count if self.spec.key_group_columns is None else self.spec.key_group_columns
        encoded = self._layout.keys.encode(
            columns, distinct, groups_of(columns[:spread], distinct, self.spec.max_parallelism)
        )
        order = np.array(sorted(range(distinct), key=encoded.__getitem__), np.int64)
        ranks = np.empty(distinct, np.int64)
        ranks[order] = np.arange(distinct)
        return _DistinctKeys(
            ranks[position_of],
            [column.take(pa.array(order)) for column in columns],
            [encoded[position] for position in order.tolist()],
        )

    def _vectors(self, stored: Sequence[bytes | None]) -> list[Vector]:
        """Decode the value columns of rows, with initial values for rows that do not exist."""
        initial_values = self.spec.initial_values or (0,) * len(self.spec.value_fields)
        vectors = [Vector(field.type, fill) for field, fill in zip(self.spec.value_fields, initial_values, strict=True)]
        existing = np.flatnonzero(np.array([value is not None for value in stored], np.bool_))
        columns = self._layout.values.decode([value for value in stored if value is not None])
        for vector, column in zip(vectors, columns, strict=True):
            vector.extend(len(stored))
            if len(existing):
                vector.set(existing, column)
        return vectors

    def _table_rows(self, keys: list[bytes], stored: Sequence[bytes]) -> TableRows:
        vectors = self._vectors(stored)
        marked = vectors[0].read()[0] != 0 if self.spec.marks_changes else None
        return TableRows(np.arange(len(keys)), vectors, self._layout.keys.decode(keys), marked)

    def _put(self, located: _DistinctKeys, values: list[bytes], stored: Sequence[bytes | None]) -> WriteBatch:
        """Return a batch that writes rows and updates the indexes by time and mark. ``stored``: their old values."""
        batch = WriteBatch(raw_mode=True)
        put = self._rows.target(batch).put
        for key, value in zip(located.keys, values, strict=True):
            put(key, value)
        fresh = [position for position, value in enumerate(stored) if value is None]
        self._count += len(fresh)
        if self._times is not None:
            self._update_earliest(batch, self._times, located, values, stored, fresh)
        if self._marks is not None:
            self._write_marks(batch, self._marks, located.keys, values, stored)
        return batch

    def _update_earliest(
        self,
        batch: WriteBatch,
        times: ColumnFamily,
        located: _DistinctKeys,
        values: list[bytes],
        stored: Sequence[bytes | None],
        fresh: list[int],
    ) -> None:
        """Update the index by event time: only for new rows if the time is in the key, since it never changes."""
        times.target(batch)
        if self.spec.timed_value is None:
            columns = [column.take(pa.array(fresh, pa.int64())) for column in located.columns]
            added = self._time_index_keys(columns, [located.keys[position] for position in fresh], [])
        else:
            existing = [(key, value) for key, value in zip(located.keys, stored, strict=True) if value is not None]
            for time in self._time_index_keys([], [key for key, _ in existing], [value for _, value in existing]):
                batch.delete(time)
            added = self._time_index_keys([], located.keys, values)
        if added:
            self._earliest_us = min(self._earliest_us, min(map(_moment_of, added)))
        for time in added:
            batch.put(time, b"")

    def _write_marks(
        self,
        batch: WriteBatch,
        marks: ColumnFamily,
        keys: list[bytes],
        values: list[bytes],
        stored: Sequence[bytes | None],
    ) -> None:
        marks.target(batch)
        for key, value, before in zip(keys, values, stored, strict=True):
            was = before is not None and self._is_marked(before)
            now = self._is_marked(value)
            if now and not was:
                batch.put(key, b"")
            elif was and not now:
                batch.delete(key)
            self._marked += now - was

    def _is_marked(self, value: bytes) -> bool:
        return value[self._mark_at] != 0

    def _delete(self, keys: list[bytes], times: list[bytes], stored: Sequence[bytes]) -> None:
        """Remove existing rows with their entries in the indexes."""
        batch = WriteBatch(raw_mode=True)
        self._rows.target(batch)
        for key in keys:
            batch.delete(key)
        if self._times is not None:
            self._times.target(batch)
            for key in times:
                batch.delete(key)
        if self._marks is not None:
            self._marks.target(batch)
            for key, value in zip(keys, stored, strict=True):
                if self._is_marked(value):
                    batch.delete(key)
                    self._marked -= 1
        self._count -= len(keys)
        self._log.record(batch, keys, True, self._count)
        self._store.write(batch)

    def _clear(self, batch_rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Clear the marks, and yield the rows that had one."""
        if self._marks is None or not self._marked:
            return
        for block in self._marks.view().blocks(b"", None, batch_rows):
            keys = keys_of(block)
            stored = self._rows.get(keys)
            assert None not in stored, "the index of the marked rows names one that is not there"
            stamp, at = _stamp(self._log.epoch), self._mark_at
            cleared = [stamp + value[STAMP_BYTES:at] + b"\0" + value[at + 1 :] for value in stored if value is not None]
            batch = WriteBatch(raw_mode=True)
            put = self._rows.target(batch).put
            for key, value in zip(keys, cleared, strict=True):
                put(key, value)
            self._marks.target(batch)
            for key in keys:
                batch.delete(key)
            self._marked -= len(keys)
            self._log.record(batch, self._unrecorded(keys, stored), False, self._count)
            self._store.write(batch)
            yield keys, cleared

    def _unrecorded(self, keys: list[bytes], stored: Sequence[bytes | None]) -> list[bytes]:
        """Return the keys whose change is not recorded in this epoch yet."""
        stamp = _stamp(self._log.epoch)
        return [key for key, value in zip(keys, stored, strict=True) if value is None or value[:STAMP_BYTES] != stamp]

    def _time_index_keys(self, columns: list[pa.Array], keys: list[bytes], values: Sequence[bytes]) -> list[bytes]:
        """Return the keys of rows in the index by event time: the time, then the row's key. Null times have no entry.

        Args:
            columns: key columns of the rows; ignored if the time is in a value column.
            keys: stored keys.
            values: stored values; ignored if the time is in a key column.
        """
        if self.spec.event_time is None:
            return []
        if self._time_at is not None:
            at, flag, bit = self._time_at
            return [
                _moment_key(int.from_bytes(value[at : at + _TIME_BYTES], "little", signed=True)) + key
                for key, value in zip(keys, values, strict=True)
                if not value[flag] >> bit & 1
            ]
        column = columns[self.spec.event_time[0]]
        for position in self.spec.event_time[1:]:
            column = column.flatten()[position]
        known = validity(column)
        moments = fixed_values(column)
        assert moments is not None
        chosen = np.flatnonzero(known).tolist()
        return [
            _moment_key(moment) + keys[position]
            for position, moment in zip(chosen, moments[known].tolist(), strict=True)
        ]


def _stamp(epoch: int) -> bytes:
    return epoch.to_bytes(STAMP_BYTES, "little")


def _moment_key(moment_us: int) -> bytes:
    """Encode a time as bytes in ascending order, including negative times."""
    return (moment_us + (1 << 63)).to_bytes(_TIME_BYTES, "big")


def _moment_of(time_key: bytes) -> int:
    return int.from_bytes(time_key[:_TIME_BYTES], "big") - (1 << 63)


def _chosen(columns: Sequence[pa.Array], mask: pa.Array) -> tuple[list[pa.Array], int]:
    """Return the rows where ``mask`` is True, and their number."""
    return [column.filter(mask) for column in columns], mask.true_count
