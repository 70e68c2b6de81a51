"""Metrics of subtasks.

Each is declared once: the subtask measures it, its slot sends it, and the REST service shows it.

Unlike other messages, these are dataclasses: both msgspec (control link, command line) and pydantic (REST) accept
dataclasses without conversion.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ROWS_DROPPED_LATE = "rows_dropped_late"
ROWS_DROPPED_DUPLICATE = "rows_dropped_duplicate"
STATE_ROWS = "state_rows"
STATE_BYTES = "state_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskMetrics:
    """Metrics of one subtask since its generation began. Rows and times are sums; queues are in bytes.

    Attributes:
        recovered_rows_left: restored in-flight rows that are not yet read; see ``docs/metrics.md``.
        watermark_us: event time in microseconds since 1970-01-01.
    """

    index: int
    rows_in: int
    rows_out: int
    busy_ms: float
    backpressured_ms: float
    idle_ms: float
    input_queued_bytes: int
    output_queued_bytes: int
    recovered_rows_left: int
    watermark_us: int | None

    @property
    def elapsed_ms(self) -> float:
        """Sum of busy, backpressured and idle time in milliseconds."""
        return self.busy_ms + self.backpressured_ms + self.idle_ms

    @property
    def busy_share(self) -> float:
        """Share of the elapsed time in which the subtask was busy."""
        return self.busy_ms / self.elapsed_ms if self.elapsed_ms else 0.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Number of rows in endless splits that exist but are not yet read.

    Attributes:
        rows: sum over all splits.
        least: rows of the split with the fewest.
        most: rows of the split with the most.
        splits: number of splits.
    """

    rows: int
    least: int
    most: int
    splits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskReport(SubtaskMetrics):
    """Metrics of one subtask as its slot sends them to the driver.

    Attributes:
        counters: counters of its operators by name, summed over the chain.
        backlog: backlog of its source; None if it has no source or the source does not report one.
    """

    vertex: int
    counters: dict[str, int] = field(default_factory=dict)
    backlog: Backlog | None = None
