"""KeyedTable against a dict, through any sequence of upserts, removals, snapshots and restores."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.errors import NotSupported
from penstock.state.hashing import groups_of
from penstock.state.table import CapturedTables, KeyedTable, TableCapture, stored_schema

WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
INNER = pa.struct([("name", pa.string()), ("ratio", pa.float64())])
KEYS = pa.schema(
    [
        ("number", pa.int64()),
        ("text", pa.string()),
        ("amount", pa.decimal128(30, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("ratio", pa.float64()),
        ("window", WINDOW),
        ("inner", INNER),
    ]
)
VALUES = pa.schema([("total", pa.int64()), ("label", pa.string()), ("sum", pa.decimal128(38, 2)), ("flag", pa.bool_())])
SCHEMA = pa.schema([*KEYS, *VALUES])


def moment(second: int) -> dt.datetime:
    return dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=second)


moments = st.none() | st.integers(0, 2).map(moment)
floats = st.none() | st.sampled_from([0.0, -0.0, math.nan, 1.5, math.inf])
keys = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-1, 1) | st.sampled_from([2**63 - 1, -(2**63)]),
        "text": st.none() | st.sampled_from(["", "a", "ü", "a longer one"]),
        "amount": st.none() | st.sampled_from([Decimal("0.00"), Decimal("-1.50"), Decimal(10**27)]),
        "at": moments,
        "ratio": floats,
        "window": st.none() | st.fixed_dictionaries({"start": moments, "end": moments}),
        "inner": st.none() | st.fixed_dictionaries({"name": st.none() | st.just("n"), "ratio": floats}),
    }
)
values = st.fixed_dictionaries(
    {
        "total": st.none() | st.integers(-5, 5),
        "label": st.none() | st.sampled_from(["", "x", "long label"]),
        "sum": st.none() | st.sampled_from([Decimal("-0.01"), Decimal(10**35), Decimal("7.00")]),
        "flag": st.none() | st.booleans(),
    }
)


def identity(value: Any) -> Any:
    """What makes two keys the same in Spark: NaN is NaN, -0.0 is 0.0, null is null."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return tuple(identity(value[name]) for name in sorted(value)) if isinstance(value, dict) else value


def columns_of(rows: list[dict[str, Any]], schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([row[field.name] for row in rows], field.type) for field in schema]


def content(batch: pa.RecordBatch) -> dict[Any, dict[str, Any]]:
    """Key identity -> values, of a snapshot; fails on a key that appears twice."""
    found: dict[Any, dict[str, Any]] = {}
    for row in batch.to_pylist():
        key = identity({name: row[name] for name in KEYS.names})
        assert key not in found
        found[key] = {name: row[name] for name in VALUES.names}
    return found


class TableMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = KeyedTable(SCHEMA, len(KEYS), 128)
        self.model: dict[Any, dict[str, Any]] = {}
        self.known: dict[Any, dict[str, Any]] = {}
        self.captures: list[tuple[TableCapture, dict[Any, dict[str, Any]]]] = []

    @rule(rows=st.lists(st.tuples(keys, values), min_size=1, max_size=6))
    def upsert(self, rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        given = [key for key, _ in rows]
        located = self.table.locate(columns_of(given, KEYS), len(rows))
        by_key = {identity(key): position for position, key in enumerate(given)}
        for key in given:
            self.known[identity(key)] = key
        for (key, _), row in zip(rows, located.tolist(), strict=True):
            assert row == located[by_key[identity(key)]]
        last = sorted(by_key.values())
        for vector, column in zip(self.table.values, columns_of([rows[i][1] for i in last], VALUES), strict=True):
            vector.set(located[last], column)
        for position in last:
            self.model[identity(given[position])] = dict(rows[position][1])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(sorted(self.model, key=repr)), min_size=1, max_size=4, unique=True))
        rows = self.table.find(columns_of([self.known[key] for key in gone], KEYS), len(gone))
        assert (rows >= 0).all()
        self.table.remove(rows)
        for key in gone:
            del self.model[key]

    @rule(key=keys)
    def find(self, key: dict[str, Any]) -> None:
        row = int(self.table.find(columns_of([key], KEYS), 1)[0])
        assert (row >= 0) == (identity(key) in self.model)
        if row >= 0:
            found = [column.to_pylist()[0] for column in self.table.keys(np.array([row]))]
            assert identity(dict(zip(KEYS.names, found, strict=True))) == identity(key)

    @rule()
    def capture(self) -> None:
        self.captures.append((self.table.capture(), {key: dict(row) for key, row in self.model.items()}))

    @rule()
    def restore(self) -> None:
        self.table.restore(self.table.snapshot())

    @rule()
    def restore_elsewhere(self) -> None:
        snapshot = self.table.snapshot()
        self.table = KeyedTable(SCHEMA, len(KEYS), 128)
        self.table.restore(snapshot)

    @rule()
    def squeeze(self) -> None:
        self.table._squeeze()

    @invariant()
    def table_is_the_model(self) -> None:
        assert len(self.table) == len(self.model) == len(self.table.rows())
        snapshot = self.table.snapshot()
        assert snapshot.schema.equals(stored_schema(SCHEMA))
        assert content(snapshot) == self.model
        groups = snapshot.column(0).to_numpy()
        assert (np.diff(groups) >= 0).all()
        keys_only = snapshot.columns[1 : 1 + len(KEYS)]
        assert groups.tolist() == groups_of(keys_only, len(groups), 128).tolist()

    def teardown(self) -> None:
        for capture, expected in self.captures:
            assert content(capture.batch) == expected


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)


def int_table(max_parallelism: int = 128) -> KeyedTable:
    return KeyedTable(pa.schema([("k", pa.int64()), ("v", pa.int64())]), 1, max_parallelism)


def put(table: KeyedTable, pairs: dict[int, int]) -> None:
    rows = table.locate([pa.array(list(pairs), pa.int64())], len(pairs))
    table.values[0].set(rows, pa.array(list(pairs.values()), pa.int64()))


def as_dict(batch: pa.RecordBatch) -> dict[int, int]:
    return dict(zip(batch.column("k").to_pylist(), batch.column("v").to_pylist(), strict=True))


def test_a_capture_does_not_change_with_the_table() -> None:
    table = int_table()
    put(table, {1: 10, 2: 20})
    capture = table.capture()
    put(table, {1: 11, 3: 30})
    table.remove(table.find([pa.array([2])], 1))
    later = table.capture()
    put(table, {1: 12})
    assert as_dict(capture.batch) == {1: 10, 2: 20}
    assert as_dict(later.batch) == {1: 11, 3: 30}
    assert as_dict(table.snapshot()) == {1: 12, 3: 30}


def test_a_capture_copies_nothing_until_the_next_write() -> None:
    table = int_table()
    put(table, {key: key for key in range(1000)})
    before = table.values[0].raw
    capture = table.capture()
    assert capture.values[0][0].base is before
    assert table.values[0].raw is before
    put(table, {1: -1})
    assert table.values[0].raw is not before
    assert before[1] == 1


def test_captured_tables_put_batches_together_when_they_are_read() -> None:
    table = int_table()
    put(table, {5: 50})
    tables = CapturedTables({"t": table.capture()})
    put(table, {5: 51})
    assert list(tables) == ["t"]
    assert as_dict(tables["t"]) == {5: 50}
    assert tables["t"] is tables["t"]


@given(st.lists(st.tuples(st.integers(0, 30_000), st.booleans()), max_size=40))
@settings(max_examples=20, deadline=None)
def test_growth_and_removal_of_many_keys(steps: list[tuple[int, bool]]) -> None:
    table, model = int_table(), {}
    for start, adds in [*steps, (0, True), (9_000, False), (2_000, False), (0, False), (70_000, True)]:
        span = range(start, start + 8_000)
        if adds:
            put(table, {key: key * 3 for key in span})
            model.update({key: key * 3 for key in span})
        else:
            rows = table.find([pa.array(span)], len(span))
            table.remove(rows[rows >= 0])
            for key in span:
                model.pop(key, None)
    assert len(table) == len(model)
    assert as_dict(table.snapshot()) == model
    assert table.nbytes < 200 * (len(model) + 60_000)


def test_interned_values_nobody_uses_are_forgotten() -> None:
    table = KeyedTable(pa.schema([("k", pa.string()), ("v", pa.int64())]), 1, 128)
    for round_number in range(12):
        rows = table.locate([pa.array([f"{round_number}-{i}" for i in range(3000)])], 3000)
        table.remove(rows)
    rows = table.locate([pa.array(["last"])], 1)
    assert table.keys(rows)[0].to_pylist() == ["last"]
    assert len(table._codec.interners[0].values) < 12_000


def test_a_table_without_key_columns_has_one_row() -> None:
    table = KeyedTable(pa.schema([("v", pa.int64())]), 0, 128)
    assert table.locate([], 3).tolist() == [0, 0, 0]
    assert table.locate([], 1).tolist() == [0]
    table.values[0].set(np.array([0]), pa.array([9]))
    assert table.snapshot().to_pydict() == {"__key_group": [42], "v": [9]}
    other = KeyedTable(pa.schema([("v", pa.int64())]), 0, 128)
    other.restore(table.snapshot())
    assert other.snapshot() == table.snapshot()


def test_an_empty_table_makes_an_empty_snapshot_of_the_stored_schema() -> None:
    table = KeyedTable(SCHEMA, len(KEYS), 128)
    assert table.snapshot().num_rows == 0
    assert table.snapshot().schema == stored_schema(SCHEMA)
    table.restore(table.snapshot())
    assert len(table) == 0


def test_event_times_of_a_window_key_are_read_as_words() -> None:
    table = KeyedTable(pa.schema([("n", pa.string()), ("w", WINDOW), ("v", pa.int64())]), 2, 128)
    windows = pa.array([{"start": moment(0), "end": moment(5)}, None, {"start": moment(1), "end": None}], WINDOW)
    table.locate([pa.array(["a", None, "c"]), windows], 3)
    times, known = table.key_words((1, 1))
    assert known.tolist() == [True, False, False]
    assert times[0] == int(moment(5).timestamp() * 1_000_000)


def test_a_list_key_is_refused_by_its_type() -> None:
    with pytest.raises(NotSupported, match="list<"):
        KeyedTable(pa.schema([("k", pa.list_(pa.int64()))]), 1, 128)
