"""Whole subtasks: checkpoints that turn unaligned by themselves, inputs that end, several inputs and outputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.model.elements import Alignment, Barrier, EndOfPartition, Side
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from penstock.model.manifest import InflightEntry, SectionRef
from penstock.model.messages import AdvanceWatermark, NoMoreSplits
from penstock.operators.base import Operator, OperatorState
from penstock.worker.host import RecoveredLoaded, SubtaskCapture, SubtaskRestore
from tests.support.protocol.hand_driven import (
    SCHEMA,
    HandDriven,
    ListSink,
    Log,
    RangeSource,
    Spec,
    graph_of,
    rows_in,
    slow,
)

ALIGNED, UNALIGNED = Alignment.ALIGNED, Alignment.UNALIGNED


def all_captured(job: HandDriven, checkpoint: int) -> list[SubtaskCapture]:
    captures = [c for (id_, _), c in sorted(job.captures.items()) if id_ == checkpoint]
    return captures if len(captures) == len(job.subtasks) else []


def end_sources(job: HandDriven) -> None:
    for vertex in job.graph.vertices:
        if vertex.source is not None:
            job.tell(NoMoreSplits(vertex.id), vertex.id)


# -- the budget -------------------------------------------------------------------------------------------------------


def test_an_aligned_checkpoint_with_a_budget_completes_although_the_last_stage_never_runs_input() -> None:
    job = HandDriven(graph_of(), slow())
    job.read_everything(20_000)
    job.run(vertices=(0, 1), edges=(0,))
    job.trigger(1, ALIGNED, remaining_ms=100)
    job.step(0)
    assert all_captured(job, 1) == []
    assert not job.link_elements(Barrier), "it waits behind the rows"
    wake = job.at(0, 0).step(job.now_ms).wake_at_ms
    assert wake is not None
    assert 0 < wake - job.now_ms <= 100
    job.clock_s += 0.2
    job.step(0)
    for edge, vertex in ((0, 1), (1, 2)):
        job.deliver(edge)
        job.step(vertex)
    captures = all_captured(job, 1)
    assert captures
    assert all(c.metrics.unaligned for c in captures)
    assert len(rows_in(captures)) > 0
    downstream = [c.metrics for c in captures if c.subtask.vertex == 2]
    assert all(m.start_delay_ms >= 200 for m in downstream), "the time at the source counts"


def test_an_aligned_checkpoint_with_a_budget_stays_aligned_where_nothing_is_in_its_way() -> None:
    job = HandDriven(graph_of())
    job.read_everything(200)
    job.run()
    job.trigger(1, ALIGNED, remaining_ms=100)
    job.run()
    captures = all_captured(job, 1)
    assert captures
    assert not any(c.metrics.unaligned for c in captures)
    assert rows_in(captures) == []


def test_a_barrier_waits_for_its_subtask_on_the_clock_too() -> None:
    job = HandDriven(graph_of())
    job.run()
    job.trigger(1, ALIGNED, remaining_ms=100)
    job.step(0)
    (barrier, *_) = [e for e in job.link_elements(Barrier) if isinstance(e, Barrier)]
    assert barrier.remaining_ms == 100
    job.clock_s += 0.03
    job.deliver(0)
    job.step(1)
    left = [e for c, link in job.links.items() for e in link if c.edge == 1 and isinstance(e, Barrier)]
    assert [b.remaining_ms for b in left] == [100] * 4, "what it spends on the way is nobody's"


# -- ends -------------------------------------------------------------------------------------------------------------


def test_inputs_end_stage_by_stage_and_checkpoints_pass_the_parked_subtasks() -> None:
    job = HandDriven(graph_of())
    job.read_everything(500)
    end_sources(job)
    job.run()
    assert [s.vertex for s in job.ended] == [0, 0, 1, 1, 2, 2]
    assert sorted(job.writer(0).rows + job.writer(1).rows) == list(range(500))
    for checkpoint, alignment in ((1, ALIGNED), (2, UNALIGNED)):
        job.trigger(checkpoint, alignment)
        job.run()
        assert len(all_captured(job, checkpoint)) == 6
        assert rows_in(all_captured(job, checkpoint)) == []
    job.tell(AdvanceWatermark(0, 0, 77), 0)
    job.run()
    assert not any(link for link in job.links.values()), "nothing follows an end but barriers"


def test_a_source_ends_only_when_it_has_read_what_it_holds() -> None:
    job = HandDriven(graph_of(), slow())
    job.read_everything(20_000)
    end_sources(job)
    job.step(0)
    assert not job.at(0, 0).finished
    assert not job.link_elements(EndOfPartition)
    job.run()
    assert job.at(0, 0).finished


def test_a_snapshot_that_overtakes_ends_restores_to_a_job_that_ends_again_with_every_row_once() -> None:
    job = HandDriven(graph_of(), slow())
    job.read_everything(2_000)
    end_sources(job)
    for _ in range(200):
        job.run(vertices=(0, 1), edges=(0,))
        if job.at(0, 0).finished and job.at(0, 1).finished:
            break
        job.deliver(1)
        job.tick_s = 0.03  # the last stage reads one buffer now and then
        job.step(2)
        job.tick_s = 0.0
    assert [s.vertex for s in job.ended] == [0, 0], "the sources ended, and their rows are on the way"
    job.trigger(1, UNALIGNED)
    job.step(0)
    for edge, vertex in ((0, 1), (1, 2)):
        job.deliver(edge)
        job.step(vertex)
    captures = all_captured(job, 1)
    assert captures
    assert len(rows_in(captures)) > 0
    assert not any(c.splits for c in captures), "everything was read"
    restore, content = restored(job.graph, captures)
    again = HandDriven(graph_of(), generation=2, restore=restore)
    end_sources(again)
    for _ in range(20):
        again.run()
        for subtask, entry in again.loads:
            again.subtasks[subtask].inbox.append(RecoveredLoaded(entry, [content[entry.section.identity]]))
        again.loads.clear()
    assert [s.vertex for s in again.ended] == [0, 0, 1, 1, 2, 2]
    for vertex in (1, 2):
        assert sorted(v for i in range(2) for v in again.operator(vertex, i).seen) == list(range(2_000))  # type: ignore[attr-defined]
    staged = [v for c in captures for m in c.pending_messages.values() for v in ast.literal_eval(m.decode())]
    assert sorted(staged + again.writer(0).rows + again.writer(1).rows) == list(range(2_000))


def restored(
    graph: JobGraph, captures: list[SubtaskCapture]
) -> tuple[dict[SubtaskId, SubtaskRestore], dict[str, pa.RecordBatch]]:
    """Restored state of a new Generation: in-flight rows at their consumers, in restore order; and their batches."""
    content: dict[str, pa.RecordBatch] = {}
    entries: dict[SubtaskId, list[InflightEntry]] = {}
    parts = [part for capture in captures for part in capture.inflight]
    for number, part in enumerate(sorted(parts, key=lambda p: (p.layer, p.side is Side.PRODUCER, p.buffer.id.seq))):
        channel, name = part.channel, str(number)
        content[name] = part.buffer.payload.slice(part.offset, part.rows)  # type: ignore[assignment]
        consumer = SubtaskId(graph.edge(channel.edge).consumer, channel.consumer)
        entries.setdefault(consumer, []).append(
            InflightEntry(
                part.layer,
                channel.edge,
                channel.producer,
                channel.consumer,
                part.side.value,
                0,
                part.rows,
                0,
                graph.max_parallelism - 1,
                SectionRef("data/x", 0, part.cost, name, ""),
            )
        )
    restore = {
        c.subtask: SubtaskRestore(
            c.operators, c.splits, entries.get(c.subtask, ()), c.channel_watermarks, {}, c.rows_in
        )
        for c in captures
    }
    return restore, content


class Marks(Log):
    """Remembers the watermarks it sees."""

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self.seen.append(-watermark_us)
        return iter(())


def test_when_all_inputs_ended_the_largest_watermark_counts_and_none_falls_after_a_restore() -> None:
    job = HandDriven(graph_of(first=_Stamp, middle=Marks))
    job.step(0)
    job.assign(0, 0, 11)
    job.assign(1, 50, 101)
    job.at(0, 0).inbox.append(NoMoreSplits(0))
    job.run()
    assert [v for v in job.operator(1, 0).seen if v < 0][-1] == -100, "the first has ended: the second alone counts"  # type: ignore[attr-defined]
    job.trigger(1, UNALIGNED)
    job.run()
    capture = job.captures[1, SubtaskId(1, 0)]
    assert min(capture.channel_watermarks.values()) == 100
    job.at(0, 1).inbox.append(NoMoreSplits(0))
    job.run()
    assert job.at(1, 0).finished
    assert job.at(2, 0).gate.watermark_us == 100


def test_the_last_to_end_does_not_hold_event_time_below_what_the_others_reached() -> None:
    job = HandDriven(graph_of(first=_Stamp, middle=Marks))
    job.step(0)
    job.assign(0, 50, 101)
    job.assign(1, 0, 11)
    job.run()
    assert job.at(1, 0).gate.watermark_us == 10
    end_sources(job)
    job.run()
    assert [job.at(vertex, 0).gate.watermark_us for vertex in (1, 2)] == [100, 100]


class _Stamp(Operator):
    """The largest value is the watermark."""

    def __init__(self) -> None:
        self.largest: int | None = None

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.largest = max(batch.column(1).to_pylist())
        yield batch

    def emitted_watermark(self) -> int | None:
        return self.largest


# -- several inputs and outputs ---------------------------------------------------------------------------------------


class Sides(Operator):
    """Keeps what came by each input apart."""

    def __init__(self) -> None:
        self.sides: dict[int, list[int]] = {0: [], 1: []}

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        raise AssertionError("it has two inputs")

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.sides[number] += batch.column(1).to_pylist()
        yield batch

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={"left": list(self.sides[0]), "right": list(self.sides[1])})


def diamond(kinds: tuple[EdgeKind, ...], parallelism: int = 2) -> JobGraph:
    """source -> (left, right) -> join of both -> sink; ``kinds`` of its four edges."""
    vertices = (
        Vertex(0, "source", SourceSpec("src", "src", RangeSource()), (), None),
        Vertex(1, "left", None, (Spec(operator_id="left", kind=Log),), None),
        Vertex(2, "right", None, (Spec(operator_id="right", kind=Log),), None),
        Vertex(3, "join", None, (Spec(operator_id="join", kind=Sides),), SinkSpec("sink", "sink", ListSink())),
    )
    places = ((0, 1), (0, 2), (1, 3), (2, 3))
    edges = tuple(
        Edge(i, producer, consumer, kind, SCHEMA, (0,) if kind is EdgeKind.HASH else ())
        for i, ((producer, consumer), kind) in enumerate(zip(places, kinds, strict=True))
    )
    return JobGraph(vertices, edges, parallelism, 8)


ALL = (0, 1, 2, 3)


@pytest.mark.parametrize(
    "kinds",
    [
        (EdgeKind.HASH,) * 4,
        (EdgeKind.REBALANCE, EdgeKind.HASH, EdgeKind.HASH, EdgeKind.REBALANCE),
        (EdgeKind.BROADCAST, EdgeKind.REBALANCE, EdgeKind.HASH, EdgeKind.BROADCAST),
        (EdgeKind.FORWARD, EdgeKind.FORWARD, EdgeKind.FORWARD, EdgeKind.HASH),
    ],
)
@pytest.mark.parametrize("stuck", [False, True])
def test_a_diamond_is_cut_consistently_on_every_kind_of_edge(kinds: tuple[EdgeKind, ...], stuck: bool) -> None:
    rows = 3_000
    job = HandDriven(diamond(kinds), slow())
    job.read_everything(rows)
    if stuck:
        job.run(vertices=(0, 1, 2), edges=(0, 1))  # nothing gets into the join
    else:
        for _ in range(5):
            for vertex in ALL:
                job.step(vertex)
            for edge in (1, 3, 0):
                job.deliver(edge)
    job.trigger(1, UNALIGNED)
    for _ in range(3):
        job.step(0)
        for edge, vertex in ((0, 1), (1, 2), (2, 3), (3, 3)):
            job.deliver(edge)
            job.run(vertices=(vertex,), edges=()) if not stuck else job.step(vertex)
    if not stuck:
        job.run(vertices=ALL, edges=ALL)
    captures = all_captured(job, 1)
    assert captures
    copies = [2 if kind is EdgeKind.BROADCAST else 1 for kind in kinds]
    read = sum(int(s.position.get("at", s.spec["first"])) - int(s.spec["first"]) for c in captures for s in c.splits)  # type: ignore[arg-type]
    read += sum(rows // 2 for index in (0, 1) if not job.captures[1, SubtaskId(0, index)].splits)
    on_edge = [sum(x.rows for c in captures for x in c.inflight if x.channel.edge == e) for e in range(4)]
    for side, (into, out) in enumerate(((0, 2), (1, 3))):
        passed = sum(
            len(c.operators[name].scalars["seen"])  # type: ignore[arg-type]
            for c in captures
            for name in ("left", "right")
            if c.subtask.vertex == side + 1 and name in c.operators
        )
        assert passed + on_edge[into] == read * copies[into]
        arrived = sum(
            len(c.operators["join"].scalars[("left", "right")[side]])  # type: ignore[arg-type]
            for c in captures
            if c.subtask.vertex == 3
        )
        assert arrived + on_edge[out] == passed * copies[out]
    job.close()


def test_a_batch_for_one_input_is_never_put_together_with_one_for_the_other() -> None:
    job = HandDriven(diamond((EdgeKind.HASH,) * 4))
    job.read_everything(60)
    end_sources(job)
    job.run(vertices=ALL, edges=ALL)
    sides = [job.operator(3, i).sides for i in range(2)]  # type: ignore[attr-defined]
    for number in (0, 1):
        assert sorted(v for side in sides for v in side[number]) == list(range(60))
    assert len(job.ended) == 8
