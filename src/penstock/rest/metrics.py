"""``/metrics``: the queries' figures for Prometheus, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fastapi import APIRouter
from fastapi.responses import Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from penstock.query.active_queries import ACTIVE_QUERIES
from penstock.query.facts import QueryFacts
from penstock.rest.problems import responses
from penstock.runtime.messages import SubtaskMetrics
from penstock.runtime.view import CheckpointState, CheckpointView

router = APIRouter(tags=["metrics"])

Reading = tuple[str, str, Callable[[QueryFacts], float | None]]
SubtaskReading = tuple[str, str, Callable[[SubtaskMetrics], float | None]]

OF_QUERY: tuple[Reading, ...] = (
    ("penstock_query_running", "1 while all subtasks run.", lambda f: f.view.state.value == "running"),
    ("penstock_query_generation", "The execution attempt.", lambda f: f.view.generation),
    ("penstock_query_parallelism", "Slots that it runs on.", lambda f: f.view.parallelism),
    ("penstock_query_wanted_parallelism", "Slots that it is to run on.", lambda f: f.wanted.parallelism),
    ("penstock_query_committed_epoch", "All output up to it is visible.", lambda f: f.view.committed_epoch),
    ("penstock_query_inflight_bytes", "Queued in all channels.", lambda f: f.view.inflight_bytes),
    ("penstock_query_restarts_total", "Recoveries of this run.", lambda f: f.view.restarts_begun),
    ("penstock_checkpoints_completed_total", "Of this run.", lambda f: f.view.checkpoints_completed),
    ("penstock_checkpoints_failed_total", "Given up, or made superfluous.", lambda f: f.view.checkpoints_failed),
    ("penstock_checkpoint_last_duration_seconds", "Of the newest complete one.", lambda f: _last(f, _duration_s)),
    ("penstock_checkpoint_last_completed_timestamp_seconds", "When it was complete.", lambda f: _last(f, _ended_s)),
    ("penstock_checkpoint_last_inflight_bytes", "That it captured.", lambda f: _last(f, lambda c: c.inflight_bytes)),
    ("penstock_checkpoint_last_state_bytes", "That it wrote.", lambda f: _last(f, lambda c: c.state_bytes)),
    ("penstock_checkpoint_last_state_size_bytes", "Of all state.", lambda f: _last(f, lambda c: c.state_total_bytes)),
)
OF_SUBTASK: tuple[SubtaskReading, ...] = (
    ("penstock_subtask_rows_in_total", "Rows consumed in this Generation.", lambda m: m.rows_in),
    ("penstock_subtask_rows_out_total", "Rows produced in this Generation.", lambda m: m.rows_out),
    ("penstock_subtask_busy_seconds_total", "At work in this Generation.", lambda m: m.busy_ms / 1000),
    ("penstock_subtask_backpressured_seconds_total", "Waiting for room.", lambda m: m.backpressured_ms / 1000),
    ("penstock_subtask_idle_seconds_total", "Waiting for input.", lambda m: m.idle_ms / 1000),
    ("penstock_subtask_input_queued_bytes", "In front of it.", lambda m: m.input_queued_bytes),
    ("penstock_subtask_output_queued_bytes", "Behind it.", lambda m: m.output_queued_bytes),
    ("penstock_subtask_recovered_rows", "In flight at recovery and not yet read.", lambda m: m.recovered_rows_left),
    (
        "penstock_subtask_watermark_timestamp_seconds",
        "Event time.",
        lambda m: None if m.watermark_us is None else m.watermark_us / 1e6,
    ),
)


class QueriesCollector:
    """Reads ``ACTIVE_QUERIES`` at each scrape; keeps nothing."""

    def collect(self) -> Iterable[Metric]:
        queries = [facts for facts in ACTIVE_QUERIES.known() if facts.active]
        for name, text, read_query in OF_QUERY:
            family = _family(name, text, ("query", "name"))
            for facts in queries:
                _add(family, (facts.id, facts.name or ""), read_query(facts))
            yield family
        for name, text, read_subtask in OF_SUBTASK:
            family = _family(name, text, ("query", "name", "vertex", "vertex_name", "subtask"))
            for facts in queries:
                for subtask in facts.view.subtasks:
                    m = subtask.metrics
                    labels = (facts.id, facts.name or "", str(m.vertex), subtask.name, str(m.index))
                    _add(family, labels, read_subtask(m))
            yield family


@router.get(
    "/metrics",
    response_class=Response,
    responses={**responses(), 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics() -> Response:
    """All queries that run, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(QueriesCollector())
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _family(name: str, text: str, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(name, text, labels=labels)


def _add(family: CounterMetricFamily | GaugeMetricFamily, labels: tuple[str, ...], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, float(value))


def _last(facts: QueryFacts, read: Callable[[CheckpointView], float]) -> float | None:
    complete = [one for one in facts.view.checkpoints if one.state is CheckpointState.COMPLETE]
    return read(complete[-1]) if complete else None


def _duration_s(checkpoint: CheckpointView) -> float:
    return checkpoint.duration_ms / 1000


def _ended_s(checkpoint: CheckpointView) -> float:
    return (checkpoint.triggered_ms + checkpoint.duration_ms) / 1000
