"""Progress in Spark's own words: one committed epoch as a ``StreamingQueryProgress``.

Spark's micro-batch is our epoch: ``batchId`` is the epoch's number. Offsets are ``null``: positions are per split and
live in the snapshot, not in the progress.
"""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from penstock.protocol.elements import START_OF_TIME_US
from penstock.runtime.view import EpochProgress, SinkProgress, SourceProgress, StateProgress

DEFAULT_RECENT_PROGRESSES = 100
"""How many progresses a query keeps, as Spark's ``spark.sql.streaming.numRecentProgressUpdates``."""


LAST_MS = 253_402_300_799_000.0
"""The last second of the year 9999: nothing later can be written, and the end of event time is."""


def iso_timestamp(milliseconds: float) -> str:
    """Milliseconds since the epoch as Spark writes them: ``2013-01-01T10:00:00.000Z``."""
    moment = datetime.fromtimestamp(min(milliseconds, LAST_MS) / 1000, tz=UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def progress_json(
    epoch: EpochProgress, *, query_id: str, run_id: str, name: str | None, parallelism: int
) -> dict[str, Any]:
    """The JSON object that both ``StreamingQueryProgress.fromJson`` of PySpark and of the JVM read."""
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
    }


def _sink_json(epoch: EpochProgress) -> dict[str, Any]:
    """Spark knows one sink: of several outputs it is all of them together, and each has its rows in the metrics."""
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
        "startOffset": None,
        "endOffset": None,
        "latestOffset": source.latest_offset,
        "numInputRows": source.rows,
        "inputRowsPerSecond": source.rows_per_second,
        "processedRowsPerSecond": source.rows * 1000 / duration_ms,
        "metrics": {},
    }


def _state_json(state: StateProgress, parallelism: int) -> dict[str, Any]:
    return {
        "operatorName": state.name,
        "numRowsTotal": state.state_rows,
        "numRowsUpdated": 0,
        "numRowsRemoved": 0,
        "allUpdatesTimeMs": 0,
        "allRemovalsTimeMs": 0,
        "commitTimeMs": 0,
        "memoryUsedBytes": state.state_bytes,
        "numRowsDroppedByWatermark": state.rows_dropped_late,
        "numShufflePartitions": parallelism,
        "numStateStoreInstances": parallelism,
        "customMetrics": {},
    }


class ProgressHistory:
    """The most recent progresses, oldest first. One thread appends, any thread reads."""

    def __init__(self, capacity: int = DEFAULT_RECENT_PROGRESSES) -> None:
        self._progresses: deque[StreamingQueryProgress] = deque(maxlen=capacity)
        self._watermark_us: int | None = None

    def is_idle(self, epoch: EpochProgress) -> bool:
        """Nothing was read, written, dropped or advanced: Spark reports such an epoch as idle, not as progress."""
        dropped = any(state.rows_dropped_late for state in epoch.states)
        moved = epoch.watermark_us != self._watermark_us
        return epoch.rows == 0 and epoch.sink_rows <= 0 and not dropped and not moved

    def append(self, epoch: EpochProgress, progress: dict[str, Any]) -> None:
        self._watermark_us = epoch.watermark_us
        self._progresses.append(StreamingQueryProgress.fromJson(progress))

    def recent(self) -> list[StreamingQueryProgress]:
        return list(self._progresses)

    def last(self) -> StreamingQueryProgress | None:
        recent = self.recent()
        return recent[-1] if recent else None
