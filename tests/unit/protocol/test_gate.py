"""The consumer's end: turns, credit, watermarks, recovered rows."""

from __future__ import annotations

import pytest

from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment, Barrier, Buffer, EndOfPartition, Watermark
from penstock.model.ids import BufferId, ChannelId
from penstock.protocol.gate import BarrierReached, ChannelEnded, InputGate, WatermarkRose
from penstock.protocol.input import RowRange
from tests.support.protocol.channel_world import (
    BUDGET,
    GENERATION,
    WINDOW,
    buffer,
    gate_of,
    rows_of,
    taken,
)

A, B = ChannelId(0, 0, 0), ChannelId(0, 1, 0)


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
    assert gate.channels[A].credit.granted == WINDOW


def test_floating_credit_follows_the_announced_backlog_within_the_budget() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=10, backlog=70))
    assert gate.take_grants() == [(A, 70)]
    gate.check_invariants()
    gate.arrive(B, buffer(B, 0, rows=10, backlog=10_000))
    assert gate.take_grants() == [(B, BUDGET - 2 * WINDOW - 70)]
    gate.check_invariants()
    assert sum(c.credit.granted + c.credit.queued_bytes for c in gate.channels.values()) == BUDGET


def test_floating_credit_is_not_given_back_to_a_channel_without_backlog() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=10, backlog=40))
    assert gate.take_grants() == [(A, 40)]
    gate.arrive(A, buffer(A, 1, rows=10))
    taken(gate)
    taken(gate)
    assert gate.take_grants() == [(A, 40)], "back to the window"
    assert gate.channels[A].credit.granted == WINDOW


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
    before = (gate.channels[A].credit.granted, gate.queued_bytes)
    for illegal in (
        (A, buffer(A, 1)),
        (A, buffer(A, 2, rows=6)),
        (A, Buffer(BufferId(GENERATION + 1, A, 9), rows_of(1), 4)),
        (ChannelId(7, 0, 0), buffer(A, 3)),
    ):
        with pytest.raises(ProtocolViolation):
            gate.arrive(*illegal)
    assert (gate.channels[A].credit.granted, gate.queued_bytes) == before
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


def test_barriers_and_ends_wait_for_a_watermark_that_is_due_and_rows_and_watermarks_do_not() -> None:
    gate = gate_of([A, B])
    for channel in (A, B):
        gate.arrive(channel, buffer(channel, 0))
        gate.arrive(channel, Watermark(10))
    assert [taken(gate)[0] for _ in range(2)] == [A, B]
    assert gate.poll(1) == WatermarkRose(10)
    gate.arrive(A, Barrier(1, Alignment.ALIGNED))
    for element in (Watermark(20), buffer(B, 1), EndOfPartition()):
        gate.arrive(B, element)
    rows = gate.poll(100, watermark_due=True)
    assert isinstance(rows, RowRange)
    assert rows.channel == B
    assert gate.poll(100, watermark_due=True) is None
    assert gate.poll(100) == BarrierReached(A, Barrier(1, Alignment.ALIGNED))
    assert gate.poll(100) == ChannelEnded(B)


@pytest.mark.parametrize("first_to_end", [0, 1])
def test_where_event_time_ends_up_does_not_depend_on_which_of_two_sources_ends_first(first_to_end: int) -> None:
    near, far = ChannelId(0, 0, 0), ChannelId(1, 0, 0)
    gate = gate_of([near, far])
    gate.arrive(near, Watermark(10))
    gate.arrive(far, Watermark(30))
    for channel in (near, far) if first_to_end == 0 else (far, near):
        gate.arrive(channel, EndOfPartition())
    while gate.poll(1) is not None:
        gate.risen()
    assert gate.ended
    assert gate.watermark_us == 10


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


def test_what_is_consumed_goes_to_those_who_wait_in_turns() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=10, backlog=10_000))
    assert gate.take_grants() == [(A, 120)]
    for seq in range(1, 4):
        gate.arrive(A, buffer(A, seq, rows=10, backlog=10_000))
    gate.arrive(B, buffer(B, 0, rows=10, backlog=10_000))
    assert gate.take_grants() == []
    given = {A: 0, B: 0}
    for _ in range(4):
        taken(gate)
        for channel, credit in gate.take_grants():
            given[channel] += credit
        gate.check_invariants()
    assert sum(given.values()) == 4 * 40
    assert min(given.values()) >= 60


def test_what_becomes_free_is_shared_by_all_who_wait() -> None:
    c = ChannelId(0, 2, 0)
    gate = gate_of([c, A, B])
    gate.arrive(c, buffer(c, 0, rows=10, backlog=80))
    assert gate.take_grants() == [(c, 80)]
    gate.arrive(c, buffer(c, 1, rows=10))
    gate.arrive(A, buffer(A, 0, rows=10, backlog=1_000))
    gate.arrive(B, buffer(B, 0, rows=10, backlog=1_000))
    assert gate.take_grants() == []
    assert taken(gate)[0] == c
    assert sorted(gate.take_grants()) == [(A, 20), (B, 20)]


def test_with_a_target_an_empty_queue_gets_credit_for_the_next_buffer_or_the_window_if_that_is_unknown() -> None:
    gate = gate_of([A, B], target_ms=100)
    gate.arrive(A, buffer(A, 0, rows=10, backlog=1_000, following=24))
    gate.arrive(B, buffer(B, 0, rows=10))
    for now_ms in (0.0, 1_000.0):
        assert isinstance(gate.poll(100, now_ms), RowRange)
    assert gate.take_grants() == [(A, 24), (B, WINDOW)], "its speed is not known yet"
    gate.check_invariants()
    gate.arrive(A, buffer(A, 1, rows=6, backlog=976, following=500))
    taken(gate)
    assert gate.take_grants() == [(A, WINDOW)], "a row larger than the window needs no more than that"


def test_without_a_target_an_empty_queue_gets_the_whole_window() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, buffer(A, 0, rows=1, backlog=4, following=4))
    taken(gate)
    assert gate.take_grants() == [(A, 4)]
    assert gate.channels[A].credit.granted == WINDOW


def worked(gate: InputGate, bytes_per_ms: int) -> None:
    """The gate has found its subtask to be this fast, and is idle again."""
    for seq in range(50):
        gate.arrive(A, buffer(A, seq, rows=10))
        assert isinstance(gate.poll(10, seq * 40.0), RowRange)
        assert gate.poll(10, seq * 40.0 + 40.0 / bytes_per_ms) is None
    gate.take_grants()


def test_with_a_target_all_channels_together_get_what_is_consumed_in_its_time() -> None:
    gate = gate_of([A, B], budget=10_000, target_ms=100)
    worked(gate, bytes_per_ms=2)
    gate.arrive(A, buffer(A, 50, rows=1, backlog=20))
    assert gate.take_grants() == [], "its window is enough"
    gate.arrive(B, buffer(B, 0, rows=5, backlog=5_000, following=40))
    assert gate.take_grants() == [(B, 200 - 2 * WINDOW)]
    gate.arrive(A, buffer(A, 51, rows=4, backlog=5_000, following=40))
    assert gate.take_grants() == []
    given = {A: 0, B: 0}
    for _ in range(3):
        gate.poll(10)
        for channel, credit in gate.take_grants():
            given[channel] += credit
    assert sum(given.values()) == 40, "what was consumed"
    assert min(given.values()) >= 16
    assert sum(c.credit.queued_bytes + c.credit.granted for c in gate.channels.values()) == 200


def test_time_without_input_is_not_taken_for_slowness() -> None:
    gate = gate_of([A, B], budget=10_000, target_ms=100)
    worked(gate, bytes_per_ms=2)
    for now_ms in range(2_000, 60_000, 1_000):
        assert gate.poll(10, float(now_ms)) is None
    gate.arrive(A, buffer(A, 50, rows=1, backlog=5_000))
    assert sum(credit for _, credit in gate.take_grants()) == 200 - WINDOW


def test_what_was_taken_is_told_whether_or_not_speed_is_measured() -> None:
    for target_ms in (None, 100):
        gate = gate_of([A, B], target_ms=target_ms)
        for seq, now_ms in enumerate((0, 10, 500)):
            gate.arrive(A, buffer(A, seq, rows=3))
            assert gate.poll(2, now_ms) is not None
            assert gate.poll(2, now_ms) is not None
            assert gate.poll(2, now_ms + 5) is None
        assert gate.taken_bytes == 36


def test_a_channel_that_waits_for_a_checkpoint_gets_no_floating_credit_until_it_goes_on() -> None:
    gate = gate_of([A, B])
    gate.arrive(A, Barrier(1, Alignment.ALIGNED))
    assert isinstance(gate.poll(1), BarrierReached)
    gate.arrive(A, buffer(A, 0, rows=10, backlog=70))
    assert gate.take_grants() == []
    gate.arrive(B, buffer(B, 0, rows=10, backlog=50))
    assert gate.take_grants() == [(B, 50)]
    gate.unblock(1)
    assert gate.take_grants() == [(A, 70)]
