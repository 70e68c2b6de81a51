"""``/metrics``: metrics of the queries for Prometheus, read at the time of the request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from penstock.coordinator.histogram import Distribution
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.queries.facts import QueryFacts
from penstock.rest.answers import KeptAnswer
from penstock.rest.metric_kinds import Kind, MetricSpec
from penstock.rest.metric_list import METRICS
from penstock.rest.problems import responses

router = APIRouter(tags=["metrics"])


@dataclass(frozen=True)
class QueriesCollector(Collector):
    """Collector of the metrics of queries at one moment."""

    queries: Sequence[QueryFacts]

    def collect(self) -> Iterable[Metric]:
        return families(self.queries)


def families(queries: Sequence[QueryFacts]) -> Iterable[Metric]:
    """Yield all families of ``METRICS`` for these queries, in the order of ``METRICS``."""
    for spec in METRICS:
        yield _family(spec, queries)


@router.get(
    "/metrics",
    response_class=Response,
    responses={**responses(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics() -> Response:
    """All queries that run, in Prometheus' text format."""
    queries = ACTIVE_QUERIES.known()
    text = generate_latest(QueriesCollector(queries))
    return KeptAnswer(text, queries, ACTIVE_QUERIES.known, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _family(spec: MetricSpec, queries: Sequence[QueryFacts]) -> Metric:
    samples = [(labels, value) for labels, value in spec.read(queries) if value is not None]
    if spec.kind is Kind.HISTOGRAM:
        return _histogram(spec, samples)
    kind = CounterMetricFamily if spec.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(spec.name, spec.text, labels=spec.labels)
    for labels, value in samples:
        assert not isinstance(value, Distribution)
        family.add_metric(labels, float(value))
    return family


def _histogram(spec: MetricSpec, samples: Sequence[tuple[tuple[str, ...], float | Distribution]]) -> Metric:
    family = HistogramMetricFamily(spec.name, spec.text, labels=spec.labels)
    for labels, value in samples:
        assert isinstance(value, Distribution)
        buckets = [("+Inf" if math.isinf(bound) else str(bound), count) for bound, count in value.cumulative()]
        family.add_metric(labels, buckets, value.total)
    return family
