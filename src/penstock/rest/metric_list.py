"""Every metric that ``/metrics`` exports, as one list.

A test checks docs/metrics.md, the Grafana dashboard and the alert rules below ``deploy/`` against this list. A name
ends in its unit, the name of a counter in ``_total``. Label values come only from the running queries, their graphs and
their parallelism, never from the data. So the number of series is a small multiple of the number of subtasks.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.coordinator.view import CheckpointState, CheckpointView, EpochProgress, ExecutionState
from penstock.model.elements import END_OF_TIME_US, START_OF_TIME_US
from penstock.model.manifest import CaptureMetrics
from penstock.model.metrics import ROWS_DROPPED_DUPLICATE, ROWS_DROPPED_LATE, STATE_BYTES, STATE_ROWS, SubtaskReport
from penstock.queries.facts import QueryFacts
from penstock.rest.metric_kinds import (
    distribution,
    newest_checkpoint,
    of_driver,
    of_query,
    of_sink,
    of_source,
    of_subtask,
    of_vertex,
)


def _last(read: Callable[[CheckpointView], float]) -> Callable[[QueryFacts], float | None]:
    """Read a value of the newest complete checkpoint."""

    def of_newest(facts: QueryFacts) -> float | None:
        newest = newest_checkpoint(facts)
        return None if newest is None else read(newest)

    return of_newest


def _epoch(read: Callable[[EpochProgress], float | None]) -> Callable[[QueryFacts], float | None]:
    """Read a value of the newest committed epoch."""
    return lambda facts: None if facts.view.last_epoch is None else read(facts.view.last_epoch)


def _slowest(read: Callable[[CaptureMetrics], float]) -> Callable[[list[CaptureMetrics]], float]:
    """Read the time of the slowest subtask, in seconds."""
    return lambda captures: max(read(one) for one in captures) / 1000


def _summed(read: Callable[[CaptureMetrics], float]) -> Callable[[list[CaptureMetrics]], float]:
    return lambda captures: sum(read(one) for one in captures)


def _counter(name: str) -> Callable[[SubtaskReport], float | None]:
    """Read a counter of the subtask's operators; None if no operator has it."""
    return lambda m: m.counters.get(name)


def _moment_s(moment_us: int | None) -> float | None:
    """Return event time in seconds, or None before its start and after its end."""
    if moment_us is None or moment_us in (START_OF_TIME_US, END_OF_TIME_US):
        return None
    return moment_us / 1e6


def _pending(facts: QueryFacts) -> list[CheckpointView]:
    return [one for one in facts.view.checkpoints if one.state is CheckpointState.PENDING]


def _last_recovery_s(facts: QueryFacts) -> float | None:
    done = [one.duration_ms for one in facts.view.restarts if one.duration_ms is not None]
    return done[-1] / 1000 if done else None


DRIVER = (
    of_driver(
        "penstock_driver_active_queries",
        "Queries of this driver that run or recover.",
        lambda queries: sum(facts.active for facts in queries),
    ),
    of_driver(
        "penstock_driver_failed_queries",
        "Of the 20 queries that ended last: those that failed.",
        lambda queries: sum(facts.view.state is ExecutionState.FAILED for facts in queries),
    ),
)
QUERY = (
    of_query(
        "penstock_query_running",
        "1 while all subtasks run, 0 while it starts or recovers.",
        lambda f: f.view.state is ExecutionState.RUNNING,
    ),
    of_query(
        "penstock_query_suspended",
        "1 while it has no slots, because somebody suspended it.",
        lambda f: f.view.state is ExecutionState.SUSPENDED,
    ),
    of_query("penstock_query_generation", "The execution attempt.", lambda f: f.view.generation),
    of_query("penstock_query_parallelism", "Slots that it runs on.", lambda f: f.view.parallelism),
    of_query("penstock_query_wanted_parallelism", "Slots that it is to run on.", lambda f: f.requested.parallelism),
    of_query("penstock_query_committed_epoch", "All output up to it is visible.", lambda f: f.view.committed_epoch),
    of_query(
        "penstock_query_last_commit_timestamp_seconds",
        "When output became visible last, in this run.",
        _epoch(lambda e: (e.started_ms + e.duration_ms) / 1000),
    ),
    of_query(
        "penstock_query_watermark_timestamp_seconds",
        "Event time of what is committed: the least of all subtasks.",
        _epoch(lambda e: _moment_s(e.watermark_us)),
    ),
    of_query(
        "penstock_query_caught_up", "1 while the sources have nothing left to read.", lambda f: f.view.sources_idle
    ),
    of_query("penstock_query_inflight_bytes", "Queued in all channels now.", lambda f: f.view.inflight_bytes),
    of_query("penstock_query_restarts_total", "Recoveries that this run began.", lambda f: f.view.restarts_begun),
    of_query(
        "penstock_query_outages",
        "What fails now and is tried again: Generations, sinks, checkpoints, the checkpoint location.",
        lambda f: len(f.view.outages),
    ),
    of_query(
        "penstock_query_commit_errors_total",
        "Commits of this run that failed; they are repeated.",
        lambda f: f.view.commit_errors,
    ),
    of_query(
        "penstock_query_last_recovery_seconds",
        "From the newest failure that was recovered from to all subtasks running.",
        _last_recovery_s,
    ),
)
CHECKPOINTS = (
    of_query(
        "penstock_checkpoints_completed_total", "Checkpoints of this run.", lambda f: f.view.checkpoints_completed
    ),
    of_query(
        "penstock_checkpoints_failed_total",
        "Checkpoints of this run that were given up, or made superfluous by a newer one.",
        lambda f: f.view.checkpoints_failed,
    ),
    of_query(
        "penstock_checkpoint_errors_total",
        "Periodic checkpoints of this run that something went wrong with.",
        lambda f: f.view.checkpoint_errors,
    ),
    of_query("penstock_checkpoints_pending", "Checkpoints that are under way.", lambda f: len(_pending(f))),
    of_query(
        "penstock_checkpoint_pending_seconds",
        "How long the oldest checkpoint under way has taken so far; 0 if there is none.",
        lambda f: max((one.duration_ms for one in _pending(f)), default=0.0) / 1000,
    ),
    of_query(
        "penstock_checkpoint_interval_seconds",
        "Between two periodic checkpoints, as it is set now.",
        lambda f: f.requested.checkpoint_interval_ms / 1000,
    ),
    distribution(
        "penstock_checkpoint_duration_seconds",
        "Trigger to complete, of every checkpoint of this run.",
        lambda f: f.view.checkpoint_seconds,
    ),
    distribution(
        "penstock_commit_duration_seconds",
        "Checkpoint complete to its output visible, of every commit of this run.",
        lambda f: f.view.commit_seconds,
    ),
    of_query(
        "penstock_checkpoint_last_duration_seconds",
        "Trigger to complete, of the newest complete checkpoint.",
        _last(lambda c: c.duration_ms / 1000),
    ),
    of_query(
        "penstock_commit_last_duration_seconds",
        "Checkpoint complete to its output visible, of the newest commit.",
        _epoch(lambda e: e.durations_ms["commit"] / 1000),
    ),
    of_query(
        "penstock_checkpoint_last_completed_timestamp_seconds",
        "When the newest complete checkpoint was complete.",
        _last(lambda c: (c.triggered_ms + c.duration_ms) / 1000),
    ),
    of_query(
        "penstock_checkpoint_last_unaligned",
        "1 if the newest complete checkpoint was unaligned anywhere.",
        _last(lambda c: c.unaligned),
    ),
    of_query(
        "penstock_checkpoint_last_inflight_bytes",
        "In-flight data that the newest complete checkpoint captured.",
        _last(lambda c: c.inflight_bytes),
    ),
    of_query(
        "penstock_checkpoint_last_inflight_written_bytes",
        "What the newest complete checkpoint wrote of in-flight data.",
        _last(lambda c: c.inflight_persisted_bytes),
    ),
    of_query(
        "penstock_checkpoint_last_inflight_processed_bytes",
        "What subtasks took from their inputs between first and last barrier of the newest complete checkpoint.",
        _last(lambda c: c.inflight_processed_bytes),
    ),
    of_query(
        "penstock_checkpoint_last_state_bytes",
        "What the newest complete checkpoint wrote of state.",
        _last(lambda c: c.state_bytes),
    ),
    of_query(
        "penstock_checkpoint_last_state_size_bytes",
        "What holds all state of the newest complete checkpoint, written then or before.",
        _last(lambda c: c.state_total_bytes),
    ),
)
VERTEX = (
    of_vertex(
        "penstock_vertex_checkpoint_start_delay_seconds",
        "Newest complete checkpoint, slowest subtask: trigger to first barrier.",
        _slowest(lambda m: m.start_delay_ms),
    ),
    of_vertex(
        "penstock_vertex_checkpoint_alignment_seconds",
        "Newest complete checkpoint, slowest subtask: first barrier to last.",
        _slowest(lambda m: m.alignment_ms),
    ),
    of_vertex(
        "penstock_vertex_checkpoint_sync_seconds",
        "Newest complete checkpoint, slowest subtask: it stood still.",
        _slowest(lambda m: m.sync_ms),
    ),
    of_vertex(
        "penstock_vertex_checkpoint_async_seconds",
        "Newest complete checkpoint, slowest subtask: writing, beside its work.",
        _slowest(lambda m: m.async_ms),
    ),
    of_vertex(
        "penstock_vertex_checkpoint_inflight_bytes",
        "Newest complete checkpoint: in-flight data captured in front of and behind the vertex.",
        _summed(lambda m: m.inflight_bytes),
    ),
    of_vertex(
        "penstock_vertex_checkpoint_state_bytes",
        "Newest complete checkpoint: what was written of the vertex's state.",
        _summed(lambda m: m.state_bytes),
    ),
    of_vertex(
        "penstock_vertex_state_size_bytes",
        "Newest complete checkpoint: what holds the vertex's state, written then or before.",
        _summed(lambda m: m.state_total_bytes),
    ),
    of_vertex(
        "penstock_vertex_state_rows",
        "Newest complete checkpoint: rows of the vertex's state.",
        _summed(lambda m: sum(m.state_rows.values())),
    ),
)
SUBTASK = (
    of_subtask("penstock_subtask_rows_in_total", "Rows consumed in this Generation.", lambda m: m.rows_in),
    of_subtask("penstock_subtask_rows_out_total", "Rows produced in this Generation.", lambda m: m.rows_out),
    of_subtask("penstock_subtask_busy_seconds_total", "Time at work in this Generation.", lambda m: m.busy_ms / 1000),
    of_subtask(
        "penstock_subtask_backpressured_seconds_total",
        "Time spent waiting for room behind it, in this Generation.",
        lambda m: m.backpressured_ms / 1000,
    ),
    of_subtask(
        "penstock_subtask_idle_seconds_total",
        "Time spent waiting for input, in this Generation.",
        lambda m: m.idle_ms / 1000,
    ),
    of_subtask("penstock_subtask_input_queued_bytes", "Queued in front of it.", lambda m: m.input_queued_bytes),
    of_subtask("penstock_subtask_output_queued_bytes", "Queued behind it.", lambda m: m.output_queued_bytes),
    of_subtask(
        "penstock_subtask_recovered_rows",
        "Its rows in flight at the recovery that are not yet read. After a rescale several subtasks share sections: "
        "its rows in those that it has not loaded are estimated from those that it has.",
        lambda m: m.recovered_rows_left,
    ),
    of_subtask("penstock_subtask_watermark_timestamp_seconds", "Its event time.", lambda m: _moment_s(m.watermark_us)),
    of_subtask("penstock_subtask_state_rows", "Rows of keyed state now.", _counter(STATE_ROWS)),
    of_subtask(
        "penstock_subtask_state_memory_bytes",
        "What keyed state takes in memory now: with `rocksdb` its write buffers only.",
        _counter(STATE_BYTES),
    ),
    of_subtask(
        "penstock_subtask_late_dropped_rows_total",
        "Rows dropped in this Generation because they were late.",
        _counter(ROWS_DROPPED_LATE),
    ),
    of_subtask(
        "penstock_subtask_duplicate_dropped_rows_total",
        "Rows dropped in this Generation because they were duplicates.",
        _counter(ROWS_DROPPED_DUPLICATE),
    ),
)
SOURCE = (
    of_source("penstock_source_rows_total", "Rows committed over the life of the location.", lambda s: s.total_rows),
    of_source(
        "penstock_source_pending_splits",
        "Found (files, ranges, partitions) and waiting for a reader.",
        lambda s: s.pending_splits,
    ),
    of_source(
        "penstock_source_reading_splits", "Handed to readers and not read to their ends.", lambda s: s.reading_splits
    ),
    of_source(
        "penstock_source_behind_rows",
        "There and not read yet, over all partitions (offsets); only sources that can tell: Kafka.",
        lambda s: None if s.backlog is None else s.backlog.rows,
    ),
    of_source(
        "penstock_source_behind_most_rows",
        "There and not read yet, of the partition that is furthest behind.",
        lambda s: None if s.backlog is None else s.backlog.most,
    ),
)
SINK = (of_sink("penstock_sink_rows_total", "Rows handed to the sink in this run.", lambda s: s.total_rows),)

GROUPS = {
    "driver": DRIVER,
    "query": QUERY,
    "checkpoints": CHECKPOINTS,
    "vertex": VERTEX,
    "subtask": SUBTASK,
    "source": SOURCE,
    "sink": SINK,
}
METRICS = tuple(spec for group in GROUPS.values() for spec in group)
