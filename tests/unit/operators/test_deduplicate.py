"""Deduplication: first rows, lateness, what is forgotten when; against a model, over rescales, on either backend."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.key_groups import owned_range
from penstock.operators.base import Operator, OperatorContext, RestoredState, ScalarPart
from penstock.operators.deduplicate import EXPIRES_AT, TABLE, DeduplicateSpec
from penstock.state.hashing import groups_of
from penstock.state.memory_table import MemoryBackend
from penstock.state.rocksdb_table import RocksDBBackend
from penstock.state.stored_form import KEY_GROUP_COLUMN
from penstock.state.table import StateBackend, StoredRows
from penstock.testing.conformance import Input, check_operators
from tests.support.effort import some
from tests.support.operators.harness import UTC_STAMP, WINDOW, opened, rows_of, stored

SECOND = 1_000_000
GROUPS = 128
DELAY = 5 * SECOND
ITEM = pa.struct([("name", pa.string()), ("size", pa.float64())])
SCHEMA = pa.schema([("n", pa.int64()), ("item", ITEM), ("v", pa.float64()), ("at", UTC_STAMP), ("w", WINDOW)])
N, ITEM_AT, V, AT, W = range(5)


def spec(keys: tuple[int, ...], event_time: int | None = None, delay_us: int | None = None) -> DeduplicateSpec:
    return DeduplicateSpec(
        operator_id="deduplicate-0",
        name="Deduplicate",
        output_schema=SCHEMA,
        keys=keys,
        event_time=event_time,
        delay_us=delay_us,
    )


SPECS = {
    "without a watermark": spec((ITEM_AT, V)),
    "event time among the keys": spec((V, AT), AT),
    "a window among the keys": spec((W, ITEM_AT), W),
    "event time beside the keys": spec((ITEM_AT,), AT),
    "within the watermark": spec((V, ITEM_AT), AT, DELAY),
    "at the watermark": spec((V,), AT, 0),
}

Row = tuple[str | None, float | None, int | None]
"""A name, a number and the event time in seconds; whatever else there is follows from these."""


def batch(rows: Sequence[Row], begin: int = 0) -> pa.RecordBatch:
    """Rows that are numbered from ``begin`` on."""
    content = [
        {
            "n": begin + number,
            "item": None if name == "" else {"name": name, "size": value},
            "v": value,
            "at": None if at is None else at * SECOND,
            "w": None if at is None else {"start": (at - 10) * SECOND, "end": at * SECOND},
        }
        for number, (name, value, at) in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(content, schema=SCHEMA)


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [row["n"] for row in rows_of(batches)]


def test_the_first_row_of_a_key_passes_in_the_order_of_the_rows() -> None:
    operator = opened(spec((ITEM_AT,)))
    rows: list[Row] = [("b", 1.0, 1), ("a", 1.0, 2), ("b", 1.0, 3), ("a", 2.0, 4), ("", 0.0, 5), (None, 0.0, 6)]
    assert numbers(operator.process(batch([*rows, ("", 9.0, 7)]))) == [0, 1, 3, 4, 5], "a null struct is no struct"
    assert list(operator.process(batch(rows))) == [], "no empty batches"
    assert numbers(operator.process(batch([("a", 1.0, 1), ("c", 1.0, 1)]))) == [1]
    counters = operator.counters()
    assert (counters["rows_dropped_duplicate"], counters["state_rows"], counters["rows_dropped_late"]) == (9, 6, 0)
    assert list(operator.finish_epoch()) == []


def test_nulls_nans_and_zeros_are_keys_as_in_spark() -> None:
    operator = opened(spec((V,)))
    values = [-0.0, 0.0, math.nan, -math.nan, None, math.inf, None]
    [passed] = operator.process(batch([("a", value, 1) for value in values]))
    assert passed.column(0).to_pylist() == [0, 2, 4, 5]
    assert math.copysign(1, passed.column(V)[0].as_py()) == -1, "the row passes as it is"


def test_rows_with_an_event_time_among_the_keys_are_forgotten_with_it() -> None:
    operator = opened(spec((V, AT), AT))
    rows: list[Row] = [("a", 1.0, 10), ("a", 1.0, 20), ("a", 1.0, None)]
    assert numbers(operator.process(batch(rows))) == [0, 1, 2]
    assert list(operator.advance(10 * SECOND)) == []
    assert operator.counters()["state_rows"] == 2
    assert numbers(operator.process(batch([*rows, ("a", 2.0, 10), ("a", 1.0, 11)]))) == [4]
    assert operator.counters()["rows_dropped_late"] == 2, "at the watermark is late; without event time never is"
    assert list(operator.advance(5 * SECOND)) == [], "it only rises"
    assert numbers(operator.process(batch([("b", 3.0, 8)]))) == []


def test_rows_are_late_by_a_column_that_is_no_key() -> None:
    operator = opened(spec((ITEM_AT,), AT))
    list(operator.advance(10 * SECOND))
    assert numbers(operator.process(batch([("a", 1.0, 9), ("a", 1.0, 11), ("a", 1.0, 12)]))) == [1]
    list(operator.advance(99 * SECOND))
    assert operator.counters()["state_rows"] == 1, "nothing says when the key comes for the last time"


def test_within_the_watermark_a_key_expires_and_is_not_renewed() -> None:
    operator = opened(SPECS["within the watermark"])
    assert numbers(operator.process(batch([("a", 1.0, 10), ("a", 1.0, 14)]))) == [0]
    list(operator.advance(14 * SECOND))
    assert numbers(operator.process(batch([("a", 1.0, 15)]))) == [], "the first one counts, and nothing renews it"
    list(operator.advance(15 * SECOND - 1))
    assert operator.counters()["state_rows"] == 1
    list(operator.advance(15 * SECOND))
    assert operator.counters()["state_rows"] == 0
    assert numbers(operator.process(batch([("a", 1.0, 16)]))) == [0]


def test_the_table_has_the_keys_under_names_of_their_own() -> None:
    twice = pa.schema([("a", pa.int64()), ("a", pa.string()), ("a_0", pa.int64())])
    one = DeduplicateSpec(operator_id="d", name="D", output_schema=twice, keys=(0, 1, 2))
    assert one.table_schema.names == ["a", "a_0", "a_0_0"]
    assert SPECS["within the watermark"].state_schemas[TABLE].names == [KEY_GROUP_COLUMN, "v", "item", EXPIRES_AT]
    assert SPECS["within the watermark"].state_keys == {TABLE: 2}


# -- against a model, over rescales -----------------------------------------------------------------------------------


class Model:
    """Spark's deduplication, a row at a time.

    ``known``: by key, the time in microseconds when it is forgotten; None: never.
    """

    def __init__(self, one: DeduplicateSpec) -> None:
        self.spec = one
        self.known: dict[Any, int | None] = {}
        self.reached = [-(2**62)] * GROUPS

    def key(self, row: dict[str, Any]) -> Any:
        return frozen([row[SCHEMA.names[position]] for position in self.spec.keys])

    def passes(self, row: dict[str, Any], at_us: int | None, group: int) -> bool:
        if self.spec.event_time is not None and at_us is not None and at_us <= self.reached[group]:
            return False
        key = self.key(row)
        if key in self.known:
            return False
        forgotten = None
        if self.spec.delay_us is not None:
            forgotten = (at_us or 0) + self.spec.delay_us
        elif self.spec.event_time in self.spec.keys:
            forgotten = at_us
        self.known[key] = forgotten
        return True

    def advance(self, keys: Sequence[Any], groups: range, watermark_us: int) -> None:
        """``keys``: those in these key groups."""
        for group in groups:
            self.reached[group] = max(self.reached[group], watermark_us)
        for key in keys:
            due = self.known[key]
            if due is not None and due <= watermark_us:
                del self.known[key]


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(frozen, value.values()))
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


class Fleet:
    """Subtasks side by side, each with a watermark of its own, and what the model has of their keys."""

    def __init__(self, one: DeduplicateSpec, backend: type[StateBackend]) -> None:
        self.spec = one
        self.model = Model(one)
        self.group_of: dict[Any, int] = {}
        self.backend = backend
        self.backends: list[StateBackend] = []
        self.operators: list[Operator] = []
        self.watermarks: list[int] = []
        self.start(1, [])
        self.rows = 0

    def start(self, parallelism: int, parts: Sequence[Any]) -> None:
        """Start from the captured state of all former subtasks, with their key groups."""
        self.stop()
        self.watermarks = [-1] * parallelism
        for index in range(parallelism):
            backend = self.backend() if self.backend is MemoryBackend else RocksDBBackend(8 << 20)
            operator = self.spec.create()
            operator.open(OperatorContext("deduplicate-0", index, parallelism, GROUPS, backend))
            first, last = owned_range(index, parallelism, GROUPS)
            own = [(n, max(first, low), min(last, high), state) for n, (low, high, state) in enumerate(parts)]
            own = [part for part in own if part[1] <= part[2]]
            pieces = [
                StoredRows(rows, False) for _, low, high, state in own for rows in state.tables[TABLE].base(low, high)
            ]
            scalars = [ScalarPart(n, low, high, state.scalars) for n, low, high, state in own]
            operator.restore(RestoredState({TABLE: pieces}, scalars, rescaled=True))
            self.backends.append(backend)
            self.operators.append(operator)

    def stop(self) -> None:
        for operator in self.operators:
            operator.close()
        for backend in self.backends:
            backend.close()
        self.operators, self.backends = [], []

    def ranges(self) -> list[range]:
        parallelism = len(self.operators)
        bounds = [owned_range(index, parallelism, GROUPS) for index in range(parallelism)]
        return [range(first, last + 1) for first, last in bounds]

    def feed(self, rows: Sequence[Row]) -> None:
        given = batch(rows, self.rows)
        self.rows += len(rows)
        groups = groups_of([given.column(position) for position in self.spec.keys], len(rows), GROUPS).tolist()
        expected = []
        for row, group, (_, _, at) in zip(given.to_pylist(), groups, rows, strict=True):
            if self.model.passes(row, None if at is None else at * SECOND, group):
                expected.append(row["n"])
            self.group_of[self.model.key(row)] = group
        passed = []
        for operator, own in zip(self.operators, self.ranges(), strict=True):
            chosen = [place for place, group in enumerate(groups) if group in own]
            if chosen:
                passed += numbers(operator.process(given.take(pa.array(chosen))))
        assert sorted(passed) == expected

    def advance(self, index: int, seconds: int) -> None:
        index %= len(self.operators)
        own = self.ranges()[index]
        if seconds <= self.watermarks[index]:
            assert list(self.operators[index].advance(seconds * SECOND)) == [], "it only rises"
            return
        self.watermarks[index] = seconds
        assert list(self.operators[index].advance(seconds * SECOND)) == []
        self.model.advance([key for key in self.model.known if self.group_of[key] in own], own, seconds * SECOND)

    def rescale(self, parallelism: int) -> None:
        bounds = [(own[0], own[-1]) for own in self.ranges()]
        states = [operator.snapshot() for operator in self.operators]
        old, self.operators, self.backends = (self.operators, self.backends), [], []
        self.start(parallelism, [(*bound, state) for bound, state in zip(bounds, states, strict=True)])
        for closing in (*old[0], *old[1]):
            closing.close()

    def check(self) -> None:
        held = {}
        for operator in self.operators:
            for row in rows_of(operator.snapshot().tables[TABLE].base(0, GROUPS - 1)):
                group, *columns = row.values()
                due = columns.pop() if self.spec.delay_us is not None else None
                key = frozen(columns)
                assert key not in held
                held[key] = None if due is None else round(due.timestamp() * SECOND)
                assert self.group_of[key] == group
        assert set(held) == set(self.model.known)
        if self.spec.delay_us is not None:
            assert held == self.model.known
        assert sum(operator.counters()["state_rows"] for operator in self.operators) == len(held)


names = st.sampled_from(["", None, "a", "b"])
values = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5])
row = st.tuples(names, values, st.one_of(st.none(), st.integers(0, 40)))
act = st.one_of(
    st.tuples(st.just("feed"), st.lists(row, min_size=1, max_size=12)),
    st.tuples(st.just("feed"), st.lists(row, min_size=1, max_size=12)),
    st.tuples(st.just("advance"), st.tuples(st.integers(0, 2), st.integers(0, 50))),
    st.tuples(st.just("rescale"), st.integers(1, 3)),
)


def obey(fleet: Fleet, acts: Sequence[tuple[str, Any]]) -> None:
    try:
        for name, given_ in acts:
            if name == "advance":
                fleet.advance(*given_)
            else:
                getattr(fleet, name)(given_)
            fleet.check()
    finally:
        fleet.stop()


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=some(40), deadline=None)
@given(acts=st.lists(act, max_size=12))
def test_whatever_happens_it_is_what_spark_does_row_by_row(name: str, acts: list[tuple[str, Any]]) -> None:
    obey(Fleet(SPECS[name], MemoryBackend), acts)


@settings(max_examples=8, deadline=None)
@given(acts=st.lists(act, min_size=4, max_size=8))
def test_the_backend_makes_no_difference(acts: list[tuple[str, Any]]) -> None:
    obey(Fleet(SPECS["within the watermark"], RocksDBBackend), acts)


def test_a_row_that_was_late_stays_late_behind_a_rescale() -> None:
    fleet = Fleet(SPECS["event time among the keys"], MemoryBackend)
    obey(
        fleet,
        [
            ("rescale", 2),
            ("feed", [("a", value / 4, second) for value in range(8) for second in (5, 25)]),
            ("advance", (0, 20)),
            ("rescale", 3),
            ("advance", (0, 10)),
            ("feed", [("a", value / 4, second) for value in range(8) for second in (5, 15, 25)]),
        ],
    )


def test_the_kit_for_operators_finds_nothing() -> None:
    """Slices and restores at any moment, the state as a snapshot stores it; one deduplication behind another, too."""
    chance = random.Random(5)
    inputs: list[Input] = []
    for step in range(6):
        rows = [(chance.choice(["a", "b", None]), chance.randrange(3) / 2, 5 * step + chance.randrange(-9, 9))
                for _ in range(20)]  # fmt: skip
        inputs += [batch(rows, 20 * step), (5 * step - 4) * SECOND]
    for one in SPECS.values():
        check_operators([one, replace(SPECS["within the watermark"], operator_id="behind")], inputs, schedules=6)


def test_a_restored_operator_goes_on_where_it_was() -> None:
    one = SPECS["within the watermark"]
    before = opened(one)
    assert numbers(before.process(batch([("a", 1.0, 10), ("b", 1.0, 12)]))) == [0, 1]
    after = opened(one)
    after.restore(stored(before.snapshot()))
    list(after.advance(15 * SECOND))
    assert numbers(after.process(batch([("a", 1.0, 16), ("b", 1.0, 16)]))) == [0]
