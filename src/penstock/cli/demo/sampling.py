"""Samples of a running query for the screen: rates between two samples, and the committed output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from penstock.coordinator.view import ExecutionView
from penstock.model.metrics import SubtaskMetrics


@dataclass(frozen=True)
class VertexSample:
    """One vertex between two samples. Shares of time are in [0, 1], averaged over its subtasks."""

    name: str
    rows_per_s: float
    busy: float
    backpressured: float
    queued_bytes: int


@dataclass(frozen=True)
class Sample:
    """One sample of the query. ``at_s``: monotonic clock, in seconds."""

    at_s: float
    view: ExecutionView
    vertices: tuple[VertexSample, ...]
    files: int
    committed_rows: int
    windows: int

    @property
    def backpressured(self) -> float:
        """Backpressured share of the vertex with the highest share."""
        return max((vertex.backpressured for vertex in self.vertices), default=0.0)

    @property
    def inflight_rows_left(self) -> int:
        """Number of restored in-flight rows that are not processed yet."""
        return sum(subtask.metrics.recovered_rows_left for subtask in self.view.subtasks)


def vertex_samples(before: ExecutionView | None, now: ExecutionView) -> tuple[VertexSample, ...]:
    """Return the samples of all vertices in graph order; none unless both views are of the same generation."""
    if before is None or before.generation != now.generation:
        return ()
    earlier = {(s.metrics.vertex, s.metrics.index): s.metrics for s in before.subtasks}
    by_vertex: dict[int, list[tuple[SubtaskMetrics, SubtaskMetrics, str]]] = {}
    for subtask in now.subtasks:
        old = earlier.get((subtask.metrics.vertex, subtask.metrics.index))
        if old is not None:
            by_vertex.setdefault(subtask.metrics.vertex, []).append((old, subtask.metrics, subtask.name))
    return tuple(_vertex_sample(pairs) for _, pairs in sorted(by_vertex.items()))


def _vertex_sample(pairs: Sequence[tuple[SubtaskMetrics, SubtaskMetrics, str]]) -> VertexSample:
    busy = sum(new.busy_ms - old.busy_ms for old, new, _ in pairs)
    blocked = sum(new.backpressured_ms - old.backpressured_ms for old, new, _ in pairs)
    idle = sum(new.idle_ms - old.idle_ms for old, new, _ in pairs)
    spent_ms = max(busy + blocked + idle, 1.0)
    rows = sum(new.rows_in - old.rows_in for old, new, _ in pairs)
    return VertexSample(
        name=pairs[0][2],
        rows_per_s=rows * 1000 * len(pairs) / spent_ms,
        busy=busy / spent_ms,
        backpressured=blocked / spent_ms,
        queued_bytes=sum(new.input_queued_bytes + new.output_queued_bytes for _, new, _ in pairs),
    )


class OutputWatch:
    """Reader of the output directory. It reads each committed file once."""

    def __init__(self, directory: Path, window_end: str) -> None:
        self._directory = directory
        self._window_end = window_end
        self._seen: set[str] = set()
        self._ends: set[Any] = set()
        self.rows = 0

    @property
    def windows(self) -> int:
        return len(self._ends)

    def look(self) -> None:
        for file in sorted(self._directory.glob("*.parquet")):
            if file.name not in self._seen:
                self._seen.add(file.name)
                ends = pq.read_table(file, columns=[self._window_end])[self._window_end]
                self._ends.update(ends.cast("int64").unique().to_pylist())
                self.rows += len(ends)
