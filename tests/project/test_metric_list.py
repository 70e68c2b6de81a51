"""The list of metrics: its names, its page, and what becomes of it in Prometheus' text."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from penstock.config import Options
from penstock.coordinator import histogram as distribution
from penstock.coordinator.histogram import Distribution
from penstock.coordinator.view import (
    CheckpointState,
    CheckpointView,
    EpochProgress,
    ExecutionState,
    ExecutionView,
    RequestedState,
    RestartView,
    SinkProgress,
    SourceProgress,
    SubtaskView,
)
from penstock.errors import ConfigError
from penstock.model.elements import END_OF_TIME_US
from penstock.model.manifest import CaptureMetrics
from penstock.model.metrics import Backlog, SubtaskReport
from penstock.queries.facts import GraphShape, QueryFacts, VertexShape
from penstock.rest.metric_kinds import UNITS, Kind, MetricSpec
from penstock.rest.metric_list import GROUPS, METRICS
from penstock.rest.metric_page import with_metrics
from penstock.rest.metrics import families
from tests.support.places import DOCS

PAGE = DOCS / "metrics.md"
COUNTS = {"state_rows": 7, "state_bytes": 70, "rows_dropped_late": 3, "rows_dropped_duplicate": 2}
COMPLETE = CheckpointView(
    checkpoint=4,
    generation=2,
    alignment="auto",
    requested=False,
    label="",
    state=CheckpointState.COMPLETE,
    triggered_ms=1_000_000,
    duration_ms=500.0,
    subtasks=(
        CaptureMetrics(0, 0, 10, 20, 30, 40, 100, 60, 5, 200, 900, {"a": 6}, inflight_processed_bytes=8),
        CaptureMetrics(0, 1, 50, 5, 1, 400, 1, 1, 1, 2, 3, {"a": 1}, unaligned=True, inflight_processed_bytes=9),
    ),
)
EPOCH = EpochProgress(
    epoch=4,
    generation=2,
    started_ms=995_000,
    duration_ms=6_000.0,
    sources=(
        SourceProgress(
            "source", "Kafka", 10, 2.0, total_rows=90, pending_splits=1, reading_splits=3, backlog=Backlog(9, 0, 8, 2)
        ),
    ),
    sinks=(SinkProgress("sink", "noop", 5, 55),),
    watermark_us=900_000_000,
    states=(),
    durations_ms={"checkpoint": 500.0, "commit": 250.0},
)
VIEW = ExecutionView(
    query_id="id",
    run_id="run",
    name="orders",
    generation=2,
    state=ExecutionState.RUNNING,
    parallelism=2,
    committed_epoch=4,
    slots=(),
    subtasks=tuple(
        SubtaskView(
            "Source, Sink",
            slot,
            SubtaskReport(
                vertex=0,
                index=slot,
                rows_in=10,
                rows_out=5,
                busy_ms=1_500.0,
                backpressured_ms=500.0,
                idle_ms=8_000.0,
                input_queued_bytes=64,
                output_queued_bytes=32,
                recovered_rows_left=0,
                watermark_us=900_000_000,
                counters=COUNTS,
            ),
        )
        for slot in (0, 1)
    ),
    checkpoints=(
        COMPLETE,
        replace(COMPLETE, checkpoint=5, state=CheckpointState.PENDING, subtasks=(), duration_ms=90.0),
    ),
    restarts=(RestartView(1, 2, "killed", 0, 400, 400.0),),
    sources_idle=False,
    checkpoints_completed=4,
    checkpoints_failed=1,
    restarts_begun=1,
    last_epoch=EPOCH,
    checkpoint_seconds=Distribution.of_seconds().with_value(0.5).with_value(7.0).with_value(1e6),
    commit_seconds=Distribution.of_seconds().with_value(0.25),
)
FACTS = QueryFacts(
    id="id",
    run_id="run",
    name="orders",
    location="/somewhere",
    access=None,
    shape=GraphShape((VertexShape(0, "Source, Sink", ()),), (), 128, 1, 1),
    requested=RequestedState(3, 10_000, "auto"),
    view=VIEW,
    message="",
    error_kind="",
    error_text="",
    last_progress=None,
    options=Options(),
)
FAILED = replace(FACTS, id="gone", view=replace(VIEW, state=ExecutionState.FAILED))


class Exported:
    """Metrics of these queries as Prometheus reads them."""

    def __init__(self, *known: QueryFacts) -> None:
        self._known = known
        registry = CollectorRegistry()
        registry.register(self)
        text = generate_latest(registry).decode()
        self.types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def collect(self) -> Iterable[Metric]:
        return families(self._known)

    def value(self, series: str, **labels: str) -> float:
        [value] = [s.value for s in self.samples if s.name == series and labels.items() <= s.labels.items()]
        return value


def test_the_page_has_every_metric_as_the_list_has_it() -> None:
    page = PAGE.read_text()
    assert with_metrics(page) == page, f"run: python -m penstock.rest.metric_page docs/{PAGE.name}"
    assert re.findall(r"<!-- metrics: (\w+) -->", page) == list(GROUPS)


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(ConfigError, match="no group of metrics 'moon'"):
        with_metrics("<!-- metrics: moon -->\n<!-- end -->")


@pytest.mark.parametrize("spec", METRICS, ids=[spec.name for spec in METRICS])
def test_names_are_as_prometheus_wants_them(spec: MetricSpec) -> None:
    assert re.fullmatch(r"penstock(_[a-z]+)+", spec.name)
    assert (spec.kind is Kind.COUNTER) == spec.name.endswith("_total")
    if spec.kind is Kind.HISTOGRAM:
        assert spec.name.endswith("_seconds")
    *before, last = spec.name.removesuffix("_total").split("_")
    words = {*before, last}
    assert not words & {"ms", "us", "milliseconds", "microseconds", "mb", "kb", "ratio", "percent"}, "base units only"
    assert len(words & set(UNITS)) <= 1
    assert not {"seconds", "bytes"} & set(before), "these come last"
    assert spec.text.endswith(".")
    assert "|" not in spec.text


def test_names_are_there_once() -> None:
    series = [name for spec in METRICS for name in spec.series]
    assert len(series) == len(set(series))


def test_labels_are_of_the_graph_and_not_of_the_data() -> None:
    assert {label for spec in METRICS for label in spec.labels} == {
        "query",
        "name",
        "vertex",
        "vertex_name",
        "subtask",
        "source",
        "sink",
    }


def test_everything_in_the_list_is_exported_with_its_labels() -> None:
    exported = Exported(FACTS)
    assert exported.types == {spec.name: spec.kind.value for spec in METRICS}
    for spec in METRICS:
        for series in spec.series:
            found = [sample for sample in exported.samples if sample.name == series]
            assert found, f"nothing is exported as {series}"
            labels = {*spec.labels, *(["le"] if series.endswith("_bucket") else [])}
            assert all(set(sample.labels) == labels for sample in found), series


def test_figures_are_in_base_units() -> None:
    exported = Exported(FACTS)
    assert exported.value("penstock_query_wanted_parallelism", query="id", name="orders") == 3
    assert exported.value("penstock_query_last_commit_timestamp_seconds") == 1_001
    assert exported.value("penstock_query_watermark_timestamp_seconds") == 900
    assert exported.value("penstock_query_last_recovery_seconds") == 0.4
    assert exported.value("penstock_checkpoint_interval_seconds") == 10
    assert exported.value("penstock_checkpoint_pending_seconds") == 0.09
    assert exported.value("penstock_checkpoint_last_completed_timestamp_seconds") == 1_000.5
    assert exported.value("penstock_commit_last_duration_seconds") == 0.25
    assert exported.value("penstock_checkpoint_last_unaligned") == 1
    assert exported.value("penstock_checkpoint_last_inflight_processed_bytes") == 17
    assert exported.value("penstock_subtask_busy_seconds_total", subtask="1") == 1.5
    assert exported.value("penstock_subtask_late_dropped_rows_total", subtask="0") == 3
    assert exported.value("penstock_source_behind_most_rows", source="source") == 8
    assert exported.value("penstock_sink_rows_total", sink="sink") == 55


def test_a_vertex_has_the_time_of_its_slowest_subtask_and_the_bytes_of_all() -> None:
    exported = Exported(FACTS)
    of_vertex = {"vertex": "0", "vertex_name": "Source, Sink"}
    assert exported.value("penstock_vertex_checkpoint_start_delay_seconds", **of_vertex) == 0.05
    assert exported.value("penstock_vertex_checkpoint_alignment_seconds", **of_vertex) == 0.02
    assert exported.value("penstock_vertex_checkpoint_async_seconds", **of_vertex) == 0.4
    assert exported.value("penstock_vertex_checkpoint_inflight_bytes", **of_vertex) == 101
    assert exported.value("penstock_vertex_state_size_bytes", **of_vertex) == 903
    assert exported.value("penstock_vertex_state_rows", **of_vertex) == 7


def test_a_histogram_is_cumulative_and_has_all_values_in_its_last_bucket() -> None:
    exported = Exported(FACTS)
    name = "penstock_checkpoint_duration_seconds"
    at = {le: exported.value(f"{name}_bucket", le=le) for le in ("0.25", "0.5", "5.0", "10.0", "600.0", "+Inf")}
    assert at == {"0.25": 0, "0.5": 1, "5.0": 1, "10.0": 2, "600.0": 2, "+Inf": 3}
    assert exported.value(f"{name}_count") == 3
    assert exported.value(f"{name}_sum") == 1_000_007.5


def test_the_example_of_a_distribution_runs() -> None:
    assert doctest.testmod(distribution) == (0, 1)


def test_ended_queries_are_counted_and_not_exported() -> None:
    exported = Exported(FACTS, FAILED)
    assert exported.value("penstock_driver_active_queries") == 1
    assert exported.value("penstock_driver_failed_queries") == 1
    assert {sample.labels["query"] for sample in exported.samples if "query" in sample.labels} == {"id"}


def test_what_is_not_known_is_not_exported() -> None:
    young = replace(VIEW, checkpoints=(), last_epoch=None, restarts=(), subtasks=())
    young = replace(young, checkpoint_seconds=Distribution.of_seconds())
    exported = Exported(replace(FACTS, name=None, view=young))
    names = {sample.name for sample in exported.samples}
    assert "penstock_query_running" in names
    assert exported.value("penstock_checkpoint_duration_seconds_count") == 0
    assert not [name for name in names if "_last_" in name or name.startswith(("penstock_vertex", "penstock_source"))]
    ended = replace(VIEW, last_epoch=replace(EPOCH, watermark_us=END_OF_TIME_US, sources=()))
    over = {sample.name for sample in Exported(replace(FACTS, view=ended)).samples}
    assert "penstock_query_watermark_timestamp_seconds" not in over, "event time has ended: it is at no moment"
