"""Metrics of a query on the driver: slots, subtasks, checkpoints, restarts, and progress per epoch.

The coordinator thread writes them, and any thread may read them. A lock guards them; it is held for microseconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from penstock.coordinator.histogram import Distribution
from penstock.coordinator.machines.checkpoint_events import SnapshotRequested
from penstock.coordinator.view import (
    CheckpointState,
    CheckpointView,
    EpochProgress,
    ExecutionState,
    ExecutionView,
    Outage,
    RestartView,
    SinkProgress,
    SlotView,
    SourceProgress,
    StateProgress,
    SubtaskView,
)
from penstock.model.ids import CheckpointId
from penstock.model.job_graph import EdgeKind, JobGraph, SourceSpec
from penstock.model.manifest import CaptureMetrics, SnapshotMetadata
from penstock.model.metrics import ROWS_DROPPED_DUPLICATE, ROWS_DROPPED_LATE, STATE_BYTES, Backlog, SubtaskReport
from penstock.model.plain import Plain
from penstock.model.splits import Split
from penstock.network.messages import Register, SlotMetrics
from penstock.operators.watermark import WatermarkSpec
from penstock.snapshots.format.inflight_counts import rows_in_flight

HISTORY_SIZE = 200
"""Maximum number of checkpoints, and of restarts, in the history; older ones are dropped."""


class QueryMetrics:
    """Metrics of a query. ``wall`` returns seconds.

    ``ended`` is called with each checkpoint that has ended. The lock is held then, so it must not block.
    """

    def __init__(
        self,
        graph: JobGraph,
        query_id: str,
        run_id: str,
        name: str | None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        ended: Callable[[CheckpointView], None] = lambda checkpoint: None,
    ) -> None:
        self._graph = graph
        self._ended = ended
        self._query_id = query_id
        self._run_id = run_id
        self._name = name
        self._wall = wall
        self._clock = clock
        self._lock = threading.Lock()
        self._view: ExecutionView | None = None
        self._changed_s: float | None = None
        self._state = ExecutionState.STARTING
        self._first_generation = self._generation = 0
        self._slots: dict[int, SlotView] = {}
        self._metrics: dict[tuple[int, int], SubtaskReport] = {}
        self._checkpoints: dict[int, CheckpointView] = {}
        self._triggered_s: dict[int, float] = {}
        self._acks: dict[int, tuple[float, int]] = {}
        self._complete_s: dict[int, float] = {}
        self._restarts: deque[RestartView] = deque(maxlen=HISTORY_SIZE)
        self._counts = dict.fromkeys((CheckpointState.COMPLETE, CheckpointState.FAILED), 0)
        self._checkpoint_errors = 0
        self._restarts_begun = self._recovered_rows = self._committed_epoch = 0
        self._outages: dict[str, Outage] = {}
        self._commit_errors = self._commit_errors_before = 0
        self._failed_s = 0.0
        self._sources_idle = self._idle = False
        self._pinned: tuple[CheckpointId, ...] = ()
        self._triggered_before_idle = 0  # the newest checkpoint triggered before the sources became idle
        self._drained = 0  # the newest complete checkpoint without in-flight rows
        self._newest: SnapshotMetadata | None = None
        self._batches: dict[int, int] = {}  # of epochs that are not committed yet
        self._last_epoch: EpochProgress | None = None
        self._checkpoint_seconds = self._commit_seconds = Distribution.of_seconds()
        self._epoch_began = (clock(), wall())
        self._rows_before: dict[str, int] = {}
        self._counted: dict[tuple[int, int, str], int] = {}
        self._dropped_before: dict[tuple[int, str], int] = {}
        self._offsets_before: dict[str, Plain] = {}
        self._sinks_before: dict[str, int] = {}
        self._totals: dict[tuple[int, str], int] = {}

    def rescaled(self, graph: JobGraph) -> None:
        """Set the graph with the parallelism of the next generation."""
        with self._changing():
            self._graph = graph

    # -- the life of the query ------------------------------------------------------------------------------------

    def opened(self, generation: int, restored: SnapshotMetadata | None, committed_epoch: int, inflight: int) -> None:
        with self._changing():
            self._first_generation = self._first_generation or generation
            self._generation = generation
            self._note_input()
            self._slots.clear()
            self._metrics.clear()
            self._counted.clear()
            if self._newest is None and restored is not None:
                self._rows_before = self._source_rows(restored)
                self._offsets_before = {
                    spec.operator_id: spec.source.offset_of([*pending, *reading])
                    for _, spec, pending, reading in self._source_splits(restored)
                }
            view = self._checkpoints.get(0 if restored is None else restored.checkpoint)
            self._recovered_rows = inflight if view is None else view.inflight_rows
            self._committed_epoch = max(self._committed_epoch, committed_epoch)
            batches = {} if restored is None else restored.batches
            self._batches = {epoch: batch for epoch, batch in batches.items() if epoch > committed_epoch}
            self._amend_restart(generation=generation, restored_from="" if restored is None else restored.id)

    def left(self, graph: JobGraph) -> None:
        """Record that a generation was given up orderly. ``graph`` has the parallelism of the next one."""
        with self._changing():
            self._graph = graph
            self._state = ExecutionState.STARTING
            self._slots.clear()

    def registered(self, slots: Mapping[int, Register]) -> None:
        """Record the task that runs each slot, after all slots have registered."""
        with self._changing():
            for slot, message in slots.items():
                self._slots[slot] = SlotView(slot, message.data_host, message.pid, False)

    def slot_runs(self, slot: int, kept_tables: int) -> None:
        with self._changing():
            self._slots[slot] = replace(self._slots[slot], running=True, kept_tables=kept_tables)

    def slot_gone(self, slot: int) -> None:
        """Record that a slot has stopped at the end of the query."""
        with self._changing():
            if slot in self._slots:
                self._slots[slot] = replace(self._slots[slot], running=False)

    def all_run(self) -> None:
        with self._changing():
            self._state = ExecutionState.RUNNING
            self._amend_restart(
                running_ms=self._wall_ms(),
                duration_ms=(self._clock() - self._failed_s) * 1000,
                restored_inflight_rows=self._recovered_rows,
            )

    def failed(self, generation: int, cause: str) -> None:
        """Record a failed generation that is followed by another one. A failure that ends the query is no restart."""
        with self._changing():
            self._state = ExecutionState.RESTARTING
            if self._is_restarting:
                return  # it failed again before it ran: the time counts from the first failure
            self._failed_s = self._clock()
            self._restarts_begun += 1
            self._restarts.append(RestartView(generation, 0, cause, self._wall_ms()))

    def outage(self, what: str, reason: str) -> Outage:
        """Record a failure of an operation that is retried."""
        with self._changing():
            before = self._outages.get(what) or Outage(what, self._wall_ms(), 0, "")
            self._outages[what] = now = replace(before, failures=before.failures + 1, reason=reason)
            return now

    def commit_failed(self) -> None:
        with self._changing():
            self._commit_errors += 1

    def outage_over(self, what: str) -> None:
        if what in self._outages:
            with self._changing():
                del self._outages[what]

    def ended(self, *, failed: bool, suspended: bool) -> None:
        """Record that no slots are left. A suspended query may be resumed."""
        with self._changing():
            self._outages.clear()
            self._pinned = ()
            orderly = ExecutionState.SUSPENDED if suspended else ExecutionState.STOPPED
            self._state = ExecutionState.FAILED if failed else orderly
            self._slots.clear()
            for subtask, last in self._metrics.items():
                self._metrics[subtask] = replace(
                    last, input_queued_bytes=0, output_queued_bytes=0, recovered_rows_left=0
                )
            self._amend_restart(given_up=True)

    def resumed(self) -> None:
        """Record that the query is resumed, perhaps from an older snapshot than the newest."""
        with self._changing():
            self._state = ExecutionState.STARTING
            self._newest = None

    def turned(self, sources_idle: bool, pinned: tuple[CheckpointId, ...] = ()) -> None:
        """Update values that may change with every event; see ``ExecutionView``."""
        if pinned != self._pinned:
            with self._changing():
                self._pinned = pinned
        if sources_idle != self._sources_idle:
            with self._changing_later():
                self._sources_idle = sources_idle
                self._note_input()

    def metrics(self, message: SlotMetrics) -> None:
        with self._changing_later():
            for subtask in message.subtasks:
                self._metrics[subtask.vertex, subtask.index] = subtask
                self._count(subtask)

    def explained(self, reason: str, missing: Collection[int]) -> str:
        """Return the reason for a failed checkpoint, with the operator that it has probably waited for.

        ``missing``: the slots that had not acknowledged it, if that is the reason.
        """
        with self._lock:
            reports = [one for (_, index), one in self._metrics.items() if index in missing]
            names = {vertex.id: vertex.name for vertex in self._graph.vertices}
        busiest = max(reports, key=lambda one: one.busy_share, default=None)
        if busiest is None:
            return reason
        subtask = f"{names[busiest.vertex]!r}, subtask {busiest.index}"
        return f"{reason}. The busiest operator there is {subtask}: at work for {busiest.busy_share:.0%} of the time"

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def triggered(self, checkpoint: int, alignment: str, request: SnapshotRequested | None = None) -> None:
        """Record a trigger. ``request``: request of a user that it answers; None for a periodic checkpoint."""
        with self._changing_later():
            self._triggered_s[checkpoint] = self._clock()
            self._checkpoints[checkpoint] = CheckpointView(
                checkpoint,
                self._generation,
                alignment,
                request is not None and request.kept,
                "" if request is None else request.label,
                CheckpointState.PENDING,
                self._wall_ms(),
                0.0,
            )
            for old in list(self._checkpoints)[:-HISTORY_SIZE]:
                for by_checkpoint in (self._checkpoints, self._triggered_s, self._complete_s, self._acks):
                    by_checkpoint.pop(old, None)

    def acknowledged(self, checkpoint: int, limit_wait_ms: float = 0.0, recovered_rows_read: int = 0) -> None:
        """Count one slot's ``AcknowledgeCheckpoint``. The longest wait for the limit becomes the checkpoint's reason.

        An acknowledgment after the checkpoint's end is ignored: the history already has the ended checkpoint.
        """
        with self._changing_later():
            view = self._checkpoints.get(checkpoint)
            if view is None or view.state is not CheckpointState.PENDING:
                return
            view = replace(view, acknowledged=view.acknowledged + 1)
            waited_ms, read = self._acks.get(checkpoint, (0.0, 0))
            self._acks[checkpoint] = max(waited_ms, limit_wait_ms), read + recovered_rows_read
            if limit_wait_ms > waited_ms:
                view = replace(view, reason=f"waited {limit_wait_ms:.0f} ms for checkpoint.maxInflightBytes")
            self._checkpoints[checkpoint] = view

    def complete(self, metadata: SnapshotMetadata) -> None:
        with self._changing():
            checkpoint = metadata.checkpoint
            self._batches.update(metadata.batches)
            if self._newest is None or checkpoint > self._newest.checkpoint:  # a user's may complete after a newer one
                self._newest = metadata
            self._complete_s[checkpoint] = self._clock()
            if not any(subtask.inflight for slot in metadata.slots for subtask in slot.subtasks):
                self._drained = max(self._drained, checkpoint)
            self._counts[CheckpointState.COMPLETE] += 1
            metrics = tuple(m for slot in metadata.slots for m in slot.metrics)
            left = self._recovered_rows - self._acks.get(checkpoint, (0.0, 0))[1]
            self._amend_checkpoint(
                checkpoint,
                state=CheckpointState.COMPLETE,
                snapshot_id=metadata.id,
                requested=metadata.requested,
                label=metadata.label,
                subtasks=metrics,
                recovered_rows=min(left, rows_in_flight(metadata) - sum(m.inflight_rows for m in metrics)),
            )
            if (view := self._checkpoints.get(checkpoint)) is not None:
                self._checkpoint_seconds = self._checkpoint_seconds.with_value(view.duration_ms / 1000)

    def aborted(self, checkpoint: int, reason: str, wrong: bool, missing: Collection[int] = ()) -> str:
        """Record an aborted checkpoint. ``wrong``: it counts as an error. Return the reason as ``explained`` does."""
        reason = self.explained(reason, missing)
        with self._changing():
            self._counts[CheckpointState.FAILED] += 1
            self._checkpoint_errors += wrong
            self._amend_checkpoint(checkpoint, state=CheckpointState.FAILED, reason=reason)
        return reason

    def committed(self, epoch: int) -> EpochProgress | None:
        """Record that all epochs up to this one are visible. Return the progress, or None before a snapshot."""
        with self._changing():
            self._committed_epoch = epoch
            metadata = self._newest
            if metadata is None:
                return None
            self._idle = self._sources_idle and self._triggered_before_idle < self._drained <= epoch
            now, now_wall = self._clock(), self._wall()
            began, began_wall = self._epoch_began
            self._epoch_began = now, now_wall
            duration_s = max(now - began, 1e-3)
            complete_s = self._complete_s.get(epoch, now)
            triggered_s = self._triggered_s.get(epoch, complete_s)
            if epoch in self._complete_s:
                self._commit_seconds = self._commit_seconds.with_value(now - complete_s)
            self._last_epoch = EpochProgress(
                epoch=epoch,
                generation=metadata.generation,
                started_ms=int(began_wall * 1000),
                duration_ms=duration_s * 1000,
                sources=self._sources(metadata, duration_s),
                sinks=self._sinks(),
                watermark_us=self._watermark(metadata),
                states=self._states(metadata),
                durations_ms={
                    "checkpoint": (complete_s - triggered_s) * 1000,
                    "commit": (now - complete_s) * 1000,
                },
                checkpoint=self._checkpoints.get(epoch),
                batch=max((batch for of, batch in self._batches.items() if of <= epoch), default=None),
                commit_failures=self._commit_errors - self._commit_errors_before,
            )
            self._batches = {of: batch for of, batch in self._batches.items() if of > epoch}
            self._commit_errors_before = self._commit_errors
            return self._last_epoch

    # -- reading --------------------------------------------------------------------------------------------------

    def view(self, late_s: float = 0.0) -> ExecutionView:
        """Return the current view, the same object while nothing changes. Any thread may call it.

        ``late_s``: age in seconds that metrics of subtasks and of pending checkpoints may have.
        """
        with self._lock:
            now = self._clock()
            if self._view is None or (self._changed_s is not None and now - self._changed_s >= late_s):
                self._view = self._make_view(now)
                pending = any(one.state is CheckpointState.PENDING for one in self._view.checkpoints)
                self._changed_s = now if pending else None  # the duration of a pending checkpoint grows
            return self._view

    def _up_to_date(self, checkpoint: CheckpointView, now: float) -> CheckpointView:
        if checkpoint.state is not CheckpointState.PENDING:
            return checkpoint
        return replace(checkpoint, duration_ms=(now - self._triggered_s[checkpoint.checkpoint]) * 1000)

    # -- with the lock held ---------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock for a change that the next view must contain."""
        with self._lock:
            self._view = None
            yield

    @contextmanager
    def _changing_later(self) -> Iterator[None]:
        """Hold the lock for a change that views may contain ``late_s`` later."""
        with self._lock:
            if self._changed_s is None:
                self._changed_s = self._clock()
            yield

    def _make_view(self, now: float) -> ExecutionView:
        names = {vertex.id: vertex.name for vertex in self._graph.vertices}
        return ExecutionView(
            query_id=self._query_id,
            run_id=self._run_id,
            name=self._name,
            generation=self._generation,
            state=self._state,
            parallelism=self._graph.parallelism,
            committed_epoch=self._committed_epoch,
            slots=tuple(self._slots[slot] for slot in sorted(self._slots)),
            subtasks=tuple(SubtaskView(names[m.vertex], m.index, m) for _, m in sorted(self._metrics.items())),
            checkpoints=tuple(self._up_to_date(c, now) for c in self._checkpoints.values()),
            restarts=tuple(self._restarts),
            sources_idle=self._sources_idle,
            idle=self._idle and self._state is ExecutionState.RUNNING,
            checkpoints_completed=self._counts[CheckpointState.COMPLETE],
            checkpoints_failed=self._counts[CheckpointState.FAILED],
            checkpoint_errors=self._checkpoint_errors,
            restarts_begun=self._restarts_begun,
            first_generation=self._first_generation,
            last_epoch=self._last_epoch,
            checkpoint_seconds=self._checkpoint_seconds,
            commit_seconds=self._commit_seconds,
            outages=tuple(self._outages.values()),
            commit_errors=self._commit_errors,
            pinned=self._pinned,
        )

    def _note_input(self) -> None:
        """Record that rows may have arrived since the newest checkpoint was triggered."""
        self._idle = False
        self._triggered_before_idle = max(self._triggered_s, default=0)

    def _wall_ms(self) -> int:
        return int(self._wall() * 1000)

    @property
    def _is_restarting(self) -> bool:
        return bool(self._restarts) and self._restarts[-1].running_ms is None and not self._restarts[-1].given_up

    def _amend_restart(self, **changes: object) -> None:
        if self._is_restarting:
            self._restarts[-1] = replace(self._restarts[-1], **changes)  # type: ignore[arg-type]

    def _amend_checkpoint(self, checkpoint: int, **changes: object) -> None:
        former = self._checkpoints.get(checkpoint)
        if former is not None:
            duration_ms = (self._clock() - self._triggered_s[checkpoint]) * 1000
            amended = replace(former, duration_ms=duration_ms, **changes)  # type: ignore[arg-type]
            self._checkpoints[checkpoint] = amended
            if former.state is CheckpointState.PENDING:
                self._ended(amended)

    def _count(self, metrics: SubtaskReport) -> None:
        """Add the growth of a subtask's counters to the totals. Counters begin at zero in each generation."""
        dropped = {name: metrics.counters.get(name, 0) for name in (ROWS_DROPPED_LATE, ROWS_DROPPED_DUPLICATE)}
        values = {"rows_out": metrics.rows_out, **dropped}
        for name, value in values.items():
            key = (metrics.vertex, metrics.index, name)
            total = (metrics.vertex, name)
            self._totals[total] = self._totals.get(total, 0) + value - self._counted.get(key, 0)
            self._counted[key] = value

    def _source_rows(self, metadata: SnapshotMetadata) -> dict[str, int]:
        """Return the rows that each source had read at that snapshot, over the life of the location."""
        ids = {v.id: v.source.operator_id for v in self._graph.vertices if v.source is not None}
        rows = dict.fromkeys(ids.values(), 0)
        for slot in metadata.slots:
            for subtask in slot.subtasks:
                if subtask.vertex in ids:
                    rows[ids[subtask.vertex]] += subtask.rows_in
        return rows

    def _sources(self, metadata: SnapshotMetadata, duration_s: float) -> tuple[SourceProgress, ...]:
        now = self._source_rows(metadata)
        before, self._rows_before = self._rows_before, now
        found = []
        for vertex, spec, pending, reading in self._source_splits(metadata):
            rows = now[spec.operator_id] - before.get(spec.operator_id, 0)
            offset = spec.source.offset_of([*pending, *reading])
            found.append(
                SourceProgress(
                    spec.operator_id,
                    spec.source.describe(),
                    rows,
                    rows / duration_s,
                    latest_offset=spec.source.latest_offset(),
                    start_offset=self._offsets_before.get(spec.operator_id),
                    end_offset=offset,
                    total_rows=now[spec.operator_id],
                    pending_splits=len(pending),
                    reading_splits=len(reading),
                    backlog=self._backlog(vertex),
                    has_event_time=self._generates(vertex),
                    watermark_us=self._least_generated(vertex, metadata.parallelism),
                )
            )
            self._offsets_before[spec.operator_id] = offset
        return tuple(found)

    def _source_splits(self, metadata: SnapshotMetadata) -> list[tuple[int, SourceSpec, list[Split], list[Split]]]:
        """Return each vertex with a source, and its unassigned and unread splits in that snapshot."""
        pending = {source.operator_id: source.pending for source in metadata.sources}
        reading: dict[int, list[Split]] = {}
        for slot in metadata.slots:
            for subtask in slot.subtasks:
                reading.setdefault(subtask.vertex, []).extend(subtask.splits)
        return [
            (vertex.id, vertex.source, pending.get(vertex.source.operator_id, []), reading.get(vertex.id, []))
            for vertex in self._graph.vertices
            if vertex.source is not None
        ]

    def _generates(self, vertex: int) -> bool:
        """Return True if an operator of this vertex generates a watermark."""
        operators = next(one.operators for one in self._graph.vertices if one.id == vertex)
        return any(isinstance(operator, WatermarkSpec) for operator in operators)

    def _least_generated(self, vertex: int, parallelism: int) -> int | None:
        """Return the lowest watermark that the readers have reported; None if one of them has none."""
        reports = [self._metrics.get((vertex, index)) for index in range(parallelism)]
        watermarks = [None if report is None else report.watermark_us for report in reports]
        return None if None in watermarks else min((us for us in watermarks if us is not None), default=None)

    def _backlog(self, vertex: int) -> Backlog | None:
        """Return the backlog of all readers of a source, as last reported; None if none of them reports one."""
        reported = [report.backlog for (number, _), report in self._metrics.items() if number == vertex]
        backlogs = [backlog for backlog in reported if backlog is not None]
        if not backlogs:
            return None
        return Backlog(
            rows=sum(one.rows for one in backlogs),
            least=min(one.least for one in backlogs),
            most=max(one.most for one in backlogs),
            splits=sum(one.splits for one in backlogs),
        )

    def _sinks(self) -> tuple[SinkProgress, ...]:
        """Return the progress of each sink. All rows that a vertex with a sink emits go to the sink."""
        found = []
        for vertex in self._graph.vertices:
            if vertex.sink is not None:
                operator_id = vertex.sink.operator_id
                total = self._totals.get((vertex.id, "rows_out"), 0)
                rows = total - self._sinks_before.get(operator_id, 0)
                self._sinks_before[operator_id] = total
                found.append(SinkProgress(operator_id, vertex.sink.sink.describe(), rows, total))
        return tuple(sorted(found, key=lambda sink: sink.operator_id))

    def _watermark(self, metadata: SnapshotMetadata) -> int | None:
        """Return the watermark that windows wait for.

        It is the lowest watermark that a subtask has processed on an input with event time; None while one of these
        inputs has none. Without such inputs it is the lowest watermark of the readers.
        """
        timed = [edge for edge in self._graph.edges if edge.timed]
        if not timed:
            own = [
                self._least_generated(vertex.id, metadata.parallelism)
                for vertex in self._graph.vertices
                if self._generates(vertex.id)
            ]
            return None if None in own else min((us for us in own if us is not None), default=None)
        expected: dict[int, int] = {}
        for edge in timed:
            channels = 1 if edge.kind is EdgeKind.FORWARD else metadata.parallelism
            expected[edge.consumer] = expected.get(edge.consumer, 0) + channels
        ids = {str(edge.id) for edge in timed}
        stored: list[int] = []
        for slot in metadata.slots:
            for subtask in slot.subtasks:
                items = subtask.channel_watermarks.items()
                watermarks = [us for channel, us in items if channel.partition(":")[0] in ids]
                if len(watermarks) < expected.get(subtask.vertex, 0):
                    return None
                stored += watermarks
        return min(stored, default=None)

    def _states(self, metadata: SnapshotMetadata) -> tuple[StateProgress, ...]:
        rows: dict[str, int] = {}
        captures: dict[int, list[CaptureMetrics]] = {}
        for slot in metadata.slots:
            for metrics in slot.metrics:
                captures.setdefault(metrics.vertex, []).append(metrics)
                for operator_id, count in metrics.state_rows.items():
                    rows[operator_id] = rows.get(operator_id, 0) + count
        found: list[StateProgress] = []
        for vertex in self._graph.vertices:
            specs = [spec for spec in vertex.operators if spec.state_schemas]
            late, duplicate = (self._dropped(vertex.id, name) for name in (ROWS_DROPPED_LATE, ROWS_DROPPED_DUPLICATE))
            in_chain = [
                StateProgress(
                    spec.operator_id, spec.name, rows.get(spec.operator_id, 0), 0, tables=len(spec.state_schemas)
                )
                for spec in specs
            ]
            if in_chain:  # values of a chain are reported once, with its first stateful operator
                of_chain = [report for (number, _), report in self._metrics.items() if number == vertex.id]
                captured = captures.get(vertex.id, [])
                in_chain[0] = replace(
                    in_chain[0],
                    rows_dropped_late=late,
                    rows_dropped_duplicate=duplicate,
                    state_bytes=sum(report.counters.get(STATE_BYTES, 0) for report in of_chain),
                    written_bytes=sum(one.state_bytes for one in captured),
                    total_bytes=sum(one.state_total_bytes for one in captured),
                    commit_ms=sum(one.sync_ms + one.async_ms for one in captured),
                )
            found += in_chain
        return tuple(found)

    def _dropped(self, vertex: int, name: str) -> int:
        """Return the growth of a counter of dropped rows since the last call."""
        total = self._totals.get((vertex, name), 0)
        before = self._dropped_before.get((vertex, name), 0)
        self._dropped_before[vertex, name] = total
        return total - before
