"""Metrics of subtasks. Each is declared once: a subtask measures it, its slot sends it, the REST service shows it.

These are dataclasses, unlike other messages, because both msgspec (control link, command line) and pydantic (REST) take
them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ROWS_DROPPED_LATE = "rows_dropped_late"
ROWS_DROPPED_DUPLICATE = "rows_dropped_duplicate"
STATE_ROWS = "state_rows"
STATE_BYTES = "state_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskMetrics:
    """Metrics of one subtask since its Generation began: rows and times are sums, queues are in bytes.

    ``watermark_us``: event time, microseconds since 1970. ``recovered_rows_left``: rows in flight at the recovery that
    are not read yet; see ``docs/metrics.md``.
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
        """Time on the subtask's own clock."""
        return self.busy_ms + self.backpressured_ms + self.idle_ms

    @property
    def busy_share(self) -> float:
        """Share of the elapsed time in which the subtask was busy."""
        return self.busy_ms / self.elapsed_ms if self.elapsed_ms else 0.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows of endless splits that exist and are not read yet: in all splits, in the split with the fewest and in the
    split with the most. ``splits``: number of splits."""

    rows: int
    least: int
    most: int
    splits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskReport(SubtaskMetrics):
    """Metrics of one subtask as its slot sends them to the driver.

    Attributes:
        counters: counters of its operators by name, summed over the chain.
        backlog: of its source; None if there is none or the source cannot tell.
    """

    vertex: int
    counters: dict[str, int] = field(default_factory=dict)
    backlog: Backlog | None = None
