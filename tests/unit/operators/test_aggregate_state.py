"""Final aggregation over time: lateness, closing, update mode, and state that is consistent at every yield."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import NotSupported
from penstock.model.plain import Plain
from penstock.operators.aggregate import final as final_aggregate
from penstock.operators.aggregate.accumulators import create_accumulator
from penstock.operators.aggregate.calls import AggregateCall
from penstock.operators.aggregate.final import TABLE
from penstock.operators.base import Operator, OperatorState, RestoredState, ScalarPart
from penstock.state.hashing import key_groups
from penstock.state.vector import Vector
from tests.support.operators.harness import UTC_STAMP, WINDOW, aggregation, opened, rows_of, stored

SECOND = 1_000_000
CALLS = (
    AggregateCall("count_star", 0, pa.null(), pa.int64()),
    AggregateCall("sum", 1, pa.int64(), pa.int64()),
    AggregateCall("max", 2, pa.string(), pa.string()),
)
WINDOWED = pa.schema([("w", WINDOW), ("v", pa.int64()), ("t", pa.string())])
PLAIN = pa.schema([("at", UTC_STAMP), ("v", pa.int64()), ("t", pa.string())])
KEYED = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.string())])


DEVICES = pa.schema([("d", pa.int64()), ("at", UTC_STAMP), ("v", pa.int64()), ("t", pa.string())])


def device_of(groups: range) -> int:
    """A device all of whose rows of the test are in these key groups (the moment is part of the key)."""
    return next(
        device
        for device in range(10_000)
        if all(int(key_groups(devices((device, at)), (0, 1), 128)[0]) in groups for at in (90, 95, 105))
    )


def devices(*rows: tuple[int, int]) -> pa.RecordBatch:
    """Rows of (device, event time in seconds)."""
    return pa.RecordBatch.from_pylist(
        [{"d": device, "at": at * SECOND, "v": 1, "t": "t"} for device, at in rows], schema=DEVICES
    )


def windowed(*rows: tuple[int | None, int]) -> pa.RecordBatch:
    """Rows of (window end in seconds, value); windows are ten seconds long."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "w": None if end is None else {"start": (end - 10) * SECOND, "end": end * SECOND},
                "v": value,
                "t": f"t{value}",
            }
            for end, value in rows
        ],
        schema=WINDOWED,
    )


def keyed(*rows: tuple[int, int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"k": k, "v": v, "t": f"t{v}"} for k, v in rows], schema=KEYED)


class Pair:
    """A partial and a final aggregation as one."""

    def __init__(
        self,
        schema: pa.Schema,
        mode: str,
        event_time: int | None = None,
        subtask: int = 0,
        parallelism: int = 1,
        keys: tuple[int, ...] = (0,),
    ) -> None:
        calls = [replace(call, ordinal=call.ordinal + len(keys) - 1) for call in CALLS]
        self.specs = aggregation(schema, keys, tuple(calls), mode, event_time)
        self.partial, self.final = (opened(spec, subtask, parallelism) for spec in self.specs)

    def feed(self, batch: pa.RecordBatch) -> None:
        for partial in self.partial.process(batch):
            assert list(self.final.process(partial)) == []

    def restored(self, state: OperatorState) -> Operator:
        final = opened(self.specs[1])
        final.restore(stored(state))
        return final


def sums(batches: Iterator[pa.RecordBatch]) -> dict[int, int]:
    """Window end in seconds -> sum; a window that appears twice fails."""
    found: dict[int, int] = {}
    for row in rows_of(batches):
        end = int(row["w"]["end"].timestamp())
        assert end not in found
        found[end] = row["r1"]
    return found


def held(final: Operator) -> dict[int, int]:
    rows = rows_of(final.snapshot().tables[TABLE].base(0, 127))
    return {int(row["w"]["end"].timestamp()): row["__a1_sum"] for row in rows}


def test_append_emits_a_window_once_when_its_end_is_reached() -> None:
    pair = Pair(WINDOWED, "append", event_time=0)
    pair.feed(windowed((10, 1), (20, 2), (30, 4), (20, 8)))
    assert list(pair.final.finish_epoch()) == []
    assert list(pair.final.advance(10 * SECOND - 1)) == []
    assert sums(pair.final.advance(10 * SECOND)) == {10: 1}
    assert sums(pair.final.advance(29 * SECOND)) == {20: 10}
    assert sums(pair.final.advance(29 * SECOND)) == {}
    assert held(pair.final) == {30: 4}
    assert sums(pair.final.advance(2**60)) == {30: 4}
    assert pair.final.counters()["state_rows"] == 0


def test_rows_of_closed_windows_are_dropped_and_counted() -> None:
    pair = Pair(WINDOWED, "append", event_time=0)
    list(pair.final.advance(20 * SECOND))
    pair.feed(windowed((10, 1), (20, 2), (30, 4), (10, 8), (None, 16)))
    assert pair.final.counters()["rows_dropped_late"] == 2, "partial rows count, as Spark counts them"
    assert sums(pair.final.advance(2**60)) == {30: 4}
    assert pair.final.counters()["state_rows"] == 1, "a null window is never closed and never late"


def test_a_plain_timestamp_key_closes_at_the_watermark() -> None:
    pair = Pair(PLAIN, "append", event_time=0)
    pair.feed(pa.RecordBatch.from_pydict({"at": [1, 2, None], "v": [1, 2, 3], "t": ["a", "b", "c"]}, schema=PLAIN))
    assert [row["r1"] for row in rows_of(pair.final.advance(1))] == [1]
    assert [row["r2"] for row in rows_of(pair.final.advance(2))] == ["b"]


def test_windows_come_out_by_time_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_aggregate, "_EMIT_ROWS", 3)
    ends = list(range(10, 130, 10))
    random.Random(1).shuffle(ends)
    pair = Pair(WINDOWED, "append", event_time=0)
    pair.feed(windowed(*[(end, end) for end in ends]))
    batches = list(pair.final.advance(2**60))
    assert [batch.num_rows for batch in batches] == [3, 3, 3, 3]
    assert list(sums(iter(batches))) == sorted(ends)


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_snapshot_between_two_yields_holds_exactly_what_was_not_yielded(
    monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(final_aggregate, "_EMIT_ROWS", 2)
    expected = {end: end for end in range(10, 90, 10)}
    for stop in range(5):
        pair = Pair(WINDOWED, mode, event_time=0)
        pair.feed(windowed(*expected.items()))
        output = pair.final.advance(2**60)
        before = sums(next(output) for _ in range(stop)) if stop else {}
        state = pair.final.snapshot()
        rest = sums(output)
        assert before | rest == expected
        assert not before.keys() & rest.keys()
        again = pair.restored(state)
        assert sums(again.advance(2**60)) == rest


def test_update_emits_the_latest_value_of_what_changed_once_per_epoch() -> None:
    pair = Pair(KEYED, "update")
    pair.feed(keyed((1, 1), (2, 2), (1, 10)))
    pair.feed(keyed((1, 100)))
    assert [(row["k"], row["r0"], row["r1"], row["r2"]) for row in rows_of(pair.final.finish_epoch())] == [
        (1, 3, 111, "t100"),
        (2, 1, 2, "t2"),
    ]
    assert rows_of(pair.final.finish_epoch()) == []
    pair.feed(keyed((2, 5)))
    assert [(row["k"], row["r1"]) for row in rows_of(pair.final.finish_epoch())] == [(2, 7)]


def test_update_results_not_yet_yielded_are_yielded_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_aggregate, "_EMIT_ROWS", 1)
    pair = Pair(KEYED, "update")
    pair.feed(keyed((1, 1), (2, 2), (3, 3)))
    output = pair.final.finish_epoch()
    first = rows_of([next(output)])
    again = pair.restored(pair.final.snapshot())
    assert sorted(row["k"] for row in [*first, *rows_of(again.finish_epoch())]) == [1, 2, 3]


def test_update_with_a_watermark_emits_what_changed_and_forgets_the_rest() -> None:
    pair = Pair(WINDOWED, "update", event_time=0)
    pair.feed(windowed((10, 1), (20, 2)))
    assert sums(pair.final.finish_epoch()) == {10: 1, 20: 2}
    pair.feed(windowed((20, 5), (30, 3)))
    assert sums(pair.final.advance(20 * SECOND)) == {20: 7}
    assert sums(pair.final.finish_epoch()) == {30: 3}
    assert pair.final.counters()["state_rows"] == 1


def test_a_restore_in_the_middle_changes_no_result() -> None:
    chance = random.Random(7)
    whole, broken = Pair(WINDOWED, "append", event_time=0), Pair(WINDOWED, "append", event_time=0)
    seen: list[dict[int, int]] = [{}, {}]
    for step in range(30):
        batch = windowed(*[(10 * chance.randint(step, step + 5), chance.randint(-9, 9)) for _ in range(8)])
        for pair, results in zip((whole, broken), seen, strict=True):
            pair.feed(batch)
            for end, total in sums(pair.final.advance(step * 10 * SECOND)).items():
                assert end not in results
                results[end] = total
        if step % 4 == 0:
            broken.final = broken.restored(broken.final.snapshot())
            assert sums(broken.final.advance(step * 10 * SECOND)) == {}
    assert seen[0] == seen[1]
    assert len(seen[0]) > 20


def test_a_snapshot_is_not_changed_by_later_rows() -> None:
    pair = Pair(WINDOWED, "append", event_time=0)
    pair.feed(windowed((10, 1), (20, 2)))
    state = pair.final.snapshot()
    pair.feed(windowed((10, 100), (30, 3)))
    list(pair.final.advance(10 * SECOND))
    assert sums(pair.restored(state).advance(2**60)) == {10: 1, 20: 2}


def test_a_subtask_that_takes_over_from_two_closes_each_ones_windows_once() -> None:
    """Watermarks 100 and 90: the new subtask begins at 90, but what the first one had closed stays closed."""
    first, second = (
        Pair(DEVICES, "append", event_time=1, subtask=subtask, parallelism=2, keys=(0, 1)) for subtask in range(2)
    )
    device = {0: device_of(range(64)), 1: device_of(range(64, 128))}
    for pair, key, watermark in ((first, device[0], 100), (second, device[1], 90)):
        pair.feed(devices((key, 95), (key, 105)))
        before = [row["at"].timestamp() for row in rows_of(pair.final.advance(watermark * SECOND))]
        assert before == ([95] if watermark == 100 else [])
    states = [stored(first.final.snapshot(), 0, 63), stored(second.final.snapshot(), 64, 127)]
    assert [state.parts[0].scalars["closed"] for state in states] == [[[0, 63, 100 * SECOND]], [[64, 127, 90 * SECOND]]]

    joined = Pair(DEVICES, "append", event_time=1, keys=(0, 1))
    pieces = [piece for state in states for piece in state.tables[TABLE]]
    joined.final.restore(RestoredState({TABLE: pieces}, [part for state in states for part in state.parts]))
    list(joined.final.advance(90 * SECOND))
    joined.feed(devices((device[0], 95), (device[1], 95), (device[0], 105), (device[0], 90), (device[1], 90)))
    assert joined.final.counters()["rows_dropped_late"] == 3, "95 of the first, and what is at the watermark of both"
    again = opened(joined.specs[1])
    again.restore(stored(joined.final.snapshot()))
    for final in (joined.final, again):
        list(final.advance(90 * SECOND))
        closed = [(row["d"], row["at"].timestamp(), row["r0"]) for row in rows_of(final.advance(2**60))]
        assert sorted(closed) == sorted([(device[1], 95, 2), (device[0], 105, 2), (device[1], 105, 1)])


def test_ranges_of_closed_groups_are_cut_to_what_is_taken_over_and_forgotten_when_the_watermark_has_passed() -> None:
    final = opened(aggregation(DEVICES, (0, 1), CALLS, "append", 1)[1])
    scalars: dict[str, Plain] = {"closed": [[0, 63, 100], [64, 127, 70]]}
    final.restore(RestoredState({}, [ScalarPart(0, 10, 20, scalars), ScalarPart(1, 60, 70, scalars)]))
    list(final.advance(80))
    assert final.snapshot().scalars == {
        "closed": [[0, 9, 80], [10, 20, 100], [21, 59, 80], [60, 63, 100], [64, 127, 80]]
    }
    list(final.advance(100))
    assert final.snapshot().scalars == {"closed": [[0, 127, 100]]}


def test_the_stored_schema_is_the_declared_one() -> None:
    pair = Pair(WINDOWED, "append", event_time=0)
    pair.feed(windowed((10, 1)))
    assert pair.final.snapshot().tables[TABLE].schema == pair.specs[1].state_schemas[TABLE]


def test_append_without_event_time_is_refused() -> None:
    with pytest.raises(NotSupported, match="needs a watermark"):
        aggregation(KEYED, (0,), CALLS, "append")


def test_complete_mode_emits_every_group_whenever_one_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_aggregate, "_EMIT_ROWS", 2)
    pair = Pair(KEYED, "complete")
    pair.feed(keyed((1, 10), (2, 20), (3, 30)))
    batches = list(pair.final.finish_epoch())
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert [row["r1"] for row in rows_of(iter(batches))] == [10, 20, 30]
    assert (pair.final.take_replaced(), pair.final.take_replaced()) == (True, False)
    assert list(pair.final.finish_epoch()) == [], "nothing changed"
    assert not pair.final.take_replaced()
    assert list(pair.final.advance(2**60)) == [], "nothing is ever closed"
    pair.feed(keyed((2, 5)))
    state = pair.final.snapshot()
    assert [row["r1"] for row in rows_of(pair.final.finish_epoch())] == [10, 25, 30]
    assert sorted(row["r1"] for row in rows_of(pair.restored(state).finish_epoch())) == [10, 25, 30]


def test_in_complete_mode_all_groups_belong_to_the_subtask_that_rows_without_keys_go_to() -> None:
    pair = Pair(KEYED, "complete")
    pair.feed(keyed(*((key, 1) for key in range(100))))
    groups = {row["__key_group"] for row in rows_of(pair.final.snapshot().tables[TABLE].base(0, 127))}
    assert groups == {int(key_groups(keyed((1, 1)), (), 128)[0])}


@pytest.mark.parametrize(
    ("function", "kind"), [("sum", pa.string()), ("min", pa.map_(pa.int64(), pa.int64())), ("median", pa.int64())]
)
def test_calls_that_cannot_run_are_refused(function: str, kind: Any) -> None:
    with pytest.raises(NotSupported, match=function):
        AggregateCall(function, 0, kind, kind)


@pytest.mark.parametrize("function", ["count", "count_star", "sum", "avg", "min", "max"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.decimal128(30, 2)])
def test_only_the_given_rows_of_a_table_are_written_to(function: str, kind: pa.DataType) -> None:
    call = AggregateCall(function, 0, pa.null() if function == "count_star" else kind, kind)
    accumulator = create_accumulator(call)

    def fresh() -> list[Vector]:
        buffers = [
            Vector(f.type, fill) for f, fill in zip(call.buffer_fields(0), accumulator.initial_values(), strict=True)
        ]
        for buffer in buffers:
            buffer.extend(5)
        return buffers

    partial, state, given = fresh(), fresh(), np.array([1, 3])
    accumulator.add(partial, np.array([1, 3, 3]), [pa.array([None, 1, 2], pa.int64()).cast(kind)])
    accumulator.merge(state, given, [buffer.to_arrow(given) for buffer in partial])
    for buffers in (partial, state):
        for buffer, untouched in zip(buffers, fresh(), strict=True):
            others = np.array([0, 2, 4])
            assert buffer.to_arrow(others).null_count == 3
            assert repr(buffer.read()[0][others].tolist()) == repr(untouched.read()[0][others].tolist())
    assert [buffer.to_arrow(given) for buffer in state] == [buffer.to_arrow(given) for buffer in partial]


def test_input_without_columns_is_counted() -> None:
    batch = pa.record_batch([pa.nulls(5)], names=["_"]).select([])
    partial, final = (opened(spec) for spec in aggregation(batch.schema, (), CALLS[:1]))
    for out in partial.process(batch):
        assert list(final.process(out)) == []
    assert rows_of(final.finish_epoch()) == [{"r0": 5}]
