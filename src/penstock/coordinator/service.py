"""Coordinator thread: it owns the job coordinator, sends its messages and has its commands executed.

All events (messages of slots, results of commands, calls of users) go through one queue that only this thread reads. It
also restarts the query: when a generation fails, its links are closed, so its slots end at once. Then the restart
strategy decides. The next generation is opened when the back-off is over and the old slots have ended.
"""

from __future__ import annotations

import queue
import random
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import assert_never

from penstock.connectors.base import SinkCommitter
from penstock.coordinator import failures
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.commands import (
    EXECUTED_AT_THE_END,
    AbandonStagedData,
    AnswerRequestFiles,
    AnswerTake,
    CheckLocation,
    Command,
    DrainRequested,
    EpochsCommitted,
    GenerationReady,
    JobEvent,
    LastSnapshotCommitted,
    LaunchSlots,
    Notice,
    NotifySourceCommitted,
    OpenGeneration,
    Output,
    QueryFinished,
    SnapshotCompleted,
    event_of_failure,
    executor_of,
)
from penstock.coordinator.generation_slots import GenerationPlan, GenerationSlots
from penstock.coordinator.generations import Generations
from penstock.coordinator.launching import SlotLauncher
from penstock.coordinator.machines.checkpoint_events import (
    CheckpointAborted,
    CheckpointPolicy,
    CommitEpoch,
    CommitFailed,
    FailGeneration,
    FailQuery,
    GenerationEnded,
    Ignored,
    PolicyChanged,
    SnapshotFailed,
    SnapshotRequest,
    SnapshotSucceeded,
    Tick,
)
from penstock.coordinator.machines.job import JobCoordinator, rows_read
from penstock.coordinator.machines.restarts import Failure, GiveUp, Restarts, Retries
from penstock.coordinator.machines.splits import Discover, FreezeSource
from penstock.coordinator.metrics import QueryMetrics
from penstock.coordinator.outage_reporter import OutageReporter
from penstock.coordinator.policy import policy_of, restart_policy_of, scaling_of
from penstock.coordinator.process_all_calls import ProcessAllCalls
from penstock.coordinator.rendezvous import SlotLost, SlotMessageReceived
from penstock.coordinator.request_files import RequestFiles, portable_writer
from penstock.coordinator.scaler import Scaler
from penstock.coordinator.serial_executors import SerialExecutors
from penstock.coordinator.service_events import Call, CommandDone, CommandRaised, EndQuery, QueueEvent
from penstock.coordinator.shutdown import await_slots, close_connectors, log_the_end
from penstock.coordinator.snapshot_tickets import SnapshotTickets
from penstock.coordinator.view import EpochProgress
from penstock.errors import CheckpointFailed, Fenced, PenstockError, QueryFailed, ResourceError, SinkError, SinkFenced
from penstock.logs import daemon_thread, get_logger
from penstock.model.elements import Alignment
from penstock.model.manifest import SnapshotMetadata
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    FromSlot,
    PollCompleted,
    ReaderProgressed,
    ReaderStatus,
    RequestSplit,
    SlotRunning,
    SubtaskFinished,
    ToSubtask,
    TriggerCheckpoint,
)
from penstock.network.messages import Register, SlotFailed, SlotLogged, SlotMetrics, Stopped
from penstock.network.transport import IoLoop
from penstock.snapshots.format.plan import plan_of
from penstock.snapshots.store.store import Store
from penstock.worker.log_relay import relayed

log = get_logger(__name__)

TICK_MS = 100.0
"""Maximum time between two checks of jobs, heartbeats and back-offs when no event arrives."""
MIN_TICK_MS = 5.0
EXECUTORS_TIMEOUT_S = 30.0
"""Time limit for running commands at the end: the outcome of a commit matters more than a quick end."""
PROGRESS_EXECUTOR = "progress"


def now_ms() -> float:
    return time.monotonic() * 1000


class CoordinatorService:
    """Thread of the driver that runs one query; see the module's docstring.

    Args:
        plan: constant part of all generations.
        store: the opened location.
        metrics: updated by this service.
        on_progress, on_end: see ``QueryExecution``.
    """

    def __init__(
        self,
        plan: GenerationPlan,
        store: Store,
        launcher: SlotLauncher,
        metrics: QueryMetrics,
        on_progress: Callable[[EpochProgress], None],
        on_end: Callable[[PenstockError | None], None],
    ) -> None:
        self._plan = plan
        self._metrics = metrics
        self._on_progress = on_progress
        self._on_end = on_end
        options, graph = plan.options, plan.graph
        self._job = JobCoordinator(graph, plan_of(graph), plan.query_id, policy_of(options), plan.until_available)
        sinks = [vertex.sink for vertex in graph.vertices if vertex.sink is not None]
        self._committers: dict[str, SinkCommitter] = {s.operator_id: s.sink.create_committer() for s in sinks}
        self._sources = {v.id: v.source.source for v in graph.vertices if v.source is not None}
        self._executor = CommandExecutor(
            graph,
            plan.query_id,
            store,
            committers=self._committers,
            sources=self._sources,
            token=lambda: secrets.token_hex(16),
            wall_ms=lambda: int(time.time() * 1000),
            retained=options.snapshots_retained,
            allow_older=options.allow_older_snapshot,
            allow_dropped=options.allow_dropped_state,
            forked=plan.forked,
            refuse_copy_of=plan.refuse_copy_of,
            committing=plan.committing,
        )
        self._restarts = Restarts(restart_policy_of(options))
        self._causes: dict[Failure, PenstockError] = {}
        self._queue: queue.SimpleQueue[QueueEvent] = queue.SimpleQueue()
        self._loop = IoLoop("penstock-driver-io", self._io_crashed)
        self._executors = SerialExecutors("penstock-driver")
        self._generations = Generations(launcher, self._loop, self._queue.put)
        self.scaling = scaling_of(options, graph)
        self._scaler = Scaler(
            self.scaling,
            launcher,
            snapshot=lambda future: self._snapshot(future, SnapshotRequest(Alignment.UNALIGNED, kept=False)),
            begin_again=lambda reason: self._queue.put(Call(lambda: self._begin_again(reason))),
        )
        self._outages = OutageReporter(metrics, Retries(restart_policy_of(options), options.sink_retry_timeout_ms))
        self._ticked_ms = 0.0
        self._verify = True
        self._tickets = SnapshotTickets()
        portable = portable_writer(store, lambda call: self._queue.put(Call(call)))
        self._request_files = RequestFiles(options, self._snapshot, self._answer, portable)
        self._executors_run = True
        self._source_vertices = [v.id for v in graph.vertices if v.source is not None]
        self._process_all = ProcessAllCalls(self._source_vertices, graph.parallelism, self._snapshot)
        self._started: Future[None] = Future()
        self.error: PenstockError | None = None
        self.all_committed = self.drained = False
        """True once all input has ended and is committed, unless the query failed. Drained: event time ended, too."""
        self.to_be_suspended = self.suspended = False
        """Requested (by any thread) and actual: an orderly end suspends the query. Another service may resume it."""
        self.ended = threading.Event()
        self.thread = daemon_thread(self._run, "penstock-coordinator")

    # -- from any thread ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread and wait until the slots of the first generation are requested. Raise if they cannot be."""
        self._loop.start()
        self.thread.start()
        self._started.result()

    def stop(self, error: PenstockError | None = None) -> None:
        """Request an orderly end, or an end with an error. ``ended`` is set after it."""
        self._queue.put(Call(lambda: self._raise_end(error)))

    def owns_current_thread(self) -> bool:
        """Return True if the caller is a callback, which must not wait for the end of this service."""
        current = threading.current_thread()
        return current is self.thread or current.name.startswith("penstock-driver-")

    def request_snapshot(self, request: SnapshotRequest) -> Future[SnapshotMetadata]:
        """Request a snapshot. The future is always resolved; its callbacks are called on the coordinator thread."""
        future = self._tickets.promise()
        self._queue.put(Call(lambda: self._snapshot(future, request)))
        return future

    def drain(self) -> Future[None]:
        """Request a drain; ``ended`` is set after it.

        The future is resolved when the drain begins. It fails with NotSupported or QueryFailed if the query continues.
        """
        future: Future[None] = Future()
        self._queue.put(Call(lambda: self._drain(future)))
        return future

    def rescale(self, parallelism: int) -> Future[None]:
        """Request a rescale; see ``QueryExecution.rescale``."""
        future: Future[None] = Future()
        self._queue.put(Call(lambda: self._scaler.rescale(parallelism, future, self._slots)))
        return future

    def change_policy(self, policy: CheckpointPolicy) -> None:
        self._queue.put(Call(lambda: self._feed(PolicyChanged(policy))))

    def process_all_available(self) -> Future[None]:
        future: Future[None] = Future()
        self._queue.put(Call(lambda: self._process_all.add(future)))
        return future

    @property
    def _slots(self) -> GenerationSlots | None:
        return self._generations.current

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: PenstockError | None = None
        try:
            self._carry_out(self._job.open())
            while True:
                self._turn()
        except EndQuery as end:
            error = end.error
        except PenstockError as problem:
            error = problem
        except Exception as problem:  # noqa: BLE001 - a bug must end the query with its cause, not silently
            error = QueryFailed(f"the coordinator failed: {type(problem).__name__}: {problem}")
            error.__cause__ = problem
        self._shut_down(error)

    def _turn(self) -> None:
        event = self._next_event((self._due_ms() - now_ms()) / 1000)
        if event is not None:
            self._handle(event)
        if now_ms() >= self._due_ms():
            self._tick()
        self._metrics.turned(self._job.is_idle, self._job.coordinator.garbage_collection().pinned)
        if self._slots is not None:
            self._process_all.pursue(self._slots, self._job)

    def _due_ms(self) -> float:
        """Return the time of the next tick, at least ``MIN_TICK_MS`` after the last one."""
        wakes = [self._ticked_ms + TICK_MS]
        wake_ms = self._job.next_wake_ms()
        wakes += [] if wake_ms is None else [wake_ms]
        wakes += [] if self._generations.reopen_at_ms is None else [self._generations.reopen_at_ms]
        return max(min(wakes), self._ticked_ms + MIN_TICK_MS)

    def _tick(self) -> None:
        self._ticked_ms = now_ms()
        self._feed(Tick())
        if self._outages.location_check_due(now_ms()):
            self._carry_out([CheckLocation()])
        if self._request_files.due(now_ms()):
            self._carry_out([self._job.answer_requests()])
        if self._queue.empty() and (overdue := self._generations.overdue(now_ms())) is not None:
            self._generation_failed(overdue, None)
        if self._generations.may_reopen(now_ms()):
            self._carry_out(self._job.open(checksums=self._verify, parallelism=self.scaling.parallelism))
        self._scaler.poll(self._slots, now_ms())

    def _handle(self, event: QueueEvent) -> None:
        match event:
            case SlotMessageReceived() if self._slots is not None and event.generation == self._slots.generation:
                self._slot_message_received(self._slots, event)
            case SlotLost() if self._slots is not None and event.generation == self._slots.generation:
                slot = self._slots.slot_of(event.task_number)
                text = f"{self._slots.describe(slot)} was lost: {event.reason}"
                self._generation_failed(Failure("lost", "", text), None)
            case SlotMessageReceived() | SlotLost():
                log.debug("%s is of a Generation that is over", event)
            case CommandDone(command, answer):
                self._outages.executed(answer, now_ms())
                if isinstance(command, Discover):
                    self._process_all.tracker.discovery_ended(command.vertex)
                    self._restarts.discovered(self._plan.graph.vertex(command.vertex).name)
                elif isinstance(command, AnswerRequestFiles):
                    self._request_files.polled(answer)
                if answer is not None:
                    self._feed(answer)
            case CommandRaised(command, error):
                self._command_raised(command, error)
            case Call(function):
                function()
            case _:
                assert_never(event)

    def _feed(self, event: JobEvent) -> None:
        self._carry_out(self._job.handle(event, now_ms()))

    # -- messages from slots ------------------------------------------------------------------------------------------

    def _slot_message_received(self, slots: GenerationSlots, received: SlotMessageReceived) -> None:
        slot, generation, message = slots.slot_of(received.task_number), received.generation, received.message
        slots.heard(slot, time.monotonic())
        match message:
            case Register():
                if slots.register(slot, message):
                    self._metrics.registered(slots.registered)
            case SlotRunning(kept_tables=kept):
                self._metrics.slot_runs(slot, kept)
                if slots.run(slot):
                    self._metrics.all_run()
                    self._scaler.running(slots)
                self._feed(FromSlot(generation, message))
            case AcknowledgeCheckpoint():
                self._metrics.acknowledged(message.checkpoint, message.limit_wait_ms, message.recovered_rows_read)
                self._feed(FromSlot(generation, message))
            case DeclineCheckpoint() | RequestSplit() | ReaderStatus() | SubtaskFinished():
                self._feed(FromSlot(generation, message))
            case PollCompleted(vertex, index, number):
                self._process_all.tracker.poll_completed(vertex, index, number)
            case SlotMetrics():
                self._metrics.metrics(message)
                for one in message.subtasks:
                    if one.vertex in self._source_vertices:
                        self._feed(FromSlot(generation, ReaderProgressed(one.vertex, one.index, one.watermark_us)))
            case SlotLogged():
                relayed(message)
            case SlotFailed(kind="link"):
                self._generations.link_broke(failures.failure_of(message), now_ms())
            case SlotFailed():
                self._generation_failed(failures.failure_of(message), failures.error_of(message))
            case Stopped():
                slots.note_stopped(slot)
            case _:
                assert_never(message)

    # -- outputs of the job coordinator -------------------------------------------------------------------------------

    def _carry_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Command):
                if isinstance(output, Discover):
                    self._process_all.tracker.discovery_begins(output.vertex)
                self._executors.put(
                    executor_of(output), partial(self._execute, output), isinstance(output, EXECUTED_AT_THE_END)
                )
            elif isinstance(output, ToSubtask):
                self._send(output)
            else:
                self._on_notice(output)

    def _on_notice(self, output: Notice) -> None:
        match output:
            case LaunchSlots(ready, paused):
                self._launch(ready, paused)
            case SnapshotCompleted(metadata):
                self._metrics.complete(metadata)
                self._restarts.completed(rows_read(metadata))
                self._outages.checkpoint_completed(self._restarts.attempts)
                self._tickets.exists(metadata)
            case EpochsCommitted(epoch):
                self._committed(epoch)
            case SnapshotSucceeded(ticket, checkpoint):
                self._tickets.succeeded(ticket, checkpoint)
            case SnapshotFailed(ticket, _, reason, missing):
                self._tickets.failed(ticket, self._metrics.explained(reason, missing))
            case FailGeneration(generation, reason):
                if self._slots is not None and generation == self._slots.generation:
                    self._generation_failed(Failure("checkpoints", "", reason), CheckpointFailed(reason))
            case QueryFinished():
                self.all_committed, self.drained = True, self._job.is_draining
                raise EndQuery(None)
            case LastSnapshotCommitted():
                raise EndQuery(None)
            case FailQuery(reason):
                error = QueryFailed(f"the sink cannot be committed: {reason}")
                error.__cause__ = SinkError(reason)
                raise EndQuery(error)
            case CheckpointAborted(checkpoint, reason, failed, missing):
                reason = self._metrics.aborted(checkpoint, reason, failed, missing)
                if failed and self._slots is not None:
                    self._outages.checkpoint_failed(checkpoint, reason)
            case Ignored():
                log.debug("ignored: %s", output)
            case _:
                assert_never(output)

    def _send(self, message: ToSubtask) -> None:
        if self._slots is None:
            return
        if isinstance(message, TriggerCheckpoint):
            request = self._job.coordinator.request_of(message.checkpoint)
            self._metrics.triggered(message.checkpoint, message.requested_alignment.value, request)
        self._slots.tell(message)

    def _execute(self, command: Command) -> None:  # on the executor's thread
        try:
            self._queue.put(CommandDone(command, self._executor.execute(command)))
        except Exception as problem:  # noqa: BLE001 - handed to the coordinator thread
            self._queue.put(CommandRaised(command, problem))

    def _committed(self, epoch: int) -> None:
        progress = self._metrics.committed(epoch)
        self._process_all.committed(epoch)
        if progress is not None:
            self._executors.put(PROGRESS_EXECUTOR, lambda: self._publish(progress))

    def _publish(self, progress: EpochProgress) -> None:
        try:
            self._on_progress(progress)
        except Exception:
            log.exception("a listener raised on the progress of epoch %d", progress.epoch)

    # -- generations --------------------------------------------------------------------------------------------------

    def _launch(self, ready: GenerationReady, paused: bool) -> None:
        self._metrics.opened(ready.opened.generation, ready.restored, ready.opened.committed_epoch, ready.inflight_rows)
        if ready.restored is not None:
            self._restarts.restored(rows_read(ready.restored))
        for reason in ready.skipped:
            log.warning("a newer snapshot was passed over: %s", reason)
        if ready.restored is not None and any(source.drained for source in ready.restored.sources):
            log.warning("the drain that was begun before is carried through, then the query ends")
        self._plan = replace(self._plan, graph=(graph := self._job.graph))
        self._metrics.rescaled(graph)
        self._process_all.tracker.rescaled(graph.parallelism)
        try:
            self._generations.launch(ready, self._plan, paused)
        except ResourceError as problem:
            if not self._started.done():
                raise
            self._generation_failed(Failure("resources", "", str(problem)), problem)
            return
        if not self._started.done():
            self._started.set_result(None)

    def _generation_failed(self, failure: Failure, error: PenstockError | None) -> None:
        """Handle a failed generation. ``error``: shown to the user if it is the first cause; None: use ``failure``."""
        if isinstance(error, failures.NEVER_RETRIED):
            raise EndQuery(error)
        generation = self._job.generation
        log.warning("the Generation failed: %s", failure.message)
        self._outages.generation_failed(failure.message)
        short = failure.kind == "resources" or (self._slots is not None and not self._slots.complete)
        self._give_up_generation(failure.message)
        if short and self._scaler.short_of_slots(now_ms()):
            self._metrics.failed(generation, failure.message)
            self._generations.reopen_at_ms = now_ms()
            return
        if error is not None:
            self._causes[failure] = error
        decision = self._restarts.failed(failure, now_ms(), random.random())
        if isinstance(decision, GiveUp):
            raise EndQuery(failures.gave_up(decision, self._causes.get(decision.first)))
        self._metrics.failed(generation, failure.message)
        self._verify = failure.kind not in ("lost", "link")  # otherwise slots check what they read
        self._generations.reopen_at_ms = decision.at_ms

    def _give_up_generation(self, reason: str) -> None:
        generation = self._job.generation
        self._generations.give_up()
        self.scaling.generation_ended()
        self._process_all.tracker.generation_ended()
        self._feed(GenerationEnded(generation, reason))

    def _command_raised(self, command: Command, error: Exception) -> None:
        match command:
            case OpenGeneration() if failures.may_pass(error) and self._started.done():
                self._job.opening_failed()
                self._generation_failed(*failures.recovery_failure(error))
            case _ if isinstance(error, Fenced) or isinstance(command, OpenGeneration):
                raise EndQuery(
                    error if isinstance(error, PenstockError) else failures.wrapped("recovery failed", error)
                )
            case Discover(generation=generation, vertex=vertex) | FreezeSource(generation=generation, vertex=vertex):
                if generation == self._job.generation and self._slots is not None:
                    name = self._plan.graph.vertex(vertex).name
                    cause = error if isinstance(error, PenstockError) else failures.wrapped(f"source {name}", error)
                    self._generation_failed(failures.discovery_failure(name, error), cause)
            case _ if isinstance(error, SinkFenced):
                self._feed(event_of_failure(command, str(error)))
                if self._slots is not None:
                    self._generation_failed(Failure("fenced", "", str(error)), error)
            case CommitEpoch():
                reason = f"{type(error).__name__}: {error}"
                self._feed(CommitFailed(command.epoch, command.operator_id, reason, unknown=True))
            case NotifySourceCommitted() | AbandonStagedData():
                log.warning("%s failed: %s; nothing is lost but space", type(command).__name__, error)
            case _:
                raise EndQuery(failures.wrapped(f"{type(command).__name__} failed", error))

    def _io_crashed(self, problem: BaseException) -> None:
        self._queue.put(Call(lambda: self._raise_end(failures.wrapped("the driver's I/O thread failed", problem))))

    def _raise_end(self, error: PenstockError | None) -> None:
        raise EndQuery(error)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _drain(self, future: Future[None]) -> None:
        try:
            for source in self._sources.values():
                source.check_freezable()
            self._job.check_drainable()
        except PenstockError as refusal:
            future.set_exception(refusal)
            return
        self._feed(DrainRequested())
        future.set_result(None)

    def _snapshot(self, future: Future[SnapshotMetadata], request: SnapshotRequest) -> None:
        self._feed(self._tickets.issue(future, request))

    def _answer(self, command: AnswerTake) -> None:
        if self._executors_run:
            self._carry_out([command])
        else:
            self._executor.execute(command)

    def _begin_again(self, why: str) -> None:
        """Give up the current generation in favor of one with another parallelism."""
        self._give_up_generation(why)
        self._metrics.left(replace(self._plan.graph, parallelism=self.scaling.parallelism))
        self._verify = False
        self._generations.reopen_at_ms = now_ms()

    # -- the end ------------------------------------------------------------------------------------------------------

    def _shut_down(self, error: PenstockError | None) -> None:
        try:
            self._end_slots(orderly=error is None)
            self._executors.stop(EXECUTORS_TIMEOUT_S, finish=PROGRESS_EXECUTOR, hurried="source ")
            self._executors_run = False
            while (event := self._next_event(0)) is not None:
                self._take_late(event)
            error = log_the_end(self._executor, self._job.coordinator, error)
        except Exception as problem:  # noqa: BLE001 - the query ends anyway; the first error is kept
            error = error or failures.wrapped("the query could not be ended orderly", problem)
        finally:
            close_connectors([*self._sources.values(), *self._committers.values()])
            self._loop.stop()
            self._finish(error)

    def _finish(self, error: PenstockError | None) -> None:
        self.all_committed, self.drained = self.all_committed and error is None, self.drained and error is None
        self.error, self.suspended = error, error is None and self.to_be_suspended and not self.all_committed
        self._metrics.ended(failed=error is not None, suspended=self.suspended)
        reason = "the query " + ("is suspended" if self.suspended else f"failed: {error}" if error else "has ended")
        self._tickets.query_ended(reason)
        self._executor.refuse_takes(reason)  # of the last poll, whose result came too late
        if self.all_committed:
            self._process_all.all_committed()
        self._process_all.query_ended(error, suspended=self.suspended)
        self._scaler.query_ended(error)
        if not self._started.done():
            self._started.set_exception(error or QueryFailed(reason))
            self.ended.set()
            return
        try:
            self._on_end(error)
        except Exception:
            log.exception("a listener raised on the end of the query")
        self.ended.set()

    def _end_slots(self, orderly: bool) -> None:
        def await_end(slots: GenerationSlots) -> None:
            await_slots(slots, lambda: self._next_event(TICK_MS / 1000), self._metrics.slot_gone, self._take_late)

        generation = self._generations.end(await_end if orderly else None)
        if generation is not None:
            self._job.handle(GenerationEnded(generation, "the query ends"), now_ms())

    def _next_event(self, timeout_s: float) -> QueueEvent | None:
        try:
            return self._queue.get(timeout=timeout_s) if timeout_s > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None

    def _take_late(self, event: object) -> None:
        """Handle the result of a command after the end. No further command is started."""
        if isinstance(event, CommandDone) and event.event is not None:
            self._job.handle(event.event, now_ms())
