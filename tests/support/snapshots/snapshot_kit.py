"""A small graph, captures of it, and a driver whose every effect goes through a MemoryStore."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.connectors.base import Sink, SinkCommitter, SinkWriter, Source, SourceReader
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.commands import Command, GenerationReady, JobEvent, LaunchSlots, Output
from penstock.coordinator.machines.checkpoint_events import CheckpointPolicy, GenerationEnded, Tick
from penstock.coordinator.machines.job import JobCoordinator
from penstock.model.commits import EpochCommit
from penstock.model.elements import Alignment, Buffer, Captured, Side
from penstock.model.ids import BufferId, ChannelId, SubtaskId
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, OperatorSpec, SinkSpec, SourceSpec, Vertex
from penstock.model.manifest import CaptureMetrics, InflightEntry, SlotManifest, SubtaskManifest
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    FromSlot,
    NotifyCheckpointComplete,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    TriggerCheckpoint,
)
from penstock.model.plain import Plain
from penstock.model.splits import Discovery, Split
from penstock.operators.base import Operator, OperatorState
from penstock.snapshots.format.plan import plan_of
from penstock.snapshots.log.entries import Forked
from penstock.snapshots.log.snapshot_log import SUMMARY_EVERY
from penstock.snapshots.store.store import MemoryStore, Store
from penstock.snapshots.writing.checkpoint_writer import CheckpointWriter
from penstock.snapshots.writing.handover import SubtaskCapture
from penstock.state.stored_form import KEY_GROUP_COLUMN, BatchCapture

ROWS = pa.schema([("key", pa.int64()), ("value", pa.string())])
STATE = pa.schema([(KEY_GROUP_COLUMN, pa.int16()), ("key", pa.int64()), ("count", pa.int64())])
COUNT, SINK, SOURCE = "count-1", "sink-1", "source-1"


def write_captures(
    store: Store, graph: JobGraph, generation: int, slot: int, captures: Sequence[SubtaskCapture]
) -> SlotManifest:
    """One slot's part of a checkpoint in one go, as a slot does it in parts; what fails leaves nothing."""
    writer = CheckpointWriter(store, graph, generation, captures[0].checkpoint, slot)
    try:
        for one in sorted(captures, key=lambda c: c.subtask):
            writer.add_capture(one)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


@dataclass
class CountSpec(OperatorSpec):
    operator_id: str = COUNT
    name: str = "Count"
    output_schema: pa.Schema = ROWS
    states: Mapping[str, pa.Schema] = field(default_factory=lambda: {"counts": STATE})

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return dict(self.states)

    def create(self) -> Operator:
        raise NotImplementedError


class NoSource(Source):
    """Finds one split per look, ``limit`` in all."""

    schema = ROWS

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.told: list[Plain] = []

    def describe(self) -> str:
        return "NoSource"

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        seen = state if isinstance(state, int) else 0
        new = [Split(f"s{seen}", {"n": seen})] if seen < self.limit else []
        return Discovery(new, seen + len(new))

    def create_reader(self) -> SourceReader:
        raise NotImplementedError

    def committed(self, state: Plain) -> None:
        self.told.append(state)


class NoSink(Sink):
    def describe(self) -> str:
        return "NoSink"

    def create_writer(self) -> SinkWriter:
        raise NotImplementedError

    def create_committer(self) -> SinkCommitter:
        raise NotImplementedError


@dataclass
class Target:
    """The outside that a sink writes to: what is visible, by epoch, and every call in order."""

    visible: dict[int, dict[int, bytes]] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)


class TargetCommitter(SinkCommitter):
    """Makes each epoch visible exactly once, as the contract demands; notes what differs."""

    def __init__(self, target: Target, name: str = "") -> None:
        self.target = target
        self.name = name
        self.abandoned: list[int] = []
        self.permits: list[EpochCommit] = []

    def commit(self, permit: EpochCommit) -> None:
        self.permits.append(permit)
        self.target.calls.append((self.name, permit.epoch))
        known = self.target.visible.setdefault(permit.epoch, dict(permit.messages))
        assert known == dict(permit.messages), "an epoch's messages never change"

    def abandon(self, generation: int) -> None:
        self.abandoned.append(generation)


def graph(parallelism: int = 2, spec: OperatorSpec | None = None) -> JobGraph:
    """source -> hash by key -> count and sink."""
    return JobGraph(
        (
            Vertex(0, "source", SourceSpec(SOURCE, "NoSource", NoSource()), (), None),
            Vertex(1, "count", None, (spec or CountSpec(),), SinkSpec(SINK, "NoSink", NoSink())),
        ),
        (Edge(0, 0, 1, EdgeKind.HASH, ROWS, (0,)),),
        parallelism,
        128,
    )


def rows(*keys: int) -> pa.RecordBatch:
    return pa.record_batch([list(keys), [f"v{key}" for key in keys]], schema=ROWS)


def state(*groups: int) -> pa.RecordBatch:
    return pa.record_batch([list(groups), [g * 10 for g in groups], [g * 100 for g in groups]], schema=STATE)


def captured(
    channel: ChannelId, side: Side, seq: int, batch: pa.RecordBatch, offset: int = 0, count: int | None = None,
    layer: int = 0, generation: int = 1,
) -> Captured:  # fmt: skip
    buffer = Buffer(BufferId(generation, channel, seq), batch, batch.nbytes)
    return Captured(channel, side, layer, buffer, offset, batch.num_rows - offset if count is None else count)


def capture(
    vertex: int,
    index: int,
    checkpoint: int = 1,
    *,
    operators: Mapping[str, OperatorState] | None = None,
    inflight: list[Captured] | None = None,
    carried: list[InflightEntry] | None = None,
    splits: list[Split] | None = None,
    messages: Mapping[int, bytes] | None = None,
    watermarks: Mapping[ChannelId, int] | None = None,
) -> SubtaskCapture:
    return SubtaskCapture(
        SubtaskId(vertex, index),
        checkpoint,
        operators or {},
        splits or [],
        inflight or [],
        carried or [],
        watermarks or {},
        messages or {},
        rows_in=17,
        metrics=CaptureMetrics(vertex, index),
    )


def tokens(prefix: str = "token") -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{prefix:->16}{next(numbers):016}"


class Driver:
    """A whole driver over a store: works run one by one, in lane order, by the test's own hand.

    Slots are played by ``acknowledge``: each writes one real section and stages one message per checkpoint.
    """

    def __init__(
        self,
        store: Store,
        target: Target,
        name: str = "A",
        *,
        retained: int = 2,
        source: NoSource | None = None,
        parallelism: int = 1,
        allow_older: bool = False,
        query_id: str = "query-1",
        forked: Forked | None = None,
        job: JobGraph | None = None,
        allow_dropped: bool = False,
        summary_every: int = SUMMARY_EVERY,
    ) -> None:
        self.name = name
        self.store = store
        self.graph = job or graph(parallelism)
        self.source = source or NoSource()
        self.committer = TargetCommitter(target, name)
        policy = CheckpointPolicy(interval_ms=1000, timeout_ms=60_000, alignment=Alignment.UNALIGNED)
        self.core = JobCoordinator(self.graph, plan_of(self.graph), query_id, policy)
        self.effects = CommandExecutor(
            self.graph,
            query_id,
            store,
            committers={SINK: self.committer},
            sources={0: self.source},
            token=tokens(name),
            wall_ms=lambda: 1_700_000_000_000,
            retained=retained,
            allow_older=allow_older,
            allow_dropped=allow_dropped,
            forked=forked,
            summary_every=summary_every,
        )
        self.now = 0.0
        self.works: list[Command] = []
        self.others: list[object] = []
        self.messages: dict[int, dict[int, bytes]] = {}

    def take(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Command):
                self.works.append(output)
            else:
                self.others.append(output)
                if isinstance(output, NotifyCheckpointComplete):
                    for pending in self.messages.values():
                        for epoch in [e for e in pending if e <= output.committed_epoch]:
                            del pending[epoch]

    def feed(self, event: JobEvent) -> None:
        self.take(self.core.handle(event, self.now))
        self.core.check_invariants()

    def ask(
        self,
        index: int,
        *,
        generation: int | None = None,
        seen_us: int | None = None,
        sent_us: int | None = None,
        frozen: bool = False,
    ) -> None:
        """Report a reader that has read all that it was assigned, and request a split for it."""
        generation = self.core.generation if generation is None else generation
        received = self.core.assigners[0].readers[index].assigned
        status = ReaderStatus(0, index, 0, received, seen_us, sent_us, frozen)
        self.feed(FromSlot(generation, status))
        self.feed(FromSlot(generation, RequestSplit(0, index, frozen)))

    def work(self) -> None:
        """Do all that is to do, oldest first."""
        while self.works:
            event = self.effects.execute(self.works.pop(0))
            if event is not None:
                self.feed(event)

    def start(self) -> GenerationReady:
        """Open a Generation and let all its slots run."""
        self.take(self.core.open())
        self.work()
        ready = next(o.ready for o in reversed(self.others) if isinstance(o, LaunchSlots))
        self.messages = {
            index: dict(subtask.pending_messages)
            for index, slot in enumerate(ready.slots)
            for subtask in slot
            if subtask.vertex == 1
        }
        for slot in range(self.graph.parallelism):
            self.feed(FromSlot(ready.opened.generation, SlotRunning(slot)))
        self.work()
        return ready

    def trigger(self) -> int:
        """Let the interval pass; the checkpoint that was triggered."""
        self.now += 1000
        before = len(self.others)
        self.feed(Tick())
        return next(o.checkpoint for o in self.others[before:] if isinstance(o, TriggerCheckpoint))

    def acknowledge(self, checkpoint: int, **changes: object) -> None:
        generation = self.core.generation
        for slot in range(self.graph.parallelism):
            pending = self.messages.setdefault(slot, {})
            pending[checkpoint] = f"g{generation} c{checkpoint} s{slot}".encode()
            values: dict[str, object] = {
                "operators": {
                    COUNT: OperatorState({"counts": BatchCapture(state(slot, slot + 1))}, {"seen": checkpoint})
                },
                "messages": dict(pending),
                **changes,
            }
            captures = [capture(0, slot, checkpoint), capture(1, slot, checkpoint, **values)]  # type: ignore[arg-type]
            manifest = write_captures(self.store, self.graph, generation, slot, captures)
            self.feed(FromSlot(generation, AcknowledgeCheckpoint(checkpoint, manifest)))

    def checkpoint(self) -> int:
        """One whole checkpoint, committed and collected."""
        checkpoint = self.trigger()
        self.acknowledge(checkpoint)
        self.work()
        return checkpoint

    def end_generation(self, reason: str = "slot lost") -> None:
        self.feed(GenerationEnded(self.core.generation, reason))
        self.work()


def driver(store: MemoryStore | None = None, target: Target | None = None, **options: object) -> Driver:
    return Driver(store or MemoryStore(), target or Target(), **options)  # type: ignore[arg-type]


def manifests(slots: list[SlotManifest]) -> Iterator[SubtaskManifest]:
    for slot in slots:
        yield from slot.subtasks
