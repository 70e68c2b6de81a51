"""The checkpoints of one subtask with two inputs and one output, told as scenarios: events in, commands out."""

from __future__ import annotations

import pytest

from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment, Barrier, Buffer, Element, EndOfPartition
from penstock.model.ids import BufferId, ChannelId
from penstock.protocol.alignment import (
    MAX_DEAD,
    CaptureReady,
    Command,
    Declined,
    EndEpoch,
    Record,
    SubtaskCheckpoints,
)
from penstock.protocol.gate import BarrierReached
from penstock.protocol.input import RowRange
from penstock.protocol.output import Outputs
from tests.support.protocol.channel_world import GENERATION, gate_of, numbers_of, output_channel, row_bytes, rows_of

A, B, OUT = ChannelId(0, 0, 0), ChannelId(0, 1, 0), ChannelId(1, 0, 0)
ALIGNED, UNALIGNED = Alignment.ALIGNED, Alignment.UNALIGNED


class Middle:
    """A subtask in the middle of a job. ``epochs`` are the barriers whose epoch was ended, in order."""

    def __init__(self, on_last: bool = False) -> None:
        self.gate = gate_of([A, B])
        self.outputs = Outputs([output_channel(OUT)], 10_000)
        self.machine = SubtaskCheckpoints("middle", self.gate, self.outputs, on_last)
        self.epochs: list[Barrier] = []
        self.recorded: list[Record] = []
        self.ready: list[CaptureReady] = []
        self.declined: list[int] = []
        self.left: list[Barrier] = []
        self.now_ms = 0.0
        self.seqs = {A: 0, B: 0}

    def arrive(self, channel: ChannelId, *elements: Element) -> None:
        for element in elements:
            self.now_ms += 1
            self.gate.arrive(channel, element)
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
            case RowRange(_, payload, _, _):
                return payload.numbers  # type: ignore[attr-defined]
        return consumed

    def pump(self) -> list[Element]:
        elements = [element for _, element in self.outputs.pump(1e9)]
        self.left = [self.machine.leaving(e, self.now_ms) for e in elements if isinstance(e, Barrier)]
        self.run(self.machine.ready())
        return elements

    def wait_until(self, now_ms: float) -> None:
        self.now_ms = now_ms
        self.run(self.machine.turn_timed_out(now_ms))
        self.machine.check_invariants()

    def run(self, commands: list[Command]) -> None:
        waiting = list(commands)
        while waiting:
            match waiting.pop(0):
                case EndEpoch(barrier):
                    self.epochs.append(barrier)
                    waiting += self.machine.ended(barrier)
                case Record() as record:
                    self.recorded.append(record)
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
    assert m.machine.active == {}


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


def test_barriers_pass_behind_the_end_of_a_channel_too() -> None:
    m = Middle()
    m.rows(B, 100)
    m.arrive(B, EndOfPartition())
    m.arrive(A, Barrier(1, UNALIGNED))
    m.pump()
    assert m.ready == [], "the end is no barrier: its producer is still there"
    m.arrive(B, Barrier(1, UNALIGNED))
    assert numbers_of(m.ready[0].inflight) == [100, 101]

    m.arrive(A, Barrier(2, ALIGNED))
    m.arrive(B, Barrier(2, ALIGNED))
    while m.consume() is not None:
        continue
    m.pump()
    assert [r.checkpoint for r in m.ready] == [1, 2]
    assert m.gate.channels[B].ended


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
    for alignment in (ALIGNED, UNALIGNED):
        m = Middle()
        m.arrive(A, Barrier(1, alignment))
        m.consume()
        m.arrive(B, Barrier(2, alignment))
        assert m.declined == [1]
        assert 1 in m.machine._dead
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
    for alignment in (ALIGNED, UNALIGNED):
        m = Middle()
        m.rows(A, 0)
        m.arrive(A, Barrier(1, alignment))
        m.consume()
        m.consume()
        m.machine.abort(1)
        m.machine.check_invariants()
        assert m.machine.active == {}
        assert all(c.blocked_by is None for c in m.gate.channels.values())
        assert m.pump() == []
        m.arrive(B, Barrier(1, alignment))
        assert m.consume() is None
        m.pump()
        assert m.ready == []


def test_what_is_recorded_is_handed_over_in_parts_and_never_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.protocol.alignment.PART_BYTES", 20)
    m = Middle()
    m.rows(A, 0)
    m.arrive(A, Barrier(1, UNALIGNED))
    for start in range(10, 60, 10):
        m.rows(B, start)
    assert len(m.recorded) >= 2, "before the last barrier is here"
    m.arrive(B, Barrier(1, UNALIGNED))
    m.pump()
    parts = [*(r.inflight for r in m.recorded), m.ready[0].inflight]
    numbers = [number for part in parts for number in numbers_of(part)]
    assert sorted(numbers) == [0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51]


def test_an_aligned_checkpoint_turns_unaligned_when_its_budget_is_used_up_before_all_barriers_are_read() -> None:
    m = Middle()
    m.rows(A, 0)
    m.rows(B, 100)
    m.arrive(A, Barrier(1, ALIGNED, 50, elapsed_ms=7))
    arrived_ms = m.now_ms
    m.wait_until(arrived_ms + 49)
    assert m.epochs == []
    assert m.machine.deadline_ms() == arrived_ms + 50
    m.wait_until(arrived_ms + 50)
    assert m.epochs == [Barrier(1, UNALIGNED, None, 7)]
    assert m.pump() == [Barrier(1, UNALIGNED, None, 7)]
    assert m.left == [Barrier(1, UNALIGNED, None, 57)]
    m.arrive(B, Barrier(1, ALIGNED, 3))
    (ready,) = m.ready
    assert sorted(numbers_of(ready.inflight)) == [0, 1, 100, 101]
    assert ready.unaligned
    assert ready.start_delay_ms == 7
    assert m.machine.turned_at_input == 1
    assert m.machine.deadline_ms() is None


def test_the_shortest_budget_counts() -> None:
    m = Middle()
    m.arrive(A, Barrier(1, ALIGNED, 100))
    m.rows(B, 0)
    m.arrive(B, Barrier(1, ALIGNED, 10))
    m.wait_until(m.now_ms + 10)
    assert m.epochs == [Barrier(1, UNALIGNED)]


def test_an_aligned_barrier_that_waits_in_the_outputs_for_too_long_moves_to_their_head() -> None:
    m = Middle()
    m.outputs.add(OUT, rows_of(10, start=1_000), 0.0)
    m.pump()  # the window is used up
    m.outputs.add(OUT, rows_of(10), 0.0)
    m.arrive(A, Barrier(1, ALIGNED, 50))
    m.arrive(B, Barrier(1, ALIGNED, 50))
    m.consume()
    m.consume()
    assert m.pump() == []
    m.wait_until(m.now_ms + 60)
    assert m.pump() == [Barrier(1, UNALIGNED)]
    assert numbers_of(m.ready[0].inflight) == list(range(10))
    assert (m.machine.turned_at_input, m.machine.turned_at_output) == (0, 1)


def test_the_budget_shrinks_by_the_time_spent_here() -> None:
    m = Middle()
    m.arrive(A, Barrier(1, ALIGNED, 50, elapsed_ms=3))
    m.now_ms += 20
    m.arrive(B, Barrier(1, ALIGNED, 50, elapsed_ms=3))
    m.consume()
    m.consume()
    spent = m.now_ms - 1
    m.pump()
    assert m.left == [Barrier(1, ALIGNED, 50 - int(spent), 3 + int(spent))]
    assert not m.ready[0].unaligned


def test_a_strictly_aligned_checkpoint_never_times_out() -> None:
    m = Middle()
    m.arrive(A, Barrier(1, ALIGNED))
    m.wait_until(1e12)
    assert m.epochs == []


def test_a_timed_out_checkpoint_turns_the_older_ones_first() -> None:
    m = Middle()
    m.arrive(A, Barrier(1, ALIGNED, 1_000))
    m.rows(A, 0)
    m.arrive(A, Barrier(2, ALIGNED, 10))
    m.wait_until(100)
    assert m.epochs == [Barrier(1, UNALIGNED), Barrier(2, UNALIGNED)]


def test_on_last_begins_when_the_last_barrier_has_arrived_and_blocks_channels_that_were_read_until_then() -> None:
    m = Middle(on_last=True)
    m.rows(A, 0)
    m.arrive(A, Barrier(1, UNALIGNED))
    m.rows(A, 10)
    m.rows(B, 100)
    m.rows(B, 110)
    assert m.epochs == []
    consumed = [m.consume() for _ in range(4)]
    assert BarrierReached(A, Barrier(1, UNALIGNED)) in consumed
    assert [rows for rows in consumed if isinstance(rows, list)] == [[0, 1], [100, 101], [110, 111]]
    assert m.consume() is None, "A is blocked, B is read"
    m.rows(B, 120)
    m.arrive(B, Barrier(1, UNALIGNED))
    assert m.epochs == [Barrier(1, UNALIGNED)]
    m.pump()
    assert numbers_of(m.ready[0].inflight) == [120, 121], "only what is before a barrier that was not read"
    assert [10, 11] in [m.consume(), m.consume()], "A goes on"


def test_what_is_consumed_from_the_first_barrier_until_the_last_is_read_is_told() -> None:
    m = Middle()
    m.rows(A, 0)
    m.rows(B, 100)
    m.consume()
    m.consume(1)
    m.arrive(A, Barrier(1, ALIGNED))
    m.rows(A, 10)
    m.rows(B, 110)
    m.arrive(B, Barrier(1, ALIGNED))
    m.rows(B, 120)
    read = []
    while not m.epochs:
        read.append(m.consume())
    assert [rows for rows in read if isinstance(rows, list)] == [[101], [110, 111]]
    m.consume()
    m.pump()
    assert m.ready[0].processed_bytes == 12, "three rows, none of those before, none of those behind"
    m.arrive(A, Barrier(2, ALIGNED))
    m.arrive(B, Barrier(2, ALIGNED))
    while len(m.epochs) < 2:
        m.consume()
    m.pump()
    assert m.ready[1].processed_bytes == 8, "10 and 11 were still in front of the barrier"


def test_what_is_consumed_while_a_channel_is_recorded_is_told() -> None:
    m = Middle()
    m.rows(A, 0)
    m.rows(B, 100)
    m.arrive(A, Barrier(1, UNALIGNED))
    m.consume()
    m.consume(1)
    m.arrive(B, Barrier(1, UNALIGNED))
    m.consume()
    m.pump()
    assert m.ready[0].processed_bytes == 12, "nothing is awaited behind the last barrier"


def test_what_was_consumed_until_a_budget_was_used_up_is_told() -> None:
    m = Middle()
    for channel, start in ((A, 0), (B, 100)):
        m.rows(channel, start)
        m.rows(channel, start + 10)
        m.arrive(channel, Barrier(1, ALIGNED, 50))
    m.consume()
    m.wait_until(m.now_ms + 60)
    assert m.epochs == [Barrier(1, UNALIGNED)]
    m.consume()
    m.pump()
    assert m.ready[0].processed_bytes == 8, "its barriers overtook the rest"


def test_dead_ids_are_bounded() -> None:
    m = Middle()
    for checkpoint in range(1, MAX_DEAD + 10):
        m.machine.abort(checkpoint)
    m.machine.check_invariants()
    assert 9 not in m.machine._dead
    assert MAX_DEAD + 9 in m.machine._dead


def test_illegal_events_raise() -> None:
    m = Middle()
    for illegal in (
        lambda: m.machine.triggered(Barrier(1, UNALIGNED), 0.0),
        lambda: m.machine.ended(Barrier(1, UNALIGNED)),
        lambda: m.machine.reached(A, Barrier(1, ALIGNED), 0.0),
        lambda: m.machine.arrived(ChannelId(9, 0, 0), Barrier(1, ALIGNED), 0.0),
    ):
        with pytest.raises(ProtocolViolation):
            illegal()
    assert m.machine.active == {}
