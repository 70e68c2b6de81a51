"""Tables in memory: rows that are taken again, and captures without copies.

That they do what every backend must is checked by the kit for backends.
"""

from __future__ import annotations

import datetime as dt
import gc
import os
import random
import subprocess
import sys
import threading
import time
from decimal import Decimal
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from penstock.errors import NotSupported
from penstock.state import memory_capture, memory_changes, memory_table
from penstock.state.memory_capture import MemoryCapture
from penstock.state.memory_table import MemoryTable
from penstock.state.table import RestorePoint, StoredRows, TableSpec
from tests.support.effort import some

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string()), ("n", pa.int64()), ("s", pa.string())])
SPEC = TableSpec(SCHEMA, 2, 128)
Key = tuple[int | None, str | None]
Value = tuple[int | None, str | None]


def arrays(rows: list[tuple[Any, ...]], kinds: list[pa.DataType]) -> list[pa.Array]:
    return [pa.array([row[position] for row in rows], kind) for position, kind in enumerate(kinds)]


def put(table: MemoryTable, rows: dict[Key, Value]) -> None:
    with table.edit(arrays(list(rows), SCHEMA.types[:2]), len(rows)) as found:
        for vector, column in zip(found.values, arrays(list(rows.values()), SCHEMA.types[2:]), strict=True):
            vector.set(found.rows, column)


def base_of(capture: MemoryCapture) -> dict[Key, Value]:
    rows: dict[Key, Value] = {}
    for batch in capture.base(0, 127):
        for row in batch.to_pylist():
            assert (row["k"], row["t"]) not in rows
            rows[row["k"], row["t"]] = (row["n"], row["s"])
    assert len(rows) == capture.rows
    return rows


def apply_delta(rows: dict[Key, Value], capture: MemoryCapture, since: int) -> dict[Key, Value]:
    rows, seen = dict(rows), set()
    for batch in capture.delta(since, 0, 127):
        for row in batch.to_pylist():
            key = row["k"], row["t"]
            assert key not in seen
            seen.add(key)
            if row["__deleted"]:
                rows.pop(key, None)
            else:
                rows[key] = (row["n"], row["s"])
    return rows


keys = st.tuples(
    st.none() | st.integers(0, 6), st.none() | st.sampled_from(["", "a", "eight by", "longer than a word"])
)
values = st.tuples(st.none() | st.integers(-5, 5), st.none() | st.sampled_from(["", "x", "y"]))


class CaptureMachine(RuleBasedStateMachine):
    """Few keys, so that rows are removed and taken again under captures all the time."""

    def __init__(self) -> None:
        super().__init__()
        memory_changes._STAMPS, self.stamps = 3, memory_changes._STAMPS  # so that they are used up soon
        self.table = MemoryTable(SPEC)
        self.model: dict[Key, Value] = {}
        self.past: dict[int, dict[Key, Value]] = {0: {}}
        self.captures: list[MemoryCapture] = []
        self.kept: list[tuple[int, RestorePoint]] = []

    @rule(rows=st.dictionaries(keys, values, min_size=1, max_size=8))
    def write(self, rows: dict[Key, Value]) -> None:
        put(self.table, rows)
        self.model.update(rows)
        assert len(self.table) == len(self.model)

    @rule(gone=st.lists(keys, min_size=1, max_size=8))
    def remove(self, gone: list[Key]) -> None:
        there = {key for key in gone if key in self.model}
        assert self.table.remove(arrays(gone, SCHEMA.types[:2]), len(gone)) == len(there)
        for key in there:
            del self.model[key]

    @rule()
    def capture(self) -> None:
        capture = self.table.capture()
        self.past[capture.serial] = dict(self.model)
        self.captures.append(capture)

    @precondition(lambda self: self.captures)
    @rule(data=st.data(), release=st.booleans())
    def read(self, data: st.DataObject, release: bool) -> None:
        capture = data.draw(st.sampled_from(self.captures))
        assert base_of(capture) == self.past[capture.serial]
        for since in range(capture.serial):
            known = capture.changed_since(since)
            if known is not None:
                assert apply_delta(self.past[since], capture, since) == self.past[capture.serial]
        if release:
            self.captures.remove(capture)
            capture.release()

    @precondition(lambda self: self.captures)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.captures)).forget_before()

    @precondition(lambda self: self.captures)
    @rule(data=st.data())
    def keep(self, data: st.DataObject) -> None:
        capture = data.draw(st.sampled_from(self.captures))
        self.captures.remove(capture)
        point = capture.keep()
        assert point is not None
        self.kept.append((capture.serial, point))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.kept))
        self.kept.remove(one)
        one[1].release()

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        serial, point = data.draw(st.sampled_from(self.kept))
        self.table.close()
        table = point.restore()
        assert table is self.table
        self.model = dict(self.past[serial])
        self.past = {0: dict(self.model)}
        self.captures, self.kept = [], []
        assert len(table) == len(self.model)

    def teardown(self) -> None:
        memory_changes._STAMPS = self.stamps
        for capture in self.captures:
            assert base_of(capture) == self.past[capture.serial]


TestCaptures = CaptureMachine.TestCase
TestCaptures.settings = settings(max_examples=some(100), stateful_step_count=30, deadline=None)


def test_a_capture_that_is_read_while_rows_change_shows_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_capture, "_BLOCK_ROWS", 500)
    monkeypatch.setattr(memory_capture, "_RUN_ROWS", 3000)
    chance, table, model = random.Random(3), MemoryTable(SPEC), {}
    for step in range(6):
        rows: dict[Key, Value] = {(key, f"text {key % 50}"): (key, f"v{step}") for key in range(20_000)}
        put(table, rows)
        model.update(rows)
        expected, capture, found = dict(model), table.capture(), []
        reader = threading.Thread(target=lambda c=capture, f=found: f.append(base_of(c)))
        reader.start()
        while reader.is_alive():
            some = {chance.choice(list(rows)) for _ in range(300)}
            if chance.random() < 0.5:
                table.remove(arrays(list(some), SCHEMA.types[:2]), len(some))
                for key in some:
                    model.pop(key, None)
            else:
                fresh: dict[Key, Value] = {(chance.randint(10**6, 10**7), "a"): (0, None) for _ in range(300)}
                fresh.update(dict.fromkeys(some, (step, "w")))
                put(table, fresh)
                model.update(fresh)
        reader.join()
        capture.release()
        assert found == [expected]


def test_a_row_that_was_removed_is_taken_by_the_next_new_key() -> None:
    table, sizes = MemoryTable(SPEC), []
    for start in range(0, 50_000, 1000):
        sizes.append(table._size)
        put(table, {(key, f"{key:020d}"): (key, "s") for key in range(start, start + 1000)})
        gone = arrays([(key, f"{key:020d}") for key in range(start, start + 1000)], SCHEMA.types[:2])
        assert table.remove(gone, 1000) == 1000
    assert len(set(sizes[1:])) == 1
    assert table._size <= 1000 + 128 * 4, "a slab of four for each key group"
    assert table._keys._texts[0]._used == 3000, "the bytes of the keys, in words"
    assert table._index.nbytes < 1 << 20


def test_what_was_kept_for_captures_goes_with_them() -> None:
    table = MemoryTable(SPEC)
    rows: dict[Key, Value] = {(key, "t"): (key, "s") for key in range(1000)}
    put(table, rows)
    first, second = table.capture(), table.capture()
    put(table, rows)
    assert table._log.undo.count == 1000
    second.release()
    assert base_of(first) == rows
    first.release()
    put(table, dict(list(rows.items())[:1]))
    assert table._log.undo.count == 0
    with pytest.raises(RuntimeError):
        next(first.base(0, 127))


def test_changes_are_known_until_they_are_forgotten_or_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_changes, "_MIN_REMEMBERED", 10)
    table = MemoryTable(SPEC)
    many: dict[Key, Value] = {(key, "t"): (key, "s") for key in range(100)}
    put(table, many)
    captures = [table.capture()]
    assert captures[0].changed_since(0) is None, "as many rows as there are: write them all"
    for step in range(3):
        put(table, {(step, "t"): (0, "s")})
        captures.append(table.capture())
    assert [captures[3].changed_since(since) for since in (0, 1, 2, 3)] == [None, 3, 2, 1]
    captures[2].forget_before()
    assert captures[3].changed_since(1) == 3, "an outstanding capture still knows what it knew"
    assert [table.capture().changed_since(since) for since in (2, 3)] == [None, 1]
    put(table, dict(list(many.items())[:60]))
    assert table.capture().changed_since(4) is None
    for _ in range(8):
        put(table, dict(list(many.items())[:20]))
        table.capture()
    latest = table.capture()
    assert latest.changed_since(latest.serial - 3) == 40
    assert latest.changed_since(latest.serial - 8) is None, "together more than the table has"


def test_a_table_does_not_go_back_when_much_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_changes, "_MIN_REMEMBERED", 10)
    table = MemoryTable(SPEC)
    put(table, {(key, "t"): (key, "s") for key in range(100)})
    early, late = table.capture().keep(), None
    for step in range(3):
        put(table, {(key, "t"): (step, "s") for key in range(6 * step, 6 * step + 6)})
        late = late or table.capture().keep()
    assert early is not None
    assert late is not None
    assert table._log.undo.count == 12
    put(table, {(key, "t"): (9, "s") for key in range(30, 40)})
    assert [early._kept.undo, late._kept.undo is None] == [None, False], "28 and 22 of 100 rows have changed since"
    assert early.restore() is None
    again = late.restore()
    assert again is not None
    assert base_of(again.capture()) == {(key, "t"): (0 if key < 6 else key, "s") for key in range(100)}


def test_rows_that_come_and_go_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_changes, "_MIN_REMEMBERED", 10)
    table = MemoryTable(SPEC)
    point = table.capture().keep()
    assert point is not None
    for step in range(5):
        put(table, {(key, "t"): (step, "s") for key in range(4)})
        table.remove(arrays([(key, "t") for key in range(4)], SCHEMA.types[:2]), 4)
    put(table, {(1, "t"): (1, "s")})
    assert (table._log.undo.removed, table._log.is_captured) == ([], False)
    assert point.restore() is None


def test_another_thread_that_keeps_a_capture_leaves_no_moment_without_one() -> None:
    """The table's thread looks in the middle of ``keep``."""
    table, looked = MemoryTable(SPEC), []
    put(table, {(1, "t"): (1, "s")})
    capture = table.capture()

    def look(frame: FrameType, event: str, argument: object) -> Any:
        looked.append(table._log.is_captured)
        return look

    sys.settrace(lambda frame, event, argument: look if frame.f_code.co_name == "keep" else None)
    try:
        capture.keep()
    finally:
        sys.settrace(None)
    assert len(looked) > 3
    assert all(looked)


def test_only_one_way_back_is_gone() -> None:
    table = MemoryTable(SPEC)
    put(table, {(1, "t"): (1, "s")})
    early = table.capture().keep()
    put(table, {(1, "t"): (2, "s")})
    late = table.capture().keep()
    assert early is not None
    assert late is not None
    assert early.restore() is table
    assert late.restore() is None
    assert base_of(table.capture()) == {(1, "t"): (1, "s")}


def test_a_table_that_nobody_will_go_back_in_keeps_nothing() -> None:
    table = MemoryTable(SPEC)
    put(table, {(key, "t"): (key, "s") for key in range(100)})
    point = table.capture().keep()
    put(table, {(key, "t"): (0, "s") for key in range(10)})
    assert table._log.undo.count == 10
    put(table, {(key, "new"): (0, "s") for key in range(5000)})
    assert table._log.undo.count < 10 + 128 * 4, "new keys need not be kept, but for those whose row is in an old slab"
    assert point is not None
    point.release()
    point.release()
    put(table, {(key, "t"): (0, "s") for key in range(10, 20)})
    assert table._log.undo.count == 0
    assert point.restore() is None


def test_captures_without_end_keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_changes, "_MAX_INTERVALS", 5)
    table = MemoryTable(SPEC)
    for _ in range(20):
        table.capture().release()
    assert len(table._log._changes) == 5
    assert table.capture().changed_since(3) is None


def test_a_key_that_was_removed_and_came_back_is_no_tombstone() -> None:
    table = MemoryTable(SPEC)
    put(table, {(1, "a"): (1, "s"), (2, "b"): (2, "s")})
    first = table.capture()
    table.remove(arrays([(1, "a"), (2, "b")], SCHEMA.types[:2]), 2)
    put(table, {(2, "b"): (5, "s")})
    put(table, {(3, None): (6, "s")})
    rows = [row for batch in table.capture().delta(first.serial, 0, 127) for row in batch.to_pylist()]
    found = sorted((row["k"], row["t"], row["n"], row["__deleted"]) for row in rows)
    assert found == [(1, "a", None, True), (2, "b", 5, False), (3, None, 6, False)]
    groups = [row["__key_group"] for row in rows]
    assert groups == sorted(groups)


def test_values_of_every_type_are_kept_for_captures() -> None:
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    nested = pa.struct([("x", pa.list_(pa.string())), ("y", pa.decimal128(30, 2))])
    first: list[tuple[pa.DataType, Any, Any]] = [
        (pa.list_(pa.int64()), [1, None], [2]),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)], []),
        (nested, {"x": ["q"], "y": Decimal("1.50")}, {"x": None, "y": None}),
        (pa.list_(pa.struct([("d", pa.date32())])), [{"d": dt.date(2020, 2, 29)}, None], []),
        (pa.decimal128(38, 3), Decimal("-12345678901234567890.125"), Decimal("0.001")),
        (pa.decimal128(10, 2), Decimal("-7.25"), Decimal("7.25")),
        (pa.binary(), b"\x00\xff", b""),
        (pa.null(), None, None),
        (pa.timestamp("us", "UTC"), moment, moment + dt.timedelta(days=1)),
        (pa.timestamp("us"), moment.replace(tzinfo=None), moment.replace(tzinfo=None)),
        (pa.duration("us"), dt.timedelta(microseconds=5), dt.timedelta(days=-3)),
        (pa.int32(), 2**31 - 1, None),
        (pa.float64(), None, float("inf")),
        (pa.bool_(), True, False),
        (pa.date32(), dt.date(1969, 1, 1), None),
        (pa.int8(), -128, 127),
        (pa.float32(), 0.5, None),
        (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3]), None),
    ]  # fmt: skip
    schema = pa.schema([("k", pa.int64()), *((f"v{n}", kind) for n, (kind, _, _) in enumerate(first))])
    table = MemoryTable(TableSpec(schema, 1, 128))
    before, after = ([row[position] for row in first] for position in (1, 2))

    def write(key: int, row: list[Any]) -> None:
        with table.edit([pa.array([key])], 1) as found:
            for vector, value, (kind, _, _) in zip(found.values, row, first, strict=True):
                vector.set(found.rows, pa.array([value], kind))

    def read(capture: MemoryCapture) -> dict[int, list[Any]]:
        rows = [row for batch in capture.base(0, 127) for row in batch.to_pylist()]
        return {row["k"]: [row[f"v{n}"] for n in range(len(first))] for row in rows}

    write(1, before)
    write(2, after)
    early = table.capture()
    write(1, after)
    table.remove([pa.array([2])], 1)
    write(3, before)
    late = table.capture()
    write(3, after)
    assert read(early) == {1: before, 2: after}
    assert read(late) == {1: after, 3: before}
    again = MemoryTable(TableSpec(schema, 1, 128))
    again.load([StoredRows(batch, False) for batch in late.base(0, 127)])
    assert read(again.capture()) == {1: after, 3: before}


def test_loading_takes_rows_as_they_are_stored_and_deltas_over_them() -> None:
    table = MemoryTable(SPEC)
    put(table, {(key, f"{key}"): (key, "s") for key in range(500)})
    base = table.capture()
    pieces = [StoredRows(batch, False) for batch in base.base(0, 127)]
    put(table, {(7, "7"): (70, None), (1000, "new"): (1, "n")})
    table.remove(arrays([(8, "8"), (9, "9")], SCHEMA.types[:2]), 2)
    later = table.capture()
    pieces += [StoredRows(batch, True) for batch in later.delta(base.serial, 0, 127)]
    again = MemoryTable(SPEC)
    again.load(pieces)
    assert len(again) == len(table) == 499
    capture = again.capture()
    assert base_of(capture) == base_of(later)
    assert (capture.serial, capture.changed_since(0)) == (1, 0)


def test_due_rows_are_found_without_looking_when_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = pa.timestamp("us", "UTC")
    window = pa.struct([("start", stamp), ("end", stamp)])
    schema = pa.schema([("n", pa.int64()), ("w", window), ("v", pa.int64())])
    table = MemoryTable(TableSpec(schema, 2, 128, event_time=(1, 1)))
    ends: list[int | None] = [30, 10, None, 20, 10]
    windows = pa.array([None if end is None else {"start": 0, "end": end} for end in ends], window)
    with table.edit([pa.array(range(5)), windows], 5):
        pass
    looks: list[int] = []
    real = MemoryTable._due
    monkeypatch.setattr(MemoryTable, "_due", lambda self, until: looks.append(until) or real(self, until))
    taken = []
    for until in (5, 9, 10, 15, 25, 29, 10**15):
        taken += [(until, rows.keys[0].to_pylist()) for rows in table.take_due(until, 1)]
    assert taken == [(10, [1]), (10, [4]), (25, [3]), (10**15, [0])]
    assert looks == [10, 25, 10**15]
    assert len(table) == 1


def test_taking_due_rows_may_stop_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    table = MemoryTable(TableSpec(schema, 1, 128, event_time=(0,)))
    with table.edit([pa.array(range(10), pa.int64()).cast(schema.types[0])], 10):
        pass
    next(table.take_due(5, 2))
    assert [rows.keys[0].cast(pa.int64()).to_pylist() for rows in table.take_due(5, 4)] == [[2, 3, 4, 5]]
    assert len(table) == 4


def test_ten_numbers_a_row_take_no_more_than_they_must() -> None:
    table = MemoryTable(TableSpec(pa.schema([("k", pa.int64()), ("v", pa.int64())]), 1, 128))
    for start in range(0, 1_000_000, 50_000):
        with table.edit([pa.array(np.arange(start, start + 50_000) * 7919)], 50_000) as found:
            data, valid = found.values[0].write()
            data[found.rows], valid[found.rows] = 1, True
    assert table.nbytes <= 3 * 16 * len(table)
    assert not table._values._nulls
    assert table._keys._flags is None


def test_a_capture_does_not_cost_what_the_table_holds() -> None:
    table = MemoryTable(TableSpec(pa.schema([("k", pa.int64()), ("v", pa.int64())]), 1, 128))
    with table.edit([pa.array(np.arange(1_000_000))], 1_000_000):
        pass
    before = [pages.data for pages in (table._groups, table._values.column(0))]
    started = time.thread_time()
    table.capture()
    assert time.thread_time() - started < 0.05
    assert before[0] is table._groups.data
    assert before[1] is table._values.column(0).data


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.map_(pa.int64(), pa.int64())), pa.map_(pa.int64(), pa.int64()), pa.null()]
)
def test_keys_that_cannot_be_compared_are_refused_by_their_type(kind: pa.DataType) -> None:
    with pytest.raises(NotSupported, match=str(kind)[:4]):
        MemoryTable(TableSpec(pa.schema([("k", kind)]), 1, 128))


def test_a_closed_table_gives_nothing_more() -> None:
    table = MemoryTable(SPEC)
    put(table, {(1, "a"): (1, "s")})
    capture = table.capture()
    table.close()
    table.close()
    with pytest.raises(RuntimeError):
        next(capture.base(0, 127))
    capture.release()


def test_more_rows_than_a_number_can_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_table, "_MAX_ROWS", 2)
    with pytest.raises(MemoryError, match="at most 2"):
        put(MemoryTable(SPEC), {(1, "a"): (1, "s"), (2, "a"): (1, "s"), (3, "a"): (1, "s")})


def table_of_arrays() -> MemoryTable:
    schema = pa.schema([("k", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.int64())), ("seen", pa.bool_())])
    table = MemoryTable(TableSpec(schema, 1, 128, keeps_arrays=True))
    values = [pa.array(["a", None, "c"]), pa.array([[1], [], None], pa.list_(pa.int64())), pa.array([False] * 3)]
    table.add([pa.array([1, 2, 3])], values, 3)
    return table


def test_an_edit_leaves_arrays_where_they_are_that_it_does_not_write_to() -> None:
    table = table_of_arrays()
    held = table._values._arrays
    assert held is not None
    before = held._end
    with table.edit([pa.array([1, 3])], 2) as found:
        assert found.values[0].to_arrow(found.rows).to_pylist() == ["a", "c"]
        assert found.values[1].read()[0].tolist() == [[1], 0]  # what null rows start with
        found.values[2].set(found.rows, pa.array([True, True]))
    assert held._end == before
    rows = table.find([pa.array([3, 2, 1])], 3)
    assert [vector.to_arrow(rows.rows).to_pylist() for vector in rows.values] == [
        ["c", None, "a"], [None, [], [1]], [True, False, True]
    ]  # fmt: skip


def test_raw_values_of_arrays_can_be_written_to() -> None:
    table = table_of_arrays()
    with table.edit([pa.array([2, 9])], 2) as found:
        data, valid = found.values[0].write()
        data[found.rows], valid[found.rows] = ["new", "newer"], True
    rows = table.find([pa.array([1, 2, 9])], 3)
    assert [vector.to_arrow(rows.rows).to_pylist() for vector in rows.values] == [
        ["a", "new", "newer"], [[1], [], None], [False, False, None]
    ]  # fmt: skip


def test_nothing_that_was_read_waits_for_a_garbage_collection() -> None:
    """Runs in another process: other threads leave garbage, too."""
    program = "from tests.unit.state.test_memory_table import *; print(garbage_of_reading(table_of_arrays()))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100
    )
    assert ended.stdout == "0\n", ended.stderr


def garbage_of_reading(table: MemoryTable) -> int:
    gc.collect()
    gc.disable()
    try:
        for batch in table.capture().base(0, 127):
            assert batch.num_rows
        for found in table.scan(10):
            assert len(found.rows)
        del batch, found
        return gc.collect()
    finally:
        gc.enable()


def test_there_is_no_index_of_whole_keys_until_one_is_asked_for() -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us"))])
    table = MemoryTable(TableSpec(schema, 2, 128, prefix=1, event_time=(2,), indexes_keys=False))
    numbers = pa.array(range(10))
    table.add([numbers, numbers], [numbers.cast(pa.timestamp("us"))], 10)
    assert sum(table.forget_due(4, 3)) == 5
    assert len(table.find_by_prefix([numbers], 10)[0]) == 5
    assert table._index._live == 0
    assert (table.find([numbers, numbers], 10).rows >= 0).tolist() == [False] * 5 + [True] * 5
    assert table._index._live == 5
