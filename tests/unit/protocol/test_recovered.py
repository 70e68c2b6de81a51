"""Recovered in-flight rows: read before live input, loaded entry by entry."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import ProtocolViolation
from penstock.model.ids import ChannelId
from penstock.model.manifest import InflightEntry, SectionRef
from penstock.protocol.input import RowRange
from penstock.protocol.recovered import MAX_AHEAD, RecoveredRows
from tests.support.protocol.channel_world import (
    BUDGET,
    WINDOW,
    Rows,
    buffer,
    gate_of,
    row_bytes,
    rows_of,
    taken,
)

A, B = ChannelId(0, 0, 0), ChannelId(0, 1, 0)


def entry(name: str, rows: int, layer: int = 1, length: int = 50) -> InflightEntry:
    return InflightEntry(layer, 0, 0, 0, "consumer", 3, rows, 0, 7, SectionRef("p", 0, length, name, ""))


def test_recovered_entries_are_read_in_order_before_live_rows_and_without_floating_credit() -> None:
    first, second, third = entry("a", 3), entry("b", 2, layer=2), entry("c", 1, layer=2)
    recovered = RecoveredRows([first, entry("empty", 0), second, third], row_bytes)  # type: ignore[arg-type]
    gate = gate_of([A, B], recovered=recovered)
    assert recovered.to_load() == [first, second]
    assert recovered.to_load() == []
    gate.arrive(A, buffer(A, 0, backlog=100))
    assert gate.poll(10) is None
    assert gate.take_grants() == []
    gate.loaded(first, [rows_of(2, start=50), rows_of(1, start=52)])
    assert taken(gate, 1) == (ChannelId(0, 0, 0), [50])
    assert gate.taken_bytes == 4, "one of two rows of a batch"
    assert [(e.section.identity, e.row_start, e.rows) for e in recovered.carried()] == [
        ("a", 4, 2),
        ("b", 3, 2),
        ("c", 3, 1),
    ]
    assert taken(gate) == (A, [51])
    assert taken(gate) == (A, [52])
    assert recovered.to_load() == [third]
    with pytest.raises(ProtocolViolation):
        gate.loaded(third, [rows_of(1)])
    with pytest.raises(ProtocolViolation):
        gate.loaded(second, [rows_of(1)])
    gate.loaded(second, [rows_of(2)])
    gate.loaded(third, [rows_of(1)])
    gate.check_invariants()
    taken(gate)
    taken(gate)
    assert recovered.drained
    assert (recovered.rows_left, recovered.loaded_bytes, recovered.reserved_bytes) == (0, 0, 0)
    assert gate.take_grants() == [(A, 100 - (WINDOW - 8))]
    assert gate.taken_bytes == 24
    assert taken(gate) == (A, [0, 1])
    assert gate.taken_bytes == 32


def test_rows_of_other_consumers_do_not_count_as_left() -> None:
    """Two sections are shared with other consumers, of the second one half as many key groups; a third one is not."""
    shared = [replace(entry("a", 12), narrowed=True), replace(entry("b", 24), key_group_last=3, narrowed=True)]
    last = entry("c", 2)
    recovered = RecoveredRows([*shared, last], row_bytes, 32)  # type: ignore[arg-type]
    gate = gate_of([A, B], recovered=recovered)
    assert recovered.rows_left == 12 // 4 + 24 // 8 + 2, "nothing is known yet but how many key groups are its own"
    assert recovered.to_load() == shared
    gate.loaded(shared[0], [rows_of(4)], [[3, 5, 6, 11]])
    assert recovered.rows_left == 4 + 24 // 3 // 2 + 2, "a third of the rows for all key groups"
    assert taken(gate, 3) == (A, [0, 1, 2])
    assert recovered.rows_left == 1 + 4 + 2
    gate.check_invariants()
    assert taken(gate) == (A, [3])
    gate.loaded(shared[1], [], [])
    assert recovered.rows_left == 2, "none of it was its own"
    assert recovered.to_load() == [last]
    gate.loaded(last, [rows_of(2)])
    gate.check_invariants()
    taken(gate)
    assert (recovered.rows_left, recovered.drained) == (0, True)


def test_as_many_entries_are_asked_for_as_the_budget_leaves_and_one_at_least() -> None:
    left = BUDGET - 2 * WINDOW
    entries = [entry("large", 1, length=10 * left), *(entry(f"{i}", 1, length=left // 3) for i in range(5))]
    recovered = RecoveredRows(entries, row_bytes)  # type: ignore[arg-type]
    gate = gate_of([A, B], recovered=recovered)
    assert recovered.to_load() == entries[:1]
    gate.loaded(entries[0], [rows_of(1)])
    assert recovered.to_load() == [], "it is not read yet"
    taken(gate)
    assert recovered.to_load() == entries[1:4]
    gate.loaded(entries[1], [rows_of(1, size=left)])
    assert recovered.reserved_bytes == left + 2 * (left // 3), "larger in memory than in its section"
    taken(gate)
    assert recovered.to_load() == entries[4:5]
    gate.check_invariants()


def test_small_entries_are_asked_for_in_bounded_number() -> None:
    entries = [entry(str(i), 1, length=1) for i in range(MAX_AHEAD + 5)]
    recovered = RecoveredRows(entries, row_bytes)  # type: ignore[arg-type]
    gate_of([A, B], recovered=recovered)
    assert recovered.to_load() == entries[:MAX_AHEAD]


@given(
    layers=st.lists(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 5)), max_size=4), max_size=3),
    takes=st.lists(st.lists(st.integers(1, 4), max_size=6), min_size=1, max_size=4),
    length=st.integers(1, 60),
)
def test_repeated_restores_keep_the_order_of_layers_and_rows(
    layers: list[list[tuple[ChannelId, int]]], takes: list[list[int]], length: int
) -> None:
    """Each restore reads some, is captured, adds a layer of its own, and the next one starts from that."""
    content: dict[str, Rows] = {}
    entries: list[InflightEntry] = []
    expected: list[int] = []
    seen: list[int] = []

    def add_layer(number: int, parts: list[tuple[ChannelId, int]]) -> None:
        for part, (channel, count) in enumerate(parts):
            name = f"{number}/{part}"
            content[name] = rows_of(count, size=2, start=len(expected))
            expected.extend(content[name].numbers)
            section = SectionRef("p", 0, length, name, "")
            entries.append(InflightEntry(number, 0, channel.producer, 0, "consumer", 0, count, 0, 7, section))

    add_layer(0, [(A, 3), (B, 4)])
    for restore, sizes in enumerate([*takes, [100] * 100]):
        recovered = RecoveredRows(entries, row_bytes)  # type: ignore[arg-type]
        gate = gate_of([A, B], recovered=recovered)
        loading: list[InflightEntry] = []
        for size in sizes:
            loading += recovered.to_load()
            while loading and not recovered.readable:
                ready = loading.pop(0)
                gate.loaded(ready, [content[ready.section.identity].slice(ready.row_start, ready.rows)])
            rows = gate.poll(size)
            if isinstance(rows, RowRange):
                seen.extend(rows.payload.numbers)  # type: ignore[attr-defined]
            gate.check_invariants()
            assert recovered.reserved_bytes <= max(BUDGET - 2 * WINDOW, length)
        entries = recovered.carried()
        if restore < len(takes):
            add_layer(restore + 1, layers[restore] if restore < len(layers) else [])
    assert not entries
    assert seen == expected
