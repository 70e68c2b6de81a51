"""Checkpoints as traces: which spans there are, when they are, and that nothing is imported without need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

from penstock.coordinator.view import CheckpointState, CheckpointView, EpochProgress, ExecutionState, ExecutionView
from penstock.model.manifest import CaptureMetrics
from penstock.queries import checkpoint_traces
from penstock.queries.checkpoint_traces import MAX_SUBTASKS, CheckpointTraces
from penstock.queries.facts import GraphShape, VertexShape
from tests.support.queries.query_running import Inbox, Start

SHAPE = GraphShape((VertexShape(0, "Source", ()), VertexShape(1, "Sum, Sink", ())), (), 128, 1, 1)
BEGAN_MS = 1_000_000
COMPLETE = CheckpointView(
    checkpoint=4,
    generation=2,
    alignment="auto",
    requested=False,
    label="",
    state=CheckpointState.COMPLETE,
    triggered_ms=BEGAN_MS,
    duration_ms=500.0,
    subtasks=(
        CaptureMetrics(0, 0, 1, 0, 2, 30, 0, 0, 0, 0, 0),
        CaptureMetrics(1, 0, 10, 20, 30, 40, 100, 60, 5, 200, 900, inflight_processed_bytes=70),
        CaptureMetrics(1, 1, 10, 200, 3, 40, 7, 7, 1, 20, 90, unaligned=True, inflight_processed_bytes=7),
    ),
)
EPOCH = EpochProgress(4, 2, 0, 1.0, (), (), None, (), {"checkpoint": 500.0, "commit": 25.0})
VIEW = ExecutionView(
    query_id="id",
    run_id="run",
    name="orders",
    generation=2,
    state=ExecutionState.RUNNING,
    parallelism=2,
    committed_epoch=4,
    slots=(),
    subtasks=(),
    checkpoints=(COMPLETE,),
    restarts=(),
    sources_idle=False,
    last_epoch=EPOCH,
)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans that an SDK exports. It is set up for this test alone: the global one can be set up only once."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def ms(span: ReadableSpan) -> tuple[float, float]:
    """Begin and end, from the trigger on."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e6 - BEGAN_MS, span.end_time / 1e6 - BEGAN_MS


def below(parent: ReadableSpan, exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    assert parent.context is not None
    return {
        span.name: span
        for span in exporter.get_finished_spans()
        if span.parent is not None and span.parent.span_id == parent.context.span_id
    }


def whole(exporter: InMemorySpanExporter) -> ReadableSpan:
    [root] = [span for span in exporter.get_finished_spans() if span.parent is None]
    return root


def test_a_checkpoint_is_a_trace_with_a_span_per_subtask_and_phase(spans: InMemorySpanExporter) -> None:
    CheckpointTraces(SHAPE).look(VIEW)
    root = whole(spans)
    assert (root.name, ms(root)) == ("penstock.checkpoint", (0, 525))
    assert root.attributes is not None
    assert root.attributes["penstock.query.name"] == "orders"
    assert root.attributes["penstock.checkpoint"] == 4
    assert root.attributes["penstock.unaligned"] is True
    assert root.attributes["penstock.inflight.bytes"] == 107
    assert root.attributes["penstock.inflight.processed_bytes"] == 77
    children = below(root, spans)
    assert set(children) == {"subtask Source [0]", "subtask Sum, Sink [0]", "subtask Sum, Sink [1]", "commit"}
    assert ms(children["commit"]) == (500, 525)
    aligned = children["subtask Sum, Sink [0]"]
    assert ms(aligned) == (0, 100)
    assert (aligned.attributes or {})["penstock.inflight.processed_bytes"] == 70
    phases = {name: ms(span) for name, span in below(aligned, spans).items()}
    assert phases == {"start delay": (0, 10), "alignment": (10, 30), "sync": (30, 60), "async": (60, 100)}
    unaligned = children["subtask Sum, Sink [1]"]
    assert ms(unaligned) == (0, 210), "until the last barrier has come"
    phases = {name: ms(span) for name, span in below(unaligned, spans).items()}
    assert phases == {"start delay": (0, 10), "alignment": (10, 210), "sync": (10, 13), "async": (13, 53)}


def test_each_is_traced_once_and_not_before_it_is_committed(spans: InMemorySpanExporter) -> None:
    traces = CheckpointTraces(SHAPE)
    traces.look(replace(VIEW, committed_epoch=3))
    assert not spans.get_finished_spans()
    traces.look(VIEW)
    traces.look(VIEW)
    assert whole(spans)
    pending = replace(COMPLETE, checkpoint=5, state=CheckpointState.PENDING, subtasks=())
    traces.look(replace(VIEW, checkpoints=(COMPLETE, pending)))
    assert whole(spans)


def test_one_that_failed_says_why(spans: InMemorySpanExporter) -> None:
    failed = replace(COMPLETE, state=CheckpointState.FAILED, subtasks=(), reason="slot 1 is gone: token=a1")
    CheckpointTraces(SHAPE).look(replace(VIEW, checkpoints=(failed,), committed_epoch=0, last_epoch=None))
    root = whole(spans)
    assert (root.status.is_ok, root.status.description) == (False, "slot 1 is gone: token=***")
    assert ms(root) == (0, 500)
    assert below(root, spans) == {}


def test_of_very_many_subtasks_the_slowest_are_traced(spans: InMemorySpanExporter) -> None:
    many = tuple(CaptureMetrics(0, index, float(index)) for index in range(MAX_SUBTASKS + 10))
    CheckpointTraces(SHAPE).look(replace(VIEW, checkpoints=(replace(COMPLETE, subtasks=many),)))
    children = below(whole(spans), spans)
    assert len(children) == MAX_SUBTASKS + 1
    assert "subtask Source [9]" not in children
    assert "subtask Source [10]" in children
    attributes = whole(spans).attributes
    assert attributes is not None
    assert attributes["penstock.subtasks.omitted"] == 10


@pytest.mark.spark
def test_a_query_traces_what_it_commits_until_its_end(
    spans: InMemorySpanExporter, spark: SparkSession, inbox: Inbox, start: Start
) -> None:
    query = start(inbox.stream(spark), format="noop", queryName="traced")
    inbox.add([(1, 1, 0.0)])
    query.processAllAvailable()
    progress = query.lastProgress
    query.stop()
    committed = query.view().committed_epoch
    roots = [span for span in spans.get_finished_spans() if span.parent is None]
    traced = {span.attributes["penstock.checkpoint"]: span for span in roots if span.attributes is not None}
    assert progress is not None
    assert {progress.batchId, committed} <= set(traced), "the last one, too"
    names = set(below(traced[committed], spans))
    assert "commit" in names
    assert any(name.startswith("subtask ") for name in names)


def test_a_program_without_opentelemetry_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])  # importing it would fail
    CheckpointTraces(SHAPE).look(VIEW)
    assert not [name for name in sys.modules if name.startswith("opentelemetry")]
    assert not hasattr(checkpoint_traces, "trace")
