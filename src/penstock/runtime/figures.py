"""What the driver remembers to show: slots, figures of subtasks, checkpoints, restarts, and progress per epoch.

Written by the coordinator thread, read by any; a lock guards it, held for microseconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.graph.model import JobGraph
from penstock.runtime.messages import Register, SlotMetrics, SubtaskMetrics
from penstock.runtime.view import (
    CheckpointState,
    CheckpointView,
    EpochProgress,
    ExecutionState,
    ExecutionView,
    RestartView,
    SinkProgress,
    SlotView,
    SourceProgress,
    StateProgress,
    SubtaskView,
)
from penstock.snapshot.model import SnapshotMetadata

REMEMBERED = 200
"""Checkpoints and restarts in the history; older ones are forgotten."""

DROPPED_LATE = "rows_dropped_late"
STATE_BYTES = "state_bytes"


class Figures:
    """See the module's text. ``wall`` is in seconds."""

    def __init__(
        self,
        graph: JobGraph,
        query_id: str,
        run_id: str,
        name: str | None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._graph = graph
        self._query_id = query_id
        self._run_id = run_id
        self._name = name
        self._wall = wall
        self._clock = clock
        self._lock = threading.Lock()
        self._state = ExecutionState.STARTING
        self._generation = 0
        self._slots: dict[int, SlotView] = {}
        self._metrics: dict[tuple[int, int], SubtaskMetrics] = {}
        self._checkpoints: dict[int, CheckpointView] = {}
        self._triggered_s: dict[int, float] = {}
        self._complete_s: dict[int, float] = {}
        self._restarts: deque[RestartView] = deque(maxlen=REMEMBERED)
        self._counts = dict.fromkeys((CheckpointState.COMPLETE, CheckpointState.FAILED), 0)
        self._restarts_begun = 0
        self._failed_s = 0.0
        self._committed_epoch = 0
        self._dry = False
        self._newest: SnapshotMetadata | None = None
        self._epoch_began = (clock(), wall())
        self._rows_before: dict[str, int] = {}
        self._counted: dict[tuple[int, int, str], int] = {}
        self._late_before: dict[int, int] = {}
        self._sinks_before: dict[str, int] = {}
        self._totals: dict[tuple[int, str], int] = {}

    def rescaled(self, graph: JobGraph) -> None:
        """The next Generation has this parallelism."""
        with self._lock:
            self._graph = graph

    # -- the life of the query ------------------------------------------------------------------------------------

    def opened(self, generation: int, restored: SnapshotMetadata | None, committed_epoch: int) -> None:
        with self._lock:
            self._generation = generation
            self._slots.clear()
            self._metrics.clear()
            self._counted.clear()
            if self._newest is None and restored is not None:
                self._rows_before = self._source_rows(restored)
            self._committed_epoch = max(self._committed_epoch, committed_epoch)
            self._amend_restart(generation=generation, restored_from="" if restored is None else restored.id)

    def registered(self, slots: Mapping[int, Register]) -> None:
        """All of them, and which one each is."""
        with self._lock:
            for slot, message in slots.items():
                self._slots[slot] = SlotView(slot, message.data_host, message.pid, False)

    def slot_runs(self, slot: int, kept_tables: int) -> None:
        with self._lock:
            self._slots[slot] = replace(self._slots[slot], running=True, kept_tables=kept_tables)

    def all_run(self, inflight_rows: int) -> None:
        with self._lock:
            self._state = ExecutionState.RUNNING
            self._amend_restart(
                running_ms=self._wall_ms(),
                duration_ms=(self._clock() - self._failed_s) * 1000,
                restored_inflight_rows=inflight_rows,
            )

    def failed(self, generation: int, cause: str) -> None:
        with self._lock:
            self._state = ExecutionState.RESTARTING
            if self._restarts and self._restarts[-1].running_ms is None:
                return  # it failed again before it ran: the time counts from the first failure
            self._failed_s = self._clock()
            self._restarts_begun += 1
            self._restarts.append(RestartView(generation, 0, cause, self._wall_ms()))

    def ended(self, failed: bool) -> None:
        with self._lock:
            self._state = ExecutionState.FAILED if failed else ExecutionState.STOPPED
            self._slots.clear()

    def sources_dry(self, dry: bool) -> None:
        self._dry = dry

    def metrics(self, message: SlotMetrics) -> None:
        with self._lock:
            for subtask in message.subtasks:
                self._metrics[subtask.vertex, subtask.index] = subtask
                self._count(subtask)

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def triggered(self, checkpoint: int, alignment: str) -> None:
        with self._lock:
            self._triggered_s[checkpoint] = self._clock()
            self._checkpoints[checkpoint] = CheckpointView(
                checkpoint,
                self._generation,
                alignment,
                False,
                "",
                CheckpointState.PENDING,
                self._wall_ms(),
                0.0,
            )
            for old in list(self._checkpoints)[:-REMEMBERED]:
                for known in (self._checkpoints, self._triggered_s, self._complete_s):
                    known.pop(old, None)

    def acknowledged(self, checkpoint: int) -> None:
        with self._lock:
            known = self._checkpoints.get(checkpoint)
            if known is not None:
                self._checkpoints[checkpoint] = replace(known, acknowledged=known.acknowledged + 1)

    def complete(self, metadata: SnapshotMetadata) -> None:
        with self._lock:
            checkpoint = metadata.checkpoint
            if self._newest is None or checkpoint > self._newest.checkpoint:  # a user's may complete after a newer one
                self._newest = metadata
            self._complete_s[checkpoint] = self._clock()
            self._counts[CheckpointState.COMPLETE] += 1
            self._amend_checkpoint(
                checkpoint,
                state=CheckpointState.COMPLETE,
                snapshot_id=metadata.id,
                requested=metadata.requested,
                label=metadata.label,
                subtasks=tuple(m for slot in metadata.slots for m in slot.metrics),
            )

    def aborted(self, checkpoint: int, reason: str) -> None:
        with self._lock:
            self._counts[CheckpointState.FAILED] += 1
            self._amend_checkpoint(checkpoint, state=CheckpointState.FAILED, reason=reason)

    def committed(self, epoch: int) -> EpochProgress | None:
        """Every epoch up to this one is visible: the progress since the last call; None before any snapshot."""
        with self._lock:
            self._committed_epoch = epoch
            metadata = self._newest
            if metadata is None:
                return None
            now, now_wall = self._clock(), self._wall()
            began, began_wall = self._epoch_began
            self._epoch_began = now, now_wall
            duration_s = max(now - began, 1e-3)
            complete_s = self._complete_s.get(epoch, now)
            triggered_s = self._triggered_s.get(epoch, complete_s)
            return EpochProgress(
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
            )

    # -- reading --------------------------------------------------------------------------------------------------

    def view(self) -> ExecutionView:
        """From any thread."""
        with self._lock:
            now = self._clock()
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
                sources_dry=self._dry,
                checkpoints_completed=self._counts[CheckpointState.COMPLETE],
                checkpoints_failed=self._counts[CheckpointState.FAILED],
                restarts_begun=self._restarts_begun,
            )

    def _up_to_date(self, checkpoint: CheckpointView, now: float) -> CheckpointView:
        if checkpoint.state is not CheckpointState.PENDING:
            return checkpoint
        return replace(checkpoint, duration_ms=(now - self._triggered_s[checkpoint.checkpoint]) * 1000)

    # -- with the lock held ---------------------------------------------------------------------------------------

    def _wall_ms(self) -> int:
        return int(self._wall() * 1000)

    def _amend_restart(self, **changes: object) -> None:
        """Of the restart that goes on, if one does."""
        if self._restarts and self._restarts[-1].running_ms is None:
            self._restarts[-1] = replace(self._restarts[-1], **changes)  # type: ignore[arg-type]

    def _amend_checkpoint(self, checkpoint: int, **changes: object) -> None:
        known = self._checkpoints.get(checkpoint)
        if known is not None:
            duration_ms = (self._clock() - self._triggered_s[checkpoint]) * 1000
            self._checkpoints[checkpoint] = replace(known, duration_ms=duration_ms, **changes)  # type: ignore[arg-type]

    def _count(self, metrics: SubtaskMetrics) -> None:
        """Counters begin at zero in each Generation: add up what they grow by."""
        values = {"rows_out": metrics.rows_out, DROPPED_LATE: metrics.counters.get(DROPPED_LATE, 0)}
        for name, value in values.items():
            key = (metrics.vertex, metrics.index, name)
            total = (metrics.vertex, name)
            self._totals[total] = self._totals.get(total, 0) + value - self._counted.get(key, 0)
            self._counted[key] = value

    def _source_rows(self, metadata: SnapshotMetadata) -> dict[str, int]:
        """Rows that each source had read at that snapshot, over the life of the location."""
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
        for vertex in self._graph.vertices:
            if vertex.source is not None:
                operator_id = vertex.source.operator_id
                rows = now[operator_id] - before.get(operator_id, 0)
                description = vertex.source.source.describe()
                latest = vertex.source.source.latest_offset()
                found.append(SourceProgress(operator_id, description, rows, rows / duration_s, latest))
        return tuple(found)

    def _sinks(self) -> tuple[SinkProgress, ...]:
        """By output. A vertex yields to its sink whatever it yields."""
        found = []
        for vertex in self._graph.vertices:
            if vertex.sink is not None:
                operator_id = vertex.sink.operator_id
                total = self._totals.get((vertex.id, "rows_out"), 0)
                rows = total - self._sinks_before.get(operator_id, 0)
                self._sinks_before[operator_id] = total
                found.append(SinkProgress(operator_id, vertex.sink.sink.describe(), rows))
        return tuple(sorted(found, key=lambda sink: sink.operator_id))

    def _watermark(self, metadata: SnapshotMetadata) -> int | None:
        """Of the snapshot's channels; without any channel, what the subtasks say themselves."""
        stored = [
            watermark
            for slot in metadata.slots
            for subtask in slot.subtasks
            for watermark in subtask.channel_watermarks.values()
        ]
        if stored:
            return min(stored)
        return min((m.watermark_us for m in self._metrics.values() if m.watermark_us is not None), default=None)

    def _states(self, metadata: SnapshotMetadata) -> tuple[StateProgress, ...]:
        rows: dict[str, int] = {}
        for slot in metadata.slots:
            for metrics in slot.metrics:
                for operator_id, count in metrics.state_rows.items():
                    rows[operator_id] = rows.get(operator_id, 0) + count
        found = []
        for vertex in self._graph.vertices:
            late = self._totals.get((vertex.id, DROPPED_LATE), 0)
            dropped = late - self._late_before.get(vertex.id, 0)
            self._late_before[vertex.id] = late
            of_chain = [known for (number, _), known in self._metrics.items() if number == vertex.id]
            held = sum(known.counters.get(STATE_BYTES, 0) for known in of_chain)
            for spec in vertex.operators:
                if spec.state_schemas:
                    state_rows = rows.get(spec.operator_id, 0)
                    found.append(StateProgress(spec.operator_id, spec.name, state_rows, dropped, held))
                    dropped = held = 0  # counted per chain: told once
        return tuple(found)
