"""Runs a compiled graph with several sources in this process: one subtask per vertex, edges without queues."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from penstock.model.elements import END_OF_TIME_US
from penstock.model.job_graph import JobGraph
from penstock.operators.base import OperatorContext
from penstock.state.memory_table import MemoryBackend
from penstock.worker.chain import Chain, open_stages


class TreeRunner:
    """``output``: what would reach the sink, in order. What is fed goes through all vertices at once, and the watermark
    that it generates behind it."""

    def __init__(self, graph: JobGraph) -> None:
        self.output: list[pa.RecordBatch] = []
        self.sources = [vertex.id for vertex in graph.vertices if vertex.source is not None]
        self._graph = graph
        self._closing = ExitStack()
        self._reached: dict[int, int] = {}  # by edge
        self._chains: dict[int, Chain] = {}
        for vertex in reversed(graph.vertices):
            self._open(vertex.id)

    def _open(self, vertex: int) -> None:
        def context(operator_id: str) -> OperatorContext:
            return OperatorContext(operator_id, 0, 1, self._graph.max_parallelism, MemoryBackend())

        stages = open_stages(self._graph.vertex(vertex).operators, context, {}, self._closing)
        self._chains[vertex] = Chain(
            stages, lambda batch: self._emit(vertex, batch), lambda watermark_us: self._forward(vertex, watermark_us)
        )

    def feed(self, source: int, batch: pa.RecordBatch) -> None:
        """Rows of the source with this number, as one slice."""
        vertex = self.sources[source]
        self._chains[vertex].process(batch)
        self._settle(vertex)

    def finish_epoch(self) -> None:
        """A barrier passes all vertices."""
        for vertex in self._graph.vertices:
            self._chains[vertex.id].finish_epoch()

    def drain(self) -> None:
        """Event time ends, and with it everything that waits."""
        for vertex in self.sources:
            self._chains[vertex].watermark(END_OF_TIME_US)
            self._settle(vertex)

    def counter(self, name: str) -> int:
        return sum(chain.counters().get(name, 0) for chain in self._chains.values())

    def close(self) -> None:
        self._closing.close()

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.output)

    def _settle(self, vertex: int) -> None:
        while self._chains[vertex].advancing:
            self._chains[vertex].advance()

    def _emit(self, vertex: int, batch: pa.RecordBatch) -> None:
        edges = self._graph.outputs(vertex)
        if not edges:
            self.output.append(batch)
        for edge in edges:
            number = [each.id for each in self._graph.inputs(edge.consumer)].index(edge.id)
            self._chains[edge.consumer].process(batch, number)

    def _forward(self, vertex: int, watermark_us: int) -> None:
        for edge in self._graph.outputs(vertex):
            self._reached[edge.id] = watermark_us
            inputs = self._graph.inputs(edge.consumer)
            ended = all(self._reached.get(each.id) == END_OF_TIME_US for each in inputs)
            known = [self._reached.get(each.id) for each in inputs if each.timed]
            if ended:
                self._chains[edge.consumer].watermark(END_OF_TIME_US)
            elif known and all(each is not None and each < END_OF_TIME_US for each in known):
                self._chains[edge.consumer].watermark(min(each for each in known if each is not None))
            self._settle(edge.consumer)
