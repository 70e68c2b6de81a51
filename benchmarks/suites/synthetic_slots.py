"""Messages of the slots of a large job to their driver, as bytes, without the slots: manifests of the real form.

A job of ten vertices, hashed from each to the next. The contents of a subtask's manifest depend on the ``Shape``;
sections are in files of the required length without contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from penstock.connectors.noop import NoopSink
from penstock.connectors.rate import SCHEMA, RateSource
from penstock.model.ids import SubtaskId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from penstock.model.key_groups import owned_range
from penstock.model.manifest import CaptureMetrics, InflightEntry, SectionRef, SlotManifest, StateEntry, SubtaskManifest
from penstock.model.messages import AcknowledgeCheckpoint
from penstock.model.metrics import SubtaskReport
from penstock.model.splits import Split
from penstock.network.messages import SlotMetrics
from penstock.snapshots.format.sections import data_path, state_path
from penstock.snapshots.writing.state_index import BASE, DELTA, MAX_DELTAS

VERTICES = 10
KEY_GROUPS = 4_096
SECTION_BYTES = 4_096
MESSAGE_BYTES = 200
"""Of a sink's commit message: about a file's name and size."""
GENERATION = 1
NOW_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Shape:
    """Shape of a manifest, for each subtask after the source.

    Attributes:
        deltas: number of deltas of its table, besides a base.
        watermarks: True for one for each of its channels.
        inflight: True for a section of rows for each of its channels.
    """

    deltas: int = 3
    watermarks: bool = False
    inflight: bool = False


SHAPES = {
    "state": Shape(),
    "long chains": Shape(deltas=MAX_DELTAS),
    "event time": Shape(watermarks=True),
    "in flight": Shape(watermarks=True, inflight=True),
}


def job(parallelism: int) -> JobGraph:
    """source -> hash -> ... -> hash -> sink."""
    last = VERTICES - 1
    vertices = tuple(
        Vertex(
            number,
            f"vertex {number}",
            SourceSpec("source", "rate", RateSource()) if number == 0 else None,
            (),
            SinkSpec("sink", "noop", NoopSink()) if number == last else None,
        )
        for number in range(VERTICES)
    )
    edges = tuple(Edge(number, number, number + 1, EdgeKind.HASH, SCHEMA, (1,)) for number in range(last))
    return JobGraph(vertices, edges, parallelism, KEY_GROUPS)


def channels(parallelism: int) -> int:
    """Return the channels of that job."""
    return (VERTICES - 1) * parallelism**2


@dataclass(frozen=True)
class Slots:
    """All slots of the job. ``splits``: what each reader of the source was given."""

    folder: Path
    shape: Shape
    parallelism: int
    splits: Mapping[int, Sequence[Split]]

    def write_files(self, checkpoint: int) -> None:
        """The files that this checkpoint's own sections lie in: with holes, so that a disk is not what is measured."""
        (self.folder / "data").mkdir(exist_ok=True)
        inflight_bytes = (VERTICES - 1) * self.parallelism * SECTION_BYTES
        for slot in range(self.parallelism):
            _make_file(self.folder / state_path(GENERATION, checkpoint, slot), self._state_bytes)
            if self.shape.inflight:
                _make_file(self.folder / data_path(GENERATION, checkpoint, slot), inflight_bytes)

    def say(self, checkpoint: int) -> Iterator[tuple[bytes, bytes]]:
        """Return the metrics and the acknowledgement of each slot in the order in which they are sent."""
        for slot in range(self.parallelism):
            figures = SlotMetrics(slot, [_figures(vertex, slot, checkpoint) for vertex in range(VERTICES)])
            answer = AcknowledgeCheckpoint(checkpoint, self.manifest(checkpoint, slot))
            yield msgspec.msgpack.encode(figures), msgspec.msgpack.encode(answer)

    def manifest(self, checkpoint: int, slot: int) -> SlotManifest:
        subtasks = [self._subtask(SubtaskId(vertex, slot), checkpoint) for vertex in range(VERTICES)]
        return SlotManifest(slot, subtasks, [_captured(subtask) for subtask in subtasks])

    @property
    def _state_bytes(self) -> int:
        return VERTICES * (self.shape.deltas + 1) * SECTION_BYTES

    def _subtask(self, subtask: SubtaskId, checkpoint: int) -> SubtaskManifest:
        vertex, index = subtask.vertex, subtask.index
        if vertex == 0:
            return SubtaskManifest(vertex, index, splits=list(self.splits.get(index, ())), rows_in=checkpoint * 1_000)
        groups = owned_range(index, self.parallelism, KEY_GROUPS)
        timed = range(self.parallelism if self.shape.watermarks else 0)
        behind = range(self.parallelism if self.shape.inflight else 0)
        return SubtaskManifest(
            vertex,
            index,
            states=[self._state(subtask, checkpoint, age, groups) for age in range(self.shape.deltas, -1, -1)],
            scalars={f"operator-{vertex}": {"watermark": NOW_US + checkpoint}},
            inflight=[self._inflight(subtask, checkpoint, producer, groups) for producer in behind],
            channel_watermarks={f"{vertex - 1}:{producer}": NOW_US + checkpoint for producer in timed},
            pending_messages={checkpoint: bytes(MESSAGE_BYTES)} if vertex == VERTICES - 1 else {},
            rows_in=checkpoint * 1_000,
        )

    def _state(self, subtask: SubtaskId, checkpoint: int, age: int, groups: tuple[int, int]) -> StateEntry:
        """The oldest is the base, in the first checkpoint's file; a delta is in the file of the checkpoint that many
        before."""
        is_base = age == self.shape.deltas
        written = 1 if is_base else max(1, checkpoint - age)
        place = subtask.vertex * (self.shape.deltas + 1) + age
        path = state_path(GENERATION, written, subtask.index)
        section = _section(path, place, written, f"v{subtask.vertex}[{subtask.index}]/operator/state")
        kind = BASE if is_base else DELTA
        return StateEntry(f"operator-{subtask.vertex}", "state", kind, 100, groups[0], groups[1], section)

    def _inflight(self, subtask: SubtaskId, checkpoint: int, producer: int, groups: tuple[int, int]) -> InflightEntry:
        edge, consumer = subtask.vertex - 1, subtask.index
        lane = f"v{subtask.vertex}[{consumer}]/inflight/e{edge}:{producer}->{consumer}/consumer/0"
        path = data_path(GENERATION, checkpoint, consumer)
        section = _section(path, edge * self.parallelism + producer, checkpoint, lane)
        return InflightEntry(0, edge, producer, consumer, "consumer", 0, 100, groups[0], groups[1], section)


def _make_file(path: Path, length: int) -> None:
    with path.open("wb") as file:
        file.truncate(length)


def _section(path: str, place: int, checkpoint: int, what: str) -> SectionRef:
    identity = f"g{GENERATION}/c{checkpoint}/{what}/{place}"
    checksum = xxhash.xxh3_128_hexdigest(identity.encode())
    return SectionRef(path, place * SECTION_BYTES, SECTION_BYTES, identity, checksum)


def _captured(subtask: SubtaskManifest) -> CaptureMetrics:
    rows = {state.operator_id: 100 for state in subtask.states[:1]}
    inflight_bytes = len(subtask.inflight) * SECTION_BYTES
    return CaptureMetrics(
        subtask.vertex,
        subtask.index,
        start_delay_ms=1.5,
        alignment_ms=0.25,
        sync_ms=0.5,
        async_ms=4.5,
        inflight_bytes=inflight_bytes,
        inflight_persisted_bytes=inflight_bytes,
        inflight_rows=len(subtask.inflight) * 100,
        state_bytes=SECTION_BYTES,
        state_total_bytes=len(subtask.states) * SECTION_BYTES,
        state_rows=rows,
    )


def _figures(vertex: int, index: int, checkpoint: int) -> SubtaskReport:
    counters = {"rows_dropped_late": 0, "state_bytes": 100_000}
    rows, ms = checkpoint * 1_000, checkpoint * 1_000.0
    return SubtaskReport(
        vertex=vertex,
        index=index,
        rows_in=rows,
        rows_out=rows,
        busy_ms=ms,
        backpressured_ms=0.0,
        idle_ms=ms,
        input_queued_bytes=10_000,
        output_queued_bytes=10_000,
        recovered_rows_left=0,
        watermark_us=NOW_US + checkpoint,
        counters=counters,
    )
