"""Distribution of rows over consumers, and slices."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.job_graph import Edge, EdgeKind, JobGraph
from penstock.model.key_groups import owner
from penstock.state.hashing import key_groups
from penstock.worker.partitioner import REBALANCE_CUT_ROWS, compact, partitioner
from penstock.worker.slicing import BY_VALUE_ROWS, FIRST_ROWS, LEAST_BYTES, MAX_ROWS, TARGET_MS, SliceSizer, sizer_for

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])


def rows(keys: list[str | None]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.string()), pa.array(range(len(keys)), pa.int64())], schema=SCHEMA)


def split(kind: EdgeKind, parallelism: int, batch: pa.RecordBatch, times: int = 1) -> list[tuple[int, pa.RecordBatch]]:
    keys = (0,) if kind is EdgeKind.HASH else ()
    chosen = partitioner(Edge(0, 0, 1, kind, SCHEMA, keys), 0, JobGraph((), (), parallelism, 128))
    return [part for _ in range(times) for part in chosen.split(batch)]


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", "", None]), min_size=1, max_size=50), st.sampled_from([1, 2, 3, 128])
)
def test_hash_gives_each_row_to_its_key_groups_owner_in_order(keys: list[str | None], parallelism: int) -> None:
    batch = rows(keys)
    parts = split(EdgeKind.HASH, parallelism, batch)
    assert [consumer for consumer, _ in parts] == sorted({consumer for consumer, _ in parts})
    assert sorted(v for _, part in parts for v in part.column(1).to_pylist()) == list(range(len(keys)))
    for consumer, part in parts:
        assert part.num_rows > 0
        values = part.column(1).to_pylist()
        assert values == sorted(values)
        assert {owner(int(g), parallelism, 128) for g in key_groups(part, (0,), 128)} == {consumer}


def test_rebalance_takes_turns_and_cuts_large_batches() -> None:
    small = split(EdgeKind.REBALANCE, 3, rows(["a"] * 10), times=6)
    assert sorted(consumer for consumer, _ in small) == [0, 0, 1, 1, 2, 2]
    large = split(EdgeKind.REBALANCE, 3, rows(["a"] * (3 * REBALANCE_CUT_ROWS)))
    assert [(consumer, part.num_rows) for consumer, part in large] == [(i, REBALANCE_CUT_ROWS) for i in range(3)]
    assert [v for _, part in large for v in part.column(1).to_pylist()] == list(range(3 * REBALANCE_CUT_ROWS))


def test_forward_gives_everything_to_the_same_number() -> None:
    for producer in range(3):
        chosen = partitioner(Edge(0, 0, 1, EdgeKind.FORWARD, SCHEMA), producer, JobGraph((), (), 3, 128))
        parts = chosen.split(rows(["a", "b"]))
        assert [(consumer, part.column(1).to_pylist()) for consumer, part in parts] == [(producer, [0, 1])]


def test_broadcast_gives_everything_to_everyone() -> None:
    parts = split(EdgeKind.BROADCAST, 3, rows(["a", "b"]))
    assert [(consumer, part.column(1).to_pylist()) for consumer, part in parts] == [(i, [0, 1]) for i in range(3)]


def test_no_part_pins_much_more_than_itself() -> None:
    parent = rows([str(i % 50) for i in range(10_000)])
    for kind in EdgeKind:
        for piece in (parent, parent.slice(17, 100)):
            for _, part in split(kind, 4, piece):
                assert part.get_total_buffer_size() <= 2 * part.nbytes + 64
    whole = parent.slice(0, 9_000)
    assert compact(whole) is whole, "a slice of more than half is not copied"


def settle(cost_ms: Callable[[int], float], rounds: int = 60, max_output_bytes: int = 1 << 30) -> SliceSizer:
    sizer = SliceSizer(max_output_bytes)
    for _ in range(rounds):
        sizer.observe(sizer.rows, cost_ms(sizer.rows), sizer.rows * 8)
    return sizer


@pytest.mark.parametrize("per_row_ms", [5.0, 1.0, 0.01, 0.001])
def test_a_slice_comes_to_last_about_twenty_ms(per_row_ms: float) -> None:
    sizer = settle(lambda rows: rows * per_row_ms)
    assert 0.5 * TARGET_MS <= sizer.rows * per_row_ms <= 1.1 * TARGET_MS


def test_the_first_slices_are_small_and_grow_quickly() -> None:
    sizer = SliceSizer(1 << 30)
    assert sizer.rows == FIRST_ROWS
    assert SliceSizer(1 << 30, multiplies=True).rows == 1
    assert settle(lambda rows: rows * 1e-6, rounds=10).rows == MAX_ROWS


def test_rows_of_which_a_value_says_what_becomes_of_them_come_in_small_slices() -> None:
    def largest(*operators: FakeSpec) -> int:
        sizer = sizer_for(operators, 1 << 30)  # type: ignore[arg-type]
        for _ in range(20):
            sizer.observe(sizer.rows, sizer.rows * 1e-6, sizer.rows * 8)
        return sizer.rows

    assert largest(FakeSpec(), FakeSpec(grows_by_value=True)) == BY_VALUE_ROWS
    assert largest(FakeSpec(multiplies=True)) == MAX_ROWS


@dataclass
class FakeSpec:
    multiplies: bool = False
    grows_by_value: bool = False


def test_a_call_that_takes_a_second_whatever_it_is_given_is_not_handed_single_rows() -> None:
    sizer = SliceSizer(1 << 30)
    sizes = []
    for _ in range(100):
        sizes.append(sizer.rows)
        sizer.observe(sizer.rows, 1_000.0, 0)
    assert max(sizes) == MAX_ROWS
    assert sum(sizes) > 50 * MAX_ROWS
    assert sum(size <= FIRST_ROWS for size in sizes) < 10


def test_rows_that_become_slower_shrink_the_next_slice_at_once() -> None:
    sizer = settle(lambda rows: rows * 0.001)
    before = sizer.rows
    sizer.observe(before, before * 1.0, 0)
    assert sizer.rows <= 4 * TARGET_MS
    for _ in range(20):
        sizer.observe(sizer.rows, sizer.rows * 1.0, 0)
    assert sizer.rows <= 1.2 * TARGET_MS


def test_one_pause_of_the_process_does_not_count_for_much() -> None:
    sizer = settle(lambda rows: rows * 0.001)
    before = sizer.rows
    sizer.observe(5, 40.0, 0)
    assert sizer.rows >= before / 4
    for _ in range(5):
        sizer.observe(sizer.rows, sizer.rows * 0.001, 0)
    assert sizer.rows >= 0.8 * before


def test_a_call_that_stops_to_have_a_fixed_cost_is_noticed() -> None:
    sizer = settle(lambda rows: 1_000.0)
    for _ in range(60):
        sizer.observe(sizer.rows, sizer.rows * 0.1, 0)
    assert sizer.rows * 0.1 <= 2 * TARGET_MS


def test_after_small_batches_that_look_expensive_slices_are_soon_large_again() -> None:
    sizer = settle(lambda rows: rows * 0.001)
    before = sizer.rows
    for _ in range(50):
        sizer.observe(3, 0.5, 24)
    for _ in range(8):
        sizer.observe(sizer.rows, 0.5 + sizer.rows * 0.001, 0)
    assert sizer.rows >= 0.8 * before


def test_output_bytes_bound_a_slice_too() -> None:
    assert settle(lambda rows: rows * 1e-6, max_output_bytes=8_000).rows <= 1_000


def test_a_slice_that_is_to_be_over_sooner_has_fewer_rows() -> None:
    sizer = settle(lambda rows: rows * 1.0)
    assert sizer.rows_within(TARGET_MS) == sizer.rows_within(math.inf) == sizer.rows
    assert sizer.rows_within(TARGET_MS / 4) == sizer.rows // 4
    assert sizer.rows_within(0.0) == sizer.rows_within(-1.0) == 1
    fixed = settle(lambda rows: 1_000.0)
    assert fixed.rows_within(1.0) == fixed.rows > 1, "single rows would take as long"


@pytest.mark.parametrize("cheap_ms", [0.0005, 1e-6])
@pytest.mark.parametrize("large_bytes", [100_000, 500_000, 1_600_000])
def test_the_first_slice_is_one_row_and_large_rows_do_not_come_together(cheap_ms: float, large_bytes: int) -> None:
    """First rows of 8 bytes, then of 30 ms each: a slice of many rows is followed by slices of few."""
    sizer = SliceSizer(1 << 30, multiplies=True)
    assert (sizer.rows, sizer.bytes) == (1, LEAST_BYTES)
    for _ in range(60):
        sizer.observe(sizer.rows, sizer.rows * cheap_ms, 0, sizer.rows * 8)
    assert sizer.rows > 20_000
    assert sizer.bytes <= 2 * sizer.rows * 8
    taken = []
    for _ in range(20):
        rows = max(1, min(sizer.rows, sizer.bytes // large_bytes))
        taken.append(rows)
        sizer.observe(rows, rows * 30.0, 0, rows * large_bytes)
    assert max(taken) <= (2 << 20) * 2 / large_bytes
    assert max(taken[8:]) <= 2


def test_rows_that_cost_much_each_are_told_from_a_call_that_does() -> None:
    each, call = SliceSizer(1 << 30), SliceSizer(1 << 30)
    for _ in range(4):
        each.observe(each.rows, each.rows * 50.0, 0)
        call.observe(call.rows, 50.0, 0)
    assert each.rows == 1
    assert call.rows > 16
