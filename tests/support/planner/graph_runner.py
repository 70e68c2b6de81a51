"""Runs a compiled graph's operators in this process, one subtask per vertex, without any runtime."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from penstock.model.job_graph import JobGraph
from penstock.operators.base import OperatorContext
from penstock.state.memory_table import MemoryBackend

END_OF_TIME_US = 2**62


class GraphRunner:
    """``output`` collects what would reach the sink. Exchanges of one subtask to one subtask change nothing."""

    def __init__(self, graph: JobGraph) -> None:
        self._operators = []
        self.output: list[pa.RecordBatch] = []
        for spec in (spec for vertex in graph.vertices for spec in vertex.operators):
            operator = spec.create()
            operator.open(OperatorContext(spec.operator_id, 0, 1, graph.max_parallelism, MemoryBackend()))
            self._operators.append(operator)

    def run(self, batches: Iterable[pa.RecordBatch]) -> None:
        """One epoch: every batch, then its watermark; at the end the epoch's barrier."""
        for batch in batches:
            self._process(0, batch)
            self._advance(None)
        self._finish_epoch()

    def drain(self) -> None:
        """Close everything that is open."""
        self._advance(END_OF_TIME_US)
        self._finish_epoch()

    def close(self) -> None:
        for operator in self._operators:
            operator.close()

    def counter(self, name: str) -> int:
        return sum(operator.counters().get(name, 0) for operator in self._operators)

    def _process(self, position: int, batch: pa.RecordBatch) -> None:
        if position == len(self._operators):
            self.output.append(batch)
            return
        for result in self._operators[position].process(batch):
            assert result.num_rows > 0
            self._process(position + 1, result)

    def _advance(self, watermark_us: int | None) -> None:
        for position, operator in enumerate(self._operators):
            if watermark_us is not None:
                for result in operator.advance(watermark_us):
                    self._process(position + 1, result)
            generated = operator.emitted_watermark()
            watermark_us = watermark_us if generated is None or watermark_us == END_OF_TIME_US else generated

    def _finish_epoch(self) -> None:
        for position, operator in enumerate(self._operators):
            for result in operator.finish_epoch():
                self._process(position + 1, result)
