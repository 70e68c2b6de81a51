"""Checkpoints of one subtask with a limit for what they capture: aligned until it fits, then unaligned."""

from __future__ import annotations

from penstock.model.elements import Barrier
from penstock.model.ids import CheckpointId
from tests.support.protocol.channel_world import numbers_of, rows_of
from tests.unit.protocol.test_alignment import ALIGNED, OUT, UNALIGNED, A, B, Middle

ROW = 4


class Limited(Middle):
    """A subtask whose checkpoints may capture ``limit`` rows each."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit * ROW
        self.taken: dict[CheckpointId, int] = {}
        self.machine._allowance = self.allow

    def allow(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        taken = self.taken.get(checkpoint, 0) + captured_bytes
        if taken > self.limit:
            return False
        self.taken[checkpoint] = taken
        return True

    def put(self, start: int, count: int) -> None:
        """Rows in the output queue."""
        self.outputs.add(OUT, rows_of(count, start=start), self.now_ms)

    def look(self) -> None:
        self.wait_until(self.now_ms + 1)


def test_an_unaligned_checkpoint_stays_aligned_until_what_it_captures_fits() -> None:
    m = Limited(3)
    for channel, start in ((A, 0), (B, 100)):
        m.rows(channel, start)
        m.arrive(channel, Barrier(1, UNALIGNED))
    m.look()
    assert m.epochs == [], "four rows"
    assert m.machine.deadline_ms() is None, "only progress can change that: no clock wakes it"
    assert m.consume(1) == [0]
    m.look()
    assert m.epochs == [Barrier(1, UNALIGNED)]
    assert m.pump() == [Barrier(1, UNALIGNED)]
    (ready,) = m.ready
    assert sorted(numbers_of(ready.inflight)) == [1, 100, 101]
    assert ready.unaligned


def test_it_does_not_begin_before_its_last_barrier_has_arrived_so_that_nothing_is_recorded() -> None:
    m = Limited(100)
    m.rows(A, 0)
    m.rows(B, 100)
    m.arrive(A, Barrier(1, UNALIGNED))
    m.look()
    assert m.epochs == []
    m.rows(B, 110)
    m.arrive(B, Barrier(1, UNALIGNED))
    m.look()
    m.pump()
    assert sorted(numbers_of(m.ready[0].inflight)) == [0, 1, 100, 101, 110, 111]


def test_a_row_larger_than_the_limit_is_carried_aligned() -> None:
    m = Limited(0)
    for channel, start in ((A, 0), (B, 100)):
        m.rows(channel, start, 1)
        m.arrive(channel, Barrier(1, UNALIGNED))
    m.look()
    assert m.consume() == [0]
    m.look()
    assert m.epochs == []
    assert m.consume() == [100]
    m.look()
    assert m.epochs == [Barrier(1, UNALIGNED)]
    m.pump()
    assert m.ready[0].inflight == []


def test_what_waits_in_the_outputs_is_overtaken_when_it_fits() -> None:
    m = Limited(2)
    m.put(0, 3)
    for channel in (A, B):
        m.arrive(channel, Barrier(1, UNALIGNED))
    m.look()
    assert m.epochs == [Barrier(1, UNALIGNED)], "nothing was in front of it on the inputs"
    assert m.ready == []
    m.look()
    assert m.ready == [], "three rows in front of it"
    assert [str(type(e).__name__) for e in m.pump()] == ["Buffer", "Barrier"], "it stood in line"
    assert (m.left[0].alignment, m.left[0].remaining_ms) == (ALIGNED, 0), "the next subtask may overtake at once"
    assert m.ready[0].unaligned, "the input side did overtake"
    m.outputs.channels[OUT].credit.available = 0
    m.put(10, 2)
    for channel in (A, B):
        m.arrive(channel, Barrier(2, UNALIGNED))
    m.look()
    assert m.pump() == [Barrier(2, UNALIGNED)]
    assert numbers_of(m.ready[1].inflight) == [10, 11]


def test_whose_time_is_up_overtakes_as_soon_as_it_fits_whatever_the_clock_says() -> None:
    m = Limited(1)
    m.outputs.channels[OUT].credit.available = 0
    m.put(0, 2)
    for channel in (A, B):
        m.arrive(channel, Barrier(1, UNALIGNED))
    m.look()
    assert (m.pump(), m.ready) == ([], []), "two rows in front of it"
    m.limit = 2 * ROW
    m.wait_until(0)
    assert m.pump() == [Barrier(1, UNALIGNED)]
    assert numbers_of(m.ready[0].inflight) == [0, 1]


def test_a_newer_one_waits_for_the_older_one_on_the_inputs() -> None:
    m = Limited(3)
    for channel, start in ((A, 0), (B, 100)):
        m.rows(channel, start)
        m.arrive(channel, Barrier(1, ALIGNED, 50_000))
        m.arrive(channel, Barrier(2, UNALIGNED))
    m.look()
    assert m.epochs == [], "the older one would capture four rows"
    m.consume(1)
    m.look()
    assert m.epochs == [Barrier(1, UNALIGNED), Barrier(2, UNALIGNED)], "its budget does not matter then"
    m.pump()
    assert [sorted(numbers_of(ready.inflight)) for ready in m.ready] == [[1, 100, 101]] * 2


def test_a_barrier_that_has_overtaken_overtakes_again_when_the_older_one_has() -> None:
    m = Limited(3)
    m.outputs.channels[OUT].credit.available = 0
    m.put(0, 2)
    for channel in (A, B):
        m.arrive(channel, Barrier(1, ALIGNED, 50))
    m.consume()
    m.consume()
    for channel in (A, B):
        m.arrive(channel, Barrier(2, UNALIGNED))
    m.look()
    assert m.pump() == [Barrier(1, UNALIGNED), Barrier(2, UNALIGNED)]
    assert [numbers_of(ready.inflight) for ready in m.ready] == [[0, 1], [0, 1]]


def test_a_strictly_aligned_one_captures_nothing() -> None:
    m = Limited(100)
    for channel, start in ((A, 0), (B, 100)):
        m.rows(channel, start)
        m.arrive(channel, Barrier(1, ALIGNED))
    m.wait_until(1e6)
    assert m.epochs == []
    assert m.machine.deadline_ms() is None
