"""Real subtasks joined by a host that a test drives by hand: every step and every delivery is an explicit call."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.config import Options
from penstock.connectors.base import Sink, SinkCommitter, SinkContext, SinkWriter, Source, SourceReader
from penstock.model.elements import Alignment, Barrier, Captured, Element, EndOfPartition
from penstock.model.ids import ChannelId, CheckpointId, SubtaskId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.model.manifest import InflightEntry
from penstock.model.messages import AssignSplits, PollCompleted, ReaderStatus, RequestSplit, TriggerCheckpoint
from penstock.model.splits import Split
from penstock.operators.base import Operator, OperatorState
from penstock.worker.host import Arrived, Granted, InboxEvent, SubtaskCapture, SubtaskRestore, Triggered
from penstock.worker.subtask import Subtask

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
OPTIONS = Options(exclusive_window=1 << 10, memory_per_gate=64 << 10, flush_interval_ms=0)


def batch_of(keys: Sequence[int], values: Sequence[int] | None = None) -> pa.RecordBatch:
    values = list(range(len(keys))) if values is None else values
    return pa.record_batch([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA)


class RangeReader(SourceReader):
    """A split is a range of values; keys are ``value % 7``."""

    def __init__(self) -> None:
        self.splits: deque[Split] = deque()

    def add_split(self, split: Split) -> None:
        self.splits.append(split)

    def poll(self, max_rows: int, now_ms: int) -> pa.RecordBatch | None:
        if not self.splits:
            return None
        split = self.splits[0]
        at, end = int(split.position.get("at", split.spec["first"])), int(split.spec["end"])  # type: ignore[arg-type]
        stop = min(end, at + max_rows)
        if stop == end:
            self.splits.popleft()
        else:
            self.splits[0] = Split(split.split_id, split.spec, {"at": stop})
        return batch_of([v % 7 for v in range(at, stop)], list(range(at, stop)))

    def snapshot(self) -> Sequence[Split]:
        return tuple(self.splits)


class RangeSource(Source):
    schema = SCHEMA

    def describe(self) -> str:
        return "ranges"

    def discover(self, state, parallelism):  # type: ignore[no-untyped-def]
        raise NotImplementedError("tests assign splits by hand")

    def create_reader(self) -> SourceReader:
        return RangeReader()


@dataclass(frozen=True, kw_only=True)
class Spec(OperatorSpec):
    """Wraps a ready operator class."""

    operator_id: str
    kind: type[Operator]
    name: str = "operator under test"
    output_schema: pa.Schema = SCHEMA

    def create(self) -> Operator:
        return self.kind()


class Log(Operator):
    """Passes rows on and keeps every value as its state."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self.seen += batch.column(1).to_pylist()
        yield batch

    def snapshot(self) -> OperatorState:
        return OperatorState(scalars={"seen": list(self.seen)})

    def restore(self, state: OperatorState) -> None:
        self.seen = list(state.scalars["seen"])  # type: ignore[arg-type]


class ListWriter(SinkWriter):
    def __init__(self) -> None:
        self.rows: list[int] = []
        self.closed = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.column(1).to_pylist()

    def prepare(self, epoch: int) -> bytes | None:
        staged, self.rows = self.rows, []
        return repr(staged).encode() if staged else None

    def close(self) -> None:
        self.closed += 1


class ListSink(Sink):
    def describe(self) -> str:
        return "list"

    def create_writer(self) -> SinkWriter:
        return ListWriter()

    def create_committer(self) -> SinkCommitter:
        raise NotImplementedError("tests read the messages")


def graph_of(
    middle: type[Operator] = Log, last: type[Operator] = Log, first: type[Operator] = Log, parallelism: int = 2
) -> JobGraph:
    """source+first -> hash -> middle -> hash -> last+sink."""
    vertices = (
        Vertex(0, "source", SourceSpec("src", "src", RangeSource()), (Spec(operator_id="first", kind=first),), None),
        Vertex(1, "middle", None, (Spec(operator_id="middle", kind=middle),), None),
        Vertex(2, "last", None, (Spec(operator_id="last", kind=last),), SinkSpec("sink", "sink", ListSink())),
    )
    edges = tuple(Edge(i, i, i + 1, EdgeKind.HASH, SCHEMA, (0,)) for i in range(2))
    return JobGraph(vertices, edges, parallelism, 8)


@dataclass
class HandDriven:
    """All subtasks of a graph and the links between them. Nothing moves unless told to."""

    graph: JobGraph
    options: Options = OPTIONS
    generation: int = 1
    restore: Mapping[SubtaskId, SubtaskRestore] = field(default_factory=dict)
    now_ms: float = 0.0

    def __post_init__(self) -> None:
        self.links: dict[ChannelId, deque[Element]] = {}
        self.credits: dict[ChannelId, deque[int]] = {}
        self.parts: dict[tuple[CheckpointId, SubtaskId], list[Captured]] = {}
        self.ended: list[SubtaskId] = []
        self.captures: dict[tuple[CheckpointId, SubtaskId], SubtaskCapture] = {}
        self.dropped_: list[OperatorState] = []
        self.declined_: list[tuple[SubtaskId, CheckpointId]] = []
        self.statuses: list[tuple[SubtaskId, int, int | None]] = []
        self.loads: list[tuple[SubtaskId, InflightEntry]] = []
        self.clock_s = self.tick_s = 0.0
        self.subtasks: dict[SubtaskId, Subtask] = {}
        for vertex in self.graph.vertices:
            for index in range(self.graph.parallelism):
                subtask = SubtaskId(vertex.id, index)
                context = SinkContext("q", self.generation, index, self.graph.parallelism, "aa")
                self.subtasks[subtask] = Subtask(
                    vertex,
                    self.graph,
                    subtask,
                    self.generation,
                    self.options,
                    self,
                    self.restore.get(subtask),
                    context,
                    self.clock,
                )

    # -- SubtaskHost ----------------------------------------------------------------------------------------------

    def send(self, channel: ChannelId, element: Element) -> None:
        self.links.setdefault(channel, deque()).append(element)

    def grant(self, channel: ChannelId, credit: int) -> None:
        self.credits.setdefault(channel, deque()).append(credit)

    def allow_capture(self, checkpoint: CheckpointId, captured_bytes: int) -> bool:
        raise AssertionError("nothing is limited here")

    def recorded(self, subtask: SubtaskId, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        self.parts.setdefault((checkpoint, subtask), []).extend(inflight)

    def captured(self, capture: SubtaskCapture) -> None:
        key = capture.checkpoint, capture.subtask
        assert key not in self.captures
        self.captures[key] = replace(capture, inflight=[*self.parts.pop(key, []), *capture.inflight])

    def finished(self, subtask: SubtaskId) -> None:
        assert subtask not in self.ended
        self.ended.append(subtask)

    def dropped(self, states: Sequence[OperatorState]) -> None:
        self.dropped_ += states

    def declined(self, subtask: SubtaskId, checkpoint: CheckpointId, reason: str) -> None:
        self.declined_.append((subtask, checkpoint))

    def tell_assigner(self, message: RequestSplit | ReaderStatus | PollCompleted) -> None:
        if isinstance(message, ReaderStatus):
            self.statuses.append((SubtaskId(message.vertex, message.index), message.unread, message.seen_us))

    def load(self, subtask: SubtaskId, entry: InflightEntry) -> None:
        self.loads.append((subtask, entry))

    def clock(self) -> float:
        """Moves by ``tick_s`` whenever it is read: at 0 steps run as far as they can, at 0.03 by one element."""
        self.clock_s += self.tick_s
        return self.clock_s

    # -- driving --------------------------------------------------------------------------------------------------

    def at(self, vertex: int, index: int) -> Subtask:
        return self.subtasks[SubtaskId(vertex, index)]

    def tell(self, event: InboxEvent, vertex: int) -> None:
        """To all subtasks of a vertex."""
        for index in range(self.graph.parallelism):
            self.at(vertex, index).inbox.append(event)

    def trigger(self, checkpoint: CheckpointId, alignment: Alignment, remaining_ms: int | None = None) -> None:
        for vertex in self.graph.vertices:
            if vertex.source is not None:
                self.tell(Triggered(TriggerCheckpoint(checkpoint, alignment, remaining_ms)), vertex.id)

    def assign(self, index: int, first: int, end: int) -> None:
        self.at(0, index).inbox.append(AssignSplits(0, index, (Split(f"s{first}", {"first": first, "end": end}),)))

    def step(self, vertex: int, index: int | None = None) -> bool:
        """One step of one subtask, or of all of a vertex; whether any worked."""
        indexes = range(self.graph.parallelism) if index is None else [index]
        return sum(self._step(self.at(vertex, i)) for i in indexes) > 0

    def _step(self, subtask: Subtask) -> bool:
        worked = subtask.step(self.now_ms).worked
        subtask.check_invariants()
        return worked

    def deliver(self, edge: int) -> int:
        """Everything that is under way on an edge, both directions; how much that was."""
        moved = 0
        for channel in sorted(self.links):
            while channel.edge == edge and self.links[channel]:
                consumer = self.at(self.graph.edge(edge).consumer, channel.consumer)
                consumer.inbox.append(Arrived(channel, self.links[channel].popleft()))
                moved += 1
        for channel in sorted(self.credits):
            while channel.edge == edge and self.credits[channel]:
                producer = self.at(self.graph.edge(edge).producer, channel.producer)
                producer.inbox.append(Granted(channel, self.credits[channel].popleft()))
                moved += 1
        return moved

    def run(self, vertices: Sequence[int] = (0, 1, 2), edges: Sequence[int] = (0, 1)) -> None:
        """Step and deliver until nothing moves, among these vertices and edges only."""
        for _ in range(5_000):
            moved = sum(self.deliver(edge) for edge in edges)
            worked = [self.step(vertex) for vertex in vertices]
            if not any(worked) and not moved:
                return
            self.now_ms += 1
        raise AssertionError("does not come to rest")

    def read_everything(self, rows: int) -> None:
        """Assign ``rows`` values to the two readers."""
        self.step(0)
        self.assign(0, 0, rows // 2)
        self.assign(1, rows // 2, rows)

    def close(self) -> None:
        for subtask in self.subtasks.values():
            subtask.close()

    def writer(self, index: int) -> ListWriter:
        writer = self.at(2, index)._sink_task._writer
        assert isinstance(writer, ListWriter)
        return writer

    def operator(self, vertex: int, index: int) -> Operator:
        return self.at(vertex, index)._chain._stages[0].operator

    def link_elements(self, kind: type[Barrier] | type[EndOfPartition]) -> list[Element]:
        return [e for link in self.links.values() for e in link if isinstance(e, kind)]


def rows_in(captures: Sequence[SubtaskCapture]) -> list[int]:
    """All values captured in flight."""
    found: list[int] = []
    for capture in captures:
        for c in capture.inflight:
            found += c.buffer.payload.slice(c.offset, c.rows).column(1).to_pylist()  # type: ignore[attr-defined]
    return found


def slow(options: Options = OPTIONS) -> Options:
    return replace(options, memory_per_gate=8 << 10)
