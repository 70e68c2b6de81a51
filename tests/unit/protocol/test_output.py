"""The producer's end of a channel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment, Barrier, Buffer, Element, EndOfPartition, Side, Watermark
from penstock.model.ids import ChannelId
from penstock.protocol.credit import channel_window
from penstock.protocol.output import EAGER_SHARE, OutputChannel, Outputs, cut
from tests.support.protocol.channel_world import FLUSH_MS, GENERATION, WINDOW, Rows, numbers_of, output_channel, rows_of

CHANNEL = ChannelId(0, 0, 1)


def aligned(checkpoint: int) -> Barrier:
    return Barrier(checkpoint, Alignment.ALIGNED)


def unaligned(checkpoint: int) -> Barrier:
    return Barrier(checkpoint, Alignment.UNALIGNED)


def filled(buffers: int) -> OutputChannel:
    """A channel without credit whose queue holds full buffers of ten rows each."""
    channel = output_channel(CHANNEL)
    channel.add(rows_of(10, start=1_000), 0.0)
    assert len(channel.pump(0.0)) == 1
    for number in range(buffers):
        channel.add(rows_of(10, start=number * 10), 0.0)
    return channel


def shape(elements: list[Element]) -> list[object]:
    return [e.payload.numbers[0] if isinstance(e, Buffer) else e for e in elements]  # type: ignore[attr-defined]


def test_small_slices_coalesce_until_the_flush_is_due_while_the_consumer_has_something_to_do() -> None:
    channel = output_channel(CHANNEL)
    channel.add(rows_of(1, start=10), 99.0)
    assert shape(channel.pump(99.0)) == [10]
    channel.add(rows_of(2), 100.0)
    channel.add(rows_of(2, start=2), 103.0)
    assert channel.pump(103.0) == []
    assert channel.flush_at_ms() == 100.0 + FLUSH_MS
    (buffer,) = channel.pump(105.0)
    assert isinstance(buffer, Buffer)
    assert buffer.payload.numbers == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert buffer.id == (GENERATION, CHANNEL, 1)
    assert buffer.cost == 16
    assert channel.flush_at_ms() is None


def test_a_consumer_that_has_taken_all_gets_small_slices_at_once_but_not_one_after_the_other() -> None:
    channel, pause_ms = output_channel(CHANNEL), FLUSH_MS / EAGER_SHARE
    channel.add(rows_of(1), 100.0)
    assert shape(channel.pump(100.0)) == [0]
    channel.add(rows_of(1, start=1), 100.5)
    assert channel.flush_at_ms() == 100.5 + FLUSH_MS, "it has not taken the first yet"
    channel.grant(4)
    assert channel.flush_at_ms() == 100.0 + pause_ms
    channel.add(rows_of(1, start=2), 100.8)
    assert channel.pump(100.8) == []
    assert [e.rows for e in channel.pump(100.0 + pause_ms) if isinstance(e, Buffer)] == [2]
    channel.grant(8)
    channel.add(rows_of(1, start=3), 130.0)
    assert shape(channel.pump(130.0)) == [3], "the pause was long enough"


def test_a_clock_that_is_set_back_delays_a_small_slice_by_the_flush_at_most() -> None:
    channel = output_channel(CHANNEL)
    channel.add(rows_of(1), 1_000_000.0)
    assert shape(channel.pump(1_000_000.0)) == [0]
    channel.grant(4)
    channel.add(rows_of(1, start=1), 100.0)
    assert channel.flush_at_ms() == 100.0 + FLUSH_MS


def test_without_credit_slices_go_on_coalescing_up_to_the_window() -> None:
    channel = filled(0)
    for number in range(4):
        channel.add(rows_of(1, start=number), 0.0)
    assert channel.pump(1_000.0) == []
    channel.grant(16)
    (buffer,) = channel.pump(1_000.0)
    assert isinstance(buffer, Buffer)
    assert buffer.rows == 4


def test_a_buffer_leaves_only_with_credit_for_all_of_it_and_announces_what_waits_behind() -> None:
    channel = filled(2)
    channel.grant(39)
    assert channel.pump(0.0) == []
    channel.grant(1)
    (buffer,) = channel.pump(0.0)
    assert isinstance(buffer, Buffer)
    assert buffer.backlog == 40
    assert channel.credit.available == 0


def test_a_buffer_tells_the_cost_of_the_next_one_if_that_is_settled() -> None:
    channel = filled(2)
    channel.append(aligned(1))
    channel.add(rows_of(7, start=20), 0.0)
    channel.add(rows_of(2, start=30), 0.0)
    channel.grant(1_000)
    sent = [e for e in channel.pump(1_000.0) if isinstance(e, Buffer)]
    assert [(b.cost, b.following) for b in sent] == [(40, 40), (40, 28), (28, 0), (8, 0)]
    assert sent[2].backlog == 8, "the tail may still grow"


def test_with_a_target_rows_are_cut_to_the_credit_that_is_left_so_that_the_rest_is_announced() -> None:
    channel = output_channel(CHANNEL)
    channel.least_piece_bytes = 8
    channel.add(rows_of(7), 0.0)
    assert len(channel.pump(0.0)) == 1
    assert channel.credit.available == 12
    channel.add(rows_of(9, start=10), 0.0)
    (first,) = channel.pump(0.0)
    assert isinstance(first, Buffer)
    assert (first.cost, first.backlog, first.following) == (12, 24, 24), "the rest is cut to the window"
    assert channel.credit.available == 0
    channel.add(rows_of(9, start=30), 0.0)
    channel.grant(1_000)
    assert [e.cost for e in channel.pump(0.0) if isinstance(e, Buffer)] == [24, 36], "what waits is announced already"


def test_a_row_larger_than_the_window_goes_alone_when_the_whole_window_is_free() -> None:
    channel = output_channel(CHANNEL)
    channel.add(rows_of(1), 0.0)
    channel.add(rows_of(1, size=130, start=1), 0.0)
    channel.add(rows_of(1, start=2), 0.0)
    assert [e.cost for e in channel.pump(10.0) if isinstance(e, Buffer)] == [4]
    channel.grant(4)
    (large,) = channel.pump(10.0)
    assert isinstance(large, Buffer)
    assert (large.cost, channel.credit.available) == (130, WINDOW - 130)
    channel.grant(129)
    assert len(channel.pump(10.0)) == 1, "39 bytes of credit are enough for the small row behind it"


def test_a_watermark_keeps_its_place_and_adjacent_ones_coalesce() -> None:
    channel = filled(1)
    channel.watermark(Watermark(5))
    channel.watermark(Watermark(4))
    channel.watermark(Watermark(7))
    channel.add(rows_of(1, start=50), 0.0)
    channel.watermark(Watermark(9))
    channel.grant(1_000)
    assert shape(channel.pump(1_000.0)) == [0, Watermark(7), 50, Watermark(9)]


def test_the_newest_watermark_waits_behind_small_slices_until_they_leave() -> None:
    channel = output_channel(CHANNEL)
    channel.add(rows_of(1, start=10), 100.0)
    assert shape(channel.pump(100.0)) == [10]
    channel.add(rows_of(2), 100.0)
    channel.watermark(Watermark(5))
    channel.add(rows_of(2, start=2), 101.0)
    channel.watermark(Watermark(7))
    channel.check_invariants()
    assert channel.pump(101.0) == []
    assert channel.flush_at_ms() == 100.0 + FLUSH_MS, "as soon as without a watermark"
    buffer, watermark = channel.pump(100.0 + FLUSH_MS)
    assert isinstance(buffer, Buffer)
    assert buffer.payload.numbers == [0, 1, 2, 3]  # type: ignore[attr-defined]
    assert watermark == Watermark(7)
    channel.watermark(Watermark(8))
    assert channel.pump(100.0 + FLUSH_MS) == [Watermark(8)], "there is nothing to wait for"


def test_a_watermark_behind_small_slices_stays_in_front_of_barriers_and_the_end() -> None:
    channel = output_channel(CHANNEL)
    channel.add(rows_of(1), 0.0)
    channel.watermark(Watermark(5))
    channel.append(aligned(1))
    channel.add(rows_of(1, start=1), 0.0)
    channel.watermark(Watermark(6))
    assert numbers_of(channel.overtake(unaligned(2))) == [1]
    channel.add(rows_of(1, start=2), 0.0)
    channel.watermark(Watermark(7))
    channel.end()
    left = [0, Watermark(5), aligned(1), unaligned(2), 1, Watermark(6), 2, Watermark(7), EndOfPartition()]
    assert shape(channel.pump(0.0)) == left


def test_an_aligned_barrier_waits_behind_everything_and_an_unaligned_one_goes_first() -> None:
    channel = filled(2)
    channel.append(aligned(1))
    assert channel.pump(0.0) == []
    captured = channel.overtake(unaligned(2))
    assert captured == [], "nothing lies between the older barrier and the tail"
    assert channel.holds_barrier(1)
    assert channel.holds_barrier(2)

    other = filled(2)
    other.watermark(Watermark(3))
    other.add(rows_of(3, start=20), 0.0)
    captured = other.overtake(unaligned(1))
    assert numbers_of(captured) == list(range(23))
    assert {(c.side, c.layer, c.channel) for c in captured} == {(Side.PRODUCER, GENERATION, CHANNEL)}
    assert other.pump(0.0) == [unaligned(1)]
    other.grant(1_000)
    assert shape(other.pump(0.0)) == [0, 10, Watermark(3), 20], "what was captured still travels"


def test_a_turned_barrier_moves_to_the_head_and_captures_only_what_lay_before_it() -> None:
    channel = filled(2)
    channel.append(aligned(1))
    channel.add(rows_of(10, start=20), 0.0)
    channel.append(aligned(2))
    assert numbers_of(channel.overtake(unaligned(1))) == list(range(20))
    assert numbers_of(channel.overtake(unaligned(2))) == list(range(30))
    assert channel.pump(0.0) == [unaligned(1), unaligned(2)]


def test_the_barrier_of_a_dead_checkpoint_is_forgotten() -> None:
    channel = filled(1)
    channel.append(aligned(1))
    channel.drop(1)
    assert not channel.holds_barrier(1)
    channel.grant(1_000)
    assert shape(channel.pump(0.0)) == [0]


def test_illegal_events_raise_and_change_nothing() -> None:
    channel = filled(1)
    channel.append(aligned(3))
    for illegal in (
        lambda: channel.append(aligned(3)),
        lambda: channel.overtake(unaligned(2)),
        lambda: channel.grant(0),
    ):
        with pytest.raises(ProtocolViolation):
            illegal()
    channel.end()
    with pytest.raises(ProtocolViolation):
        channel.add(rows_of(1), 0.0)
    channel.grant(1_000)
    assert shape(channel.pump(0.0)) == [0, aligned(3), EndOfPartition()]
    with pytest.raises(ProtocolViolation):
        Outputs([channel], 10).grant(ChannelId(9, 9, 9), 1)


def test_barriers_pass_behind_the_end_and_unaligned_ones_before_it() -> None:
    channel = output_channel(CHANNEL)
    channel.end()
    channel.append(aligned(1))
    assert channel.pump(0.0) == [EndOfPartition(), aligned(1)]
    other = output_channel(CHANNEL)
    other.end()
    assert other.overtake(unaligned(1)) == []
    assert other.pump(0.0) == [unaligned(1), EndOfPartition()]


@given(st.lists(st.integers(1, 200), min_size=1, max_size=60), st.integers(1, 100))
def test_cutting_keeps_all_rows_in_order_and_bounds_every_piece(sizes: list[int], window: int) -> None:
    def measure(payload: Rows) -> int:
        return max(1, sum(size for _, size in payload.rows))

    payload = Rows(tuple(enumerate(sizes)))
    pieces = list(cut(payload, window, measure))  # type: ignore[arg-type]
    assert [row for piece, _ in pieces for row in piece.rows] == list(payload.rows)  # type: ignore[attr-defined]
    for piece, cost in pieces:
        assert cost == measure(piece)  # type: ignore[arg-type]
        assert cost <= window or piece.num_rows == 1


def test_without_a_target_the_limit_and_the_pieces_stay() -> None:
    channel = filled(3)
    outputs = Outputs([channel], 1_000)
    for now_ms in range(0, 1_000, 10):
        outputs.pump(float(now_ms))
    assert (outputs.limit_bytes, channel.piece_bytes, channel.least_piece_bytes) == (1_000, WINDOW, WINDOW)


def test_at_most_half_of_a_gates_budget_goes_into_exclusive_windows() -> None:
    assert channel_window(256, 32_000, 4) == 256
    assert channel_window(256, 800, 4) == 100
    assert channel_window(256, 2, 4) == 1
