"""A query as a notebook shows it: a small table of self-contained HTML in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from penstock.coordinator.view import CheckpointState, CheckpointView, ExecutionState, ExecutionView
from penstock.queries.progress import QueryProgress, iso_timestamp

_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def query_html(view: ExecutionView, message: str, progress: QueryProgress | None) -> str:
    """Return a ``<div>`` with name, id, state, rates, last commit, watermark, checkpoints and the newest snapshot.

    Args:
        message: ``message`` of the query's ``status``.
        progress: the query's ``lastProgress``.
    """
    rows = "".join(
        f'<tr><th style="{_CELL}">{escape(label)}</th><td style="{_CELL}">{escape(text)}</td></tr>'
        for label, text in _facts(view, message, progress)
        if text
    )
    title = escape(view.name or "StreamingQuery")
    return f"<div><p><b>{title}</b></p><table>{rows}</table></div>"


def _facts(view: ExecutionView, message: str, progress: QueryProgress | None) -> Iterable[tuple[str, str]]:
    yield "id", view.query_id
    yield "run", view.run_id
    yield "state", _state(view, message)
    if progress is not None and view.state is ExecutionState.RUNNING:
        read, processed = progress.inputRowsPerSecond, progress.processedRowsPerSecond
        yield "rates", f"{read:,.0f} rows/s read, {processed:,.0f} rows/s processed"
    if progress is not None:
        yield "last commit", f"epoch {view.committed_epoch}: {progress.numInputRows:,} rows, begun {progress.timestamp}"
        yield "watermark", progress.eventTime.get("watermark", "")
    yield "checkpoints", _checkpoints(view)
    yield "snapshot", _snapshot(view.checkpoints)


def _state(view: ExecutionView, message: str) -> str:
    if view.state is ExecutionState.FAILED:
        return message
    restarts = f", {view.restarts_begun} recoveries" if view.restarts_begun else ""
    has_slots = view.state not in (ExecutionState.STOPPED, ExecutionState.SUSPENDED)
    slots = f", parallelism {view.parallelism}" if has_slots else ""
    return f"{message} (Generation {view.generation}{slots}{restarts})"


def _checkpoints(view: ExecutionView) -> str:
    text = f"{view.checkpoints_completed:,} complete, {view.checkpoints_failed:,} given up"
    pending = [c for c in view.checkpoints if c.state is CheckpointState.PENDING]
    return text + "".join(f"; {c.checkpoint} is under way for {c.duration_ms / 1000:.1f} s" for c in pending)


def _snapshot(checkpoints: tuple[CheckpointView, ...]) -> str:
    """Return a description of the newest complete snapshot."""
    complete = [c for c in checkpoints if c.state is CheckpointState.COMPLETE]
    if not complete:
        return "none yet"
    newest = complete[-1]
    label = f" “{newest.label}”" if newest.label else ""
    return (
        f"{newest.snapshot_id}{label}, taken {iso_timestamp(newest.triggered_ms)} in {newest.duration_ms:.0f} ms: "
        f"{_size(newest.state_total_bytes)} of state, {newest.inflight_rows:,} rows in flight "
        f"({_size(newest.inflight_bytes)} captured)"
    )


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"
