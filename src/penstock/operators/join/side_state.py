"""State of one side of a stream-stream join: its rows by key, as long as they may find a match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.functions.core.base import Expression
from penstock.functions.core.shared import SharedExpressions
from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.operators.batches import make_batch
from penstock.operators.closed_groups import event_times
from penstock.operators.join.pairs import Candidates, Mask, Rows
from penstock.state.arrays import validity
from penstock.state.keys import group_rows, normalize_floats
from penstock.state.ordering import order_by
from penstock.state.stored_form import stored_schema
from penstock.state.table import KeyedTable, TableRows, TableSpec

ROW = "__row"
"""Last key column of the table: a number that distinguishes rows with equal keys."""
MATCHED = "__matched"
"""Last value column of a preserved side: True if the row had a match."""


@dataclass(frozen=True)
class ExpiryBound:
    """Bound of event time: a row can find no match if its event time is at or below the watermark plus ``offset_us``.

    Attributes:
        column: position of the event time: a timestamp, or if it is a key also a window struct (its ``end`` counts).
        offset_us: offset in microseconds; negative if matches may come later than the row itself.
    """

    column: int
    offset_us: int

    def until(self, watermark_us: int) -> int:
        if watermark_us == END_OF_TIME_US:
            return watermark_us
        return max(START_OF_TIME_US, min(watermark_us + self.offset_us, END_OF_TIME_US - 1))


@dataclass(frozen=True)
class JoinSide:
    """Specification of one input of a join.

    Attributes:
        schema: schema of its rows.
        width: number of leading columns that are part of the result; computed keys may follow them.
        keys: positions of the key columns, by which the rows are partitioned.
        is_preserved: True if rows without a match are emitted with nulls for the other side.
        event_time: position of the event time. Rows at or below the watermark are late. If None, no row is late.
        bound: bound at which rows are removed. If None, rows are kept for ever.
        condition: condition without which a row cannot have a match.
    """

    schema: pa.Schema
    width: int
    keys: tuple[int, ...]
    is_preserved: bool = False
    event_time: int | None = None
    bound: ExpiryBound | None = None
    condition: Expression | None = None

    def __post_init__(self) -> None:
        assert self.bound is None or self.bound.column in self.keys or not self._is_struct(self.bound.column)

    @cached_property
    def values(self) -> tuple[int, ...]:
        """Positions of the columns that are stored as values.

        These are the result's columns that the keys do not contain, and keys with floats, which are normalized.
        """
        return tuple(
            column
            for column in range(self.width)
            if column not in self.keys or _has_floats(self.schema.field(column).type)
        )

    @cached_property
    def table_schema(self) -> pa.Schema:
        """Keys and the row's number; value columns, and for a preserved side ``MATCHED``. The names are distinct."""
        taken = [ROW, MATCHED]
        fields: list[pa.Field] = []
        for position in (*self.keys, *self.values):
            field = self.schema.field(position)
            names = (field.name, *(f"{field.name}_{number}" for number in range(len(self.schema) * 2)))
            taken.append(next(name for name in names if name not in taken))
            fields.append(field.with_name(taken[-1]))
        fields.insert(len(self.keys), pa.field(ROW, pa.int64()))
        return pa.schema([*fields, pa.field(MATCHED, pa.bool_())] if self.is_preserved else fields)

    @property
    def keeps(self) -> str:
        """Description of the kept state; see ``OperatorSpec``."""
        if self.bound is None:
            return "every row, for ever"
        field, ahead_s = self.schema.field(self.bound.column), self.bound.offset_us / 1e6
        end = ".end" if pa.types.is_struct(field.type) else ""
        return f"a row until the watermark reaches its {field.name}{end}" + (f" {-ahead_s:+g} s" if ahead_s else "")

    @property
    def stored_schema(self) -> pa.Schema:
        return stored_schema(self.table_schema)

    def table_spec(self, max_parallelism: int, removed_when_matched: bool = False) -> TableSpec:
        """Return the table's layout. ``removed_when_matched``: True if a row is removed at its first match."""
        keys = len(self.keys)
        return TableSpec(
            self.table_schema,
            keys + 1,
            max_parallelism,
            key_group_columns=keys,
            prefix=keys,
            event_time=self._due_by(),
            indexes_keys=self.is_preserved or removed_when_matched,
            keeps_arrays=True,
        )

    def _due_by(self) -> tuple[int, ...] | None:
        if self.bound is None:
            return None
        column = self.bound.column
        if column not in self.keys:
            return (len(self.keys) + 1 + self.values.index(column),)
        return (self.keys.index(column), 1) if self._is_struct(column) else (self.keys.index(column),)

    def _is_struct(self, column: int) -> bool:
        return bool(pa.types.is_struct(self.schema.field(column).type))

    def key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(position) for position in self.keys]

    def expired(self, batch: pa.RecordBatch, watermark_us: int | None) -> Mask | None:
        """Return a mask of the rows that can no longer find a match; None if there are none."""
        if self.bound is None or watermark_us is None:
            return None
        times, known = event_times(batch.column(self.bound.column))
        expired: Mask = known & (times <= self.bound.until(watermark_us))
        return expired if expired.any() else None


class KeyMatches:
    """Stored rows that have a key of a batch. Rows of one key are adjacent; see ``candidates``."""

    def __init__(self, side: JoinSide, found: TableRows, order: Rows, candidates: Candidates) -> None:
        self.candidates = candidates
        self._side = side
        self._found = found
        self._order = order
        self._columns: dict[int, pa.Array] = {}

    @property
    def rows(self) -> int:
        return len(self._order)

    def column(self, position: int) -> pa.Array:
        """Return the column at this position for all of these rows."""
        if position not in self._columns:
            self._columns[position] = _column(self._side, self._found, position, self._order)
        return self._columns[position]

    def matched(self) -> Mask:
        data, valid = self._found.values[-1].read()
        rows = self._found.rows[self._order]
        matched: Mask = data[rows].astype(np.bool_) & valid[rows]
        return matched

    def keys(self, positions: Rows) -> list[pa.Array]:
        """Return the table's key columns for the rows at these positions."""
        chosen = pa.array(self._order[positions])
        return [key.take(chosen) for key in self._found.keys]


class JoinSideState:
    """Stored rows of one side.

    Attributes:
        table: table of the rows.
        next: number of the next row. It ensures that rows of one key have distinct numbers, also after a rescale.
    """

    def __init__(self, spec: JoinSide, null_safe: Sequence[bool], table: KeyedTable) -> None:
        self.spec = spec
        self.table = table
        self.next = 0
        self._null_safe = null_safe
        schema = pa.schema(list(spec.schema)[: spec.width])
        self._empty = make_batch([pa.nulls(0, kind) for kind in schema.types], schema, 0)
        self._condition = None if spec.condition is None else SharedExpressions([spec.condition])

    def unmatchable(self, batch: pa.RecordBatch) -> Mask | None:
        """Return a mask of the rows that can never have a match; None if there are none."""
        matchable = np.ones(batch.num_rows, np.bool_)
        for key, safe in zip(self.spec.key_columns(batch), self._null_safe, strict=True):
            if key.null_count and not safe:
                matchable &= validity(key)
        if self._condition is not None:
            [true] = self._condition.evaluate_concatenated(batch)
            matchable &= true.fill_null(False).to_numpy(zero_copy_only=False)
        return None if matchable.all() else ~matchable

    def find_key_matches(self, keys: Sequence[pa.Array], rows: int) -> KeyMatches:
        """Return the stored rows with any of these keys. ``keys``: key columns of a batch of ``rows`` rows."""
        normal = [normalize_floats(key) for key in keys]
        codes, first = group_rows(normal, rows)
        chosen = pa.array(first)
        owners, found = self.table.find_by_prefix([key.take(chosen) for key in normal], len(first))
        counts = np.bincount(owners, minlength=len(first))
        begins = np.cumsum(counts) - counts
        candidates = Candidates(begins[codes], counts[codes])
        return KeyMatches(self.spec, found, order_by(owners), candidates)

    def add(self, batch: pa.RecordBatch, matched: Mask) -> None:
        numbers = np.arange(self.next, self.next + batch.num_rows)
        self.next += batch.num_rows
        values = [batch.column(column) for column in self.spec.values]
        if self.spec.is_preserved:
            values.append(pa.array(matched))
        self.table.add([*self.spec.key_columns(batch), pa.array(numbers)], values, batch.num_rows)

    def mark_matched(self, matches: KeyMatches, hit: Mask) -> None:
        """Mark the stored rows where ``hit`` is True as matched."""
        newly_matched = np.flatnonzero(hit & ~matches.matched())
        if len(newly_matched):
            with self.table.edit(matches.keys(newly_matched), len(newly_matched)) as found:
                found.values[-1].set(found.rows, pa.array(np.ones(len(newly_matched), np.bool_)))

    def remove(self, matches: KeyMatches, positions: Rows) -> None:
        self.table.remove(matches.keys(positions), len(positions))

    def take_expired(self, watermark_us: int, at_once: int) -> Iterator[pa.RecordBatch]:
        """Remove the rows that can no longer find a match. After each step, yield the removed rows without a match.

        If the side is not preserved, all yielded batches are empty.
        """
        if self.spec.bound is None:
            return
        until_us = self.spec.bound.until(watermark_us)
        if self.spec.is_preserved:
            yield from map(self._unmatched, self.table.take_due(until_us, at_once))
        else:
            yield from (self._empty for _ in self.table.forget_due(until_us, at_once))

    def take_remaining(self, at_once: int) -> Iterator[pa.RecordBatch]:
        """Remove all remaining rows of a preserved side; see ``take_expired``."""
        while (rows := next(self.table.scan(at_once), None)) is not None:
            unmatched = self._unmatched(rows)
            self.table.remove(rows.keys, len(rows.rows))
            yield unmatched

    def _unmatched(self, rows: TableRows) -> pa.RecordBatch:
        data, valid = rows.values[-1].read()
        chosen = np.flatnonzero(~(data[rows.rows].astype(np.bool_) & valid[rows.rows]))
        columns = [_column(self.spec, rows, position, chosen) for position in range(self.spec.width)]
        return make_batch(columns, self._empty.schema, len(chosen))


def _column(side: JoinSide, found: TableRows, position: int, chosen: Rows) -> pa.Array:
    """Return a column of the input for the rows ``chosen`` among ``found``."""
    if position in side.values:
        return found.values[side.values.index(position)].to_arrow(found.rows[chosen])
    return found.keys[side.keys.index(position)].take(pa.array(chosen))


def _has_floats(kind: pa.DataType) -> bool:
    """Return True if the type contains floats: the table normalizes them in keys, so that values may change."""
    if pa.types.is_struct(kind):
        return any(_has_floats(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))
