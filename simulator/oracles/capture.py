"""The books of one Generation: what every checkpoint's producers emitted, its consumers consumed, and it captured.

Per channel and checkpoint, what was consumed and what was captured is exactly what was produced before the barrier: as
many rows, and the same ones, told by the sum and the sum of squares of their ``seq``.
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
from simulator.jobs.rows import Longs, name_of, seqs_of, vertex_of, vias_of
from simulator.jobs.tap import EMITTED, RECEIVED
from simulator.oracles.former_subtasks import NOTHING, Sums, plus


@dataclass
class _Books:
    """Of one checkpoint. ``consumed`` and ``captured`` by (producer's via, edge, consumer)."""

    parts: int = 0
    readable: bool = True
    emitted: dict[int, int] = field(default_factory=dict)
    accounted: dict[tuple[int, int, int], Sums] = field(default_factory=dict)

    def add(self, via: int, edge: int, consumer: int, sums: Sums) -> None:
        place = via, edge, consumer
        self.accounted[place] = plus(self.accounted.get(place, NOTHING), sums)


class Ledger:
    """One per Generation."""

    def __init__(self, world: World, graph: JobGraph, ready: GenerationReady) -> None:
        self._world = world
        self._graph = graph
        self._generation = ready.opened.generation
        rescaled = any(subtask.shares for slot in ready.slots for subtask in slot)
        self._past = world.books.opened(ready.opened.generation, ready.restored, rescaled)
        self._parts = len(graph.vertices) * graph.parallelism
        self._edges = {(edge.producer, edge.consumer): edge.id for edge in graph.edges}
        self._books: dict[CheckpointId, _Books] = {}

    def recorded(self, checkpoint: CheckpointId, inflight: Sequence[Captured]) -> None:
        self._add_inflight(self._of(checkpoint), inflight)

    def captured(self, capture: SubtaskCapture) -> None:
        """One subtask's part; with the last one the books are closed."""
        books = self._of(capture.checkpoint)
        vertex, index = capture.subtask.vertex, capture.subtask.index
        for state in capture.operators.values():
            scalars: Mapping[str, Any] = state.scalars
            books.emitted |= {int(via): rows for via, rows in scalars.get(EMITTED, {}).items()}
            for via, (_, rows, total, squares) in scalars.get(RECEIVED, {}).items():
                books.add(int(via), self._edges[vertex_of(int(via)), vertex], index, (rows, total, squares))
        self._add_inflight(books, capture.inflight)
        self._add_carried(books, capture.carried)
        books.parts += 1
        if books.parts == self._parts:
            del self._books[capture.checkpoint]
            if books.readable:
                self._close(capture.checkpoint, books)

    def forget(self, checkpoint: CheckpointId) -> None:
        self._books.pop(checkpoint, None)

    def _of(self, checkpoint: CheckpointId) -> _Books:
        return self._books.setdefault(checkpoint, _Books())

    def _add_inflight(self, books: _Books, inflight: Iterable[Captured]) -> None:
        for captured in inflight:
            rows = captured.buffer.payload.slice(captured.offset, captured.rows)
            self._add_rows(books, captured.channel.edge, captured.channel.consumer, rows)
            self._world.figures.count("captured in-flight rows", captured.rows)

    def _add_carried(self, books: _Books, carried: Iterable[InflightEntry]) -> None:
        for entry in carried:
            self._world.figures.count("carried rows", entry.rows)
            self._world.figures.count("carried entries that were narrowed", entry.narrowed)
            try:
                for batch in load_consumer_rows(self._world.store, entry, self._graph).batches:
                    self._add_rows(books, entry.edge, entry.consumer, batch)
            except CorruptSnapshot:  # on purpose, or collected by who fenced this Generation: whoever reads it will see
                books.readable = False

    @staticmethod
    def _add_rows(books: _Books, edge: int, consumer: int, rows: Any) -> None:
        """All of one producer: they were on one channel."""
        if rows.num_rows:
            books.add(int(vias_of(rows)[0]), edge, consumer, _sums(seqs_of(rows)))

    def _close(self, checkpoint: CheckpointId, books: _Books) -> None:
        emitted = {**self._past.emitted, **books.emitted}
        for edge in self._graph.edges:
            for via in sorted(via for via in emitted if vertex_of(via) == edge.producer):
                by_consumer = [books.accounted.get((via, edge.id, c), NOTHING) for c in range(self._graph.parallelism)]
                past = self._past.received.get((via, edge.consumer), NOTHING)
                expected = _sums_to(emitted[via])
                dealt = self._rescaled or edge.id == self._world.edited
                for accounted, right in _to_compare(edge.kind, via % 64, by_consumer, expected, past, dealt):
                    if accounted != right:
                        raise SimulationFailure(
                            f"checkpoint {checkpoint} of Generation {self._generation}, edge {edge.id}:"
                            f" {name_of(via)} had emitted {right}, consumed and captured are"
                            f" {accounted} (rows, sum, sum of squares)",
                            "capture",
                        )

    @property
    def _rescaled(self) -> bool:
        """Ever, in what this Generation goes on with."""
        return bool(self._past.emitted)


def _to_compare(
    kind: EdgeKind, producer: int, by_consumer: Sequence[Sums], emitted: Sums, past: Sums, dealt: bool
) -> list[tuple[tuple[int, ...], Sums]]:
    """What has to be equal, of one producer on one edge. ``dealt``: rows in flight went to other subtasks. Broadcast
    rows are narrowed to key groups then: the output tells whether each came to all."""
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
