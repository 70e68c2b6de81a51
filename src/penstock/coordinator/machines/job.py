"""Job coordinator: pure state machine of the driver. The coordinator service and the simulator both drive it.

``JobCoordinator`` owns the other state machines. ``handle(event, now_ms)`` returns outputs in order: messages for
slots, notices for the query's owner, and commands. ``CommandExecutor`` executes a command, which may block, and returns
the event for ``handle``, if there is one. Commands of one serial executor (``commands.executor_of``) are executed one
at a time, in the order in which they were returned. The real driver gives each executor a thread; the simulator
executes each command as a separate step::

    outputs = job.open()                    # an OpenGeneration; its GenerationReady is answered with LaunchSlots
    event = executor.execute(command)       # on the executor's thread; Fenced ends the driver
    outputs = job.handle(event, now_ms)     # on the owner's thread

A generation ends with the event ``GenerationEnded``; then ``open`` begins the next. Tickets of the owner's
``SnapshotRequested`` are positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

import msgspec

from penstock.coordinator.commands import (
    AbandonStagedData,
    AnswerRequestFiles,
    CollectionFailed,
    DrainRequested,
    EpochsCommitted,
    GenerationReady,
    JobEvent,
    LastSnapshotCommitted,
    LaunchSlots,
    LocationChecked,
    NotifySourceCommitted,
    OpenGeneration,
    Output,
    QueryFinished,
    SnapshotCompleted,
    TakesRequested,
    WriteSnapshot,
)
from penstock.coordinator.machines.checkpoint_events import (
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCommand,
    CheckpointCompleted,
    CheckpointEvent,
    CheckpointPolicy,
    FailGeneration,
    GenerationEnded,
    MetadataWritten,
    SnapshotFailed,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
    WriteMetadata,
)
from penstock.coordinator.machines.checkpoints import CheckpointCoordinator
from penstock.coordinator.machines.commits import CommitLedger
from penstock.coordinator.machines.endings import Ending
from penstock.coordinator.machines.event_time_rounds import EventTimeRounds
from penstock.coordinator.machines.splits import (
    Discover,
    Freeze,
    Pause,
    ReleaseDiscovery,
    SourceCapture,
    SplitAssigner,
    SplitCommand,
    SplitEvent,
    SplitsFound,
    last_fully_read,
)
from penstock.errors import ProtocolViolation, QueryFailed
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId, GenerationId, SubtaskId, snapshot_id
from penstock.model.job_graph import ONE_CLOCK, JobGraph
from penstock.model.manifest import FORMAT_VERSION, PlanManifest, SnapshotMetadata
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    FromSlot,
    MessageOfSlot,
    ReaderProgressed,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    SubtaskFinished,
    TriggerCheckpoint,
)
from penstock.model.splits import Split

PLANNED_TICKET = 0
"""Ticket of the checkpoint that covers a planned batch. Tickets of users are positive, those of the end negative."""


class JobCoordinator:
    """State machine of one driver, over all its generations.

    Args:
        graph: the job.
        plan: the part of it that snapshots store (``snapshots.format.plan.plan_of``).
        query_id: id of the query at this location.
        policy: policy of periodic checkpoints.
        until_available: read the input available when a generation begins, and end.
    """

    def __init__(
        self,
        graph: JobGraph,
        plan: PlanManifest,
        query_id: str,
        policy: CheckpointPolicy,
        until_available: bool = False,
    ) -> None:
        self._graph = graph
        self._query_id = query_id
        self._plan = plan
        sinks = {v.id: v.sink.operator_id for v in graph.vertices if v.sink is not None}
        self._coordinator = CheckpointCoordinator(policy, graph.parallelism, CommitLedger(sinks))
        self._assigners: dict[int, SplitAssigner] = {}
        self._freeze = Freeze() if until_available else None
        self._ending = Ending(len(graph.vertices) * graph.parallelism)
        self._captures: dict[CheckpointId, list[SourceCapture]] = {}
        self._metadata: dict[CheckpointId, SnapshotMetadata] = {}
        self._rounds: dict[int, EventTimeRounds] = {}
        self._endless = {v.id for v in graph.vertices if v.source is not None and v.source.source.is_clock_driven}
        self._running: set[int] = set()
        self._opening = False
        self._abandon: tuple[GenerationId, CheckpointId] | None = None
        self._reported_epoch = 0
        self._planned: int | None = None
        self._covers_planned = False
        self._paused = False

    # -- read access -----------------------------------------------------------------------------------------

    @property
    def coordinator(self) -> CheckpointCoordinator:
        """Checkpoint coordinator, for reading only; pass events to ``handle``."""
        return self._coordinator

    @property
    def generation(self) -> GenerationId:
        return self._coordinator.generation

    @property
    def graph(self) -> JobGraph:
        """The job at the parallelism of the current generation."""
        return self._graph

    @property
    def assigners(self) -> Sequence[SplitAssigner]:
        """Split assigners in the order of their vertices, for reading only. Empty between two generations."""
        return [self._assigners[vertex] for vertex in sorted(self._assigners)]

    @property
    def is_idle(self) -> bool:
        """True while every source is idle, has found nothing since, and event time has reached the largest seen one."""
        idle = bool(self._assigners) and all(assigner.is_idle for assigner in self._assigners.values())
        return idle and all(rounds.is_aligned for rounds in self._rounds.values())

    @property
    def is_idle_except_endless(self) -> bool:
        """Like ``is_idle``, but without the endless sources and without the event time that they share."""
        moving = [self._rounds[vertex] for vertex in self._endless & self._rounds.keys()]
        idle = all(assigner.is_idle for vertex, assigner in self._assigners.items() if vertex not in self._endless)
        aligned = all(rounds.is_aligned for rounds in self._rounds.values() if rounds not in moving)
        return bool(self._assigners) and idle and aligned

    @property
    def is_draining(self) -> bool:
        """True once a drain has begun: event time ends, then the query."""
        return self._freeze is not None and self._freeze.drain

    def check_drainable(self) -> None:
        """Raise QueryFailed if the query cannot be drained because a source has already ended."""
        if not all(assigner.can_drain for assigner in self.assigners):
            raise QueryFailed(
                "a source of this query has come to its end already, and its event time with it: the query ends by "
                "itself (awaitTermination()) and leaves open windows open; the next run can be drained from its start"
            )

    @property
    def finished_sources(self) -> tuple[int, ...]:
        """Source vertices whose discovery is finished, in order: nothing more is discovered in this run."""
        return tuple(vertex for vertex in sorted(self._assigners) if self._assigners[vertex].finished)

    @property
    def discovery_not_awaited(self) -> frozenset[int]:
        """Source vertices whose next discovery need not be awaited: it is finished, or the source is endless."""
        return frozenset(self._endless.union(self.finished_sources))

    def next_wake_ms(self) -> float | None:
        """Return the time at which the next ``Tick`` has an effect; None if only another event can have one."""
        times = [self._coordinator.next_wake_ms(), self._ending.next_wake_ms()]
        times += [assigner.next_wake_ms() for assigner in self._assigners.values()]
        return min((time for time in times if time is not None), default=None)

    def answer_requests(self) -> AnswerRequestFiles:
        """Return the command that answers request files. The owner executes it at once, about once per second."""
        return AnswerRequestFiles(self._coordinator.garbage_collection())

    # -- event handling -----------------------------------------------------------------------------------------------

    def open(self, *, checksums: bool = True, parallelism: int | None = None) -> list[Output]:
        """Begin the next generation. No other generation may be open.

        Args:
            checksums: verify every byte of the restored snapshot, not only lengths.
            parallelism: parallelism of this generation and later ones; None: as before.
        """
        if self._opening or self._assigners or self._running:
            raise ProtocolViolation("driver", f"Generation {self.generation} is alive", "open")
        self._opening = True
        if parallelism is not None and parallelism != self._graph.parallelism:
            self._graph = replace(self._graph, parallelism=parallelism)
            self._ending.rescaled(len(self._graph.vertices) * parallelism)
        known = self._coordinator
        next_checkpoint = None if self.generation == 0 else known.next_checkpoint
        return [OpenGeneration(known.committed_epoch, next_checkpoint, checksums, self._graph.parallelism)]

    def opening_failed(self) -> None:
        """Record that OpenGeneration raised an exception. ``open`` may be called again."""
        self._opening = False

    def handle(self, event: JobEvent, now_ms: float) -> list[Output]:
        """Handle one event. Execute the outputs in order.

        ``now_ms`` is any monotonic clock. Events of slots must carry the generation of the link on which they arrived.
        """
        outputs: list[Output] = []
        match event:
            case GenerationReady():
                outputs += self._on_ready(event, now_ms)
            case FromSlot(generation, message):
                if generation != self.generation or not self._assigners:
                    return []  # of a generation that has ended
                outputs += self._on_message(message, now_ms)
            case SplitsFound() if event.generation == self.generation and event.vertex in self._assigners:
                outputs += self._assign(event.vertex, event, now_ms)
            case SplitsFound():
                return []  # of a generation that has ended
            case DrainRequested():
                outputs += self._drain(now_ms)
            case CollectionFailed():
                return []  # only space is lost
            case TakesRequested() | LocationChecked():
                return []  # handled by the owner
            case GenerationEnded() if event.generation == self.generation:
                self._planned = None
                outputs += self._coordinate(event, now_ms)
                self._assigners.clear()
                self._rounds.clear()
                self._running.clear()
                self._ending.generation_ended()
            case MetadataWritten() if event.checkpoint in self._metadata:
                written = self._metadata[event.checkpoint]
                self._metadata[event.checkpoint] = msgspec.structs.replace(written, created_ms=event.created_ms)
                outputs += self._coordinate(event, now_ms)
            case Tick():
                outputs += self._coordinate(event, now_ms)
                outputs += self._assign_all(event, now_ms)
            case _:  # the type checker checks that only CheckpointEvent is left
                outputs += self._coordinate(event, now_ms)
        outputs += self._request_checkpoint(now_ms)
        pause = self._pause(now_ms)
        outputs = pause + outputs if self._paused else outputs + pause  # before a trigger, and after a failure
        return outputs + self._completions()

    def _on_message(self, message: MessageOfSlot, now_ms: float) -> list[Output]:
        match message:
            case AcknowledgeCheckpoint() | DeclineCheckpoint():
                return self._coordinate(message, now_ms)
            case SlotRunning(slot):
                return self._on_running(slot, now_ms)
            case RequestSplit() | ReaderStatus() | ReaderProgressed():
                return self._assign(message.vertex, message, now_ms) if message.vertex in self._assigners else []
            case SubtaskFinished(vertex, index):
                self._ending.subtask_finished(SubtaskId(vertex, index), self._coordinator.next_checkpoint, now_ms)
                return []
            case _:
                assert_never(message)

    def _on_ready(self, event: GenerationReady, now_ms: float) -> list[Output]:
        self._opening = False
        metadata, opened = event.restored, event.opened
        outputs = self._coordinate(opened, now_ms)
        self._planned, self._covers_planned = opened.planned, False
        self._paused = self._drains_inflight
        self._captures.clear()
        self._metadata.clear()
        self._abandon = (opened.generation - 1, opened.restored) if opened.generation > 1 else None
        manifests = {} if metadata is None else {manifest.vertex: manifest for manifest in metadata.sources}
        if any(manifest.drained for manifest in manifests.values()):
            # The driver that took that snapshot has begun to drain, and the drain must be completed.
            self._freeze = Freeze(drain=True)
        groups: dict[str, list[int]] = {}
        for vertex in self._graph.vertices:
            if vertex.source is not None:
                groups.setdefault(vertex.source.clock or f"vertex {vertex.id}", []).append(vertex.id)
                self._assigners[vertex.id] = SplitAssigner(
                    opened.generation,
                    vertex.source.operator_id,
                    vertex.id,
                    self._graph.parallelism,
                    manifests.get(vertex.id),
                    [] if metadata is None else [split.split_id for split in unread_splits(metadata, vertex.id)],
                    vertex.source.source.discovers_ahead,
                    discovery_held=opened.planned is not None,
                    paused=self._paused,
                )
        for name, group in groups.items():
            rounds = EventTimeRounds([self._assigners[vertex] for vertex in group], eager=name == ONE_CLOCK)
            self._rounds |= dict.fromkeys(group, rounds)
        return [LaunchSlots(event, self._paused), *outputs, *self._freeze_all(now_ms)]

    def _freeze_all(self, now_ms: float) -> list[Output]:
        """Freeze the sources of an "available now" run or a drain. A planned batch is processed first."""
        if self._freeze is None or self._planned is not None:
            return []
        return self._assign_all(self._freeze, now_ms)

    def _on_running(self, slot: int, now_ms: float) -> list[Output]:
        if not 0 <= slot < self._graph.parallelism:
            return []
        self._running.add(slot)
        if len(self._running) < self._graph.parallelism:
            return []
        running = AllSlotsRunning(self.generation)
        return [*self._coordinate(running, now_ms), *self._assign_all(running, now_ms)]

    @property
    def _drains_inflight(self) -> bool:
        """True if sources must not read. A planned batch is read first."""
        return self._coordinator.is_draining_inflight and self._planned is None

    def _pause(self, now_ms: float) -> list[Output]:
        """Pause or resume the sources."""
        if self._paused == self._drains_inflight or len(self._running) < self._graph.parallelism:
            return []
        self._paused = not self._paused
        return self._assign_all(Pause(self._paused), now_ms)

    def _drain(self, now_ms: float) -> list[Output]:
        self.check_drainable()
        self._freeze = Freeze(drain=True)
        return self._freeze_all(now_ms)

    def _assign_all(self, event: SplitEvent, now_ms: float) -> list[Output]:
        return [output for vertex in sorted(self._assigners) for output in self._assign(vertex, event, now_ms)]

    def _assign(self, vertex: int, event: SplitEvent, now_ms: float) -> list[Output]:
        outputs: list[Output] = []
        rounds = self._rounds[vertex]
        commands: list[SplitCommand] = list(self._assigners[vertex].handle(event, now_ms))
        for command in [*commands, *rounds.handled(vertex, event, commands)]:
            if isinstance(command, Discover):
                rounds.discovery_begins(vertex)
            outputs.append(command)
        return outputs

    def _coordinate(self, event: CheckpointEvent, now_ms: float) -> list[Output]:
        commands = self._coordinator.handle(event, now_ms)
        return [output for command in commands for output in self._carry_out(command, now_ms)]

    def _carry_out(self, command: CheckpointCommand, now_ms: float) -> list[Output]:
        """Return the outputs for a command of the checkpoint coordinator."""
        match command:
            case TriggerCheckpoint():
                self._captures[command.checkpoint] = [a.capture() for a in self.assigners]
                return [command]
            case WriteMetadata():
                metadata = self._metadata_of(command)
                self._metadata[command.checkpoint] = metadata
                return [WriteSnapshot(metadata)]
            case CheckpointCompleted():
                return self._on_completed(command.checkpoint, now_ms)
            case CheckpointAborted():
                self._captures.pop(command.checkpoint, None)
                self._metadata.pop(command.checkpoint, None)
                return [command]
            case SnapshotSucceeded() if command.ticket <= 0:
                return []
            case SnapshotFailed() if command.ticket == PLANNED_TICKET:
                return self._planned_failed(command.reason)
            case SnapshotFailed() if command.ticket < 0:
                self._ending.refused(command.ticket)
                return []
            case _:
                return [command]

    def _planned_failed(self, reason: str) -> list[Output]:
        """Process the planned batch again from its start.

        Some subtasks may have ended the epoch and others not, so continuing would split the batch into two epochs.
        """
        if self._planned is None:
            return []  # the checkpoint failed because its generation ended
        text = f"the checkpoint of batch {self._planned}, which Spark had planned, failed: {reason}"
        return [FailGeneration(self.generation, text)]

    def _metadata_of(self, command: WriteMetadata) -> SnapshotMetadata:
        sources = [capture.manifest for capture in self._captures[command.checkpoint]]
        return SnapshotMetadata(
            format_version=FORMAT_VERSION,
            id=snapshot_id(command.checkpoint),
            query_id=self._query_id,
            generation=command.generation,
            checkpoint=command.checkpoint,
            alignment=command.alignment.value,
            requested=command.requested,
            label=command.label,
            note=command.note,
            created_ms=0,
            parallelism=self._graph.parallelism,
            max_parallelism=self._graph.max_parallelism,
            slots=list(command.slots),
            sources=sources,
            plan=self._plan,
            drained=self._ending.covers(command.checkpoint) and all(source.drained for source in sources),
            batches=dict(command.batches),
            next_batch=command.next_batch,
        )

    def _on_completed(self, checkpoint: CheckpointId, now_ms: float) -> list[Output]:
        """Report a complete snapshot to the owner, and to each source how far its input has been read."""
        metadata = self._metadata.pop(checkpoint)
        if metadata.generation == self.generation:
            self._ending.completed(checkpoint)
        outputs: list[Output] = [SnapshotCompleted(metadata)]
        if self._planned is not None and metadata.generation == self.generation:
            self._planned = None
            outputs += self._assign_all(ReleaseDiscovery(), now_ms) + self._freeze_all(now_ms)
        for capture in self._captures.pop(checkpoint):
            vertex = capture.manifest.vertex
            discovery = last_fully_read(capture, [split.split_id for split in unread_splits(metadata, vertex)])
            assigner = self._assigners.get(vertex) if metadata.generation == self.generation else None
            if discovery is not None and assigner is not None and assigner.mark_read(discovery):
                outputs.append(NotifySourceCommitted(vertex, discovery.state))
        return outputs

    def _request_checkpoint(self, now_ms: float) -> list[Output]:
        """Request the checkpoint of a planned batch that has been read, or the final checkpoint after all input ended.

        The checkpoint of a planned batch has no in-flight data. The final checkpoint waits for nothing and need not be
        kept.
        """
        if self._planned is not None:
            if self._covers_planned or not all(assigner.readers_idle for assigner in self.assigners):
                return []
            self._covers_planned = True
            request = SnapshotRequested(Alignment.ALIGNED, kept=False, planned=True, ticket=PLANNED_TICKET)
            return self._coordinate(request, now_ms)
        ticket = self._ending.ask(now_ms)
        if ticket is None:
            return []
        return self._coordinate(SnapshotRequested(Alignment.UNALIGNED, kept=False, ticket=ticket), now_ms)

    def _completions(self) -> list[Output]:
        outputs: list[Output] = []
        committed = self._coordinator.committed_epoch
        if committed > self._reported_epoch:
            self._reported_epoch = committed
            outputs.append(EpochsCommitted(committed))
        if self._abandon is not None and committed >= self._abandon[1]:
            outputs.append(AbandonStagedData(self._abandon[0]))
            self._abandon = None
        if not self._coordinator.has_user_requests and self._ending.over(committed):
            outputs.append(QueryFinished(committed))
        if last := self._coordinator.committed_last:
            outputs.append(LastSnapshotCommitted(last))
        return outputs

    def check_invariants(self) -> None:
        self._coordinator.check_invariants()
        self._ending.check_invariants()
        for assigner in self._assigners.values():
            assigner.check_invariants()
        in_flight = self._coordinator.in_flight
        assert sorted(self._captures) == list(in_flight), "every checkpoint in flight has its sources' side"
        assert all(checkpoint in in_flight for checkpoint in self._metadata), "metadata of dead checkpoints is gone"


def unread_splits(metadata: SnapshotMetadata, vertex: int) -> list[Split]:
    """Return the splits that a snapshot's readers of one source vertex hold."""
    return [
        split
        for slot in metadata.slots
        for subtask in slot.subtasks
        if subtask.vertex == vertex
        for split in subtask.splits
    ]


def rows_read(metadata: SnapshotMetadata) -> int:
    """Return the number of rows that all sources have read up to a snapshot, over the life of the location."""
    sources = [source.vertex for source in metadata.sources]
    return sum(subtask.rows_in for slot in metadata.slots for subtask in slot.subtasks if subtask.vertex in sources)
