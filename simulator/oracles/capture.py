"""Capture oracle of one Generation: compares what producers emitted, consumers consumed and checkpoints captured.

Per channel and checkpoint, the rows consumed and captured are exactly those produced before the barrier. The oracle
compares their number, the sum of their ``seq`` and the sum of its squares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.coordinator.commands import GenerationReady
from penstock.errors import CorruptSnapshot
from penstock.model.elements import Captured
from penstock.model.ids import CheckpointId
from penstock.model.job_graph import EdgeKind, JobGraph
from penstock.model.manifest import InflightEntry
from penstock.snapshots.restoring.narrowing import load_consumer_rows
from penstock.testing.failure import SimulationFailure
from penstock.worker.host import SubtaskCapture
from simulator.engine.world import World
from simulator.jobs.checked_operator import EMITTED, RECEIVED
from simulator.jobs.rows import Longs, emitters_of, name_of, seqs_of, vertex_of
from simulator.oracles.former_subtasks import NOTHING, Sums, plus


@dataclass
class _CheckpointCounts:
    """Rows of one checkpoint. ``accounted``: consumed and captured, by (producer's emitter, edge, consumer)."""

    parts: int = 0
    readable: bool = True
    emitted: dict[int, int] = field(default_factory=dict)
    accounted: dict[tuple[int, int, int], Sums] = field(default_factory=dict)

    def add(self, emitter: int, edge: int, consumer: int, sums: Sums) -> None:
        channel = emitter, edge, consumer
        self.accounted[channel] = plus(self.accounted.get(channel, NOTHING), sums)


class CaptureOracle:
    """Check of the captures of one Generation."""

    def __init__(self, world: World, graph: JobGraph, ready: GenerationReady) -> None:
        self._world = world
        self._graph = graph
        self._generation = ready.opened.generation
        rescaled = any(subtask.shares for slot in ready.slots for subtask in slot)
        self._past = world.former_subtasks.opened(ready.opened.generation, ready.restored, rescaled)
        self._parts = len(graph.vertices) * graph.parallelism
        self._edges = {(edge.producer, edge.consumer): edge.id for edge in graph.edges}
        self._counts: dict[CheckpointId, _CheckpointCounts] = {}

    def recorded(self, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        self._add_inflight(self._of(checkpoint), inflight)

    def captured(self, capture: SubtaskCapture) -> None:
        """Add the capture of one subtask; check the checkpoint after the last one."""
        counts = self._of(capture.checkpoint)
        vertex, index = capture.subtask.vertex, capture.subtask.index
        for state in capture.operators.values():
            scalars: Mapping[str, Any] = state.scalars
            counts.emitted |= {int(emitter): rows for emitter, rows in scalars.get(EMITTED, {}).items()}
            for emitter, (_, rows, total, squares) in scalars.get(RECEIVED, {}).items():
                counts.add(int(emitter), self._edges[vertex_of(int(emitter)), vertex], index, (rows, total, squares))
        self._add_inflight(counts, capture.inflight)
        self._add_carried(counts, capture.carried)
        counts.parts += 1
        if counts.parts == self._parts:
            del self._counts[capture.checkpoint]
            if counts.readable:
                self._close(capture.checkpoint, counts)

    def forget(self, checkpoint: CheckpointId) -> None:
        self._counts.pop(checkpoint, None)

    def _of(self, checkpoint: CheckpointId) -> _CheckpointCounts:
        return self._counts.setdefault(checkpoint, _CheckpointCounts())

    def _add_inflight(self, counts: _CheckpointCounts, inflight: Iterable[Captured]) -> None:
        for captured in inflight:
            rows = captured.buffer.payload.slice(captured.offset, captured.rows)
            self._add_rows(counts, captured.channel.edge, captured.channel.consumer, rows)
            self._world.counters.count("captured in-flight rows", captured.rows)

    def _add_carried(self, counts: _CheckpointCounts, carried: Iterable[InflightEntry]) -> None:
        for entry in carried:
            self._world.counters.count("carried rows", entry.rows)
            self._world.counters.count("carried entries that were narrowed", entry.narrowed)
            try:
                for batch in load_consumer_rows(self._world.store, entry, self._graph).batches:
                    self._add_rows(counts, entry.edge, entry.consumer, batch)
            except CorruptSnapshot:  # on purpose, or collected by who fenced this Generation: whoever reads it will see
                counts.readable = False

    @staticmethod
    def _add_rows(counts: _CheckpointCounts, edge: int, consumer: int, rows: Any) -> None:
        """Add rows of one channel, and so of one producer."""
        if rows.num_rows:
            counts.add(int(emitters_of(rows)[0]), edge, consumer, _sums(seqs_of(rows)))

    def _close(self, checkpoint: CheckpointId, counts: _CheckpointCounts) -> None:
        emitted = {**self._past.emitted, **counts.emitted}
        for edge in self._graph.edges:
            for emitter in sorted(emitter for emitter in emitted if vertex_of(emitter) == edge.producer):
                by_consumer = [
                    counts.accounted.get((emitter, edge.id, c), NOTHING) for c in range(self._graph.parallelism)
                ]
                past = self._past.received.get((emitter, edge.consumer), NOTHING)
                expected = _sums_to(emitted[emitter])
                dealt = self._rescaled or edge.id == self._world.edited
                for accounted, right in _to_compare(edge.kind, emitter % 64, by_consumer, expected, past, dealt):
                    if accounted != right:
                        raise SimulationFailure(
                            f"checkpoint {checkpoint} of Generation {self._generation}, edge {edge.id}:"
                            f" {name_of(emitter)} had emitted {right}, consumed and captured are"
                            f" {accounted} (rows, sum, sum of squares)",
                            "capture",
                        )

    @property
    def _rescaled(self) -> bool:
        """True if the job was ever rescaled before this Generation."""
        return bool(self._past.emitted)


def _to_compare(
    kind: EdgeKind, producer: int, by_consumer: Sequence[Sums], emitted: Sums, past: Sums, dealt: bool
) -> list[tuple[tuple[int, ...], Sums]]:
    """Return the pairs that must be equal, for one producer on one edge.

    ``dealt``: in-flight rows went to other subtasks. Broadcast rows are then narrowed to key groups; only the output
    shows whether each came to all.
    """
    match kind:
        case EdgeKind.BROADCAST:
            return [] if dealt else [(accounted, emitted) for accounted in by_consumer]
        case EdgeKind.FORWARD if not dealt:
            return [(one, emitted if consumer == producer else NOTHING) for consumer, one in enumerate(by_consumer)]
        case _:
            return [(tuple(map(sum, zip(past, *by_consumer, strict=True))), emitted)]


def _sums(seqs: Longs) -> Sums:
    return len(seqs), int(seqs.sum()), int((seqs * seqs).sum())


def _sums_to(last: int) -> Sums:
    return last, last * (last + 1) // 2, last * (last + 1) * (2 * last + 1) // 6
