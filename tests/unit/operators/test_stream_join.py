"""The join of two streams: against a model of Spark's rule and its own definition, over rescales, on either backend."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.operators.join import stream_join
from penstock.operators.join.side_state import ExpiryBound
from penstock.operators.join.stream_join import StreamJoinKind, StreamJoinSpec
from penstock.state.rocksdb_table import RocksDBBackend
from tests.support.effort import some
from tests.support.operators.harness import opened, stored
from tests.support.operators.join_fleet import AT, SECOND, SIDES, SPECS, Fleet, Row, V, batch, rows_of, spec
from tests.support.same_rows import canonical

keys = st.sampled_from([None, 0.0, -0.0, math.nan, 1.5])
row = st.tuples(keys, st.one_of(st.none(), st.integers(0, 40)), st.integers(-1, 3))
fed = st.tuples(st.just("feed"), st.tuples(st.integers(0, 1), st.lists(row, min_size=1, max_size=10)))
act = st.one_of(
    fed,
    fed,
    st.tuples(st.just("advance"), st.tuples(st.integers(0, 2), st.integers(0, 50))),
    st.tuples(st.just("rescale"), st.tuples(st.integers(1, 3))),
)


def obey(fleet: Fleet, acts: Sequence[tuple[str, Any]]) -> None:
    try:
        for name, given_ in acts:
            getattr(fleet, name)(*given_)
            fleet.check()
    finally:
        fleet.stop()


@pytest.mark.parametrize("name", SPECS)
@settings(max_examples=some(30), deadline=None)
@given(acts=st.lists(act, max_size=12))
def test_whatever_happens_it_is_what_spark_does_row_by_row(name: str, acts: list[tuple[str, Any]]) -> None:
    obey(Fleet(SPECS[name]), acts)


@settings(max_examples=8, deadline=None)
@given(acts=st.lists(act, min_size=4, max_size=8))
def test_the_backend_makes_no_difference(acts: list[tuple[str, Any]]) -> None:
    obey(Fleet(SPECS["full outer"], RocksDBBackend), [*acts, ("drain", ())])


def is_pair(one: StreamJoinSpec, left: Row, right: Row) -> bool:
    if (left[0] is None or right[0] is None) and not all(one.null_safe):
        return False
    if repr(canonical(left[0])) != repr(canonical(right[0])):
        return False
    if any(side.condition is not None and row[2] <= 0 for side, row in zip(one.sides, (left, right), strict=True)):
        return False
    return one.condition is None or left[2] < right[2]


def joined(one: StreamJoinSpec, left: Sequence[Row], right: Sequence[Row]) -> Counter[str]:
    """Return the join by its definition."""
    pairs = [(n, m) for n, a in enumerate(left) for m, b in enumerate(right) if is_pair(one, a, b)]
    with_partner = {n for n, _ in pairs}, {m for _, m in pairs}
    if one.kind is StreamJoinKind.SEMI:
        return Counter(str((n,)) for n in with_partner[0])
    result = [str(pair) for pair in pairs]
    if one.sides[0].is_preserved:
        result += [str((n, None)) for n in range(len(left)) if n not in with_partner[0]]
    if one.sides[1].is_preserved:
        result += [str((None, m)) for m in range(len(right)) if m not in with_partner[1]]
    return Counter(result)


@pytest.mark.parametrize("kept", [(False, False), (True, False), (False, True), (True, True), "semi"])
@settings(max_examples=some(25), deadline=None)
@given(
    sides=st.tuples(*[st.lists(row, max_size=12)] * 2),
    cuts=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 5)), max_size=12),
    null_safe=st.booleans(),
)
def test_after_a_drain_it_is_the_join_of_its_definition(
    kept: Any, sides: tuple[list[Row], list[Row]], cuts: list[tuple[int, int]], null_safe: bool
) -> None:
    """Inputs come in any order, on two subtasks that become three halfway; no row is late."""
    semi = kept == "semi"
    one = spec(*SIDES, (False, False) if semi else kept, semi=semi, conditional=True, null_safe=null_safe)
    fleet = Fleet(one)
    fleet.rescale(2)
    numbers: tuple[list[int], list[int]] = ([], [])
    waiting = [list(sides[0]), list(sides[1])]
    try:
        for step, (side, rows) in enumerate([*cuts, (0, 99), (1, 99)]):
            now, waiting[side] = waiting[side][:rows], waiting[side][rows:]
            if now:
                numbers[side].extend(range(fleet.rows, fleet.rows + len(now)))
                fleet.feed(side, now)
            if step == len(cuts) // 2:
                fleet.rescale(3)
        fleet.drain()
        fleet.check()
        found = [
            str(tuple(None if n is None else numbers[at].index(n) for at, n in enumerate(values[4::5])))
            for values in fleet.output
        ]
        assert Counter(found) == joined(one, *sides)
    finally:
        fleet.stop()


def test_rows_are_forgotten_with_the_bound_and_unmatched_ones_come_out() -> None:
    operator = opened(spec(*SIDES, (True, False)))
    assert list(operator.process_input(0, batch(0, [(1.5, 10, 1), (2.5, 10, 2), (1.5, None, 3)]))) == []
    [pair] = operator.process_input(1, batch(1, [(1.5, 12, 1)]))
    assert [(one[V], one[-1]) for one in rows_of([pair])] == [(1, 0), (3, 0)]
    assert [one.num_rows for one in operator.advance(14 * SECOND)] == [0], "the right row goes: a pause"
    assert operator.emitted_watermark() == 14 * SECOND - 5 * SECOND - 1_000
    assert list(operator.advance(15 * SECOND)) == [], "a partner may come at 15.0005"
    [alone] = operator.advance(15 * SECOND + 1_000)
    assert [one[V:] for one in rows_of([alone])] == [(2, 1, None, None, None, None, None)]
    assert operator.counters()["state_rows"] == 1, "without event time it stays"
    assert list(operator.process_input(0, batch(0, [(2.5, 10, 4)]))) == []
    assert operator.counters()["rows_dropped_late"] == 1
    assert rows_of(list(operator.advance(END_OF_TIME_US))) == [], "it has come out"
    assert operator.counters()["state_rows"] == 0


def test_what_cannot_wait_comes_out_at_once() -> None:
    """A bound ahead of the watermark: no left row of the future goes with a right one so soon behind it."""
    early = replace(SIDES[1], bound=ExpiryBound(AT, 3 * SECOND))
    operator = opened(spec(SIDES[0], early, (False, True)))
    list(operator.process_input(0, batch(0, [(1.5, 10, 1)])))
    list(operator.advance(8 * SECOND))
    found = rows_of(list(operator.process_input(1, batch(1, [(1.5, 11, 1), (2.5, 11, 2), (2.5, 12, 3)]))))
    assert [(one[V], one[V + 5]) for one in found] == [(1, 1), (None, 2)]
    assert operator.counters()["state_rows"] == 2
    assert operator.emitted_watermark() == 8 * SECOND - 5 * SECOND - 1_000


def test_without_a_bound_event_time_behind_the_join_stands_still() -> None:
    operator = opened(SPECS["inner, one side for ever"])
    list(operator.advance(10 * SECOND))
    assert operator.emitted_watermark() == START_OF_TIME_US
    list(operator.advance(END_OF_TIME_US))
    assert operator.emitted_watermark() == END_OF_TIME_US


def test_many_partners_make_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_join, "MAX_PAIRS", 4)
    operator = opened(spec(*SIDES))
    list(operator.process_input(0, batch(0, [(1.5, 10, n) for n in range(10)])))
    found = list(operator.process_input(1, batch(1, [(1.5, 10, 1), (1.5, 10, 2), (0.0, 10, 2)])))
    assert [one.num_rows for one in found] == [4] * 5
    assert len({(one[4], one[9]) for one in rows_of(found)}) == 20


def test_what_expires_comes_in_steps_and_each_may_be_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot at every step, restored: what has come out does not come again, and nothing is missing."""
    monkeypatch.setattr(stream_join, "_EMIT_ROWS", 3)
    one = spec(*SIDES, (True, True))
    for watermark_us in (60 * SECOND, END_OF_TIME_US):
        for stop in range(8):
            operator = opened(one)
            for side in (0, 1):
                rows: list[Row] = [(2.0 * n + side, 10 + n, n) for n in range(8)]
                list(operator.process_input(side, batch(side, [*rows, (99.0 + side, None, 9)], 100 * side)))
            steps = operator.advance(watermark_us)
            found = [batch for _, batch in zip(range(stop), steps, strict=False)]
            again = opened(one)
            again.restore(stored(operator.snapshot()))
            found += again.advance(watermark_us)
            numbers = [row[4] if row[4] is not None else row[9] for row in rows_of(found)]
            everything = [*range(8), *range(100, 108)] + ([8, 108] if watermark_us == END_OF_TIME_US else [])
            assert sorted(numbers) == sorted(everything)


def test_the_row_itself_comes_back_not_its_key() -> None:
    operator = opened(spec(*SIDES))
    list(operator.process_input(0, batch(0, [(-0.0, 10, 1)])))
    [found] = operator.process_input(1, batch(1, [(0.0, 10, 1)]))
    assert math.copysign(1, found.column(0)[0].as_py()) == -1
    assert math.copysign(1, found.column(5)[0].as_py()) == 1


def test_columns_that_nobody_needs_are_not_there() -> None:
    one = replace(spec(*[replace(side, bound=None, width=0) for side in SIDES]), output_schema=pa.schema([]))
    operator = opened(one)
    list(operator.process_input(0, batch(0, [(1.0, 10, 1)] * 2)))
    [found] = operator.process_input(1, batch(1, [(1.0, 10, 1)] * 3))
    assert (found.num_rows, found.num_columns) == (6, 0)
