"""Input channel: a queue that is read by row ranges, with a ledger of its credit."""

from __future__ import annotations

import pytest

from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment, Barrier, Buffer, EndOfPartition, Watermark
from penstock.model.ids import ChannelId
from penstock.protocol.input import InputChannel
from tests.support.protocol.channel_world import GENERATION, WINDOW, buffer

A = ChannelId(0, 0, 0)


def channel_with(*elements: object) -> InputChannel:
    channel = InputChannel(A, GENERATION, WINDOW)
    for element in elements:
        channel.arrive(element)  # type: ignore[arg-type]
    channel.check_invariants()
    return channel


def barrier(checkpoint: int) -> Barrier:
    return Barrier(checkpoint, Alignment.ALIGNED)


def test_a_buffer_frees_its_credit_with_its_last_row() -> None:
    first = buffer(A, 0, rows=3)
    channel = channel_with(first)
    taken, freed = channel.take_rows(2)
    assert (taken.rows, taken.position, freed) == (2, f"{A}#0[0:+2]", 0)
    taken, freed = channel.take_rows(2)
    assert (taken.rows, taken.position, freed) == (1, f"{A}#0[2:+1]", first.cost)
    assert channel.head is None


def test_of_adjacent_watermarks_the_newest_is_kept() -> None:
    channel = channel_with(Watermark(1), Watermark(5), buffer(A, 0))
    assert channel.take_control() == Watermark(5)
    assert channel.watermark_us == 5


def test_a_consumed_barrier_blocks_the_channel_until_it_is_unblocked() -> None:
    channel = channel_with(barrier(1), buffer(A, 0))
    channel.take_control()
    assert (channel.blocked_by, channel.head) == (1, None)
    channel.unblock()
    assert channel.head is not None


def test_a_capture_holds_the_unread_rows_in_front_of_the_barrier() -> None:
    channel = channel_with(buffer(A, 0, rows=3), barrier(1), buffer(A, 1))
    channel.take_rows(2)
    [captured] = channel.capture(before=1)
    assert (captured.offset, captured.rows) == (2, 1)
    assert len(channel.capture(before=None)) == 2


def test_a_dropped_barrier_is_not_read() -> None:
    channel = channel_with(barrier(1), buffer(A, 0))
    assert channel.holds_barrier(1)
    channel.drop(1)
    assert not channel.holds_barrier(1)
    assert channel.head == buffer(A, 0)


@pytest.mark.parametrize(
    ("before", "illegal"),
    [
        ([buffer(A, 1)], buffer(A, 1)),
        ([barrier(2)], barrier(1)),
        ([EndOfPartition()], Watermark(1)),
        ([buffer(A, 0)], buffer(A, 1, rows=100, size=100)),
    ],
    ids=["sequence number", "barrier", "after the end", "without credit"],
)
def test_an_illegal_element_is_refused_and_changes_nothing(before: list[object], illegal: object) -> None:
    channel = channel_with(*before)
    with pytest.raises(ProtocolViolation):
        channel.arrive(illegal)  # type: ignore[arg-type]
    channel.check_invariants()
    for element in before:
        assert channel.head == element
        if isinstance(element, Buffer):
            channel.take_rows(element.rows)
        else:
            channel.take_control()
            channel.unblock()
    assert channel.head is None
