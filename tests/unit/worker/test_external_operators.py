"""Operators whose rows are worked on in another process: what a subtask does meanwhile."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.errors import FunctionError
from penstock.model.elements import Alignment, Barrier, Buffer, Watermark
from penstock.model.ids import ChannelId, SubtaskId
from penstock.operators.base import Operator
from penstock.worker.host import Arrived
from penstock.worker.slicing import FIRST_ROWS, GROWTH, JOINED_FOR_S
from penstock.worker.source_task import HELD_MS
from tests.support.protocol.hand_driven import HandDriven, Log, batch_of, graph_of


class Elsewhere(Operator):
    """Keeps one batch until ``done`` says how it went."""

    starting = False

    def __init__(self) -> None:
        self.inside: list[pa.RecordBatch] = []
        self.done: bool | FunctionError = False
        self.taken: list[int] = []
        self.waited = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        assert not self.has_pending_rows(), "no input while a call is under way"
        self.inside.append(batch)
        self.taken.append(batch.num_rows)
        yield from ()

    def has_pending_rows(self) -> bool:
        return bool(self.inside) or self.starting

    def may_hold_rows(self) -> bool:
        return bool(self.inside)

    def collect(self) -> Iterator[pa.RecordBatch]:
        self.starting = self.starting and not self.done
        if isinstance(self.done, FunctionError):
            raise self.done
        if self.done and self.inside:
            yield self.inside.pop()

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        if self.inside:
            self.waited += 1
            yield self.inside.pop()


def elsewhere(job: HandDriven, vertex: int, index: int) -> Elsewhere:
    operator = job.operator(vertex, index)
    assert isinstance(operator, Elsewhere)
    return operator


def test_a_step_takes_no_more_input_until_the_results_are_here() -> None:
    job = HandDriven(graph_of(middle=Elsewhere))
    job.read_everything(2_000)
    job.run(vertices=(0, 1))
    for index in range(2):
        (rows,) = elsewhere(job, 1, index).taken
        assert rows <= FIRST_ROWS
        assert not job.step(1, index)
        assert job.at(1, index).gate.queued_bytes > 0
        elsewhere(job, 1, index).done = True
    job.run()
    written = [job.writer(i).rows for i in range(2)]
    assert sorted(written[0] + written[1]) == list(range(2_000))
    assert max(elsewhere(job, 1, 0).taken) > FIRST_ROWS, "slices grow by what they took, wherever that was"
    job.close()


class Pausing(Elsewhere):
    def works_in_pieces(self) -> bool:
        return True


def test_an_operator_that_pauses_by_itself_gets_all_that_has_come() -> None:
    job = HandDriven(graph_of(middle=Pausing))
    job.read_everything(2_000)
    job.run(vertices=(0, 1))
    for index in range(2):
        elsewhere(job, 1, index).done = True
        job.step(1, index)
        assert elsewhere(job, 1, index).taken[1] > GROWTH * FIRST_ROWS, "others get this much at most"
    job.close()


class Joining(Elsewhere):
    """Takes more while rows are inside."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.inside.append(batch)
        self.taken.append(batch.num_rows)
        yield from ()

    def accepts_more(self) -> bool:
        return True


@pytest.fixture
def joining() -> Iterator[HandDriven]:
    """Three rows are under way in the only subtask in the middle."""
    job = HandDriven(graph_of(middle=Joining, parallelism=1))
    job.step(2)
    job.deliver(1)
    arrives(job, 3)
    yield job
    job.close()


def arrives(job: HandDriven, rows: int, watermark_us: int | None = None) -> list[int]:
    """Rows come to the middle, and a watermark before them; what it has taken in up to then."""
    if watermark_us is not None:
        job.at(0, 0).outputs.watermark(watermark_us)
    job.at(0, 0)._emit(batch_of(list(range(rows))))
    job.step(0)
    job.now_ms += 100
    job.run(vertices=(0, 1), edges=(0,))
    return elsewhere(job, 1, 0).taken


def test_rows_join_those_that_are_under_way_but_none_from_behind_a_watermark(joining: HandDriven) -> None:
    assert arrives(joining, 4) == [3, 4]
    assert arrives(joining, 5, watermark_us=77) == [3, 4, 5], "they come with it"
    assert arrives(joining, 6) == [3, 4, 5], "it is due, and would be passed by all that comes"
    elsewhere(joining, 1, 0).done = True
    joining.run()
    assert elsewhere(joining, 1, 0).taken == [3, 4, 5, 6]
    assert len(joining.writer(0).rows) == 18


def test_a_slice_ends_now_and_then_whatever_comes_in(joining: HandDriven) -> None:
    joining.clock_s += JOINED_FOR_S - 1
    assert arrives(joining, 4) == [3, 4]
    joining.clock_s += 1
    assert arrives(joining, 5) == [3, 4]
    elsewhere(joining, 1, 0).done = True
    joining.run()
    assert elsewhere(joining, 1, 0).taken == [3, 4, 5]


def test_a_failure_tells_all_the_rows_that_it_may_be_about(joining: HandDriven) -> None:
    arrives(joining, 4)
    elsewhere(joining, 1, 0).done = FunctionError("f", "ValueError: no", "Traceback")
    with pytest.raises(FunctionError) as caught:
        joining.step(1, 0)
    first, _, last = caught.value.position.partition(" to ")
    assert first
    assert last > first


@pytest.mark.parametrize("alignment", [Alignment.UNALIGNED, Alignment.ALIGNED])
def test_a_barrier_waits_for_the_call_under_way_and_for_no_other(alignment: Alignment) -> None:
    job = HandDriven(graph_of(middle=Elsewhere))
    job.read_everything(2_000)
    job.run(vertices=(0, 1))
    job.trigger(1, alignment)
    job.run(vertices=(0,))
    job.run(vertices=(0, 1, 2))
    if alignment is Alignment.ALIGNED:
        assert not job.captures.keys() & {(1, SubtaskId(1, 0)), (1, SubtaskId(1, 1))}, "rows before it are not through"
        for index in range(2):
            elsewhere(job, 1, index).done = True
        job.run()
    captures = {subtask: capture for (_, subtask), capture in job.captures.items()}
    assert len(captures) == 6
    staged: list[int] = []
    for index in range(2):
        assert elsewhere(job, 1, index).waited <= 1
        for message in captures[SubtaskId(2, index)].pending_messages.values():
            staged += ast.literal_eval(message.decode())
    flying = [
        value
        for capture in captures.values()
        for c in capture.inflight
        for value in c.buffer.payload.slice(c.offset, c.rows).column(1).to_pylist()  # type: ignore[attr-defined]
    ]
    assert not any(capture.splits for capture in captures.values()), "everything was read"
    assert sorted(staged + flying) == list(range(2_000)), "consumed or captured, each row once"
    job.close()


def test_no_watermark_passes_rows_that_are_away() -> None:
    job = HandDriven(graph_of(middle=Elsewhere, parallelism=1))
    job.step(2)
    job.deliver(1)  # its first credit
    source = job.at(0, 0)
    source._emit(batch_of([1, 2, 3]))
    source.outputs.watermark(77)
    job.step(0)
    job.run(vertices=(0, 1), edges=(0,))
    out = ChannelId(1, 0, 0)
    assert not job.links.get(out)
    elsewhere(job, 1, 0).done = True
    while job.step(1, 0):
        job.now_ms += 100
    job.now_ms += 100
    job.step(1, 0)
    kinds = [type(element) for element in job.links[out]]
    assert kinds == [Buffer, Watermark]
    job.close()


def test_a_source_asks_for_more_when_its_rows_are_back() -> None:
    job = HandDriven(graph_of(first=Elsewhere))
    job.step(0)
    asked = len(job.statuses)
    job.assign(0, 0, 10)
    job.run(vertices=(0,))
    assert len(job.statuses) == asked
    elsewhere(job, 0, 0).done = True
    job.run(vertices=(0,))
    assert job.statuses[asked:] == [(SubtaskId(0, 0), 0, None)]
    job.close()


def test_a_failure_elsewhere_tells_the_rows_it_was_given() -> None:
    job = HandDriven(graph_of(middle=Elsewhere, last=Log))
    job.read_everything(100)
    job.run(vertices=(0, 1))
    elsewhere(job, 1, 0).done = FunctionError("f", "ValueError: no", "Traceback")
    with pytest.raises(FunctionError) as caught:
        job.step(1, 0)
    assert caught.value.position
    assert caught.value.message == "ValueError: no"
    job.close()


class Starting(Elsewhere):
    """Is not ready at first."""

    starting = True


def test_input_waits_for_a_process_that_starts_and_barriers_do_not() -> None:
    job = HandDriven(graph_of(middle=Starting))
    job.read_everything(2_000)
    job.run()
    assert elsewhere(job, 1, 0).taken == []
    job.trigger(1, Alignment.UNALIGNED)
    job.run()
    assert len(job.captures) == 6
    for index in range(2):
        elsewhere(job, 1, index).done = True
    job.run()
    for index in range(2):
        assert elsewhere(job, 1, index).waited == 0
    written = [job.writer(i).rows for i in range(2)]
    assert sorted(written[0] + written[1]) == list(range(2_000))
    job.close()


def test_barriers_pass_on_while_rows_are_away() -> None:
    job = HandDriven(graph_of(middle=Elsewhere))
    job.read_everything(2_000)
    job.run(vertices=(0, 1))
    barrier = Barrier(1, Alignment.UNALIGNED, None, 0)
    for producer in range(2):
        job.at(1, 0).inbox.append(Arrived(ChannelId(0, producer, 0), barrier))
    job.step(1, 0)
    assert (1, SubtaskId(1, 0)) in job.captures
    assert elsewhere(job, 1, 0).waited == 1
    job.close()


class TimedElsewhere(Elsewhere):
    """Has something to do at 5 ms as well, once."""

    at_ms: float | None = 5.0

    def wake_at_ms(self) -> float | None:
        return self.at_ms

    def on_processing_time(self) -> Iterator[pa.RecordBatch]:
        self.at_ms = None
        return iter(())


@pytest.mark.parametrize("what", ["timer", "poll", "release"])
def test_a_time_that_passes_while_rows_are_elsewhere_does_not_keep_the_subtask_awake(what: str) -> None:
    job = HandDriven(graph_of(first=TimedElsewhere if what == "timer" else Elsewhere, parallelism=1))
    job.step(0)
    job.assign(0, 0, 10)
    job.step(0)
    subtask, operator = job.at(0, 0), elsewhere(job, 0, 0)
    assert operator.has_pending_rows()
    assert subtask._source_task is not None
    if what == "poll":
        subtask._source_task._poll_at_ms = 5.0
    elif what == "release":
        subtask._source_task._held_since_ms = 5.0 - HELD_MS
    job.now_ms = 10.0
    result = subtask.step(job.now_ms)
    assert not result.worked
    assert result.wake_at_ms is None or result.wake_at_ms > job.now_ms, "what comes back wakes it"
    operator.done = True
    assert subtask.step(job.now_ms).worked
    job.close()
