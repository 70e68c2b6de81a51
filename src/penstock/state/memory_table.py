"""State backend ``memory``: tables as numpy columns, which are read and written a batch at a time.

A row keeps its number until it is removed. Then another key may get the number. A capture copies nothing; see
``state/memory_changes.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.growable_array import GrowableArray
from penstock.state.hashing import groups_of
from penstock.state.index import HashIndex
from penstock.state.key_store import U64, Keys, KeyStore
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.memory_capture import CapturedRows, MemoryCapture, TableColumns
from penstock.state.memory_changes import MemoryChangeLog, Removed
from penstock.state.ordering import order_by
from penstock.state.prefix_index import PrefixIndex
from penstock.state.row_numbers import RowNumbers
from penstock.state.table import NO_ROW, KeyedTable, StateBackend, StoredRows, TableRows, TableSpec
from penstock.state.value_columns import ValueColumns
from penstock.state.vector import Mask, Rows, Vector

_SCAN_ROWS = 1 << 20
"""Number of rows that are scanned at a time."""
_MAX_ROWS = (1 << 31) - 2


class MemoryBackend(StateBackend):
    """Backend that keeps all tables in the memory of this process."""

    def create_table(self, name: str, spec: TableSpec) -> KeyedTable:
        return MemoryTable(spec)

    def close(self) -> None:
        """Do nothing: the tables have all data."""


class MemoryTable(KeyedTable):
    """Table in memory.

    Values of fixed-width types and short decimals are stored raw. Other values are Python objects, which is correct for
    every type but larger and slower; with ``TableSpec.keeps_arrays`` they are Arrow arrays (``ArrayColumns``).
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self._lock = threading.Lock()
        self._keys = KeyStore(spec.key_schema.types)
        self._index = HashIndex(self._keys.hashes)
        self._is_indexed = spec.indexes_keys
        self._groups = GrowableArray(np.int16)
        initial_values = spec.initial_values if spec.initial_values is not None else [0] * len(spec.value_fields)
        self._values = ValueColumns(spec.value_fields, initial_values, self._lock if spec.keeps_arrays else None)
        self._columns = TableColumns(spec, self._keys, self._groups, self._values, self._lock)
        self._log = MemoryChangeLog(spec.value_fields, self._lock)
        self._count = 0
        self._numbers = RowNumbers(spec.max_parallelism)
        timed_key = spec.event_time if spec.timed_value is None else None
        self._event_time = self._keys.part(timed_key) if timed_key is not None else None
        self._earliest_us: int | None = None  # lower bound for the event times of all rows; None if there are none
        self._may_have_marks = False
        self._prefixes = PrefixIndex() if spec.prefix else None
        self._prefix_keys = KeyStore(spec.key_schema.types[: spec.prefix])  # only encodes
        self._key_group_columns = spec.key_count if spec.key_group_columns is None else spec.key_group_columns

    def __len__(self) -> int:
        return self._count

    @property
    def _size(self) -> int:
        """Upper bound for the row numbers that are or were in use."""
        return self._numbers.size

    @property
    def nbytes(self) -> int:
        chains = 0 if self._prefixes is None else self._prefixes.nbytes(self._size)
        return (
            self._keys.nbytes(self._size)
            + self._index.nbytes
            + chains
            + self._values.nbytes(self._size)
            + 3 * self._size
        )

    @contextmanager
    def edit(self, keys: Sequence[pa.Array], count: int) -> Iterator[TableRows]:
        indices, distinct, number = _distinct(keys, count)
        rows, is_new = self._locate(distinct, number)
        vectors = self._values.take(rows)
        if is_new.any():
            new = self._values.new(int(np.count_nonzero(is_new)))
            for vector, start in zip(vectors, new, strict=True):
                if not vector.is_unchanged:  # new rows of unchanged vectors are already null
                    data, valid = vector.write()
                    data[is_new], valid[is_new] = start.read()
        if self.spec.marks_changes:
            data, valid = vectors[0].write()
            data[:], valid[:] = 1, True
            self._may_have_marks = True
        self._touch(rows[~is_new])
        try:
            yield TableRows(indices, vectors)
        finally:
            self._put(rows, vectors, len(rows))

    def add(self, keys: Sequence[pa.Array], values: Sequence[pa.Array], count: int) -> None:
        assert not self.spec.marks_changes
        columns = [normalize_floats(key) for key in keys]
        encoded = self._keys.encode(columns, count)
        groups = groups_of(columns[: self._key_group_columns], count, self.spec.max_parallelism)
        rows = self._create(encoded, self._keys.text_hashes(encoded), groups)
        self._put(rows, self._values.loaded(values), count)

    def find(self, keys: Sequence[pa.Array], count: int) -> TableRows:
        indices, distinct, number = _distinct(keys, count)
        encoded = self._keys.encode(distinct, number)
        rows = self._find(encoded, *self._keys.hashes_of(encoded))
        found = rows >= 0
        by_key = np.where(found, np.cumsum(found) - 1, NO_ROW)
        return TableRows(by_key[indices], self._values.take(rows[found]))

    def find_by_prefix(self, prefixes: Sequence[pa.Array], count: int) -> tuple[Rows, TableRows]:
        rows, owners = self._rows_of_prefixes([normalize_floats(column) for column in prefixes], count)
        return owners, self._read(rows)

    def _rows_of_prefixes(self, prefixes: Sequence[pa.Array], count: int) -> tuple[Rows, Rows]:
        assert self._prefixes is not None
        encoded = self._prefix_keys.encode(prefixes, count)
        hashes, texts = self._prefix_keys.hashes_of(encoded)
        if len(np.unique(hashes)) < count:  # the hashes of two prefixes collide: find the prefixes one by one
            parts = [self._rows_of_prefixes([column.slice(n, 1) for column in prefixes], 1)[0] for n in range(count)]
            return np.concatenate(parts), np.repeat(np.arange(count), [len(part) for part in parts])
        rows, owners = self._prefixes.find(hashes)
        same = ~self._keys.differ(rows, encoded, texts, owners, self.spec.prefix)
        return rows[same], owners[same]

    def remove(self, keys: Sequence[pa.Array], count: int) -> int:
        _, distinct, number = _distinct(keys, count)
        encoded = self._keys.encode(distinct, number)
        rows = self._find(encoded, *self._keys.hashes_of(encoded))
        rows = rows[rows >= 0]
        self._remove(rows)
        return len(rows)

    def take_due(self, until_us: int, batch_rows: int) -> Iterator[TableRows]:
        if self._earliest_us is None or self._earliest_us > until_us:
            return
        due, times, later_us = self._due(until_us)
        for rows, earliest_us in _earliest_first(due, times, batch_rows):
            taken = self._read(rows)
            self._remove(rows)
            self._earliest_us = later_us if earliest_us is None else earliest_us
            yield taken
        self._earliest_us = later_us

    def forget_due(self, until_us: int, batch_rows: int) -> Iterator[int]:
        if self._earliest_us is None or self._earliest_us > until_us:
            return
        due, _, later_us = self._due(until_us)
        for start in range(0, len(due), batch_rows):
            self._remove(rows := due[start : start + batch_rows])
            yield len(rows)
        self._earliest_us = later_us

    def _due(self, until_us: int) -> tuple[Rows, npt.NDArray[np.int64], int | None]:
        """Return the due rows, their times, and the earliest time of all other rows."""
        all_times, known = self._times()
        due, later = [np.zeros(0, np.int64)], []
        for start in range(0, self._size, _SCAN_ROWS):
            part = slice(start, min(start + _SCAN_ROWS, self._size))
            times, live = all_times[part], self._groups.data[part] >= 0
            if known is not None:
                live &= known[part]
            is_due = times <= until_us
            due.append(np.flatnonzero(is_due & live) + start)
            staying = times[live & ~is_due]
            if len(staying):
                later.append(int(staying.min()))
        rows = np.concatenate(due)
        return rows, all_times[rows], min(later, default=None)

    def first_due(self) -> int | None:
        return self._earliest_us

    def _times(self) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Return the event times by row number, and a mask of those that are not null (None: all)."""
        if self._event_time is not None:
            return self._keys.read(self._event_time, self._size)
        assert self.spec.timed_value is not None
        return self._values.read_words(self.spec.timed_value, self._size)

    def take_marked(self, batch_rows: int) -> Iterator[TableRows]:
        if not self._may_have_marks:
            return
        marked = np.flatnonzero(self._marks().view(np.bool_))  # rows that are not in use have no mark
        for start in range(0, len(marked), batch_rows):
            rows = marked[start : start + batch_rows]
            self._touch(rows)
            self._values.column(0).data[rows] = 0
            taken = self._read(rows)
            yield TableRows(taken.rows, taken.values, taken.keys, np.ones(len(rows), np.bool_))
        self._may_have_marks = False

    @property
    def has_marks(self) -> bool:
        self._may_have_marks = self._may_have_marks and bool(self._marks().any())
        return self._may_have_marks

    def clear_marks(self) -> None:
        for start in range(0, self._size if self._may_have_marks else 0, _SCAN_ROWS):
            part = slice(start, min(start + _SCAN_ROWS, self._size))
            rows = np.flatnonzero(self._values.column(0).data[part]) + start
            self._touch(rows)
            self._values.column(0).data[rows] = 0
        self._may_have_marks = False

    def _marks(self) -> npt.NDArray[np.int8]:
        marks: npt.NDArray[np.int8] = self._values.column(0).data[: self._size]
        return marks

    def scan(self, batch_rows: int, first: int = 0, last: int | None = None) -> Iterator[TableRows]:
        last = self.spec.max_parallelism - 1 if last is None else last
        for start in range(0, self._size, _SCAN_ROWS):
            groups = self._groups.data[start : min(start + _SCAN_ROWS, self._size)]
            found = np.flatnonzero((groups >= first) & (groups <= last)) + start
            for step in range(0, len(found), batch_rows):
                yield self._read(found[step : step + batch_rows])

    def capture(self) -> MemoryCapture:
        return MemoryCapture(self._columns, self._log, self._size, self._count, self._restore)

    def _restore(self, past: CapturedRows, count: int) -> MemoryTable:
        """Restore captured content: replace the rows that were written since the capture."""
        changed = past.changed()
        groups = past.groups()[changed]
        existing, groups = changed[groups >= 0], groups[groups >= 0]
        columns = past.arrays(existing)
        self._log.discard_all()
        self._log = MemoryChangeLog(self.spec.value_fields, self._lock)
        self._log.reserve(self._size)
        in_use = np.concatenate([changed, np.arange(past.size, self._size)])
        self._clear(in_use[self._groups.data[in_use] >= 0])
        self._restore_rows(existing, groups, columns)
        self._numbers.restart(past.size, np.flatnonzero(self._groups.data[: past.size] < 0))
        assert self._count == count, f"{self._count} rows instead of {count}"
        return self._start_log()

    def _restore_rows(self, rows: Rows, groups: npt.NDArray[np.int16], columns: list[pa.Array]) -> None:
        """Add rows with given numbers, which are not in use."""
        keys = self._keys.encode(columns[: self.spec.key_count], len(rows))
        with self._lock:
            self._keys.reserve(self._size, keys)
        self._store_keys(rows, keys, self._keys.text_hashes(keys), groups)
        self._put(rows, self._values.loaded(columns[self.spec.key_count :]), len(rows))

    def _start_log(self) -> MemoryTable:
        """Start a new change log: the current content is capture 0."""
        self._log = MemoryChangeLog(self.spec.value_fields, self._lock)
        self._log.reserve(self._size)
        self._may_have_marks = self.spec.marks_changes
        return self

    def load(self, pieces: Iterable[StoredRows]) -> None:
        self._is_indexed = False
        for piece in pieces:
            groups = piece.batch.column(0).to_numpy()
            keys = piece.batch.columns[1 : 1 + self.spec.key_count]
            values = piece.batch.columns[1 + self.spec.key_count :]
            if piece.is_delta:
                self._load_delta(groups, keys, values[:-1], values[-1])
            else:
                self._load_base(groups, keys, values)
        if self.spec.indexes_keys:
            self._make_index()
        self._start_log()

    def _load_delta(
        self, groups: npt.NDArray[np.int16], keys: list[pa.Array], values: list[pa.Array], deleted: pa.Array
    ) -> None:
        deleted_rows = np.flatnonzero(deleted.to_numpy(zero_copy_only=False))
        if len(deleted_rows):
            self.remove([key.take(pa.array(deleted_rows)) for key in keys], len(deleted_rows))
            kept = np.flatnonzero(~deleted.to_numpy(zero_copy_only=False))
            groups, chosen = groups[kept], pa.array(kept)
            keys, values = [key.take(chosen) for key in keys], [value.take(chosen) for value in values]
        self._load_rows(groups, keys, values)

    def _load_base(self, groups: npt.NDArray[np.int16], keys: list[pa.Array], values: list[pa.Array]) -> None:
        """Append rows of absent keys, by ascending key group. They are not indexed yet."""
        encoded = self._keys.encode(keys, len(groups))
        before = self._size
        rows = self._numbers.append(len(groups))
        self._make_room(before, encoded)
        self._store_keys(rows, encoded, self._keys.text_hashes(encoded), groups)
        vectors = self._values.loaded(values)
        self._put(slice(before, self._size), vectors, len(rows))

    def _make_index(self) -> None:
        """Build the index of whole keys, with its final size from the start, unless it exists."""
        if self._is_indexed:
            return
        self._is_indexed = True
        missing = self._count
        for start in range(0, self._size, _SCAN_ROWS):
            rows = np.flatnonzero(self._groups.data[start : min(start + _SCAN_ROWS, self._size)] >= 0) + start
            self._index.insert(rows, self._keys.hashes(rows), missing)
            missing -= len(rows)

    def _load_rows(self, groups: npt.NDArray[np.int16], keys: list[pa.Array], values: list[pa.Array]) -> None:
        encoded = self._keys.encode(keys, len(groups))
        rows = self._find(encoded, *self._keys.hashes_of(encoded))
        new = np.flatnonzero(rows < 0)
        if len(new):
            created = self._keys.encode([key.take(pa.array(new)) for key in keys], len(new))
            rows[new] = self._create(created, self._keys.text_hashes(created), groups[new])
        self._put(rows, self._values.loaded(values), len(rows))

    def close(self) -> None:
        self._log.closed = True

    def _read(self, rows: Rows) -> TableRows:
        values = [self._values.read_one(position, rows) for position in range(len(self._values))]
        marked = values[0].read()[0] != 0 if self.spec.marks_changes else None
        return TableRows(np.arange(len(rows)), values, self._keys.decode(self._keys.take(rows)), marked)

    def _find(self, keys: Keys, hashes: U64, texts: Sequence[U64]) -> Rows:
        self._make_index()
        return self._index.find(hashes, lambda rows, asked: self._keys.differ(rows, keys, texts, asked))

    def _locate(self, columns: Sequence[pa.Array], count: int) -> tuple[Rows, Mask]:
        """Return the rows of distinct keys, and a mask of the rows that were created because the keys were absent."""
        keys = self._keys.encode(columns, count)
        hashes, texts = self._keys.hashes_of(keys)
        rows = self._find(keys, hashes, texts)
        is_new = rows < 0
        new = np.flatnonzero(is_new)
        if len(new):
            if len(new) < count:
                chosen = pa.array(new)
                columns = [column.take(chosen) for column in columns]
                keys = self._keys.encode(columns, len(new))
                hashes, texts = hashes[new], [text[new] for text in texts]
            groups = groups_of(columns[: self._key_group_columns], len(new), self.spec.max_parallelism)
            rows[new] = self._create(keys, texts, groups, hashes)
        return rows, is_new

    def _create(
        self, keys: Keys, texts: Sequence[U64], groups: npt.NDArray[np.int16], hashes: U64 | None = None
    ) -> Rows:
        """Create rows for distinct keys that are absent. The caller must write their values."""
        rows = self._new_rows(keys, groups)
        self._store_keys(rows, keys, texts, groups, hashes)
        return rows

    def _store_keys(
        self,
        rows: Rows,
        keys: Keys,
        texts: Sequence[U64],
        groups: npt.NDArray[np.int16],
        hashes: U64 | None = None,
    ) -> None:
        """Store the keys of new rows and index them. ``hashes``: hashes of the keys, if they are known."""
        self._touch(rows)
        self._keys.put(rows, keys, texts)
        self._groups.data[rows] = groups
        self._count += len(rows)
        if self._is_indexed:
            self._index.insert(rows, self._keys.leading_hashes(keys, texts) if hashes is None else hashes)
        if self._prefixes is not None:
            self._prefixes.add(rows, self._keys.leading_hashes(keys, texts, self.spec.prefix))
        if self._event_time is not None:
            times, known = self._event_time.of(keys)
            self._update_earliest(times if known is None else times[known])

    def _put(self, rows: Rows | slice, vectors: Sequence[Vector], count: int) -> None:
        """Write the values of existing rows."""
        self._values.put(rows, vectors, count)
        if self.spec.timed_value is not None:
            times, known = vectors[self.spec.timed_value].read()
            self._update_earliest(times[:count][known[:count]])

    def _update_earliest(self, times: npt.NDArray[np.int64]) -> None:
        """Update the earliest event time for rows with these times."""
        if len(times):
            earliest = int(times.min())
            self._earliest_us = earliest if self._earliest_us is None else min(earliest, self._earliest_us)

    def _new_rows(self, keys: Keys, groups: npt.NDArray[np.int16]) -> Rows:
        """Return row numbers for new keys, and make room for them."""
        before = self._size
        rows = self._numbers.take(groups)
        self._make_room(before, keys)
        return rows

    def _make_room(self, before: int, keys: Keys) -> None:
        """Make room for the rows of these keys, whose numbers start at ``before``."""
        if self._size > _MAX_ROWS:
            raise MemoryError(f"a table in memory holds at most {_MAX_ROWS} rows")
        with self._lock:
            self._keys.reserve(self._size, keys)
            self._groups.reserve(self._size)
            self._values.reserve(self._size)
        if self._prefixes is not None:
            self._prefixes.reserve(self._size)
        self._log.reserve(self._size)
        self._groups.data[before : self._size] = -1

    def _touch(self, rows: Rows) -> None:
        """Save the contents of rows for captures before they change. ``rows`` are distinct."""
        needed = self._log.touch(rows, self._count)
        if len(needed):
            self._log.undo.add(needed, self._groups.data[needed], self._values.take(needed), self._lock)

    def _remove(self, rows: Rows) -> None:
        """Remove these rows, which are distinct."""
        self._touch(rows)
        if self._log.needs_removed:
            keys = self._keys.decode(self._keys.take(rows))
            self._log.remove(Removed(rows.astype(np.int32), self._groups.data[rows], keys), self._count)
        self._clear(rows)
        self._numbers.free(rows)

    def _clear(self, rows: Rows) -> None:
        """Clear rows that are in use."""
        if self._is_indexed:
            self._index.remove(rows, self._keys.hashes(rows))
        if self._prefixes is not None:
            self._prefixes.remove(rows)
        self._keys.free(rows)
        self._values.forget(rows)
        if self.spec.marks_changes:
            self._values.column(0).data[rows] = 0
        self._groups.data[rows] = -1
        self._count -= len(rows)


def _earliest_first(rows: Rows, times: npt.NDArray[np.int64], batch_rows: int) -> Iterator[tuple[Rows, int | None]]:
    """Yield rows by ascending time, at most ``batch_rows`` per step, and the time of the next row (None: no next row).

    The first step does not sort all rows, because a caller may need only a few of many.
    """
    if not len(rows):
        return
    order = np.argpartition(times, batch_rows) if len(rows) > batch_rows else np.arange(len(rows))
    first, rest = order[:batch_rows], order[batch_rows:]
    first.sort()
    yield rows[first[order_by(times[first])]], int(times[rest].min()) if len(rest) else None
    rest.sort()
    rest = rest[order_by(times[rest])]
    for start in range(0, len(rest), batch_rows):
        later = rest[start + batch_rows : start + batch_rows + 1]
        yield rows[rest[start : start + batch_rows]], int(times[later[0]]) if len(later) else None


def _distinct(keys: Sequence[pa.Array], count: int) -> tuple[Rows, list[pa.Array], int]:
    """Return for each key its index among the distinct keys; these, with normalized floats; and their number."""
    columns = [normalize_floats(key) for key in keys]
    indices, first = group_rows(columns, count)
    if len(first) == count:
        return np.arange(count), columns, count
    chosen = pa.array(first)
    return indices, [column.take(chosen) for column in columns], len(first)
