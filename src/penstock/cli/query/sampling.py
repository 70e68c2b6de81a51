"""What a query does right now: its figures add up, so two looks at them make a rate."""

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
"""The newest ones."""
QUIET_S = 1.1
"""Subtasks that take steps tell new figures twice a second; one that tells none for so long takes no steps."""
SETTLE_S = 1.2
"""Between two looks that make a rate."""


@dataclass(frozen=True)
class Rates:
    """Of a vertex: rows a second of all its subtasks together, and the mean share of their time, None where that is
    not known of any."""

    rows_in: float
    rows_out: float
    busy: float | None
    backpressured: float | None


@dataclass(frozen=True)
class Sample:
    """Everything at one moment. ``rates``: by vertex, of those that are known. ``documents``: as they came."""

    query: Query
    graph: Graph
    checkpoints: Sequence[Checkpoint]
    exceptions: Exceptions
    rates: dict[int, Rates]
    at_ms: int
    documents: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class _Told:
    """A subtask's newest figures, when they came, and the rates they made with the ones before."""

    figures: SubtaskMetrics
    at_s: float
    rates: Rates | None

    def rates_at(self, now_s: float) -> Rates | None:
        """None: not known yet. One that takes no steps moves no rows. If nothing waits in front of it or behind it, it
        is idle; else it may be in one long step, or have no room."""
        if now_s - self.at_s < QUIET_S:
            return self.rates
        idle = 0.0 if self.figures.input_queued_bytes + self.figures.output_queued_bytes == 0 else None
        return Rates(0.0, 0.0, idle, idle)


class Sampler:
    """Looks at one query again and again; one thread. ``clock``: seconds, monotonic."""

    def __init__(self, service: Service, query_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.service = service
        self.query_id = query_id
        self._clock = clock
        self._told: dict[tuple[str, int, int, int], _Told] = {}

    def take(self) -> Sample:
        """One look; the first has no rates.

        Raises:
            ServiceError: as ``Service.get`` does.
        """
        query_document = self._get()
        query = understood(self.service, query_document, Query)
        graph_document, page_document = self._get("graph"), self._get("checkpoints", query=f"limit={CHECKPOINTS}")
        exceptions_document = self._get("exceptions")
        graph = understood(self.service, graph_document, Graph)
        page = understood(self.service, page_document, CheckpointPage)
        exceptions = understood(self.service, exceptions_document, Exceptions)
        told = {
            (query.run_id, graph.generation, vertex.id, one.index): one
            for vertex in graph.vertices
            for one in vertex.subtasks
        }
        now_s = self._clock()
        self._told = {key: _next(self._told.get(key), figures, now_s) for key, figures in told.items()}
        rates = {vertex.id: self._rates(query.run_id, graph.generation, vertex, now_s) for vertex in graph.vertices}
        documents = {
            "graph": graph_document,
            "checkpoints": page_document["checkpoints"],
            "exceptions": exceptions_document,
        }
        known = {vertex: rate for vertex, rate in rates.items() if rate is not None}
        at_ms = int(time.time() * 1000)
        return Sample(query, graph, page.checkpoints, exceptions, known, at_ms, {**query_document, **documents})

    def settled(self, pause: Callable[[float], None] = time.sleep) -> Sample:
        """A look that has rates: two of them, a second apart, or one where nothing runs."""
        first = self.take()
        if first.query.over:
            return first
        pause(SETTLE_S)
        return self.take()

    def _get(self, *more: str, query: str = "") -> Any:
        return self.service.get("queries", self.query_id, *more, query=query).document

    def _rates(self, run_id: str, generation: int, vertex: Vertex, now_s: float) -> Rates | None:
        """None unless those of all its subtasks are known."""
        found = [self._told[run_id, generation, vertex.id, one.index].rates_at(now_s) for one in vertex.subtasks]
        known = [one for one in found if one is not None]
        if not known or len(known) < len(found):
            return None
        return Rates(
            sum(one.rows_in for one in known),
            sum(one.rows_out for one in known),
            _mean([one.busy for one in known]),
            _mean([one.backpressured for one in known]),
        )


def _mean(shares: Sequence[float | None]) -> float | None:
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def _next(before: _Told | None, now: SubtaskMetrics, now_s: float) -> _Told:
    """Rates are over the subtask's own time, so it does not matter when the figures came."""
    if before is None:
        return _Told(now, now_s, None)
    was = before.figures
    elapsed_ms = now.elapsed_ms - was.elapsed_ms
    if elapsed_ms <= 0:
        return _Told(now, before.at_s, before.rates)
    rates = Rates(
        (now.rows_in - was.rows_in) * 1000 / elapsed_ms,
        (now.rows_out - was.rows_out) * 1000 / elapsed_ms,
        (now.busy_ms - was.busy_ms) / elapsed_ms,
        (now.backpressured_ms - was.backpressured_ms) / elapsed_ms,
    )
    return _Told(now, now_s, rates)
