"""The consumer's end: turns, credit, watermarks, recovered rows."""

from __future__ import annotations

import pytest
from channel_world import BUDGET, GENERATION, WINDOW, gate_of, row_bytes, rows_of

from penstock.errors import ProtocolViolation
from penstock.ids import BufferId, ChannelId
from penstock.protocol.elements import Alignment, Barrier, Buffer, EndOfPartition, Watermark
from penstock.protocol.gate import BarrierReached, ChannelEnded, InputGate, WatermarkRose
from penstock.protocol.input import RowRange
from penstock.protocol.recovered import RecoveredRows
from penstock.snapshot.model import InflightEntry, SectionRef

A, B = ChannelId(0, 0, 0), ChannelId(0, 1, 0)


def buffer(channel: ChannelId, seq: int, rows: int = 2, size: int = 4, backlog: int = 0) -> Buffer:
    payload = rows_of(rows, size, start=seq * 100)
    return Buffer(BufferId(GENERATION, channel, seq), payload, row_bytes(payload), backlog)


def taken(gate: InputGate, max_rows: int = 100) -> tuple[ChannelId, list[int]]:
    rows = gate.poll(max_rows)
    assert isinstance(rows, RowRange)
    return rows.channel, rows.payload.numbers  # type: ignore[attr-defined]


def test_channels_take_turns_and_rows_are_taken_by_ranges() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=3))
    gate.arrive(A, buffer(A, 1, rows=1))
    gate.arrive(B, buffer(B, 0, rows=1))
    assert taken(gate, 2) == (A, [0, 1])
    assert taken(gate, 2) == (B, [0])
    assert taken(gate, 2) == (A, [2])
    assert taken(gate, 2) == (A, [100])
    assert gate.poll(2) is None


def test_credit_comes_back_half_a_window_at_a_time_or_when_the_queue_is_empty() -> None:
    gate = gate_of([A, B])
    for seq in range(4):
        gate.arrive(A, buffer(A, seq))
    taken(gate, 1)
    assert gate.take_grants() == [], "a half-read buffer still lies in memory"
    taken(gate)
    assert gate.take_grants() == [], "8 of 40 bytes are not worth a message"
    taken(gate)
    taken(gate)
    assert gate.take_grants() == [(A, 24)]
    taken(gate)
    assert gate.take_grants() == [(A, 8)]
    assert gate.channels[A].granted == WINDOW


def test_floating_credit_follows_the_announced_backlog_within_the_budget() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=10, backlog=70))
    assert gate.take_grants() == [(A, 70)]
    gate.check_invariants()
    gate.arrive(B, buffer(B, 0, rows=10, backlog=10_000))
    assert gate.take_grants() == [(B, BUDGET - 2 * WINDOW - 70)]
    gate.check_invariants()
    assert sum(c.granted + c.queued_bytes for c in gate.channels.values()) == BUDGET


def test_floating_credit_is_not_given_back_to_a_channel_without_backlog() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=10, backlog=40))
    assert gate.take_grants() == [(A, 40)]
    gate.arrive(A, buffer(A, 1, rows=10))
    taken(gate)
    taken(gate)
    assert gate.take_grants() == [(A, 40)], "back to the window"
    assert gate.channels[A].granted == WINDOW


def test_a_row_larger_than_the_window_is_let_in_and_paid_back() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=1, size=1_000))
    gate.check_invariants()
    taken(gate)
    assert gate.take_grants() == [(A, 1_000)]
    gate.arrive(A, buffer(A, 1, rows=10))
    with pytest.raises(ProtocolViolation):
        gate.arrive(A, buffer(A, 2, rows=1, size=1_000))


def test_illegal_arrivals_raise_and_change_nothing() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 1, rows=5))
    before = (gate.channels[A].granted, gate.queued_bytes)
    for illegal in (
        (A, buffer(A, 1)),
        (A, buffer(A, 2, rows=6)),
        (A, Buffer(BufferId(GENERATION + 1, A, 9), rows_of(1), 4)),
        (ChannelId(7, 0, 0), buffer(A, 3)),
    ):
        with pytest.raises(ProtocolViolation):
            gate.arrive(*illegal)
    assert (gate.channels[A].granted, gate.queued_bytes) == before
    gate.arrive(A, Barrier(2, Alignment.ALIGNED))
    with pytest.raises(ProtocolViolation):
        gate.arrive(A, Barrier(1, Alignment.ALIGNED))
    gate.arrive(B, EndOfPartition())
    with pytest.raises(ProtocolViolation):
        gate.arrive(B, buffer(B, 0))


def test_the_watermark_is_the_minimum_and_an_ended_channel_does_not_hold_it_back() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, Watermark(10))
    assert gate.poll(1) is None
    assert gate.watermark_us is None
    gate.arrive(B, Watermark(5))
    assert gate.poll(1) == WatermarkRose(5)
    gate.arrive(B, Watermark(3))
    assert gate.poll(1) is None
    gate.arrive(B, EndOfPartition())
    assert gate.poll(1) == ChannelEnded(B)
    assert gate.risen() == WatermarkRose(10)
    assert gate.risen() is None


def test_a_reached_barrier_blocks_its_channel_only() -> None:
    gate = gate_of([A, B])
    barrier = Barrier(1, Alignment.ALIGNED)
    gate.arrive(A, barrier)
    gate.arrive(A, buffer(A, 0))
    gate.arrive(B, buffer(B, 0))
    assert gate.poll(10) == BarrierReached(A, barrier)
    assert taken(gate)[0] == B
    assert gate.poll(10) is None
    gate.unblock(1)
    assert taken(gate)[0] == A


def entry(name: str, rows: int, layer: int = 1) -> InflightEntry:
    return InflightEntry(layer, 0, 0, 0, "consumer", 3, rows, 0, 7, SectionRef("p", 0, 9, name, ""))


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
    taken(gate)
    taken(gate)
    assert recovered.drained
    assert (recovered.rows_left, recovered.loaded_bytes) == (0, 0)
    assert gate.take_grants() == [(A, 100 - (WINDOW - 8))]
    assert taken(gate) == (A, [0, 1])
