"""Progress in Spark's format: one committed epoch as a ``StreamingQueryProgress``.

Spark's micro-batch corresponds to Penstock's epoch: ``batchId`` is the number of the epoch. ``checkpoint.sinkBatchId``
is the batch id of the sinks. Offsets are ``null`` if the source keeps positions per split, in the snapshot, and Spark's
own source has no format for them. ``checkpoint`` is Penstock's own section: the checkpoint that committed the epoch.
docs/progress.md describes every field and names those that are not available.
"""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from penstock.coordinator.view import EpochProgress, SinkProgress, SourceProgress, StateProgress
from penstock.model.elements import START_OF_TIME_US

CHECKPOINT = "checkpoint"
"""Name of Penstock's own section. In events for listeners it is the prefix of these values in the sink's metrics."""

LAST_MS = 253_402_300_799_000.0
"""The last second of the year 9999. Later times, such as the end of event time, cannot be formatted."""


class QueryProgress(StreamingQueryProgress):  # type: ignore[misc]  # PySpark's sources are not typed
    """PySpark's progress with Penstock's section, as ``progress.checkpoint``, as an item and in ``json``."""

    @classmethod
    def fromJson(cls, j: dict[str, Any]) -> QueryProgress:  # noqa: N802 - PySpark's name
        progress: QueryProgress = super().fromJson(j)
        progress[CHECKPOINT] = j[CHECKPOINT]
        return progress

    @property
    def checkpoint(self) -> dict[str, Any] | None:
        """Metrics of the checkpoint that committed this epoch; None if the driver has forgotten it."""
        section: dict[str, Any] | None = self[CHECKPOINT]
        return section


def iso_timestamp(milliseconds: float) -> str:
    """Return a time in milliseconds since 1970 in Spark's format: ``2013-01-01T10:00:00.000Z``."""
    moment = datetime.fromtimestamp(min(milliseconds, LAST_MS) / 1000, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def progress_json(
    epoch: EpochProgress,
    *,
    query_id: str,
    run_id: str,
    name: str | None,
    parallelism: int,
    interval_ms: int,
) -> dict[str, Any]:
    """Return the JSON object that ``StreamingQueryProgress.fromJson`` reads, both PySpark's and the JVM's.

    Args:
        interval_ms: current interval between periodic checkpoints.
    """
    duration_ms = max(1, round(epoch.duration_ms))
    durations = {part: round(spent) for part, spent in epoch.durations_ms.items()}
    rate = epoch.rows * 1000 / duration_ms
    return {
        "id": query_id,
        "runId": run_id,
        "name": name,
        "timestamp": iso_timestamp(epoch.started_ms),
        "batchId": epoch.epoch,
        "batchDuration": duration_ms,
        "numInputRows": epoch.rows,
        "inputRowsPerSecond": sum(source.rows_per_second for source in epoch.sources),
        "processedRowsPerSecond": rate,
        "durationMs": durations | {"triggerExecution": duration_ms},
        "eventTime": _event_time(epoch.watermark_us),
        "stateOperators": [_state_json(state, parallelism) for state in epoch.states],
        "sources": [_source_json(source, duration_ms) for source in epoch.sources],
        "sink": _sink_json(epoch),
        "observedMetrics": {},
        CHECKPOINT: _checkpoint_json(epoch, durations, interval_ms),
    }


def for_listeners(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the progress in the form for Spark's listeners.

    Spark's class has no section for Penstock, so the section's values become metrics of the sink, for example
    ``checkpoint.durationMs``.
    """
    passed, section = dict(progress), progress[CHECKPOINT]
    del passed[CHECKPOINT]
    metrics = {f"{CHECKPOINT}.{name}": _text(value) for name, value in (section or {}).items()}
    passed["sink"] = {**passed["sink"], "metrics": passed["sink"]["metrics"] | metrics}
    return passed


def _text(value: object) -> str:
    """Return the value as JSON text, which a listener in any language can read."""
    return value if isinstance(value, str) else json.dumps(value)


def _checkpoint_json(epoch: EpochProgress, durations: dict[str, int], interval_ms: int) -> dict[str, Any] | None:
    """Return the section ``checkpoint``: times of the slowest subtask, bytes and rows of all subtasks.

    Return None if the epoch's checkpoint is no longer known.
    """
    checkpoint = epoch.checkpoint
    if checkpoint is None:
        return None
    captures = checkpoint.subtasks
    return {
        "id": checkpoint.checkpoint,
        "snapshotId": checkpoint.snapshot_id,
        "sinkBatchId": epoch.batch,
        "commitFailures": epoch.commit_failures,
        "generation": checkpoint.generation,
        "requested": checkpoint.requested,
        "alignment": checkpoint.alignment,
        "unaligned": checkpoint.unaligned,
        "intervalMs": interval_ms,
        "durationMs": round(checkpoint.duration_ms),
        "commitMs": durations.get("commit", 0),
        "startDelayMs": round(max((one.start_delay_ms for one in captures), default=0)),
        "alignmentMs": round(max((one.alignment_ms for one in captures), default=0)),
        "syncMs": round(max((one.sync_ms for one in captures), default=0)),
        "asyncMs": round(max((one.async_ms for one in captures), default=0)),
        "inflightRows": checkpoint.inflight_rows,
        "inflightBytes": checkpoint.inflight_bytes,
        "inflightWrittenBytes": checkpoint.inflight_persisted_bytes,
        "inflightProcessedBytes": checkpoint.inflight_processed_bytes,
        "stateWrittenBytes": checkpoint.state_bytes,
        "stateTotalBytes": checkpoint.state_total_bytes,
    }


def _sink_json(epoch: EpochProgress) -> dict[str, Any]:
    """Return the sink's section.

    Spark knows one sink, so several outputs are summed. The metrics have the rows of each output.
    """
    several = {f"{sink.operator_id}.{name}": value for sink in epoch.sinks for name, value in _metrics(sink)}
    return {
        "description": epoch.sink_description,
        "numOutputRows": epoch.sink_rows,
        "metrics": several if len(epoch.sinks) > 1 else {},
    }


def _metrics(sink: SinkProgress) -> list[tuple[str, str]]:
    return [("description", sink.description), ("numOutputRows", str(sink.rows))]


def _event_time(watermark_us: int | None) -> dict[str, str]:
    if watermark_us is None or watermark_us == START_OF_TIME_US:
        return {}
    return {"watermark": iso_timestamp(watermark_us / 1000)}


def _source_json(source: SourceProgress, duration_ms: int) -> dict[str, Any]:
    return {
        "description": source.description,
        "startOffset": source.start_offset,
        "endOffset": source.end_offset,
        "latestOffset": source.latest_offset,
        "numInputRows": source.rows,
        "inputRowsPerSecond": source.rows_per_second,
        "processedRowsPerSecond": source.rows * 1000 / duration_ms,
        "metrics": _source_metrics(source),
    }


def _source_metrics(source: SourceProgress) -> dict[str, str]:
    """Return the backlog (if known), named as by Spark's Kafka source, and the number of splits left."""
    metrics = {"pendingSplits": str(source.pending_splits), "readingSplits": str(source.reading_splits)}
    if source.has_event_time:
        metrics["watermark"] = _event_time(source.watermark_us).get("watermark", "none")
    if source.backlog is not None:
        backlog = source.backlog
        metrics |= {
            "minOffsetsBehindLatest": str(backlog.least),
            "maxOffsetsBehindLatest": str(backlog.most),
            "avgOffsetsBehindLatest": str(backlog.rows / backlog.splits),
        }
    return metrics


def _state_json(state: StateProgress, parallelism: int) -> dict[str, Any]:
    return {
        "operatorName": state.name,
        "numRowsTotal": state.state_rows,
        "numRowsUpdated": 0,
        "numRowsRemoved": 0,
        "allUpdatesTimeMs": 0,
        "allRemovalsTimeMs": 0,
        "commitTimeMs": round(state.commit_ms),
        "memoryUsedBytes": state.state_bytes,
        "numRowsDroppedByWatermark": state.rows_dropped_late,
        "numShufflePartitions": parallelism,
        "numStateStoreInstances": parallelism * state.tables,
        "customMetrics": {
            "numDroppedDuplicateRows": state.rows_dropped_duplicate,
            "checkpointWrittenBytes": state.written_bytes,
            "checkpointTotalBytes": state.total_bytes,
        },
    }


class ProgressHistory:
    """The ``capacity`` most recent progress objects, oldest first. One thread appends; any thread may read."""

    def __init__(self, capacity: int) -> None:
        self._progresses: deque[QueryProgress] = deque(maxlen=capacity)
        self._watermark_us: int | None = None

    def is_idle(self, epoch: EpochProgress) -> bool:
        """Return True if nothing was read, written or dropped and the watermark did not change since the last progress.

        Spark reports such an epoch as idle, not as progress.
        """
        dropped = any(state.rows_dropped_late for state in epoch.states)
        moved = epoch.watermark_us != self._watermark_us
        return epoch.rows == 0 and epoch.sink_rows <= 0 and not dropped and not moved

    def append(self, epoch: EpochProgress, progress: dict[str, Any]) -> None:
        self._watermark_us = epoch.watermark_us
        self._progresses.append(QueryProgress.fromJson(progress))

    def recent(self) -> list[QueryProgress]:
        return list(self._progresses)

    def last(self) -> QueryProgress | None:
        recent = self.recent()
        return recent[-1] if recent else None
