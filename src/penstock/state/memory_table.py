"""MemoryTable: the in-memory working copy of one keyed state table, columnar and looked up a batch at a time.

Rows are only ever appended; removed ones are marked and squeezed out later, into new arrays. So a snapshot needs to
share nothing but references: key columns never change behind it, value columns are copied on the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.capture import StoredRows, TableCapture, WholeTable, stored_schema
from penstock.state.hashing import groups_of
from penstock.state.index import HashIndex
from penstock.state.keys import FrozenKeys, KeyCodec, Words, number_distinct
from penstock.state.vector import Mask, Rows, Vector, arrow_of

_SQUEEZE_AT = 4096
"""Dead rows that are tolerated before they are squeezed out, once they outnumber the live ones."""


class MemoryTable:
    """Rows of key columns and value columns; a key (nulls, NaN and structs included) has at most one row.

    Row numbers are handed out by ``locate`` and ``find`` and hold until the next ``locate``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_count: int,
        max_parallelism: int,
        fills: Sequence[object] | None = None,
        spread_by: int | None = None,
    ) -> None:
        """An empty table.

        Args:
            schema: key columns, then value columns.
            key_count: how many columns are the key; 0 makes a table of at most one row.
            max_parallelism: the number of key groups.
            fills: what the raw value columns of a new row start with (they are null); zeros by default.
            spread_by: how many leading key columns decide the key group, as those of the edge that brings the rows; all
                by default.
        """
        self.schema = schema
        self._key_schema = pa.schema([schema.field(position) for position in range(key_count)])
        self._value_fields = [schema.field(position) for position in range(key_count, len(schema))]
        self._fills = list(fills) if fills is not None else [0] * len(self._value_fields)
        self._max_parallelism = max_parallelism
        self._spread_by = key_count if spread_by is None else spread_by
        self.clear()

    def clear(self) -> None:
        """Remove everything."""
        self._codec = KeyCodec(self._key_schema.types)
        self._index = HashIndex()
        self._words = [Vector(pa.int64()) for _ in range(self._codec.width)]
        self._groups = Vector(pa.int16())
        self._live = Vector(pa.bool_())
        self.values = [Vector(field.type, fill) for field, fill in zip(self._value_fields, self._fills, strict=True)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """An estimate of the memory in use."""
        vectors = [*self._words, self._groups, self._live, *self.values]
        return self._index.nbytes + sum(vector.nbytes for vector in vectors)

    def rows(self) -> Rows:
        """All live rows, in order of creation."""
        return np.flatnonzero(self._live.read()[0])

    def locate(self, keys: Sequence[pa.Array], count: int) -> Rows:
        """The row of every key; absent keys get a new row with null values.

        Args:
            keys: the key columns.
            count: their length.
        """
        dead = self._live.size - self._count
        if dead > _SQUEEZE_AT and dead > self._count:
            self._squeeze()
        words = self._codec.encode(keys, count)
        rows = self._index.find(words, self._stored_words())
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            numbers, first = number_distinct([word[missing] for word in words], len(missing))
            created = self._append([key.take(pa.array(missing[first])) for key in keys],
                                   [word[missing[first]] for word in words])  # fmt: skip
            rows[missing] = created[numbers]
        return rows

    def find(self, keys: Sequence[pa.Array], count: int) -> Rows:
        """The row of every key, or -1 where there is none."""
        return self._index.find(self._codec.encode(keys, count), self._stored_words())

    def remove(self, rows: Rows) -> None:
        """Remove live rows, each named once."""
        self._index.remove(rows, [word.read()[0][rows] for word in self._words])
        self._live.write()[0][rows] = 0
        self._count -= len(rows)

    def keys(self, rows: Rows) -> list[pa.Array]:
        """The key columns of these rows."""
        return self._codec.decode([word.read()[0][rows] for word in self._words])

    def key_words(self, path: Sequence[int]) -> tuple[Words, Mask]:
        """One fixed-width key column (or struct field) as raw int64 by row number, and where it is not null.

        Args:
            path: the key column's position, then field positions. Dead rows are included: see ``rows``.
        """
        word, bit = self._codec.place_of(path)
        return self._words[word].read()[0], (self._words[0].read()[0] >> bit) & 1 == 0

    def capture(self) -> MemoryCapture:
        """The content now, by reference. Costs microseconds; the first write to each value column afterwards copies
        that column."""
        return MemoryCapture(
            schema=stored_schema(self.schema),
            keys=self._codec.frozen(),
            words=tuple(word.read()[0] for word in self._words),
            groups=self._groups.read()[0],
            live=self._live.capture()[0],
            values=tuple(value.capture() for value in self.values),
        )

    def snapshot(self) -> pa.RecordBatch:
        """The content now as a batch: ``__key_group`` ascending first, then the table's columns."""
        return self.capture().batch

    def load(self, pieces: Iterable[StoredRows]) -> None:
        """Fill the empty table."""
        for piece in pieces:
            assert not piece.is_delta
            self._load(piece.batch)

    def _load(self, batch: pa.RecordBatch) -> None:
        columns = batch.columns[1:]
        keys = columns[: len(self._key_schema)]
        rows = self.locate(keys, batch.num_rows)
        for vector, column in zip(self.values, columns[len(keys) :], strict=True):
            vector.set(rows, column)

    def _stored_words(self) -> list[npt.NDArray[Any]]:
        return [word.raw for word in self._words]

    def _append(self, keys: Sequence[pa.Array], words: Sequence[Words]) -> Rows:
        count = len(words[0])
        start = self._live.size
        if not self._index.has_room(count):
            self._rebuild_index(count)
        for vector in [*self._words, self._groups, self._live, *self.values]:
            vector.extend(count)
        rows = np.arange(start, start + count)
        for vector, word in zip(self._words, words, strict=True):
            vector.raw[start : start + count] = word
        self._groups.raw[start : start + count] = groups_of(keys[: self._spread_by], count, self._max_parallelism)
        self._live.raw[start : start + count] = 1
        self._index.insert(rows, words)
        self._count += count
        return rows

    def _rebuild_index(self, more: int) -> None:
        rows = self.rows()
        self._index = HashIndex(len(rows) + more)
        self._index.insert(rows, [word.read()[0][rows] for word in self._words])

    def _squeeze(self) -> None:
        """Move the live rows to the front of new arrays and forget interned values nobody uses any more."""
        rows, values = self.rows(), self.values
        keys = self.keys(rows)
        self.clear()
        if len(rows):
            created = self.locate(keys, len(rows))
            self.values = [vector.select(rows[np.argsort(created)]) for vector in values]


@dataclass
class MemoryCapture(TableCapture):
    """One moment of a table as references to arrays that never change. ``batch`` may be asked for on any thread."""

    schema: pa.Schema
    keys: FrozenKeys
    words: tuple[Words, ...]
    groups: npt.NDArray[np.int16]
    live: npt.NDArray[np.int8]
    values: tuple[tuple[npt.NDArray[Any], Mask], ...]

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """The rows, by key group, then in order of creation."""
        rows = np.flatnonzero(self.live)
        rows = rows[np.argsort(self.groups[rows], kind="stable")]
        columns = [pa.array(self.groups[rows])]
        columns += self.keys.decode([word[rows] for word in self.words])
        kinds = self.schema.types[len(columns) :]
        columns += [
            arrow_of(data[rows], valid[rows], kind) for (data, valid), kind in zip(self.values, kinds, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    serial: int = 1

    def __post_init__(self) -> None:
        self.rows = int(np.count_nonzero(self.live))

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        return WholeTable(self.batch).base(first, last)

    def changed_since(self, serial: int) -> int | None:
        return None

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        raise AssertionError("changed_since says that there are none")

    def forget_before(self) -> None:
        """Nothing is kept."""

    def release(self) -> None:
        """Nothing is kept."""
