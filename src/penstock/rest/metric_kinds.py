"""Metric specifications: per driver, query, vertex, subtask, source and sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.coordinator.histogram import Distribution
from penstock.coordinator.view import CheckpointState, CheckpointView, SinkProgress, SourceProgress
from penstock.model.manifest import CaptureMetrics
from penstock.model.metrics import SubtaskReport
from penstock.queries.facts import QueryFacts

Value = float | Distribution | None
"""Value of a sample. None: the value is unknown at present, and the metric has no sample."""
Sample = tuple[tuple[str, ...], Value]
"""Label values of one sample, and its value."""
Queries = Sequence[QueryFacts]
"""All queries that the driver knows: the running queries and the last ones that ended."""

PER_DRIVER: tuple[str, ...] = ()
PER_QUERY = ("query", "name")
PER_VERTEX = (*PER_QUERY, "vertex", "vertex_name")
PER_SUBTASK = (*PER_VERTEX, "subtask")
PER_SOURCE = (*PER_QUERY, "source")
PER_SINK = (*PER_QUERY, "sink")

UNITS = ("seconds", "bytes", "rows", "splits")


class Kind(Enum):
    """Metric types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class MetricSpec:
    """Specification of one metric family.

    Attributes:
        text: its meaning, as one sentence.
        read: returns its current samples.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str
    read: Callable[[Queries], Iterable[Sample]]

    @property
    def series(self) -> tuple[str, ...]:
        """Names of its time series."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)

    @property
    def unit(self) -> str:
        """One of ``UNITS``; empty for a plain number."""
        return next((word for word in self.name.split("_") if word in UNITS), "")


def of_driver(name: str, text: str, read: Callable[[Queries], float]) -> MetricSpec:
    return MetricSpec(name, _kind(name), PER_DRIVER, text, lambda queries: [((), read(queries))])


def of_query(name: str, text: str, read: Callable[[QueryFacts], float | None]) -> MetricSpec:
    return _each_query(name, _kind(name), text, read)


def distribution(name: str, text: str, read: Callable[[QueryFacts], Distribution]) -> MetricSpec:
    return _each_query(name, Kind.HISTOGRAM, text, read)


def of_subtask(name: str, text: str, read: Callable[[SubtaskReport], float | None]) -> MetricSpec:
    def samples(queries: Queries) -> Iterator[Sample]:
        for facts in active(queries):
            for subtask in facts.view.subtasks:
                m = subtask.metrics
                yield (*query_labels(facts), str(m.vertex), subtask.name, str(m.index)), read(m)

    return MetricSpec(name, _kind(name), PER_SUBTASK, text, samples)


def of_vertex(name: str, text: str, read: Callable[[list[CaptureMetrics]], float]) -> MetricSpec:
    """Specify a metric with one sample per vertex, read from the newest complete checkpoint."""

    def samples(queries: Queries) -> Iterator[Sample]:
        for facts in active(queries):
            newest = newest_checkpoint(facts)
            captures: dict[int, list[CaptureMetrics]] = {}
            for one in () if newest is None else newest.subtasks:
                captures.setdefault(one.vertex, []).append(one)
            for vertex in facts.shape.vertices:
                if vertex.id in captures:
                    yield (*query_labels(facts), str(vertex.id), vertex.name), read(captures[vertex.id])

    return MetricSpec(name, _kind(name), PER_VERTEX, text, samples)


def of_source(name: str, text: str, read: Callable[[SourceProgress], float | None]) -> MetricSpec:
    """Specify a metric with one sample per source, as of the newest committed epoch."""

    def samples(queries: Queries) -> Iterator[Sample]:
        for facts in active(queries):
            epoch = facts.view.last_epoch
            for source in () if epoch is None else epoch.sources:
                yield (*query_labels(facts), source.operator_id), read(source)

    return MetricSpec(name, _kind(name), PER_SOURCE, text, samples)


def of_sink(name: str, text: str, read: Callable[[SinkProgress], float | None]) -> MetricSpec:
    """Specify a metric with one sample per sink, as of the newest committed epoch."""

    def samples(queries: Queries) -> Iterator[Sample]:
        for facts in active(queries):
            epoch = facts.view.last_epoch
            for sink in () if epoch is None else epoch.sinks:
                yield (*query_labels(facts), sink.operator_id), read(sink)

    return MetricSpec(name, _kind(name), PER_SINK, text, samples)


def active(queries: Queries) -> list[QueryFacts]:
    return [facts for facts in queries if facts.active]


def query_labels(facts: QueryFacts) -> tuple[str, str]:
    return facts.id, facts.name or ""


def newest_checkpoint(facts: QueryFacts) -> CheckpointView | None:
    """Return the newest complete checkpoint that the query remembers, or None."""
    return next((one for one in reversed(facts.view.checkpoints) if one.state is CheckpointState.COMPLETE), None)


def _kind(name: str) -> Kind:
    return Kind.COUNTER if name.endswith("_total") else Kind.GAUGE


def _each_query(name: str, kind: Kind, text: str, read: Callable[[QueryFacts], Value]) -> MetricSpec:
    def samples(queries: Queries) -> Iterator[Sample]:
        for facts in active(queries):
            yield query_labels(facts), read(facts)

    return MetricSpec(name, kind, PER_QUERY, text, samples)
