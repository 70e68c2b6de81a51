"""Forward edges and ports: a vertex with a sink and a side output, each of its own number."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.errors import ProtocolViolation
from penstock.model.elements import Alignment, Barrier, EndOfPartition, Watermark
from penstock.model.ids import ChannelId, SubtaskId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from penstock.operators.base import Operator, OperatorContext
from penstock.worker.wiring import window_into
from tests.support.protocol.hand_driven import (
    OPTIONS,
    SCHEMA,
    HandDriven,
    ListSink,
    ListWriter,
    Log,
    RangeSource,
    Spec,
    rows_in,
    slow,
)


class OddAside(Operator):
    """Odd values go out by the port ``odd``, even ones on."""

    def open(self, context: OperatorContext) -> None:
        self._emit = context.emit

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        odd = [value % 2 == 1 for value in batch.column(1).to_pylist()]
        if any(odd):
            self._emit("odd", batch.filter(pa.array(odd)))
        if not all(odd):
            yield batch.filter(pa.array([not one for one in odd]))


def job_of(parallelism: int = 2) -> JobGraph:
    """source -> odd ones aside + sink; the odd ones forward to a second sink, the even ones forward to a third."""
    vertices = (
        Vertex(
            0,
            "source",
            SourceSpec("src", "src", RangeSource()),
            (Spec(operator_id="aside", kind=OddAside),),
            SinkSpec("sink-0", "sink", ListSink()),
        ),
        Vertex(1, "odd", None, (Spec(operator_id="odd", kind=Log),), SinkSpec("sink-1", "sink", ListSink())),
        Vertex(2, "even", None, (Spec(operator_id="even", kind=Log),), SinkSpec("sink-2", "sink", ListSink())),
    )
    edges = (
        Edge(0, 0, 1, EdgeKind.FORWARD, SCHEMA, port="odd"),
        Edge(1, 0, 2, EdgeKind.FORWARD, SCHEMA),
    )
    return JobGraph(vertices, edges, parallelism, 8)


def written(job: HandDriven, vertex: int, index: int) -> list[int]:
    writer = job.at(vertex, index)._sink_task._writer
    assert isinstance(writer, ListWriter)
    return writer.rows


def test_channels_go_to_the_same_number_only() -> None:
    job = HandDriven(job_of(3))
    for index in range(3):
        outputs = job.at(0, index).outputs.channels
        assert sorted(outputs) == [ChannelId(0, index, index), ChannelId(1, index, index)]
        assert list(job.at(1, index).gate.channels) == [ChannelId(0, index, index)]
    job.close()


def test_the_memory_of_a_gate_is_divided_by_the_channels_that_there_are() -> None:
    graph = job_of(4)
    hashed = Edge(0, 0, 1, EdgeKind.HASH, SCHEMA, (0,))
    options = slow(OPTIONS)
    into_hashed = window_into(JobGraph(graph.vertices, (hashed,), 4, 8), 1, options)
    assert window_into(graph, 1, options) == min(options.exclusive_window, 4 * into_hashed)


def test_rows_of_a_port_go_over_its_edges_and_all_others_to_sink_and_main_edges() -> None:
    job = HandDriven(job_of())
    job.read_everything(40)
    job.run()
    for index, values in enumerate((range(20), range(20, 40))):
        assert written(job, 0, index) == written(job, 2, index) == [v for v in values if v % 2 == 0]
        assert written(job, 1, index) == [v for v in values if v % 2 == 1]
        assert job.at(0, index)._rows_out == 10, "of the main output only"
    job.close()


def test_watermarks_barriers_and_the_end_go_over_all_ports() -> None:
    job = HandDriven(job_of(1))
    job.at(0, 0)._chain.watermark(5)
    job.trigger(1, Alignment.ALIGNED)
    job.step(0)
    kinds = {
        kind: [channel.edge for channel, link in sorted(job.links.items()) for e in link if isinstance(e, kind)]
        for kind in (Watermark, Barrier, EndOfPartition)
    }
    assert kinds == {Watermark: [0, 1], Barrier: [0, 1], EndOfPartition: []}
    job.close()


def test_what_waits_on_a_port_is_captured() -> None:
    job = HandDriven(job_of(), slow())
    job.read_everything(2_000)
    job.step(0)
    job.trigger(1, Alignment.UNALIGNED)
    for _ in range(20):
        job.step(0)
    job.run()
    captures = [job.captures[1, SubtaskId(vertex, index)] for vertex in range(3) for index in range(2)]
    read = [v for index in range(2) for v in range(1000 * index, _position(job, index))]
    assert 0 < len(read) < 2_000
    passed = [v for c in captures for state in c.operators.values() for v in state.scalars["seen"]]  # type: ignore[union-attr]
    # An odd value goes one way, an even one one way, too: to the sink of its own vertex it is handed at once.
    assert sorted(passed + rows_in(captures)) == read
    assert {c.channel.edge for capture in captures for c in capture.inflight} <= {0, 1}
    job.close()


def _position(job: HandDriven, index: int) -> int:
    """Return the reader's position at the barrier; its values begin at ``1000 * index``."""
    splits = job.captures[1, SubtaskId(0, index)].splits
    return int(splits[0].position.get("at", 1000 * index)) if splits else 1000 * index + 1000  # type: ignore[arg-type]


def test_rows_for_a_port_that_nobody_reads_are_a_bug() -> None:
    graph = job_of()
    job = HandDriven(JobGraph(graph.vertices, graph.edges[1:], 2, 8))
    job.step(0)
    job.assign(0, 0, 10)
    with pytest.raises(ProtocolViolation, match="rows for 'odd'"):
        job.run()
    job.close()
