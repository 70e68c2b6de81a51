"""The jobs of the scenarios.

Different parallelism per vertex is a class of scenario that this graph does not have: slot i runs subtask i of every
vertex (``model/job_graph.py``); what changes is the parallelism of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.errors import CommitFailed
from penstock.model.commits import EpochCommit
from penstock.model.job_graph import Edge, EdgeKind, JobGraph, SinkSpec, SourceSpec, Vertex
from tests.scenarios.counting import KEY, OTHER, CountingSpec
from tests.scenarios.injected import trip
from tests.scenarios.records import RECORD, Records
from tests.support.dataflow.tiny import Files, FilesCommitter, FilesWriter

MAX_PARALLELISM = 128
SMALL = {
    "checkpoint_interval_ms": 100,
    "memory_per_gate": 64 << 10,
    "exclusive_window": 4 << 10,
    "flush_interval_ms": 5,
    "restart_attempts": 100,
    "restart_max_delay_ms": 100,
}
"""Small windows, so that much is in flight and little of it is granted; quick checkpoints and restarts."""


@dataclass(frozen=True)
class FragileFiles(Files):
    """The tiny job's sink; fails where a marker says so."""

    markers: str = ""

    def create_writer(self) -> FragileWriter:
        return FragileWriter(self.folder, self.markers)

    def create_committer(self) -> FragileCommitter:
        return FragileCommitter(self.folder, self.markers)


class FragileWriter(FilesWriter):
    def __init__(self, folder: str, markers: str) -> None:
        super().__init__(folder)
        self._markers = markers

    def write(self, batch: pa.RecordBatch) -> None:
        trip(self._markers, "write")
        super().write(batch)

    def prepare(self, epoch: int) -> bytes | None:
        message = super().prepare(epoch)
        trip(self._markers, "prepare")  # what was staged is nobody's
        return message


class FragileCommitter(FilesCommitter):
    def __init__(self, folder: str, markers: str) -> None:
        super().__init__(folder)
        self._markers = markers

    def commit(self, permit: EpochCommit) -> None:
        try:
            trip(self._markers, "commit")
        except OSError as error:
            raise CommitFailed(str(error)) from error
        super().commit(permit)


@dataclass(frozen=True)
class Shape:
    """One job.

    Attributes:
        name: what it is called.
        sources: all of its sources, by their numbers.
        arrivals: by input of the last vertex, the sources whose records come by it, each record once.
        ordered: of these, the inputs to which the path is hashed throughout.
        build: vertices and edges, given the sources and the folder of the markers.
        options: instead of those of ``SMALL``.
        slow_us: what a record takes where queues are to be full.
    """

    name: str
    sources: tuple[Records, ...]
    arrivals: Mapping[int, tuple[int, ...]]
    ordered: tuple[int, ...]
    build: Callable[[tuple[Records, ...], str], tuple[list[Vertex], list[Edge]]]
    options: Mapping[str, int] = field(default_factory=dict)
    slow_us: int = 2_000

    def graph(self, folder: Path, parallelism: int) -> JobGraph:
        """The job writes to ``folder``; markers of failures and of slowness are looked for there."""
        sources = tuple(replace(source, pace=str(folder / "pace")) for source in self.sources)
        vertices, edges = self.build(sources, str(folder))
        sink = SinkSpec("files", "Files", FragileFiles(str(folder), str(folder)))
        vertices[-1] = replace(vertices[-1], sink=sink)
        return JobGraph(tuple(vertices), tuple(edges), parallelism, MAX_PARALLELISM)

    @property
    def records(self) -> int:
        return sum(source.splits * source.rows for source in self.sources)


def _source(number: int, source: Records) -> Vertex:
    return Vertex(number, f"Records{number}", SourceSpec(f"records-{number}", "Records", source), (), None)


def _counting(number: int, spec: CountingSpec) -> Vertex:
    return Vertex(number, f"Counting{number}", None, (spec,), None)


def _hashed(number: int, producer: int, consumer: int, column: int = KEY) -> Edge:
    return Edge(number, producer, consumer, EdgeKind.HASH, RECORD, (column,))


def _pipeline(sources: tuple[Records, ...], folder: str) -> tuple[list[Vertex], list[Edge]]:
    """Return operators keyed by key, by the other key, and by key again; the last one is slow."""
    vertices = [
        _source(0, sources[0]),
        _counting(1, CountingSpec("first", folder)),
        _counting(2, CountingSpec("second", folder, (OTHER,))),
        _counting(3, CountingSpec("third", folder, slowed=True)),
    ]
    return vertices, [_hashed(0, 0, 1), _hashed(1, 1, 2, OTHER), _hashed(2, 2, 3)]


def _union(sources: tuple[Records, ...], folder: str) -> tuple[list[Vertex], list[Edge]]:
    vertices = [
        *(_source(number, source) for number, source in enumerate(sources)),
        _counting(3, CountingSpec("union", folder)),
        _counting(4, CountingSpec("behind", folder, (OTHER,), slowed=True)),
    ]
    return vertices, [*(_hashed(number, number, 3) for number in range(3)), _hashed(3, 3, 4, OTHER)]


def _inputs(sources: tuple[Records, ...], folder: str) -> tuple[list[Vertex], list[Edge]]:
    """Three inputs that are told apart; the third is dealt out."""
    vertices = [
        *(_source(number, source) for number, source in enumerate(sources)),
        _counting(3, CountingSpec("inputs", folder, (KEY, OTHER, None), slowed=True)),
    ]
    edges = [_hashed(0, 0, 3), _hashed(1, 1, 3, OTHER), Edge(2, 2, 3, EdgeKind.REBALANCE, RECORD)]
    return vertices, edges


def _one_source_twice(kind: EdgeKind) -> Callable[[tuple[Records, ...], str], tuple[list[Vertex], list[Edge]]]:
    """Both inputs of an operator from one source: hashed, and by an edge of this kind."""

    def build(sources: tuple[Records, ...], folder: str) -> tuple[list[Vertex], list[Edge]]:
        counting = CountingSpec("twice", folder, (KEY, None), slowed=True)
        return [_source(0, sources[0]), _counting(1, counting)], [_hashed(0, 0, 1), Edge(1, 0, 1, kind, RECORD)]

    return build


def _broadcast(sources: tuple[Records, ...], folder: str) -> tuple[list[Vertex], list[Edge]]:
    """All records of the first source to everybody, who takes those of the own key groups; the second one hashed."""
    counting = CountingSpec("beside", folder, (KEY, KEY), broadcast=(0,), slowed=True)
    vertices = [_source(0, sources[0]), _source(1, sources[1]), _counting(2, counting)]
    return vertices, [Edge(0, 0, 2, EdgeKind.BROADCAST, RECORD, (KEY,)), _hashed(1, 1, 2)]


HALF = (Records(0, splits=4), Records(1, splits=4))
THIRDS = (Records(0, splits=3), Records(1, splits=3, shortest=40), Records(2, splits=3, keys=3))
PIPELINE = Shape("pipeline", (Records(splits=8),), {0: (0,)}, (0,), _pipeline)
UNION = Shape("union", THIRDS, {0: (0, 1, 2)}, (0,), _union)
INPUTS = Shape("inputs", THIRDS, {0: (0,), 1: (1,), 2: (2,)}, (0, 1), _inputs)
HASH_AND_REBALANCE = Shape(
    "hash and rebalance", (Records(splits=4),), {0: (0,), 1: (0,)}, (0,), _one_source_twice(EdgeKind.REBALANCE)
)
HASH_AND_FORWARD = Shape(
    "hash and forward", (Records(splits=4),), {0: (0,), 1: (0,)}, (0,), _one_source_twice(EdgeKind.FORWARD)
)
BROADCAST = Shape("broadcast", HALF, {0: (0,), 1: (1,)}, (0, 1), _broadcast)
NEARLY_EMPTY = Shape(
    "nearly empty",
    (Records(0, splits=1, rows=3, keys=1), Records(1, splits=0), Records(2, splits=200, rows=1, keys=1)),
    {0: (0, 1, 2)},
    (0,),
    _union,
    slow_us=20_000,
)
"""One key: at any parallelism one channel of each edge has records, the others none."""
HUGE = Shape(
    "huge records",
    (Records(splits=6, rows=8, shortest=1 << 20, longest=(1 << 20) + 999, at_once=2),),
    {0: (0,)},
    (0,),
    _pipeline,
    {"exclusive_window": 64 << 10, "memory_per_gate": 256 << 10},
    slow_us=100_000,
)
SHAPES = (PIPELINE, UNION, INPUTS, HASH_AND_REBALANCE, HASH_AND_FORWARD, BROADCAST, NEARLY_EMPTY, HUGE)
