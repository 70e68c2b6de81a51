"""Checkpoints as OpenTelemetry traces, created from their metrics after they have ended.

There is one trace per checkpoint, with a span for each subtask, below it a span for each phase, and one for the
commit::

    penstock.checkpoint
    ├── subtask Source, Filter [0]
    │   ├── start delay     trigger to first barrier
    │   ├── alignment       first barrier to last
    │   ├── sync            the subtask is paused
    │   └── async           writing in the background
    └── commit              complete to visible

Nothing is measured for traces, and no checkpoint waits for them: they are created on the thread that calls listeners.
Penstock never imports OpenTelemetry by itself. A program that wants traces sets up its SDK, which imports it; before
that, no trace is created. Slots measure durations, not points in time, so a span begins where the one before ended, on
the driver's clock. An unaligned subtask captures on its first barrier, so its ``sync`` and ``alignment`` begin
together.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.coordinator.view import CheckpointState, CheckpointView, EpochProgress, ExecutionView
from penstock.model.manifest import CaptureMetrics
from penstock.queries.facts import GraphShape
from penstock.redaction import without_secrets
from penstock.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

MAX_SUBTASKS = 64
"""Number of subtasks with a span. The slowest are chosen: a trace of thousands of spans is expensive and unreadable."""
_MS = 1_000_000
"""Nanoseconds, the unit of OpenTelemetry, per millisecond."""


class CheckpointTraces:
    """Traces of the checkpoints of one query; owned by the thread that calls it."""

    def __init__(self, shape: GraphShape) -> None:
        self._names = {vertex.id: vertex.name for vertex in shape.vertices}
        self._traced: set[int] = set()

    def look(self, view: ExecutionView) -> None:
        """Trace checkpoints that ended since the last call; complete ones after the commit of their epoch."""
        ended = {
            one.checkpoint: one
            for one in view.checkpoints
            if one.state is CheckpointState.FAILED
            or (one.state is CheckpointState.COMPLETE and one.checkpoint <= view.committed_epoch)
        }
        fresh = [checkpoint for number, checkpoint in ended.items() if number not in self._traced]
        self._traced = set(ended)
        tracer = _tracer()
        if tracer is not None:
            for checkpoint in fresh:
                self._trace(tracer, checkpoint, view)

    def _trace(self, tracer: Tracer, checkpoint: CheckpointView, view: ExecutionView) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import StatusCode

        began_ns = checkpoint.triggered_ms * _MS
        whole = tracer.start_span("penstock.checkpoint", Context(), start_time=began_ns)
        complete_ns = ended_ns = began_ns + round(checkpoint.duration_ms * _MS)
        if whole.is_recording():
            whole.set_attributes(_attributes(checkpoint, view))
            self._trace_subtasks(tracer, whole, checkpoint)
            commit_ms = _commit_ms(checkpoint, view.last_epoch)
            if commit_ms is not None:
                ended_ns += round(commit_ms * _MS)
                _phase(tracer, whole, "commit", complete_ns, ended_ns)
            if checkpoint.state is CheckpointState.FAILED:
                whole.set_status(StatusCode.ERROR, without_secrets(checkpoint.reason))
        whole.end(ended_ns)

    def _trace_subtasks(self, tracer: Tracer, whole: Span, checkpoint: CheckpointView) -> None:
        slowest = sorted(checkpoint.subtasks, key=_took_ms, reverse=True)
        whole.set_attribute("penstock.subtasks.omitted", len(slowest[MAX_SUBTASKS:]))
        began_ns = checkpoint.triggered_ms * _MS
        for one in slowest[:MAX_SUBTASKS]:
            name = f"subtask {self._names.get(one.vertex, f'v{one.vertex}')} [{one.index}]"
            subtask = _child(tracer, whole, name, began_ns)
            subtask.set_attributes(
                {
                    "penstock.vertex": one.vertex,
                    "penstock.subtask": one.index,
                    "penstock.unaligned": one.unaligned,
                    "penstock.inflight.bytes": one.inflight_bytes,
                    "penstock.inflight.written_bytes": one.inflight_persisted_bytes,
                    "penstock.inflight.processed_bytes": one.inflight_processed_bytes,
                    "penstock.state.written_bytes": one.state_bytes,
                }
            )
            for phase, from_ms, to_ms in _phases(one):
                _phase(tracer, subtask, phase, began_ns + round(from_ms * _MS), began_ns + round(to_ms * _MS))
            subtask.end(began_ns + round(_took_ms(one) * _MS))


def _tracer() -> Tracer | None:
    """Return the tracer, or None while the program has not imported OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace

    return trace.get_tracer("penstock", __version__)


def _child(tracer: Tracer, parent: Span, name: str, start_ns: int) -> Span:
    from opentelemetry.trace import set_span_in_context

    return tracer.start_span(name, set_span_in_context(parent), start_time=start_ns)


def _phase(tracer: Tracer, parent: Span, name: str, start_ns: int, end_ns: int) -> None:
    _child(tracer, parent, name, start_ns).end(end_ns)


def _phases(one: CaptureMetrics) -> list[tuple[str, float, float]]:
    """Return name, begin and end of each phase, in milliseconds since the trigger."""
    first = one.start_delay_ms
    last = first + one.alignment_ms
    captures = first if one.unaligned else last
    stood_still = captures + one.sync_ms
    return [
        ("start delay", 0.0, first),
        ("alignment", first, last),
        ("sync", captures, stood_still),
        ("async", stood_still, stood_still + one.async_ms),
    ]


def _took_ms(one: CaptureMetrics) -> float:
    return max(end for _, _, end in _phases(one))


def _commit_ms(checkpoint: CheckpointView, epoch: EpochProgress | None) -> float | None:
    """Return the commit time, or None if the checkpoint was not committed on its own."""
    if epoch is None or epoch.epoch != checkpoint.checkpoint or checkpoint.state is not CheckpointState.COMPLETE:
        return None
    return epoch.durations_ms["commit"]


def _attributes(checkpoint: CheckpointView, view: ExecutionView) -> dict[str, str | int | bool]:
    return {
        "penstock.query.id": view.query_id,
        "penstock.query.name": view.name or "",
        "penstock.run.id": view.run_id,
        "penstock.generation": checkpoint.generation,
        "penstock.checkpoint": checkpoint.checkpoint,
        "penstock.alignment": checkpoint.alignment,
        "penstock.unaligned": checkpoint.unaligned,
        "penstock.requested": checkpoint.requested,
        "penstock.inflight.bytes": checkpoint.inflight_bytes,
        "penstock.inflight.written_bytes": checkpoint.inflight_persisted_bytes,
        "penstock.inflight.processed_bytes": checkpoint.inflight_processed_bytes,
        "penstock.state.written_bytes": checkpoint.state_bytes,
        "penstock.state.total_bytes": checkpoint.state_total_bytes,
    }
