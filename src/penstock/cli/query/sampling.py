"""Rates of a query. Its metrics are cumulative, so a rate is computed from two readings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.cli.query.models import (
    Checkpoint,
    CheckpointPage,
    Exceptions,
    Graph,
    Query,
    Vertex,
    understood,
)
from penstock.cli.query.service import Service
from penstock.model.metrics import SubtaskMetrics

CHECKPOINTS = 10
"""Number of newest checkpoints in a sample."""
QUIET_S = 1.1
"""A subtask without new metrics for this time takes no steps. Others report their metrics twice a second."""
SETTLE_S = 1.2
"""Time between the two readings of a rate."""


@dataclass(frozen=True)
class Rates:
    """Rates of a vertex: rows per second of all its subtasks, and their mean shares of time (None if unknown)."""

    rows_in: float
    rows_out: float
    busy: float | None
    backpressured: float | None


@dataclass(frozen=True)
class Sample:
    """State of a query at one moment. ``rates``: known rates by vertex. ``documents``: answers of the service."""

    query: Query
    graph: Graph
    checkpoints: Sequence[Checkpoint]
    exceptions: Exceptions
    rates: dict[int, Rates]
    at_ms: int
    documents: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class _Reading:
    """Newest metrics of a subtask, their time, and the rates since the previous metrics."""

    metrics: SubtaskMetrics
    at_s: float
    rates: Rates | None

    def rates_at(self, now_s: float) -> Rates | None:
        """Return the rates, or None if they are not known yet.

        A subtask without new metrics takes no steps, so it processes no rows. If its queues are empty, it is idle.
        Otherwise it may be in one long step or be backpressured, so its shares of time are unknown.
        """
        if now_s - self.at_s < QUIET_S:
            return self.rates
        idle = 0.0 if self.metrics.input_queued_bytes + self.metrics.output_queued_bytes == 0 else None
        return Rates(0.0, 0.0, idle, idle)


class Sampler:
    """Sampler of one query. Not thread-safe. ``clock``: returns monotonic seconds."""

    def __init__(self, service: Service, query_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.service = service
        self.query_id = query_id
        self._clock = clock
        self._readings: dict[tuple[str, int, int, int], _Reading] = {}

    def take(self) -> Sample:
        """Take a sample. The first sample has no rates.

        Raises:
            ServiceError: see ``Service.get``.
        """
        query_document = self._get()
        query = understood(self.service, query_document, Query)
        graph_document, page_document = self._get("graph"), self._get("checkpoints", query=f"limit={CHECKPOINTS}")
        exceptions_document = self._get("exceptions")
        graph = understood(self.service, graph_document, Graph)
        page = understood(self.service, page_document, CheckpointPage)
        exceptions = understood(self.service, exceptions_document, Exceptions)
        metrics = {
            (query.run_id, graph.generation, vertex.id, one.index): one
            for vertex in graph.vertices
            for one in vertex.subtasks
        }
        now_s = self._clock()
        self._readings = {key: _next_reading(self._readings.get(key), one, now_s) for key, one in metrics.items()}
        rates = {vertex.id: self._rates(query.run_id, graph.generation, vertex, now_s) for vertex in graph.vertices}
        documents = {
            "graph": graph_document,
            "checkpoints": page_document["checkpoints"],
            "exceptions": exceptions_document,
        }
        known_rates = {vertex: rate for vertex, rate in rates.items() if rate is not None}
        at_ms = int(time.time() * 1000)
        return Sample(query, graph, page.checkpoints, exceptions, known_rates, at_ms, {**query_document, **documents})

    def sample_with_rates(self, pause: Callable[[float], None] = time.sleep) -> Sample:
        """Return a sample with rates: the second of two, or the first if the query has ended."""
        first = self.take()
        if first.query.over:
            return first
        pause(SETTLE_S)
        return self.take()

    def _get(self, *more: str, query: str = "") -> Any:
        return self.service.get("queries", self.query_id, *more, query=query).document

    def _rates(self, run_id: str, generation: int, vertex: Vertex, now_s: float) -> Rates | None:
        """Return the rates of a vertex, or None unless those of all its subtasks are known."""
        found = [self._readings[run_id, generation, vertex.id, one.index].rates_at(now_s) for one in vertex.subtasks]
        complete = [one for one in found if one is not None]
        if not complete or len(complete) < len(found):
            return None
        return Rates(
            sum(one.rows_in for one in complete),
            sum(one.rows_out for one in complete),
            _mean([one.busy for one in complete]),
            _mean([one.backpressured for one in complete]),
        )


def _mean(shares: Sequence[float | None]) -> float | None:
    measured = [share for share in shares if share is not None]
    return sum(measured) / len(measured) if measured else None


def _next_reading(before: _Reading | None, now: SubtaskMetrics, now_s: float) -> _Reading:
    """Return the next reading. Rates are computed over the subtask's own elapsed time, not over the reading times."""
    if before is None:
        return _Reading(now, now_s, None)
    earlier = before.metrics
    elapsed_ms = now.elapsed_ms - earlier.elapsed_ms
    if elapsed_ms <= 0:
        return _Reading(now, before.at_s, before.rates)
    rates = Rates(
        (now.rows_in - earlier.rows_in) * 1000 / elapsed_ms,
        (now.rows_out - earlier.rows_out) * 1000 / elapsed_ms,
        (now.busy_ms - earlier.busy_ms) / elapsed_ms,
        (now.backpressured_ms - earlier.backpressured_ms) / elapsed_ms,
    )
    return _Reading(now, now_s, rates)
