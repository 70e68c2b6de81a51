"""The books of one Generation: what every checkpoint's producers emitted, its consumers consumed, and it captured.

Per channel and checkpoint, what was consumed and what was captured is exactly what was produced before the barrier: as
many rows, and the same ones, told by the sum and the sum of squares of their ``seq``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import CorruptSnapshot
from penstock.graph.model import EdgeKind
from penstock.ids import CheckpointId, GenerationId
from penstock.protocol.elements import Captured
from penstock.runtime.host import SubtaskCapture
from penstock.snapshot.model import InflightEntry
from penstock.snapshot.restore import load_inflight
from penstock.testing.failure import SimulationFailure
from penstock.testing.rows import Longs, seqs_of, via_of
from penstock.testing.tap import EMITTED, RECEIVED
from penstock.testing.world import World

Sums = tuple[int, int, int]
"""Rows, the sum of their ``seq``, and the sum of squares."""
NOTHING: Sums = (0, 0, 0)


@dataclass
class _Books:
    """Of one checkpoint. ``consumed`` and ``captured`` by (producer's via, edge, consumer)."""

    parts: int = 0
    readable: bool = True
    emitted: dict[int, int] = field(default_factory=dict)
    accounted: dict[tuple[int, int, int], Sums] = field(default_factory=dict)

    def add(self, via: int, edge: int, consumer: int, sums: Sums) -> None:
        place = via, edge, consumer
        known = self.accounted.get(place, NOTHING)
        self.accounted[place] = (known[0] + sums[0], known[1] + sums[1], known[2] + sums[2])


class Ledger:
    """One per Generation."""

    def __init__(self, world: World, generation: GenerationId) -> None:
        self._world = world
        self._generation = generation
        graph = world.graph
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
            if EMITTED in scalars:
                books.emitted[via_of(vertex, index)] = scalars[EMITTED]
            for via, (_, rows, total, squares) in scalars.get(RECEIVED, {}).items():
                books.add(int(via), self._edges[int(via) // 64, vertex], index, (rows, total, squares))
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
            via = via_of(self._world.graph.edge(captured.channel.edge).producer, captured.channel.producer)
            books.add(via, captured.channel.edge, captured.channel.consumer, _sums(seqs_of(rows)))
            self._world.figures.count("captured in-flight rows", captured.rows)

    def _add_carried(self, books: _Books, carried: Iterable[InflightEntry]) -> None:
        for entry in carried:
            via = via_of(self._world.graph.edge(entry.edge).producer, entry.producer)
            self._world.figures.count("carried rows", entry.rows)
            try:
                for batch in load_inflight(self._world.store, entry):
                    books.add(via, entry.edge, entry.consumer, _sums(seqs_of(batch)))
            except CorruptSnapshot:  # on purpose, or collected by who fenced this Generation: whoever reads it will see
                books.readable = False

    def _close(self, checkpoint: CheckpointId, books: _Books) -> None:
        graph = self._world.graph
        for edge in graph.edges:
            for producer in range(graph.parallelism):
                via = via_of(edge.producer, producer)
                emitted = _sums_to(books.emitted.get(via, 0))
                by_consumer = [books.accounted.get((via, edge.id, c), NOTHING) for c in range(graph.parallelism)]
                for accounted, expected in _to_compare(edge.kind, producer, by_consumer, emitted):
                    if accounted != expected:
                        raise SimulationFailure(
                            f"checkpoint {checkpoint} of Generation {self._generation}, edge {edge.id}:"
                            f" v{edge.producer}[{producer}] had emitted {expected}, consumed and captured are"
                            f" {accounted} (rows, sum, sum of squares)",
                            "capture",
                        )


def _to_compare(
    kind: EdgeKind, producer: int, by_consumer: Sequence[Sums], emitted: Sums
) -> list[tuple[tuple[int, ...], Sums]]:
    """What has to be equal, of one producer on one edge."""
    match kind:
        case EdgeKind.BROADCAST:
            return [(accounted, emitted) for accounted in by_consumer]
        case EdgeKind.FORWARD:
            return [(one, emitted if consumer == producer else NOTHING) for consumer, one in enumerate(by_consumer)]
        case _:
            return [(tuple(map(sum, zip(*by_consumer, strict=True))), emitted)]


def _sums(seqs: Longs) -> Sums:
    return len(seqs), int(seqs.sum()), int((seqs * seqs).sum())


def _sums_to(last: int) -> Sums:
    return last, last * (last + 1) // 2, last * (last + 1) * (2 * last + 1) // 6
