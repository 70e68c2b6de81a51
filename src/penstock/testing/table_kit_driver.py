"""Keyed table and reference dict: every call is made on both, and the results are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.hashing import groups_of
from penstock.state.keys import normalize_floats
from penstock.state.stored_form import delta_schema, stored_schema
from penstock.state.table import KeyedTable, RestorePoint, StoredRows, TableCapture, TableRows
from penstock.testing.table_kit_data import MAX_PARALLELISM, Frozen, Shape, arrays, freeze, frozen_rows, micros

Key = tuple[Frozen, ...]
Rows = dict[Key, tuple[Frozen, ...]]
"""Values by key. If the table marks changes, the mark is the first value."""

LAST = MAX_PARALLELISM - 1


class Difference(AssertionError):
    """The table and the dict differ."""


def expect(found: object, expected: object, what: str) -> None:
    """Raise ``Difference`` unless both are equal. For dicts the text has the surplus, missing and different entries."""
    if found == expected:
        return
    if isinstance(found, dict) and isinstance(expected, dict):
        surplus = [(key, value) for key, value in found.items() if key not in expected]
        lacking = [(key, value) for key, value in expected.items() if key not in found]
        other = [(key, value, expected[key]) for key, value in found.items() if expected.get(key, value) != value]
        raise Difference(
            f"{what}: {len(surplus)} too much {surplus[:3]}, {len(lacking)} lacking {lacking[:3]}, "
            f"{len(other)} different (key, found, expected) {other[:3]}"
        )
    raise Difference(f"{what}: found {found!r:.400}, expected {expected!r:.400}")


@dataclass(frozen=True)
class Moment:
    """Capture of a table, and the content of the dict when it was taken."""

    capture: TableCapture
    rows: Rows


class TableDriver:
    """One table of a shape, and its reference dict. The dict has the frozen key and values of each row."""

    def __init__(self, table: KeyedTable, shape: Shape) -> None:
        self.table = table
        self.shape = shape
        self.rows: Rows = {}
        self.start: Rows = {}
        self._raw: dict[Key, tuple[Any, ...]] = {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def edit(self, keys: Sequence[tuple[Any, ...]], values: Sequence[tuple[Any, ...]], columns: Sequence[int]) -> None:
        """Write ``values`` to some value ``columns``, given by position. Of equal keys the last one counts."""
        given = self._key_arrays(keys)
        frozen = [self._freeze_key(key) for key in keys]
        last = {key: position for position, key in enumerate(frozen)}
        with self.table.edit(given, len(keys)) as edited:
            self._check_edited(edited, frozen)
            chosen = list(last.values())
            written = arrays(self.shape.values, [values[position] for position in chosen])
            for column in columns:
                edited.values[column + self.shape.marks_changes].set(edited.rows[chosen], written[column])
        for key, position in last.items():
            row = list(self.rows.get(key, (None,) * (len(self.shape.values) + self.shape.marks_changes)))
            for column in columns:
                row[column + self.shape.marks_changes] = freeze(values[position][column])
            if self.shape.marks_changes:
                row[0] = True
            self.rows[key] = tuple(row)
            self._raw[key] = keys[position]

    def add(self, keys: Sequence[tuple[Any, ...]], values: Sequence[tuple[Any, ...]]) -> None:
        """Add rows. Of equal keys the first one counts; keys that exist already are left out."""
        absent: dict[Key, int] = {}
        for position, key in enumerate(keys):
            if (frozen := self._freeze_key(key)) not in self.rows:
                absent.setdefault(frozen, position)
        chosen = list(absent.values())
        given = arrays(self.shape.values, [values[position] for position in chosen])
        self.table.add(self._key_arrays([keys[position] for position in chosen]), given, len(chosen))
        for key, position in absent.items():
            self.rows[key] = tuple(freeze(value) for value in values[position])
            self._raw[key] = keys[position]

    def _check_edited(self, edited: TableRows, keys: list[Key]) -> None:
        place_of: dict[Key, int] = {}
        for key, place in zip(keys, edited.rows.tolist(), strict=True):
            expect(place, place_of.setdefault(key, place), f"edit: the place of key {key}")
        expect(len(set(place_of.values())), len(place_of), "edit: different keys have places of their own")
        self._check_values(edited, list(place_of), np.array(list(place_of.values()), np.int64), "edit")
        initial_values = self.shape.initial_values
        for position, fill in enumerate(initial_values or ()):
            data = edited.values[position + self.shape.marks_changes].read()[0]
            for key, place in place_of.items():
                if key not in self.rows:
                    expect(data[place], fill, f"edit: what a new row starts with in value column {position}")

    def _check_values(self, found: TableRows, keys: list[Key], places: Any, what: str) -> None:
        marks = int(self.shape.marks_changes)
        values = frozen_rows([vector.to_arrow(places) for vector in found.values][marks:], len(keys))
        nothing = (None,) * (len(self.shape.values) + marks)
        expect(
            dict(zip(keys, values, strict=True)),
            {key: self.rows.get(key, nothing)[marks:] for key in keys},
            f"{what}: the values it shows",
        )

    def remove(self, keys: Sequence[tuple[Any, ...]]) -> None:
        removed = {self._freeze_key(key) for key in keys} & set(self.rows)
        expect(self.table.remove(self._key_arrays(keys), len(keys)), len(removed), "remove: how many there were")
        for key in removed:
            del self.rows[key]

    def take_due(self, until_us: int, batch_rows: int) -> Iterator[None]:
        """Take the due rows step by step. The caller may capture between the steps."""
        due = self._due(until_us)
        taken: list[int] = []
        for found in self.table.take_due(until_us, batch_rows):
            rows = self._checked_rows(found, batch_rows, "take_due")
            expect(rows, {key: self.rows.get(key) for key in rows}, "take_due: the rows it shows")
            expect([key for key in rows if key not in due], [], "take_due: rows that are not due")
            taken += [due[key] for key in rows]
            for key in rows:
                del self.rows[key]
            expect(len(self.table), len(self.rows), "take_due: the rows left when it yields")
            yield
        expect(taken, sorted(due.values()), "take_due: the moments, ascending")

    def forget_due(self, until_us: int, batch_rows: int) -> None:
        due, left = self._due(until_us), len(self.rows)
        for forgotten in self.table.forget_due(until_us, batch_rows):
            expect(0 < forgotten <= batch_rows, True, f"forget_due: {forgotten} rows in a step of at most {batch_rows}")
            left -= forgotten
            expect(len(self.table), left, "forget_due: the rows left when it yields")
        for key in due:
            del self.rows[key]
        expect(left, len(self.rows), "forget_due: the rows left in the end")

    def _due(self, until_us: int) -> dict[Key, int]:
        """Return the keys of the due rows, and their event times in microseconds."""
        return {key: time for key in self.rows if (time := self._time(key)) is not None and time <= until_us}

    def take_marked(self, batch_rows: int) -> Iterator[None]:
        """Take the marked rows step by step. The caller may capture between the steps."""
        marked = {key: row for key, row in self.rows.items() if row[0]}
        expect(self.table.has_marks, bool(marked), "has_marks")
        seen: set[Key] = set()
        for found in self.table.take_marked(batch_rows):
            rows = {key: row[1:] for key, row in self._checked_rows(found, batch_rows, "take_marked").items()}
            expect(rows, {key: marked[key][1:] for key in rows if key in marked}, "take_marked: the rows it shows")
            expect(seen & set(rows), set(), "take_marked: rows that come twice")
            seen |= set(rows)
            for key in rows:
                self.rows[key] = (False, *self.rows[key][1:])
            yield
        expect(seen, set(marked), "take_marked: all of them")
        expect(self.table.has_marks, False, "has_marks, after they were taken")

    def clear_marks(self) -> None:
        self.table.clear_marks()
        if self.shape.marks_changes:
            self.rows = {key: (False, *row[1:]) for key, row in self.rows.items()}
        expect(self.table.has_marks, False, "has_marks, after they were cleared")

    def load(self, pieces: Iterable[StoredRows], rows: Rows, raw: dict[Key, tuple[Any, ...]]) -> None:
        """Load pieces into the table, which must be new. ``rows``: their content. ``raw``: their keys as given."""
        self.table.load(pieces)
        self.rows, self.start, self._raw = dict(rows), dict(rows), dict(raw)

    def restore(self, point: RestorePoint, moment: Moment) -> None:
        """Replace the table by the one of a restore point. ``moment``: the captured moment of this point."""
        table = point.restore()
        if table is None:
            raise Difference(f"the table does not go back to capture {moment.capture.serial}, which it kept")
        self.table = table
        self.rows, self.start = dict(moment.rows), dict(moment.rows)
        self.scan(100)

    # -- reading ------------------------------------------------------------------------------------------------------

    def find(self, keys: Sequence[tuple[Any, ...]]) -> None:
        found = self.table.find(self._key_arrays(keys), len(keys))
        frozen = [self._freeze_key(key) for key in keys]
        places = dict(zip(frozen, found.rows.tolist(), strict=True))
        expect(
            {key: place >= 0 for key, place in places.items()}, {key: key in self.rows for key in places}, "find: found"
        )
        present = [key for key in places if key in self.rows]
        self._check_values(found, present, np.array([places[key] for key in present], np.int64), "find")

    def scan(self, batch_rows: int, first: int = 0, last: int = LAST) -> None:
        expect(len(self.table), len(self.rows), "len")
        rows: Rows = {}
        for found in self.table.scan(batch_rows, first, last):
            part = self._checked_rows(found, batch_rows, "scan")
            expect(set(rows) & set(part), set(), "scan: rows that come twice")
            if found.marked is not None:
                expect(found.marked.tolist(), [bool(row[0]) for row in part.values()], "scan: which rows are marked")
            rows.update(part)
        expect(_unmarked(rows, self.shape), _unmarked(self.in_groups(self.rows, first, last), self.shape), "scan")

    def _checked_rows(self, found: TableRows, batch_rows: int, what: str) -> Rows:
        count = len(found.rows)
        if not 0 < count <= batch_rows:
            raise Difference(f"{what}: {count} rows in a step of at most {batch_rows}")
        keys = frozen_rows(found.keys, count)
        values = frozen_rows([vector.to_arrow(found.rows) for vector in found.values], count)
        expect(len(set(keys)), count, f"{what}: different keys in a step")
        rows = dict(zip(keys, values, strict=True))
        if found.marked is not None:
            rows = {key: (mark, *row[1:]) for (key, row), mark in zip(rows.items(), found.marked.tolist(), strict=True)}
        return rows

    # -- captures -----------------------------------------------------------------------------------------------------

    def capture(self) -> Moment:
        capture = self.table.capture()
        expect(capture.rows, len(self.rows), "capture: its rows")
        expect(capture.schema, stored_schema(self.shape.spec.schema), "capture: its schema")
        return Moment(capture, dict(self.rows))

    def check_base(self, moment: Moment, first: int = 0, last: int = LAST) -> list[StoredRows]:
        """Check that the base of these key groups is the table's content at that moment. Return its pieces."""
        what = f"base of capture {moment.capture.serial}, key groups {first} to {last}"
        pieces = [StoredRows(batch, False) for batch in moment.capture.base(first, last)]
        rows: Rows = {}
        for key, row in self._stored(pieces, moment.capture.schema, first, last, what):
            expect(key in rows, False, f"{what}: key {key} comes twice")
            rows[key] = row
        expect(rows, self.in_groups(moment.rows, first, last), what)
        return pieces

    def check_delta(
        self, since: Moment | None, moment: Moment, first: int = 0, last: int = LAST
    ) -> list[StoredRows] | None:
        """Check that the delta since an earlier moment leads from the content at that moment to this one.

        Args:
            since: the earlier moment; None: the initial content of the table.
            moment: the later moment.
            first: first key group.
            last: last key group, inclusive.

        Returns:
            The pieces of the delta; None if the table does not know the changes.
        """
        serial, before = (0, self.start) if since is None else (since.capture.serial, since.rows)
        bound = moment.capture.changed_since(serial)
        if bound is None:
            return None
        what = f"delta of capture {moment.capture.serial} since {serial}, key groups {first} to {last}"
        pieces = [StoredRows(batch, True) for batch in moment.capture.delta(serial, first, last)]
        rows = self.in_groups(before, first, last)
        seen: set[Key] = set()
        for key, row in self._stored(pieces, delta_schema(moment.capture.schema), first, last, what):
            expect(key in seen, False, f"{what}: key {key} comes twice")
            seen.add(key)
            rows.pop(key, None)
            if not row[-1]:
                rows[key] = row[:-1]
        expect(rows, self.in_groups(moment.rows, first, last), what)
        if len(seen) > bound:
            raise Difference(f"{what}: {len(seen)} keys, but changed_since said {bound} at most")
        return pieces

    def _stored(
        self, pieces: list[StoredRows], schema: pa.Schema, first: int, last: int, what: str
    ) -> Iterator[tuple[Key, tuple[Frozen, ...]]]:
        """Yield the rows of a base or delta, and check the rules that hold for both."""
        before = first
        keys = len(self.shape.keys)
        for piece in pieces:
            batch = piece.batch
            expect(batch.schema, schema, f"{what}: its schema")
            batch.validate(full=True)
            expect(batch.num_rows > 0, True, f"{what}: a batch has rows")
            groups = batch.column(0).to_pylist()
            expect([before, *groups], sorted([before, *groups]), f"{what}: key groups ascend")
            expect(groups[-1] <= last, True, f"{what}: no key group above {last}")
            spread = keys if self.shape.key_group_columns is None else self.shape.key_group_columns
            hashed = groups_of(batch.columns[1 : 1 + spread], batch.num_rows, MAX_PARALLELISM)
            expect(groups, hashed.tolist(), f"{what}: key groups as Spark's xxhash64 has them")
            before = groups[-1]
            values = frozen_rows(batch.columns[1 + keys :], batch.num_rows)
            yield from zip(frozen_rows(batch.columns[1 : 1 + keys], batch.num_rows), values, strict=True)

    # -- reference dict -----------------------------------------------------------------------------------------------

    def in_groups(self, rows: Rows, first: int, last: int) -> Rows:
        """Return the rows of key groups ``[first, last]`` (both inclusive)."""
        if (first, last) == (0, LAST):
            return dict(rows)
        spread = len(self.shape.keys) if self.shape.key_group_columns is None else self.shape.key_group_columns
        columns = [normalize_floats(column) for column in self._key_arrays([self._raw[key] for key in rows])]
        groups = groups_of(columns[:spread], len(rows), MAX_PARALLELISM)
        return {
            key: row for (key, row), group in zip(rows.items(), groups.tolist(), strict=True) if first <= group <= last
        }

    def known_keys(self) -> dict[Key, tuple[Any, ...]]:
        """Return all keys that were ever written, as given, by their frozen form."""
        return dict(self._raw)

    def present(self, random: Random, count: int) -> list[tuple[Any, ...]]:
        """Return up to ``count`` random existing keys."""
        chosen = random.sample(list(self.rows), min(count, len(self.rows)))
        return [self._raw[key] for key in chosen]

    def _key_arrays(self, keys: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        return arrays(self.shape.keys, keys)

    @staticmethod
    def _freeze_key(key: tuple[Any, ...]) -> Key:
        return tuple(freeze(value, key=True) for value in key)

    def _time(self, key: Key) -> int | None:
        """Return the event time of a row in microseconds, or None if it is null."""
        assert self.shape.event_time is not None
        column, *fields = self.shape.event_time
        keys = len(self.shape.keys)
        value = self._raw[key][column] if column < keys else self.rows[key][column - keys]
        for field in fields:
            value = None if value is None else list(value.values())[field]
        return None if value is None else micros(value)


def _unmarked(rows: Rows, shape: Shape) -> Rows:
    """Return the rows with marks as booleans: null and False are equal as marks."""
    return {key: (bool(row[0]), *row[1:]) for key, row in rows.items()} if shape.marks_changes else rows
