"""Slices, and the watermarks and barriers among their rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from penstock.model.elements import Alignment
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph
from penstock.operators.base import OperatorState
from tests.support.protocol.hand_driven import SCHEMA, HandDriven, Log, Spec, batch_of, graph_of

PARTS = 3
DUE = 2
"""Batches that a watermark makes due."""


class Heard(Log):
    """Remembers what it is told, in order: (input, rows), watermarks, and what it yielded for them."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []

    def process_input(self, number: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.heard.append((number, batch.num_rows))
        yield from self.process(batch)

    def advance(self, watermark_us: int) -> Iterator[pa.RecordBatch]:
        self.heard.append(watermark_us)
        for number in range(DUE):
            self.heard.append(f"due {number}")
            yield batch_of([0], [-1])

    def snapshot(self) -> OperatorState:
        self.heard.append("snapshot")
        return super().snapshot()


def heard(job: HandDriven, vertex: int = 1) -> list[object]:
    return job.operator(vertex, 0).heard  # type: ignore[attr-defined, no-any-return]


def sends(job: HandDriven, vertex: int, watermark_us: int | None = None) -> None:
    """Two rows, in a buffer of their own, and a watermark behind them."""
    job.at(vertex, 0)._emit(batch_of([0, 1]))
    if watermark_us is not None:
        job.at(vertex, 0).outputs.watermark(watermark_us)
    job.step(vertex)
    job.now_ms += 100


def parts_with_watermarks() -> HandDriven:
    job = HandDriven(graph_of(middle=Heard, parallelism=1))
    for part in range(PARTS):
        sends(job, 0, 10 * (part + 1))
    return job


def test_rows_around_watermarks_are_one_slice_and_the_last_watermark_comes_behind_them() -> None:
    job = parts_with_watermarks()
    sends(job, 0)
    job.deliver(0)
    job.step(1)
    assert heard(job) == [(0, 2 * (PARTS + 1)), 10 * PARTS, "due 0", "due 1"]
    job.close()


def test_a_barrier_waits_until_the_watermark_in_front_of_it_has_gone_through() -> None:
    job = parts_with_watermarks()
    job.trigger(1, Alignment.ALIGNED)
    job.step(0)
    sends(job, 0)
    job.deliver(0)
    job.tick_s = 0.03  # by one element a step
    job.step(1)
    assert heard(job) == [(0, 2 * PARTS)]
    channel = next(iter(job.at(1, 0).gate.channels.values()))
    job.step(1)
    assert channel.holds_barrier(1), "although its watermark is in work"
    job.tick_s = 0.0
    job.step(1)
    assert heard(job) == [(0, 2 * PARTS), 10 * PARTS, "due 0", "due 1", "snapshot", (0, 2)]
    job.run(vertices=(1, 2))
    assert job.captures[1, SubtaskId(1, 0)].channel_watermarks == {channel.channel: 10 * PARTS}
    job.close()


def test_rows_of_an_input_are_processed_at_once_whatever_came_between() -> None:
    source, _, last = graph_of().vertices
    vertices = (
        replace(source, id=0, operators=()),
        replace(source, id=1, operators=()),
        replace(last, operators=(Spec(operator_id="join", kind=Heard),)),
    )
    edges = tuple(Edge(i, i, 2, EdgeKind.HASH, SCHEMA, (0,)) for i in range(2))
    job = HandDriven(JobGraph(vertices, edges, 1, 8))
    for _ in range(PARTS):
        for vertex in (0, 1):
            sends(job, vertex)
    job.deliver(0)
    job.deliver(1)
    job.step(2)
    assert heard(job, 2) == [(0, 2 * PARTS), (1, 2 * PARTS)]
    job.close()
