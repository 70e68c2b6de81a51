"""A state backend over a dict, slow and plain, with flaws to switch on: what the kit has to find."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.hashing import groups_of
from penstock.state.keys import normalize_floats
from penstock.state.stored_form import delta_schema, stored_schema
from penstock.state.table import (
    NO_ROW,
    KeyedTable,
    RestorePoint,
    StateBackend,
    StoredRows,
    TableCapture,
    TableRows,
    TableSpec,
)
from penstock.state.vector import Vector
from penstock.testing.table_kit_data import freeze, micros

FLAWS = {
    "keys are compared as Python does": "keys of every type",
    "keys are not normalised": "keys of every type",
    "null keys are all one": "taking what is due",
    "repeated keys overwrite each other": "keys of every type",
    "new rows are zero": "keys of every type",
    "a null is not stored": "values of every type",
    "removed rows are counted": "an empty table",
    "rows due now are not due": "taking what is due",
    "null times are due": "taking what is due",
    "due rows come in any order": "taking what is due",
    "due rows go after they are yielded": "taking what is due",
    "what is due is not forgotten": "taking what is due",
    "steps are as long as it likes": "keys of every type",
    "marks stay after they were taken": "marks come and go",
    "cleared marks are no change": "marks come and go",
    "scans ignore the key groups": "scanning some key groups",
    "captures show the present": "values of every type",
    "bases are not sorted": "keys of every type",
    "bases ignore the key groups": "captures keep their moment",
    "key groups are of the first column": "an edit that fails",
    "deltas lack tombstones": "deltas lead from base to base",
    "deltas have what changed later": "deltas lead from base to base",
    "deltas lack what changed twice": "marks come and go",
    "deltas ignore the key groups": "deltas lead from base to base",
    "no delta is known": "small deltas are told",
    "forgetting goes too far": "small deltas are told",
    "closed tables can be read": "closing with captures",
    "loading forgets the deltas": "loading bases and deltas",
    "loading forgets the marks": "loading several bases",
    "loading begins no epoch": "loading bases and deltas",
    "going back keeps what is new": "going back",
    "going back loses what was removed": "going back",
    "going back is forgotten": "going back",
    "going back begins no epoch": "going back",
}
"""By what is wrong, the check that finds it."""


@dataclass
class _Row:
    key: tuple[Any, ...]
    columns: list[pa.Array]
    group: int
    values: list[Any]
    time: int | None


class DictBackend(StateBackend):
    def __init__(self, flaw: str = "") -> None:
        assert flaw in ("", *FLAWS)
        self._flaw = flaw

    def create_table(self, name: str, spec: TableSpec) -> KeyedTable:
        return DictTable(spec, self._flaw)

    def close(self) -> None:
        """Nothing is kept elsewhere."""


class DictTable(KeyedTable):
    def __init__(self, spec: TableSpec, flaw: str) -> None:
        self.spec = spec
        self.flaw = flaw
        self.rows: dict[Any, _Row] = {}
        self.changes: list[tuple[int, Any, _Row]] = []
        self.serial = 0
        self.oldest = 0
        self.closed = False

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return 100 * len(self.rows)

    def find_by_prefix(self, prefixes: Sequence[pa.Array], count: int) -> tuple[Any, TableRows]:
        raise NotImplementedError("tests/unit/state/test_find_by_prefix.py has a dict of its own")

    def first_due(self) -> int | None:
        return min((row.time for row in self.rows.values() if row.time is not None), default=None)

    def _new(self, keys: Sequence[pa.Array], count: int) -> list[tuple[Any, _Row]]:
        columns = list(keys) if self.flaw == "keys are not normalised" else [normalize_floats(key) for key in keys]
        spread = self.spec.key_count if self.spec.key_group_columns is None else self.spec.key_group_columns
        if self.flaw == "key groups are of the first column":
            spread = 1
        groups = groups_of([normalize_floats(key) for key in keys[:spread]], count, self.spec.max_parallelism)
        fields = self.spec.value_fields
        made = []
        for row, values in enumerate(zip(*[key.to_pylist() for key in keys], strict=True) if keys else [()] * count):
            parts = [column.slice(row, 1) for column in columns]
            identity: Any = tuple(freeze(value, key=True) for value in values)
            if self.flaw == "keys are compared as Python does":
                identity = repr(values)
            if self.flaw == "null keys are all one" and any(value is None for value in values):
                identity = "null"
            made.append((identity, _Row(values, parts, int(groups[row]), [None] * len(fields), self._time(parts))))
        return made

    def _time(self, parts: list[pa.Array]) -> int | None:
        if self.spec.event_time is None or self.spec.timed_value is not None:
            return None
        column = parts[self.spec.event_time[0]]
        for position in self.spec.event_time[1:]:
            column = column.flatten()[position]
        time: int | None = column.cast(pa.int64()).to_pylist()[0]
        return -1 if time is None and self.flaw == "null times are due" else time

    def _vectors(self, rows: Sequence[_Row], new: Sequence[bool] = ()) -> list[Vector]:
        initial_values = self.spec.initial_values or (0,) * len(self.spec.value_fields)
        vectors = []
        for position, (field, fill) in enumerate(zip(self.spec.value_fields, initial_values, strict=True)):
            vector = Vector(field.type, fill)
            vector.extend(len(rows))
            vector.set(np.arange(len(rows)), pa.array([row.values[position] for row in rows], field.type))
            if self.flaw == "new rows are zero" and field.type == pa.int64():
                data, valid = vector.write()
                data[np.array(new, bool)], valid[np.array(new, bool)] = 0, True
            vectors.append(vector)
        return vectors

    def _changed(self, identity: Any, row: _Row) -> None:
        self.changes.append((self.serial + 1, identity, row))

    @contextmanager
    def edit(self, keys: Sequence[pa.Array], count: int) -> Iterator[TableRows]:
        made = self._new(keys, count)
        distinct = dict(reversed(made))
        places = {identity: place for place, identity in enumerate(distinct)}
        rows = [copy.copy(self.rows.get(identity, row)) for identity, row in distinct.items()]
        if self.flaw == "repeated keys overwrite each other":
            rows = [copy.copy(self.rows.get(identity, row)) for identity, row in made]
            numbers = np.arange(count)
            identities = [identity for identity, _ in made]
        else:
            numbers = np.array([places[identity] for identity, _ in made], np.int64)
            identities = list(distinct)
        vectors = self._vectors(rows, [identity not in self.rows for identity in identities])
        yield TableRows(numbers, vectors)
        if self.spec.marks_changes:
            data, valid = vectors[0].write()
            data[:], valid[:] = 1, True
        columns = [vector.to_arrow(np.arange(len(rows))).to_pylist() for vector in vectors]
        for place, (identity, row) in enumerate(zip(identities, rows, strict=True)):
            values = [column[place] for column in columns]
            if self.flaw == "a null is not stored":
                values = [old if new is None else new for old, new in zip(row.values, values, strict=True)]
            self.rows[identity] = _Row(row.key, row.columns, row.group, values, row.time)
            self._changed(identity, row)

    def find(self, keys: Sequence[pa.Array], count: int) -> TableRows:
        made = self._new(keys, count)
        there = [self.rows[identity] for identity, _ in made if identity in self.rows]
        known = np.array([identity in self.rows for identity, _ in made], bool)
        return TableRows(np.where(known, np.cumsum(known) - 1, NO_ROW), self._vectors(there))

    def remove(self, keys: Sequence[pa.Array], count: int) -> int:
        removed = 0
        for identity, _ in self._new(keys, count):
            removed += self.flaw == "removed rows are counted"
            if identity in self.rows:
                removed += self.flaw != "removed rows are counted"
                self._pop(identity)
        return removed

    def _pop(self, identity: Any) -> None:
        self._changed(identity, self.rows.pop(identity))

    def _shown(self, identities: Sequence[Any]) -> TableRows:
        rows = [self.rows[identity] for identity in identities]
        fields = enumerate(self.spec.key_schema)
        keys = [pa.concat_arrays([row.columns[position] for row in rows]) for position, _ in fields]
        marked = np.array([bool(row.values[0]) for row in rows]) if self.spec.marks_changes else None
        return TableRows(np.arange(len(rows)), self._vectors(rows), keys, marked)

    def _steps(self, identities: list[Any], batch_rows: int) -> Iterator[list[Any]]:
        batch_rows += self.flaw == "steps are as long as it likes"
        for start in range(0, len(identities), batch_rows):
            yield identities[start : start + batch_rows]

    def _due_at(self, row: _Row) -> int | None:
        if self.spec.timed_value is None:
            return row.time
        moment = row.values[self.spec.timed_value]
        return None if moment is None else micros(moment)

    def take_due(self, until_us: int, batch_rows: int) -> Iterator[TableRows]:
        until_us -= self.flaw == "rows due now are not due"
        times = [(self._due_at(row), identity) for identity, row in self.rows.items()]
        due = [(time, identity) for time, identity in times if time is not None and time <= until_us]
        if self.flaw != "due rows come in any order":
            due.sort(key=lambda one: one[0])
        for step in self._steps([identity for _, identity in due], batch_rows):
            shown = self._shown(step)
            if self.flaw == "due rows go after they are yielded":
                yield shown
            for identity in step:
                self._pop(identity)
            if self.flaw != "due rows go after they are yielded":
                yield shown

    def forget_due(self, until_us: int, batch_rows: int) -> Iterator[int]:
        if self.flaw != "what is due is not forgotten":
            yield from (len(rows.rows) for rows in self.take_due(until_us, batch_rows))

    def take_marked(self, batch_rows: int) -> Iterator[TableRows]:
        for step in self._steps([identity for identity, row in self.rows.items() if row.values[0]], batch_rows):
            shown = self._shown(step)
            self._clear(step)
            yield shown

    def _clear(self, identities: Iterable[Any]) -> None:
        for identity in identities:
            row = self.rows[identity]
            if self.flaw != "marks stay after they were taken":
                self.rows[identity] = _Row(row.key, row.columns, row.group, [False, *row.values[1:]], row.time)
            if self.flaw != "cleared marks are no change":
                self._changed(identity, row)

    @property
    def has_marks(self) -> bool:
        return self.spec.marks_changes and any(row.values[0] for row in self.rows.values())

    def clear_marks(self) -> None:
        if self.spec.marks_changes:
            self._clear([identity for identity, row in self.rows.items() if row.values[0]])

    def scan(self, batch_rows: int, first: int = 0, last: int | None = None) -> Iterator[TableRows]:
        last = self.spec.max_parallelism if last is None else last
        if self.flaw == "scans ignore the key groups":
            first, last = 0, self.spec.max_parallelism
        yield from map(
            self._shown, self._steps([i for i, row in self.rows.items() if first <= row.group <= last], batch_rows)
        )

    def capture(self) -> TableCapture:
        self.serial += 1
        return DictCapture(self)

    def load(self, pieces: Iterable[StoredRows]) -> None:
        for piece in pieces:
            if piece.is_delta and self.flaw == "loading forgets the deltas":
                continue
            columns = piece.batch.columns[1:]
            deleted = columns.pop().to_pylist() if piece.is_delta else [False] * piece.batch.num_rows
            made = self._new(columns[: self.spec.key_count], piece.batch.num_rows)
            values = [column.to_pylist() for column in columns[self.spec.key_count :]]
            for position, (identity, row) in enumerate(made):
                self.rows.pop(identity, None)
                if not deleted[position]:
                    row.values = [column[position] for column in values]
                    if self.spec.marks_changes and self.flaw == "loading forgets the marks":
                        row.values[0] = False
                    self.rows[identity] = row
        if self.flaw == "loading begins no epoch":
            self.serial = -1

    def close(self) -> None:
        self.closed = True


class DictCapture(TableCapture):
    def __init__(self, table: DictTable) -> None:
        self.schema = stored_schema(table.spec.schema)
        self.serial = table.serial
        self.rows = len(table)
        self._table = table
        self._content = table.rows if table.flaw == "captures show the present" else dict(table.rows)
        self._changes = list(table.changes)

    def base(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self._check()
        if self._table.flaw == "bases ignore the key groups":
            first, last = 0, self._table.spec.max_parallelism
        rows = [row for row in self._content.values() if first <= row.group <= last]
        if self._table.flaw != "bases are not sorted":
            rows.sort(key=lambda row: row.group)
        if rows:
            yield self._batch(rows, [], self.schema)

    def _batch(self, rows: list[_Row], deleted: list[bool], schema: pa.Schema) -> pa.RecordBatch:
        count = self._table.spec.key_count
        fields = self._table.spec.value_fields
        columns = [pa.array([row.group for row in rows], pa.int16())]
        columns += [pa.concat_arrays([row.columns[position] for row in rows]) for position in range(count)]
        columns += [pa.array([row.values[i] for row in rows], field.type) for i, field in enumerate(fields)]
        return pa.RecordBatch.from_arrays([*columns, pa.array(deleted)] if deleted else columns, schema=schema)

    def changed_since(self, serial: int) -> int | None:
        self._check()
        if serial < self._table.oldest or self._table.flaw == "no delta is known":
            return None
        return len(self._keys(serial))

    def _keys(self, since: int) -> dict[Any, _Row]:
        changes = self._table.changes if self._table.flaw == "deltas have what changed later" else self._changes
        changed: dict[Any, _Row] = {}
        for serial, identity, row in changes:
            if serial > since:
                if self._table.flaw == "deltas lack what changed twice" and identity in changed:
                    del changed[identity]
                else:
                    changed[identity] = row
        return changed

    def delta(self, since: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
        self._check()
        if self._table.flaw == "deltas ignore the key groups":
            first, last = 0, self._table.spec.max_parallelism
        content = self._table.rows if self._table.flaw == "deltas have what changed later" else self._content
        rows = []
        for identity, old in self._keys(since).items():
            gone = identity not in content
            if first <= old.group <= last and not (gone and self._table.flaw == "deltas lack tombstones"):
                rows.append((content.get(identity, old), gone))
        rows.sort(key=lambda one: one[0].group)
        if rows:
            schema = delta_schema(self.schema)
            empty = [None] * len(self._table.spec.value_fields)
            chosen = [_Row(row.key, row.columns, row.group, empty, None) if gone else row for row, gone in rows]
            yield self._batch(chosen, [gone for _, gone in rows], schema)

    def _check(self) -> None:
        if self._table.closed and self._table.flaw != "closed tables can be read":
            raise RuntimeError("closed")

    def forget_before(self) -> None:
        self._table.oldest = self.serial + (self._table.flaw == "forgetting goes too far")

    def keep(self) -> RestorePoint:
        return DictRestorePoint(self._table, self._content)

    def release(self) -> None:
        """Nothing is kept."""


class DictRestorePoint(RestorePoint):
    def __init__(self, table: DictTable, content: dict[Any, _Row]) -> None:
        self._table = table
        self._content = content

    def restore(self) -> KeyedTable | None:
        table = self._table
        if table.flaw == "going back is forgotten":
            return None
        again = DictTable(table.spec, table.flaw)
        again.rows = dict(self._content)
        if table.flaw == "going back keeps what is new":
            again.rows |= {key: row for key, row in table.rows.items() if key not in again.rows}
        if table.flaw == "going back loses what was removed":
            again.rows = {key: row for key, row in again.rows.items() if key in table.rows}
        if table.flaw == "going back begins no epoch":
            again.serial = -1
        return again

    def release(self) -> None:
        """Nothing is kept."""
