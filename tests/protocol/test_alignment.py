"""The checkpoints of one subtask with two inputs and one output, told as scenarios: events in, commands out."""

from __future__ import annotations

import pytest
from channel_world import GENERATION, gate_of, numbers_of, output_channel, row_bytes, rows_of

from penstock.errors import ProtocolViolation
from penstock.ids import BufferId, ChannelId
from penstock.protocol.alignment import MAX_DEAD, CaptureReady, Command, Declined, EndEpoch, SubtaskCheckpoints
from penstock.protocol.elements import Alignment, Barrier, Buffer, Element, EndOfPartition
from penstock.protocol.gate import BarrierReached, ChannelEnded
from penstock.protocol.input import RowRange
from penstock.protocol.output import Outputs

A, B, OUT = ChannelId(0, 0, 0), ChannelId(0, 1, 0), ChannelId(1, 0, 0)
ALIGNED, UNALIGNED = Alignment.ALIGNED, Alignment.UNALIGNED


class Middle:
    """A subtask in the middle of a job. ``epochs`` are the barriers whose epoch was ended, in order."""

    def __init__(self, max_recorded_bytes: int = 10_000) -> None:
        self.gate = gate_of([A, B])
        self.outputs = Outputs([output_channel(OUT)], 10_000)
        self.machine = SubtaskCheckpoints("middle", self.gate, self.outputs, max_recorded_bytes)
        self.epochs: list[Barrier] = []
        self.ready: list[CaptureReady] = []
        self.declined: list[int] = []
        self.now_ms = 0.0
        self.seqs = {A: 0, B: 0}

    def arrive(self, channel: ChannelId, *elements: Element) -> None:
        for element in elements:
            self.now_ms += 1
            self.run(self.machine.arrived(channel, element, self.now_ms))
            self.machine.check_invariants()
            self.gate.check_invariants()

    def rows(self, channel: ChannelId, start: int, count: int = 2) -> None:
        payload = rows_of(count, start=start)
        self.arrive(channel, Buffer(BufferId(GENERATION, channel, self.seqs[channel]), payload, row_bytes(payload)))
        self.seqs[channel] += 1

    def consume(self, max_rows: int = 100) -> object:
        self.now_ms += 1
        consumed = self.gate.poll(max_rows)
        match consumed:
            case BarrierReached(channel, barrier):
                self.run(self.machine.reached(channel, barrier, self.now_ms))
            case ChannelEnded(channel):
                self.run(self.machine.channel_ended(channel, self.now_ms))
            case RowRange(_, payload, _, _):
                return payload.numbers  # type: ignore[attr-defined]
        return consumed

    def pump(self) -> list[Element]:
        elements = [element for _, element in self.outputs.pump(1e9)]
        self.run(self.machine.ready())
        return elements

    def run(self, commands: list[Command]) -> None:
        waiting = list(commands)
        while waiting:
            match waiting.pop(0):
                case EndEpoch(barrier):
                    self.epochs.append(barrier)
                    waiting += self.machine.ended(barrier)
                case CaptureReady() as ready:
                    self.ready.append(ready)
                case Declined(checkpoint, _):
                    self.declined.append(checkpoint)


def test_unaligned_ends_the_epoch_with_the_first_arrival_and_records_the_channel_that_is_missing() -> None:
    m = Middle()
    m.rows(A, 0)
    m.rows(B, 100)
    assert m.consume(1) == [0]
    m.arrive(A, Barrier(1, UNALIGNED))
    assert m.epochs == [Barrier(1, UNALIGNED)]
    m.rows(A, 10)
    m.rows(B, 110)
    assert m.pump() == [Barrier(1, UNALIGNED)]
    assert m.ready == []
    m.arrive(B, Barrier(1, UNALIGNED))
    (ready,) = m.ready
    assert numbers_of(ready.inflight) == [1, 100, 101, 110, 111], "without row 0, read, and 10, behind the barrier"
    assert ready.last_barrier_ms - ready.first_barrier_ms == 3.0
    assert m.machine.active == ()


def test_a_capture_waits_until_the_barrier_has_left_the_outputs() -> None:
    m = Middle()
    m.arrive(A, Barrier(1, UNALIGNED))
    m.arrive(B, Barrier(1, UNALIGNED))
    assert m.ready == []
    m.pump()
    assert len(m.ready) == 1


def test_aligned_blocks_until_all_are_reached_and_captures_nothing() -> None:
    m = Middle()
    m.arrive(A, Barrier(1, ALIGNED))
    m.rows(A, 0)
    m.rows(B, 100)
    m.consume()
    assert m.consume() == [100, 101] or m.consume() == [100, 101]
    assert m.consume() is None
    assert m.epochs == []
    m.arrive(B, Barrier(1, ALIGNED))
    m.consume()
    assert m.epochs == [Barrier(1, ALIGNED)]
    assert m.consume() == [0, 1]
    m.pump()
    assert m.ready[0].inflight == []


def test_an_end_counts_as_every_later_barrier() -> None:
    m = Middle()
    m.rows(B, 100)
    m.arrive(B, EndOfPartition())
    m.arrive(A, Barrier(1, UNALIGNED))
    m.pump()
    assert numbers_of(m.ready[0].inflight) == [100, 101]

    m.arrive(A, Barrier(2, ALIGNED))
    while m.consume() is not None:
        continue
    m.pump()
    assert [r.checkpoint for r in m.ready] == [1, 2]

    other = Middle()
    other.arrive(A, Barrier(1, UNALIGNED))
    other.rows(B, 0)
    other.arrive(B, EndOfPartition())
    other.pump()
    assert numbers_of(other.ready[0].inflight) == [0, 1]


def test_a_newer_unaligned_barrier_turns_the_older_aligned_ones_first_oldest_first() -> None:
    m = Middle()
    m.rows(A, 0)
    m.arrive(A, Barrier(1, ALIGNED))
    m.rows(A, 10)
    m.arrive(A, Barrier(2, ALIGNED))
    m.rows(A, 20)
    m.rows(B, 100)
    m.arrive(A, Barrier(3, UNALIGNED))
    assert m.epochs == [Barrier(n, UNALIGNED) for n in (1, 2, 3)]
    assert m.pump() == [Barrier(n, UNALIGNED) for n in (1, 2, 3)]
    for checkpoint in (1, 2):
        m.arrive(B, Barrier(checkpoint, ALIGNED))
    m.arrive(B, Barrier(3, UNALIGNED))
    captured = {r.checkpoint: sorted(numbers_of(r.inflight)) for r in m.ready}
    assert captured == {
        1: [0, 1, 100, 101],
        2: [0, 1, 10, 11, 100, 101],
        3: [0, 1, 10, 11, 20, 21, 100, 101],
    }


def test_a_barrier_in_the_outputs_turns_with_its_checkpoint() -> None:
    m = Middle()
    m.outputs.add(OUT, rows_of(10, start=1_000), 0.0)
    m.pump()  # the window is used up
    m.outputs.add(OUT, rows_of(10), 0.0)
    m.arrive(A, Barrier(1, ALIGNED))
    m.arrive(B, Barrier(1, ALIGNED))
    m.consume()
    m.consume()
    assert m.pump() == [], "the aligned barrier waits behind the rows"
    m.arrive(A, Barrier(2, UNALIGNED))
    assert m.pump() == [Barrier(1, UNALIGNED), Barrier(2, UNALIGNED)]
    assert numbers_of(m.ready[0].inflight) == list(range(10))


def test_a_newer_barrier_kills_an_older_one_that_never_came_on_its_channel() -> None:
    for alignment in Alignment:
        m = Middle()
        m.arrive(A, Barrier(1, alignment))
        m.consume()
        m.arrive(B, Barrier(2, alignment))
        assert m.declined == [1]
        assert m.machine.is_dead(1)
        m.arrive(A, Barrier(2, alignment))
        m.consume()
        m.consume()
        m.pump()
        assert [r.checkpoint for r in m.ready] == [2]
        assert all(c.blocked_by is None for c in m.gate.channels.values())


def test_a_barrier_that_comes_behind_a_newer_checkpoint_is_declined_and_dropped() -> None:
    m = Middle()
    m.arrive(A, Barrier(2, UNALIGNED))
    m.arrive(B, Barrier(1, UNALIGNED))
    assert m.declined == [1]
    assert m.consume() is None
    m.arrive(B, Barrier(2, UNALIGNED))
    m.pump()
    assert [r.checkpoint for r in m.ready] == [2]


def test_a_dead_checkpoint_holds_nothing_and_its_late_barriers_are_dropped() -> None:
    for alignment in Alignment:
        m = Middle()
        m.rows(A, 0)
        m.arrive(A, Barrier(1, alignment))
        m.consume()
        m.consume()
        m.machine.abort(1)
        m.machine.check_invariants()
        assert m.machine.active == ()
        assert all(c.blocked_by is None for c in m.gate.channels.values())
        assert m.pump() == []
        m.arrive(B, Barrier(1, alignment))
        assert m.consume() is None
        m.pump()
        assert m.ready == []


def test_recording_beyond_its_budget_declines_the_checkpoint_and_frees_it() -> None:
    m = Middle(max_recorded_bytes=20)
    m.arrive(A, Barrier(1, UNALIGNED))
    m.rows(B, 0)
    m.rows(B, 10)
    assert m.declined == []
    m.rows(B, 20)
    assert m.declined == [1]
    assert m.machine.active == ()


def test_dead_ids_are_bounded() -> None:
    m = Middle()
    for checkpoint in range(1, MAX_DEAD + 10):
        m.machine.abort(checkpoint)
    m.machine.check_invariants()
    assert not m.machine.is_dead(9)
    assert m.machine.is_dead(MAX_DEAD + 9)


def test_illegal_events_raise() -> None:
    m = Middle()
    for illegal in (
        lambda: m.machine.triggered(1, UNALIGNED, 0.0),
        lambda: m.machine.ended(Barrier(1, UNALIGNED)),
        lambda: m.machine.reached(A, Barrier(1, ALIGNED), 0.0),
        lambda: m.machine.arrived(ChannelId(9, 0, 0), Barrier(1, ALIGNED), 0.0),
    ):
        with pytest.raises(ProtocolViolation):
            illegal()
    assert m.machine.active == ()
