"""A 3 x 2 job of real subtasks, every step and delivery by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest

from penstock.errors import FunctionError, ProtocolViolation
from penstock.model.elements import Alignment, Barrier, Buffer
from penstock.model.ids import SubtaskId
from penstock.model.manifest import InflightEntry, SectionRef
from penstock.model.messages import (
    AbortCheckpoint,
    AdvanceWatermark,
    AssignSplits,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from penstock.operators.base import Operator, OperatorState
from penstock.worker.activity import LONG_S, Abandoned
from penstock.worker.host import RecoveredLoaded, SubtaskCapture, SubtaskRestore, Triggered
from penstock.worker.slicing import FIRST_ROWS, TARGET_MS
from tests.support.protocol.hand_driven import HandDriven, Log, batch_of, graph_of, rows_in, slow

ROWS = 2_000


def committed(captures: dict[tuple[int, SubtaskId], SubtaskCapture], checkpoint: int) -> list[int]:
    """All values staged in epochs up to a checkpoint, as its captures report them."""
    values: list[int] = []
    for index in range(2):
        for message in captures[checkpoint, SubtaskId(2, index)].pending_messages.values():
            values += ast.literal_eval(message.decode())
    return values


def all_captured(job: HandDriven, checkpoint: int) -> list[SubtaskCapture]:
    captures = [c for (n, _), c in job.captures.items() if n == checkpoint]
    return captures if len(captures) == 6 else []


def seen(capture: SubtaskCapture) -> list[int]:
    (state,) = capture.operators.values()
    return list(state.scalars["seen"])  # type: ignore[arg-type]


def test_rows_flow_from_source_to_sink_each_once_and_in_order_per_key() -> None:
    job = HandDriven(graph_of())
    job.read_everything(ROWS)
    job.run()
    written = [job.writer(i).rows for i in range(2)]
    assert sorted(written[0] + written[1]) == list(range(ROWS))
    for rows in written:
        for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
            for key in range(7):
                values = [v for v in rows if v in half and v % 7 == key]
                assert values == sorted(values)
    assert {v % 7 for v in written[0]} & {v % 7 for v in written[1]} == set()
    job.close()


def test_an_idle_source_asks_for_one_split_and_again_only_when_it_is_read() -> None:
    job = HandDriven(graph_of())
    job.step(0)
    job.step(0)
    assert job.statuses == [(SubtaskId(0, 0), 0, None), (SubtaskId(0, 1), 0, None)]
    job.assign(0, 0, 10)
    job.run()
    assert job.statuses[2:] == [(SubtaskId(0, 0), 0, None)]
    with pytest.raises(ProtocolViolation):
        job.at(1, 0).inbox.append(AssignSplits(1, 0, ())) or job.step(1, 0)


def test_an_unaligned_checkpoint_completes_although_the_last_stage_never_runs_input() -> None:
    job = HandDriven(graph_of(), slow())
    job.read_everything(20_000)
    job.run(vertices=(0, 1), edges=(0,))  # edge 1 delivers nothing: everything backs up to the sources
    assert job.at(0, 0).report.output_queued_bytes > 0
    job.trigger(1, Alignment.UNALIGNED)
    job.step(0)
    for edge, vertex in ((0, 1), (1, 2)):
        job.deliver(edge)
        job.step(vertex)
    captures = all_captured(job, 1)
    assert captures, "six steps suffice, whatever is queued"
    in_state = sorted(v for c in captures if c.subtask.vertex == 2 for v in seen(c))
    first_edge = [v for c in captures for v in rows_in([_only_edge(c, 0)])]
    passed_middle = sorted(v for c in captures if c.subtask.vertex == 1 for v in seen(c))
    from_source = sorted(v for c in captures if c.subtask.vertex == 0 for v in seen(c))
    assert sorted(passed_middle + first_edge) == from_source
    second_edge = [v for c in captures for v in rows_in([_only_edge(c, 1)])]
    assert sorted(in_state + second_edge) == passed_middle
    assert len(first_edge) > 0
    assert len(second_edge) > 0
    positions = {s.split_id: s.position["at"] for c in captures for s in c.splits}
    assert sum(int(p) for p in positions.values()) - 10_000 == len(from_source)


def _only_edge(capture: SubtaskCapture, edge: int) -> SubtaskCapture:
    inflight = [c for c in capture.inflight if c.channel.edge == edge]
    return SubtaskCapture(**{**{f: getattr(capture, f) for f in capture.__dataclass_fields__}, "inflight": inflight})


def test_an_aligned_checkpoint_waits_for_the_rows_before_it_and_captures_none() -> None:
    job = HandDriven(graph_of())
    job.read_everything(ROWS)
    job.tick_s = 0.03
    for _ in range(6):
        job.step(0)
    job.tick_s = 0.0
    job.trigger(1, Alignment.ALIGNED)
    job.run(vertices=(0, 1), edges=(0,))
    assert all_captured(job, 1) == []
    job.run()
    captures = all_captured(job, 1)
    assert rows_in(captures) == []
    by_vertex = [sorted(v for c in captures if c.subtask.vertex == n for v in seen(c)) for n in range(3)]
    assert by_vertex[0] == by_vertex[1] == by_vertex[2]
    assert 0 < len(by_vertex[0]) < ROWS
    assert sorted(committed(job.captures, 1)) == by_vertex[2]


def test_a_capture_tells_what_was_processed_between_its_barriers() -> None:
    job = HandDriven(graph_of())
    job.read_everything(ROWS)
    job.at(0, 0).inbox.append(Triggered(TriggerCheckpoint(1, Alignment.ALIGNED)))
    job.step(0, 0)
    job.deliver(0)
    job.step(1)
    job.step(0, 1)  # rows from the other source, and only then its barrier
    job.at(0, 1).inbox.append(Triggered(TriggerCheckpoint(1, Alignment.ALIGNED)))
    between = [e for c, link in job.links.items() if c.producer == 1 for e in link if isinstance(e, Buffer)]
    assert between
    job.run()
    told = {c.subtask: c.metrics.inflight_processed_bytes for c in all_captured(job, 1)}
    assert sum(told[SubtaskId(1, index)] for index in range(2)) >= sum(buffer.cost for buffer in between)
    assert [told[SubtaskId(0, index)] for index in range(2)] == [0, 0], "a source has no barriers to wait for"
    job.trigger(2, Alignment.ALIGNED)
    job.run()
    assert {c.metrics.inflight_processed_bytes for c in all_captured(job, 2)} == {0}, "nothing is in flight any more"


def test_the_first_aligned_barrier_blocks_its_channel_until_the_last_has_come() -> None:
    job = HandDriven(graph_of())
    job.read_everything(100)
    job.run()
    job.trigger(1, Alignment.ALIGNED)
    job.step(0, 0)  # only the first source passes its barrier on
    job.deliver(0)
    job.step(1)
    assert [c.blocked_by for c in job.at(1, 0).gate.channels.values()] == [1, None]
    job.run()
    assert [c.blocked_by for c in job.at(1, 0).gate.channels.values()] == [None, None]
    assert all_captured(job, 1)


def test_messages_of_an_aborted_epoch_are_reported_again_until_they_are_committed() -> None:
    job = HandDriven(graph_of())
    job.read_everything(100)
    job.run()
    job.trigger(1, Alignment.ALIGNED)
    job.run()
    for vertex in range(3):
        job.tell(AbortCheckpoint(1), vertex)
    job.trigger(2, Alignment.ALIGNED)
    job.run()
    assert {e for i in range(2) for e in job.captures[2, SubtaskId(2, i)].pending_messages} == {1}
    job.tell(NotifyCheckpointComplete(2, 2), 2)
    job.trigger(3, Alignment.ALIGNED)
    job.run()
    assert all(not job.captures[3, SubtaskId(2, i)].pending_messages for i in range(2))


def test_an_aborted_checkpoint_leaves_no_barrier_no_blocked_channel_and_no_state() -> None:
    job = HandDriven(graph_of())
    job.read_everything(ROWS)
    job.step(0)
    job.trigger(1, Alignment.ALIGNED)
    job.step(0, 0)
    job.deliver(0)
    job.step(1)
    for vertex in range(3):
        job.tell(AbortCheckpoint(1), vertex)
    job.run()
    assert not [n for n, _ in job.captures if n == 1 and _.vertex > 0]
    assert all(not s._checkpoints.active and not s._epoch_ends for s in job.subtasks.values())
    assert sorted(job.writer(0).rows + job.writer(1).rows) == list(range(ROWS))


def test_state_that_was_taken_for_an_aborted_checkpoint_is_handed_over_to_be_released() -> None:
    job = HandDriven(graph_of())
    job.read_everything(ROWS)
    job.step(0)
    job.trigger(1, Alignment.UNALIGNED)
    job.step(0, 0)
    job.deliver(0)
    job.step(1)
    taken = [state for s in job.subtasks.values() for end in s._epoch_ends.values() for state in end.operators.values()]
    assert taken, "one barrier has come, the other has not"
    assert job.dropped_ == []
    for vertex in range(3):
        job.tell(AbortCheckpoint(1), vertex)
    job.run()
    assert all(any(state is dropped for dropped in job.dropped_) for state in taken)
    assert len({id(state) for state in job.dropped_}) == len(job.dropped_), "each once"


def test_an_unaligned_checkpoint_turns_an_older_aligned_one_that_is_stuck_and_both_complete() -> None:
    job = HandDriven(graph_of(), slow())
    job.read_everything(20_000)
    job.run(vertices=(0, 1), edges=(0,))
    job.trigger(1, Alignment.ALIGNED)
    for _ in range(3):
        job.step(0)
        job.deliver(0)
        job.step(1)
    assert not all_captured(job, 1)
    job.trigger(2, Alignment.UNALIGNED)
    job.step(0)
    for edge, vertex in ((0, 1), (1, 2)):
        job.deliver(edge)
        job.step(vertex)
    for checkpoint in (1, 2):
        captures = all_captured(job, checkpoint)
        assert captures, f"checkpoint {checkpoint}"
        total = sorted(v for c in captures if c.subtask.vertex == 2 for v in seen(c)) + rows_in(captures)
        assert sorted(total) == sorted(v for c in captures if c.subtask.vertex == 0 for v in seen(c))


class PerEpoch(Operator):
    """One user iterator per epoch: holds rows back and yields their sum when the epoch ends."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.held += batch.column(1).to_pylist()
        return iter(())

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        held, self.held = self.held, []
        if held:
            yield batch_of([0], [sum(held)])

    def snapshot(self) -> OperatorState:
        assert not self.held, "the iterator was ended before the snapshot"
        return OperatorState(scalars={"epochs": 1})


@pytest.mark.parametrize("alignment", [Alignment.ALIGNED, Alignment.UNALIGNED])
def test_what_an_ended_iterator_still_yields_lies_before_the_barrier(alignment: Alignment) -> None:
    job = HandDriven(graph_of(middle=PerEpoch))
    job.read_everything(ROWS)
    job.run(vertices=(0, 1), edges=(0,))
    job.trigger(1, alignment)
    job.run(vertices=(0, 1), edges=(0,))
    last_on_links = [link[-1] for c, link in job.links.items() if c.edge == 1]
    assert alignment is Alignment.UNALIGNED or all(isinstance(e, Barrier) for e in last_on_links)
    job.run()
    captures = all_captured(job, 1)
    delivered = sum(v for c in captures if c.subtask.vertex == 2 for v in seen(c))
    assert delivered + sum(rows_in([_only_edge(c, 1) for c in captures])) == sum(range(ROWS))


class Unread(Mapping[str, pa.RecordBatch]):
    """Tables that are costly to put together: only the upload thread may."""

    def __getitem__(self, name: str) -> pa.RecordBatch:
        raise AssertionError("put together on the subtask's thread")

    def __iter__(self) -> Iterator[str]:
        return iter(["table"])

    def __len__(self) -> int:
        return 1


class Large(Log):
    def snapshot(self) -> OperatorState:
        return OperatorState(tables=Unread())


def test_state_tables_are_put_together_off_the_subtasks_thread() -> None:
    job = HandDriven(graph_of(middle=Large))
    job.step(0)
    job.trigger(1, Alignment.UNALIGNED)
    job.run()
    assert len(all_captured(job, 1)) == 6


class Windows(Log):
    """Yields three batches when a watermark passes, and remembers how many it has yielded."""

    def __init__(self) -> None:
        super().__init__()
        self.fired: list[int] = []
        self.watermark: int | None = None

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self.watermark = watermark_us
        for due in range(0, watermark_us, 10):
            if due not in self.fired:
                self.fired.append(due)
                yield batch_of([due], [-due - 1])

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={"seen": list(self.seen), "fired": list(self.fired)})

    def restore(self, state: OperatorState) -> None:
        super().restore(state)
        self.fired = list(state.scalars["fired"])  # type: ignore[arg-type]


class Stamp(Log):
    """Generates the watermark: the largest value."""

    def __init__(self) -> None:
        super().__init__()
        self.largest: int | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.advance_generated(max(batch.column(1).to_pylist()))
        yield from super().process(batch)

    def emitted_watermark(self) -> int | None:
        return self.largest

    def advance_generated(self, watermark_us: int) -> None:
        self.largest = watermark_us if self.largest is None else max(self.largest, watermark_us)


def test_the_watermark_is_the_minimum_over_channels_until_all_sources_run_dry() -> None:
    job = HandDriven(graph_of(first=Stamp, middle=Windows))
    job.step(0)
    job.assign(0, 0, 31)
    job.assign(1, 90, 101)
    job.run()
    assert job.operator(1, 0).watermark == 30  # type: ignore[attr-defined]
    assert job.statuses[-2:] == [(SubtaskId(0, 0), 0, 30), (SubtaskId(0, 1), 0, 100)]
    job.tell(AdvanceWatermark(0, 0, 100), 0)
    job.run()
    assert [job.operator(1, i).watermark for i in range(2)] == [100, 100]  # type: ignore[attr-defined]
    assert sorted(job.operator(1, 0).fired) == list(range(0, 100, 10))  # type: ignore[attr-defined]


class LaggingStamp(Stamp):
    """Yields its rows at the end of the epoch only."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[pa.RecordBatch] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.kept += super().process(batch)
        yield from ()

    def finish_epoch(self) -> Iterator[pa.RecordBatch]:
        while self.kept:
            yield self.kept.pop(0)

    def may_hold_rows(self) -> bool:
        return bool(self.kept)


def test_what_a_lagging_function_kept_and_its_watermark_go_before_an_aligned_barrier() -> None:
    job = HandDriven(graph_of(first=LaggingStamp, middle=Windows))
    job.step(0)
    job.assign(0, 0, 31)
    job.assign(1, 90, 101)
    job.run()
    job.tell(AdvanceWatermark(0, 0, 100), 0)
    job.run()
    assert [job.operator(1, i).watermark for i in range(2)] == [None, None]  # type: ignore[attr-defined]
    job.trigger(1, Alignment.ALIGNED)
    job.run()
    fired = [job.captures[1, SubtaskId(1, i)].operators["middle"].scalars["fired"] for i in range(2)]
    assert fired == [list(range(0, 100, 10))] * 2, "the checkpoint behind the last row holds every window it closes"
    values = [v for i in range(2) for v in seen(job.captures[1, SubtaskId(1, i)])]
    assert sorted(values) == [*range(31), *range(90, 101)]


def test_a_snapshot_between_two_fired_timers_restores_to_the_rest_of_them() -> None:
    job = HandDriven(graph_of(first=Stamp, middle=Windows))
    job.step(0)
    job.assign(0, 0, 51)
    job.assign(1, 50, 101)
    job.run(vertices=(0,), edges=())
    job.deliver(0)
    job.tick_s = 0.03  # one element, or one fired timer, per step
    for _ in range(200):
        if len(job.operator(1, 0).fired) == 2:  # type: ignore[attr-defined]
            break
        job.step(1, 0)
    job.tick_s = 0.0
    assert len(job.operator(1, 0).fired) == 2  # type: ignore[attr-defined]
    job.trigger(1, Alignment.UNALIGNED)
    job.step(0)
    job.deliver(0)
    job.step(1, 0)
    capture = job.captures[1, SubtaskId(1, 0)]
    assert min(capture.channel_watermarks.values()) == 50
    restored = SubtaskRestore(capture.operators, (), (), capture.channel_watermarks, {}, capture.rows_in)
    again = HandDriven(graph_of(first=Stamp, middle=Windows), generation=2, restore={SubtaskId(1, 0): restored})
    again.run()
    assert sorted(again.operator(1, 0).fired) == [0, 10, 20, 30, 40]  # type: ignore[attr-defined]
    emitted = [v for i in range(2) for v in again.writer(i).rows]
    assert sorted(emitted) == [-41, -31, -21]


def entry_of(rows: int, layer: int = 1, producer: int = 0, name: str = "a") -> InflightEntry:
    section = SectionRef("data/x", 0, 100, name, "00")
    return InflightEntry(layer, 0, producer, 0, "consumer", 0, rows, 0, 3, section)


def test_recovered_rows_come_before_live_ones_and_a_checkpoint_meanwhile_carries_the_rest() -> None:
    first, second = entry_of(40, name="a"), entry_of(10, producer=1, name="b")
    restore = SubtaskRestore({}, (), (first, second), {}, {}, 0)
    job = HandDriven(graph_of(), generation=2, restore={SubtaskId(1, 0): restore})
    job.step(1)
    assert [entry for _, entry in job.loads] == [first, second]
    job.read_everything(50)
    job.run(vertices=(0,), edges=())
    job.deliver(0)
    job.step(1, 0)
    assert job.at(1, 0).report.rows_in == 0, "live rows wait for the recovered ones"
    job.at(1, 0).inbox.append(RecoveredLoaded(first, [batch_of([0] * 40, list(range(1000, 1040)))]))
    job.tick_s = 0.03
    job.step(1, 0)
    job.tick_s = 0.0
    job.trigger(1, Alignment.UNALIGNED)
    job.step(0)
    job.deliver(0)
    job.step(1, 0)
    capture = job.captures[1, SubtaskId(1, 0)]
    assert [(e.row_start, e.rows, e.layer) for e in capture.carried] == [(32, 8, 1), (0, 10, 1)]
    assert {c.layer for c in capture.inflight} == {2}
    assert seen(capture) == list(range(1000, 1032))
    job.at(1, 0).inbox.append(RecoveredLoaded(second, [batch_of([0] * 10, list(range(2000, 2010)))]))
    job.run()
    values = job.operator(1, 0).seen  # type: ignore[attr-defined]
    assert values[:50] == [*range(1000, 1040), *range(2000, 2010)]
    assert len(values) > 50


class Sizes(Log):
    """Remembers how the rows came, not the rows."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.seen.append(batch.num_rows)
        yield batch


def test_small_buffers_of_all_channels_are_processed_as_one_slice() -> None:
    job = HandDriven(graph_of(middle=Sizes))
    for first in range(0, 80, 20):  # a step for each, so that they are not put together in the output queues
        job.step(0)
        job.assign((first // 20) % 2, first, first + 20)
        job.step(0)
    buffers = [e for c, link in job.links.items() for e in link if c.consumer == 0 and isinstance(e, Buffer)]
    assert len(buffers) == 4
    job.deliver(0)
    job.step(1, 0)
    rows = sum(buffer.rows for buffer in buffers)
    assert job.operator(1, 0).seen == [FIRST_ROWS, rows - FIRST_ROWS]  # type: ignore[attr-defined]
    assert max(buffer.rows for buffer in buffers) < FIRST_ROWS
    job.run()
    assert sorted(job.writer(0).rows + job.writer(1).rows) == list(range(80))


def test_a_step_that_is_to_be_over_soon_takes_so_many_rows_fewer() -> None:
    job = HandDriven(graph_of(middle=Sizes))
    job.read_everything(ROWS)
    job.run(vertices=(0,), edges=(0,))
    job.tick_s = 0.001
    job.at(1, 0).step(job.now_ms, within_ms=TARGET_MS / 2)
    sizes = job.operator(1, 0).seen  # type: ignore[attr-defined]
    assert 1 <= sizes[0] < FIRST_ROWS / 2
    assert len(sizes) < 10, "the step goes on only as long as there is time"
    assert job.clock_s < TARGET_MS / 1000


def test_a_checkpoint_is_captured_once_its_last_barrier_came_and_its_own_left() -> None:
    job = HandDriven(graph_of())
    job.read_everything(ROWS)
    job.run()
    job.trigger(1, Alignment.UNALIGNED)
    job.step(0, 0)
    assert [job.at(0, index).captured for index in range(2)] == [1, 0]
    job.deliver(0)
    job.step(1)
    assert [job.at(1, index).captured for index in range(2)] == [0, 0], "one barrier of two"
    job.step(0, 1)
    job.deliver(0)
    job.step(1)
    assert [job.at(1, index).captured for index in range(2)] == [1, 1]


class Fails(Log):
    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if 13 in batch.column(1).to_pylist():
            raise FunctionError("middle", "ValueError: 13")
        yield batch


def test_a_user_error_reaches_the_driver_of_the_step_with_its_position() -> None:
    job = HandDriven(graph_of(middle=Fails))
    job.step(0)
    job.assign(0, 0, 20)
    with pytest.raises(FunctionError) as raised:
        job.run()
    assert raised.value.position.startswith("e0:0->")
    job.close()
    assert job.writer(0).closed == 1

    source = HandDriven(graph_of(first=Fails))
    source.step(0)
    source.assign(0, 0, 200)
    with pytest.raises(FunctionError) as raised:
        source.run()
    assert raised.value.position == "split s0 at {}"


def test_a_subtask_without_room_in_its_outputs_takes_no_input_but_grants_and_control() -> None:
    job = HandDriven(graph_of(), slow())
    job.read_everything(20_000)
    job.run(vertices=(0,), edges=())
    source = job.at(0, 0)
    assert source.report.output_queued_bytes >= 2 << 10
    before = source.report.rows_in
    assert source.step(job.now_ms).worked is False
    assert source.report.rows_in == before
    assert sum(e.cost for c, link in job.links.items() for e in link if isinstance(e, Buffer)) <= 4 * (1 << 10)
    job.run()
    assert sorted(job.writer(0).rows + job.writer(1).rows) == list(range(20_000))


def test_event_time_rises_past_what_a_reader_holds_unread() -> None:
    job = HandDriven(graph_of(first=Stamp, middle=Windows))
    job.step(0)
    job.assign(1, 90, 101)
    job.run()
    job.assign(0, 0, 31)
    job.tell(AdvanceWatermark(0, 0, 100), 0)
    job.tell(AdvanceWatermark(0, 0, 200), 0)
    job.tick_s = 0.03
    job.step(0)
    assert [job.at(0, i)._source_task.rises for i in range(2)] == [True, False]  # type: ignore[union-attr]
    job.tick_s = 0.0
    job.run()
    assert [job.operator(1, i).watermark for i in range(2)] == [200, 200]  # type: ignore[attr-defined]


class Endless(Log):
    """One slice becomes batches without end."""

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        while True:
            self.seen.append(batch.num_rows)
            yield batch


def test_a_slice_that_takes_long_is_abandoned_when_the_subtask_is_stopped() -> None:
    job = HandDriven(graph_of(first=Endless))
    job.step(0)
    job.assign(0, 0, 20)
    job.tick_s = LONG_S / 10
    source = job.at(0, 0)
    source.stopped = True
    with pytest.raises(Abandoned):
        source.step(job.now_ms)
    assert len(job.operator(0, 0).seen) > 5, "an ordinary slice is finished"  # type: ignore[attr-defined]
    job.close()
