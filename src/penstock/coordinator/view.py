"""Views of a running query: immutable values, replaced as a whole, safe to read from any thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.coordinator.histogram import Distribution
from penstock.model.manifest import CaptureMetrics
from penstock.model.metrics import Backlog, SubtaskReport
from penstock.model.plain import Plain


class ExecutionState(Enum):
    """State of a query's execution."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class SlotView:
    """One slot. Slots are listed once all have registered.

    ``pid`` is the process id of the Python worker on ``host``. ``kept_tables`` is the number of state tables that were
    still in this worker's memory when the slot started, so that they were not read from the snapshot.
    """

    slot: int
    host: str
    pid: int
    running: bool
    kept_tables: int = 0


@dataclass(frozen=True)
class SubtaskView:
    """Newest metrics of one subtask. ``name`` is the name of its vertex."""

    name: str
    slot: int
    metrics: SubtaskReport


class CheckpointState(Enum):
    PENDING = "pending"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True)
class CheckpointView:
    """One checkpoint, pending or ended.

    Attributes:
        alignment: as requested: ``auto``, ``aligned`` (strictly) or ``unaligned``.
        snapshot_id: ``chk-<n>`` once it is complete, else empty.
        requested: True if a user requested it.
        triggered_ms: wall-clock time.
        duration_ms: time from the trigger until it is complete (until now, while pending), without the later commit of
            its epochs.
        acknowledged: number of slots that acknowledged.
        reason: why it failed or was superseded by a newer one; for a complete one, the limit that it waited for, or
            empty.
        subtasks: metrics of each subtask, once complete.
        recovered_rows: unread rows of an earlier recovery or rescale that it references, each counted once.
    """

    checkpoint: int
    generation: int
    alignment: str
    requested: bool
    label: str
    state: CheckpointState
    triggered_ms: int
    duration_ms: float
    acknowledged: int = 0
    reason: str = ""
    snapshot_id: str = ""
    subtasks: tuple[CaptureMetrics, ...] = ()
    recovered_rows: int = 0

    @property
    def unaligned(self) -> bool:
        """True if at least one subtask took it unaligned, by request or after the alignment timeout."""
        return self.unaligned_subtasks > 0

    @property
    def inflight_bytes(self) -> int:
        return sum(m.inflight_bytes for m in self.subtasks)

    @property
    def inflight_persisted_bytes(self) -> int:
        """Bytes of in-flight data that were written."""
        return sum(m.inflight_persisted_bytes for m in self.subtasks)

    @property
    def inflight_processed_bytes(self) -> int:
        """Bytes that its subtasks processed during alignment."""
        return sum(m.inflight_processed_bytes for m in self.subtasks)

    @property
    def unaligned_subtasks(self) -> int:
        return sum(m.unaligned for m in self.subtasks)

    @property
    def inflight_rows(self) -> int:
        """Rows of in-flight data in the checkpoint, captured and recovered."""
        return sum(m.inflight_rows for m in self.subtasks) + self.recovered_rows

    @property
    def state_bytes(self) -> int:
        """Bytes of state that this checkpoint wrote."""
        return sum(m.state_bytes for m in self.subtasks)

    @property
    def state_total_bytes(self) -> int:
        """Bytes of all files that hold the state, written by this checkpoint or by earlier ones."""
        return sum(m.state_total_bytes for m in self.subtasks)


@dataclass(frozen=True)
class RestartView:
    """One recovery: from the failure of ``failed_generation`` until all subtasks of ``generation`` run.

    ``running_ms`` is None until then. ``given_up`` is True if the query ended before. Times are wall-clock times in
    milliseconds; ``duration_ms`` is measured on the monotonic clock.
    """

    failed_generation: int
    generation: int
    cause: str
    detected_ms: int
    running_ms: int | None = None
    duration_ms: float | None = None
    restored_inflight_rows: int = 0
    restored_from: str = ""
    given_up: bool = False


@dataclass(frozen=True)
class SourceProgress:
    """One source in one epoch.

    Attributes:
        rows: rows of this epoch.
        start_offset, end_offset: offsets of this epoch in Spark's own form, if the source has one.
        total_rows: rows over the life of the checkpoint location.
        pending_splits: number of splits found but not yet assigned.
        reading_splits: number of splits assigned but not yet read to their ends.
        backlog: backlog of all its readers; None if the source does not report one.
        has_event_time: True if a watermark is generated from its rows.
        watermark_us: the lowest watermark of its readers; None: one of them has none.
    """

    operator_id: str
    description: str
    rows: int
    rows_per_second: float
    latest_offset: Plain = None
    start_offset: Plain = None
    end_offset: Plain = None
    total_rows: int = 0
    pending_splits: int = 0
    reading_splits: int = 0
    backlog: Backlog | None = None
    has_event_time: bool = False
    watermark_us: int | None = None


@dataclass(frozen=True)
class SinkProgress:
    """Progress of one sink in one epoch.

    ``rows`` is the number of rows passed to the sink in this epoch according to the slots' metrics; -1 if unknown.
    ``total_rows`` is their number in this run.
    """

    operator_id: str
    description: str
    rows: int
    total_rows: int = 0


@dataclass(frozen=True)
class StateProgress:
    """One stateful operator in one epoch. Values of a whole chain are reported with its first stateful operator.

    Attributes:
        state_rows: rows of the operator in the snapshot.
        rows_dropped_late: rows that the chain dropped in this epoch because they were late.
        state_bytes: memory of the chain's state rows in the slots.
        tables: number of state tables that the operator declares.
        rows_dropped_duplicate: rows that the chain dropped in this epoch as duplicates.
        written_bytes, total_bytes: bytes of the chain's state that this epoch's checkpoint wrote, and bytes of all
            files that hold the state.
        commit_ms: time that the chain's subtasks spent on this checkpoint, in total.
    """

    operator_id: str
    name: str
    state_rows: int
    rows_dropped_late: int
    state_bytes: int = 0
    tables: int = 1
    rows_dropped_duplicate: int = 0
    written_bytes: int = 0
    total_bytes: int = 0
    commit_ms: float = 0.0


@dataclass(frozen=True)
class Outage:
    """A current failure of an operation that is retried.

    Attributes:
        what: ``generations``, ``checkpoints``, ``the checkpoint location``, or for example ``sink sink-0``.
        since_ms: wall-clock time of the first failure.
        failures: number of failures in a row.
        reason: reason of the last one.
    """

    what: str
    since_ms: int
    failures: int
    reason: str

    @property
    def summary(self) -> str:
        """The reason in one line. For an error of the JVM it includes the innermost cause."""
        first, *rest = self.reason.splitlines() or [""]
        causes = [line.removeprefix("Caused by: ") for line in rest if line.startswith("Caused by: ")]
        return f"{first} {causes[-1]}" if causes else first


@dataclass(frozen=True)
class EpochProgress:
    """One committed epoch, for Spark's progress JSON. ``rows`` of sources are exact: they come from the snapshot.

    Attributes:
        started_ms: wall-clock time at which the previous epoch was committed (for the first: of the start).
        duration_ms: time until this epoch was committed.
        durations_ms: parts of it by name: ``checkpoint`` (trigger to complete), ``commit``.
        watermark_us: the watermark that windows wait for, as event time in microseconds; None if there is none.
        checkpoint: checkpoint that committed it; None if the history no longer contains it.
        batch: the newest batch id that sinks received since the last progress; None if there was no output.
        commit_failures: number of failed commits since the last progress.
    """

    epoch: int
    generation: int
    started_ms: int
    duration_ms: float
    sources: tuple[SourceProgress, ...]
    sinks: tuple[SinkProgress, ...]
    watermark_us: int | None
    states: tuple[StateProgress, ...]
    durations_ms: Mapping[str, float] = field(default_factory=dict)
    checkpoint: CheckpointView | None = None
    batch: int | None = None
    commit_failures: int = 0

    @property
    def rows(self) -> int:
        return sum(source.rows for source in self.sources)

    @property
    def sink_description(self) -> str:
        """Descriptions of all sinks."""
        return ", ".join(sink.description for sink in self.sinks)

    @property
    def sink_rows(self) -> int:
        """Rows of all sinks; -1 if one is unknown."""
        rows = [sink.rows for sink in self.sinks]
        return -1 if -1 in rows else sum(rows)


@dataclass(frozen=True)
class RequestedState:
    """Requested state of a query. Its current state may still differ, for example for lack of slots.

    ``is_rescaling`` is True while the snapshot is taken from which the query restarts at this parallelism.
    """

    parallelism: int
    checkpoint_interval_ms: int
    alignment: str
    is_rescaling: bool = False


@dataclass(frozen=True)
class ExecutionView:
    """State and metrics of a query at one moment.

    ``checkpoints`` and ``restarts`` hold a limited number of the newest ones, oldest first; the counts cover the whole
    run.

    Attributes:
        committed_epoch: newest committed epoch; 0 if there is none.
        sources_idle: True if every reader is idle and no split is pending.
        idle: True if in addition every row that was read is committed: after the sources became idle, a checkpoint
            without in-flight rows was triggered and its epoch committed.
        checkpoint_errors: number of periodic checkpoints that failed because of an error.
        last_epoch: the newest epoch committed in this run.
        first_generation: first generation of this run; 0 before there is one.
        checkpoint_seconds: distribution of the durations of checkpoints in this run.
        commit_seconds: distribution of the times from complete to visible in this run.
        outages: current failures, in the order in which they began.
        commit_errors: number of commits that failed in this run.
        pinned: snapshots that checkpoints in flight may reference.
        inflight_bytes: bytes queued in all channels now.
    """

    query_id: str
    run_id: str
    name: str | None
    generation: int
    state: ExecutionState
    parallelism: int
    committed_epoch: int
    slots: tuple[SlotView, ...]
    subtasks: tuple[SubtaskView, ...]
    checkpoints: tuple[CheckpointView, ...]
    restarts: tuple[RestartView, ...]
    sources_idle: bool
    idle: bool = False
    checkpoints_completed: int = 0
    checkpoints_failed: int = 0
    checkpoint_errors: int = 0
    restarts_begun: int = 0
    first_generation: int = 0
    last_epoch: EpochProgress | None = None
    checkpoint_seconds: Distribution = field(default_factory=Distribution.of_seconds)
    commit_seconds: Distribution = field(default_factory=Distribution.of_seconds)
    outages: tuple[Outage, ...] = ()
    commit_errors: int = 0
    pinned: tuple[int, ...] = ()

    @property
    def inflight_bytes(self) -> int:
        return sum(s.metrics.input_queued_bytes + s.metrics.output_queued_bytes for s in self.subtasks)
