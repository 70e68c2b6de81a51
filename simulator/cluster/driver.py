"""Simulated driver: the real job coordinator and command executor, with serial executors as actors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from penstock.config import Options
from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.commands import (
    AnswerRequestFiles,
    Command,
    DrainRequested,
    GenerationReady,
    JobEvent,
    LastSnapshotCommitted,
    LaunchSlots,
    OpenGeneration,
    Output,
    QueryFinished,
    SnapshotCompleted,
    WriteSnapshot,
    executor_of,
)
from penstock.coordinator.machines.checkpoint_events import (
    CheckpointAborted,
    CheckpointPolicy,
    CollectGarbage,
    CommitEpoch,
    CommitFailed,
    FailGeneration,
    FailQuery,
    GenerationEnded,
    PolicyChanged,
    SnapshotFailed,
    SnapshotRequest,
    SnapshotSucceeded,
    Tick,
)
from penstock.coordinator.machines.job import JobCoordinator, rows_read
from penstock.coordinator.machines.restarts import Failure, GiveUp, RestartPolicy, Restarts
from penstock.coordinator.machines.splits import Discover, FreezeSource
from penstock.coordinator.request_files import POLL_INTERVAL_MS, RequestFiles
from penstock.coordinator.snapshot_tickets import DRAINED, SnapshotTickets
from penstock.errors import CorruptSnapshot, Fenced, LocationError, PlanChanged, ProtocolViolation, QueryFailed
from penstock.model.elements import Alignment
from penstock.model.ids import CheckpointId
from penstock.model.manifest import SnapshotMetadata
from penstock.model.messages import (
    AbortCheckpoint,
    AdvanceWatermark,
    AssignSplits,
    FreezeReaders,
    FromSlot,
    NoMoreSplits,
    NotifyCheckpointComplete,
    PauseReaders,
    ReaderProgressed,
    SourceIdle,
    ToSubtask,
    TriggerCheckpoint,
)
from penstock.snapshots.format.plan import plan_of
from penstock.snapshots.writing.state_index import DELTA
from penstock.testing.failure import SimulationFailure
from simulator.cluster.generation import SimulatedGeneration
from simulator.cluster.slot import SimulatedSlot, SlotFailed, ToDriver
from simulator.engine.coroutine import Coroutine, coroutine_of
from simulator.engine.scheduler import Actor
from simulator.engine.store import Crash
from simulator.engine.world import World
from simulator.jobs.sources import source_of
from simulator.oracles.drains import DrainWatch
from simulator.oracles.event_time import EventTimeWatch
from simulator.oracles.requests import RequestWatch
from simulator.oracles.splits import SplitWatch

RESTARTS = RestartPolicy(attempts=1_000, delay_ms=10, max_delay_ms=500)
"""A schedule has more faults than a query should."""
MANY_CHECKPOINTS = 10
"""After so many complete ones the user lengthens the interval: a schedule is to be short."""
REQUEST_TIMEOUT_MS = 2_000
SUMMARY_EVERY = 8
"""Entries of the log that a summary covers: a schedule is too short for the real number."""


class _SerialExecutor:
    """Serial executor of a driver: runs the commands of one kind, one at a time."""

    def __init__(self, driver: SimulatedDriver, name: str) -> None:
        self.commands: deque[Command] = deque()
        self.coroutine: Coroutine | None = None
        self._ends_ms: float | None = None
        self.actor = Actor(f"{driver.name} {name}", self._act)
        self._driver = driver

    def _act(self) -> bool:
        driver = self._driver
        if self.coroutine is None:
            if not self.commands:
                return False
            driver.world.context.note(type(self.commands[0]).__name__)
            self.coroutine = coroutine_of(driver.executor.execute, self.commands[0])
        coroutine, context = self.coroutine, driver.world.context
        if self._ends_ms is None:
            try:
                done = driver.world.run_as(driver, coroutine)
            except Crash:
                driver.die()
                return False
            except Exception as problem:  # noqa: BLE001 - judged as the coordinator service does
                self.coroutine = None
                driver.command_raised(self.commands.popleft(), problem)
                return driver.alive and bool(self.commands)
            if not done:
                return True
            self._ends_ms = context.now_ms + (
                driver.world.settings.look_ms if isinstance(self.commands[0], Discover) else 0
            )
        if context.now_ms < self._ends_ms:
            driver.world.scheduler.wake(self.actor, self._ends_ms)
            return False
        self.coroutine, self._ends_ms = None, None
        work = self.commands.popleft()
        if coroutine.result is not None:
            driver.feed(coroutine.result)
        driver.executed(work, coroutine.result)
        return driver.alive and bool(self.commands)


class SimulatedDriver:
    """Driver process; several may run at one location.

    Args:
        checkpoints: False: only checkpoints that users request are triggered.
        takes_input: see ``SimulatedGeneration``.

    Attributes:
        policy: current checkpoint policy of its coordinator.
        sources: its sources, by vertex.
        frozen_ms: time at which it first froze the sources of the current Generation; None: it has not.
    """

    def __init__(self, name: str, world: World, checkpoints: bool = True, takes_input: bool = True) -> None:
        self.name = name
        self.world = world
        self.alive = True
        self.current: SimulatedGeneration | None = None
        self.on_death: Callable[[SimulatedDriver], None] = lambda driver: None
        self.splits = SplitWatch(world)
        self._event_time = EventTimeWatch(self)
        self._watched_requests = RequestWatch(self)
        self._watched_drains = DrainWatch()
        policy = world.settings.policy()
        if not checkpoints:
            never_ms = 1 << 40
            policy = replace(policy, interval_ms=never_ms, after_restore_ms=never_ms)
        self.policy = policy
        self.job = JobCoordinator(world.graph, plan_of(world.graph), "query", policy, world.settings.until_available)
        graph = world.graph
        self.sources = {
            v.id: source_of(world.settings, v.id, lambda: world.context.now_ms) for v in graph.vertices if v.source
        }
        self.frozen_ms: float | None = None
        self.executor = CommandExecutor(
            graph,
            "query",
            world.store,
            committers={v.sink.operator_id: v.sink.sink.create_committer() for v in graph.vertices if v.sink},
            sources={**self.sources},
            token=world.context.token,
            wall_ms=lambda: int(world.context.now_ms),
            retained=world.settings.retained,
            allow_older=world.settings.allow_older,
            summary_every=SUMMARY_EVERY,
        )
        self._restarts = Restarts(RESTARTS)
        self._takes_input = takes_input
        self._executors: dict[str, _SerialExecutor] = {}
        self._tickets = SnapshotTickets()
        self._requests = RequestFiles(
            # What a file left behind asks for, an aligned one, would need input to be read.
            Options(checkpoint_alignment=Alignment(world.settings.alignment) if takes_input else Alignment.UNALIGNED),
            self._take,
            lambda answer: self._carry_out([answer]),
            lambda native, tell: native.add_done_callback(tell),
        )
        self._stopping: Future[SnapshotMetadata] | None = None
        self._declines = False
        self._completed = 0
        self._until_check = 0
        self._actor_tick = Actor(f"{name} ticks", self._tick)
        self._actor_reopen = Actor(f"{name} reopens", self._open)
        self._open()

    # -- life ---------------------------------------------------------------------------------------------------------

    @property
    def sound(self) -> bool:
        """No recovery is on its way or about to be: it might pass over what a fault has spoilt and take rows back."""
        return self.current is not None and all(slot.alive for slot in self.current.slots)

    def die(self) -> None:
        """Like ``kill -9``: nothing is closed, the slots will notice."""
        if not self.alive:
            return
        self.alive = False
        scheduler = self.world.scheduler
        for actor in (self._actor_tick, self._actor_reopen, *(executor.actor for executor in self._executors.values())):
            scheduler.end(actor)
        for executor in self._executors.values():
            if executor.coroutine is not None:
                executor.coroutine.kill(self.world.store)
        self._give_up_generation()
        self.on_death(self)

    def relax(self) -> None:
        """The user sees that checkpoints do not get through, and asks for less."""
        policy = replace(self.policy, timeout_ms=5_000, tolerable_failures=None, interval_ms=400)
        if policy.alignment is Alignment.ALIGNED:
            policy = replace(policy, alignment=Alignment.UNALIGNED)
        self._change_policy(policy)

    def _change_policy(self, policy: CheckpointPolicy) -> None:
        self.policy = policy
        self._watched_requests.disturbed()
        self.feed(PolicyChanged(policy))

    def request_snapshot(self, alignment: Alignment, timeout_ms: int | None = REQUEST_TIMEOUT_MS) -> None:
        self._take(Future(), SnapshotRequest(alignment, timeout_ms=timeout_ms))

    def stop_with_snapshot(self, drain: bool = False, declined: bool = False) -> None:
        """Stop the query with a last snapshot, as a user does.

        ``drain``: the snapshot has no in-flight data. ``declined``: a slot cannot write it, and the query continues.
        """
        if self._stopping is None and not self.job.is_draining:
            self._stopping = Future()
            last = SnapshotRequest(Alignment(self.world.settings.alignment), last=True)
            self._take(self._stopping, DRAINED if drain else last)
            self._declines = declined
            self.world.counters.count("in-flight drains", drain)

    def _take(self, future: Future[SnapshotMetadata], request: SnapshotRequest) -> None:
        requested = self._tickets.issue(future, request)
        self._watched_requests.requested(requested)
        self._watched_drains.requested(requested)
        self.feed(requested)

    def drain(self) -> None:
        """A user ends the query."""
        try:
            self.job.check_drainable()
        except QueryFailed:
            self.world.counters.count("drains refused")
            return
        self.world.counters.count("drains")
        self.feed(DrainRequested())

    def _said(self, slot: SimulatedSlot, message: ToDriver) -> None:
        if self.world.interference is None:
            self.receive(slot, message)
        else:
            self.world.interference.answer(self, slot, message)

    def receive(self, slot: SimulatedSlot, message: ToDriver) -> None:
        """A slot says something."""
        if not self.alive or self.current is None or slot not in self.current.slots:
            return
        if isinstance(message, SlotFailed):
            self._generation_failed(Failure(message.kind, "", message.reason))
        else:
            self.feed(message)
            if isinstance(message, FromSlot) and isinstance(message.message, ReaderProgressed):
                self._event_time.reported(message.message)

    def feed(self, event: JobEvent) -> None:
        if self.alive:
            self._event_time.fed(event)
            self._carry_out(self.job.handle(event, self.world.context.now_ms))

    # -- commands -----------------------------------------------------------------------------------------------------

    def executed(self, work: Command, result: JobEvent | None) -> None:
        if isinstance(work, CollectGarbage):
            self.world.counters.count("collections")
        elif isinstance(work, AnswerRequestFiles):
            self._requests.polled(result)

    def command_raised(self, work: Command, problem: Exception) -> None:
        """Handle an exception of a command as ``CoordinatorService`` does."""
        self.world.context.note(f"{type(work).__name__} raises {type(problem).__name__}")
        match work:
            case _ if isinstance(problem, AssertionError | ProtocolViolation):
                raise problem
            case _ if isinstance(problem, Fenced):
                self.world.counters.count("drivers fenced")
                self.die()
            case OpenGeneration() if isinstance(problem, CorruptSnapshot):
                self.world.counters.count("corruption noticed at recovery")
                self.world.repair()
                self.die()
            case OpenGeneration() if isinstance(problem, LocationError) and self.world.log.drained:
                self.world.counters.count("drained locations refused")
                self.world.on_query_ended(self)
                self.die()
            case OpenGeneration() if isinstance(problem, PlanChanged) and self.world.edited is not None:
                self.die()
            case CommitEpoch() as command:
                reason = f"{type(problem).__name__}: {problem}"
                self.feed(CommitFailed(command.epoch, command.operator_id, reason, unknown=True))
            case _ if isinstance(problem, OSError | LocationError):
                self.world.counters.count("drivers ended by the store")
                self.die()
            case _:
                raise problem

    def _tick(self) -> bool:
        if self.world.quiet:
            return False
        self.feed(Tick())
        if self.world.settings.commands and self.alive:
            if self._requests.due(self.world.context.now_ms):
                self._carry_out([self.job.answer_requests()])
            self.world.scheduler.wake(self._actor_tick, self.world.context.now_ms + POLL_INTERVAL_MS)
        return False

    # -- outputs of the job coordinator -------------------------------------------------------------------------------

    def _carry_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Command):
                name = executor_of(output)
                executor = self._executors.get(name)
                if executor is None:
                    executor = self._executors[name] = _SerialExecutor(self, name)
                executor.commands.append(output)
                if isinstance(output, WriteSnapshot):
                    self._watched_requests.acknowledged(output.metadata.checkpoint)
                if isinstance(output, Discover):
                    self._event_time.discovery_begins(output.vertex)
                if self._takes_input or not isinstance(output, Discover | FreezeSource):
                    self.world.scheduler.ready(executor.actor)
            else:
                self._tell(output)
            if not self.alive:
                return
        self._watched_requests.check()
        self._until_check -= 1
        if self._until_check <= 0:
            self._until_check = self.world.settings.checks
            self.job.check_invariants()
        at_ms = self.job.next_wake_ms()
        if at_ms is not None:
            self.world.scheduler.wake(self._actor_tick, at_ms)

    def _tell(self, output: Output) -> None:
        counters, log = self.world.counters, self.world.log
        match output:
            case LaunchSlots(ready, paused):
                self._watched_drains.deployed(paused)
                self._deploy(ready, paused)
            case SnapshotCompleted(metadata):
                self._snapshot_exists(metadata)
            case SnapshotSucceeded(ticket, checkpoint):
                counters.count("user snapshots")
                self._watched_requests.answered(ticket)
                self._watched_drains.answered(ticket)
                self._tickets.succeeded(ticket, checkpoint)
            case SnapshotFailed(ticket, _, reason, _):
                counters.count("user snapshots failed")
                self._watched_requests.answered(ticket)
                self._watched_drains.answered(ticket, reason)
                self._tickets.failed(ticket, reason)
                self._stopping = None if self._stopping is not None and self._stopping.done() else self._stopping
            case LastSnapshotCommitted(checkpoint):
                self._stopped(checkpoint)
            case QueryFinished():
                self._end()
            case FailQuery(reason):
                self.world.context.note(f"the query gives up: {reason}")
                counters.count("queries given up")
                self.die()
            case FailGeneration(generation, reason):
                if self.current is not None and self.current.generation == generation:
                    counters.count("failed by its checkpoints")
                    self._generation_failed(Failure("checkpoints", "", reason))
            case TriggerCheckpoint(checkpoint):
                log.triggered(self.job.generation, checkpoint)
                self._watched_requests.triggered(checkpoint)
                self._watched_drains.triggered(checkpoint, self.job.coordinator.request_of(checkpoint))
                counters.count(f"triggered {output.requested_alignment.value}")
                counters.count(f"in flight at a trigger: {len(self.job.coordinator.in_flight)}")
                self._broadcast(output)
                if self._declines and checkpoint in self._watched_drains.checkpoints:
                    self.world.later(0, lambda: self._decline(checkpoint))
            case CheckpointAborted(checkpoint, reason):
                log.given_up(checkpoint)
                self._watched_requests.ended(checkpoint, gave_way="others had waited" in reason)
                counters.count("aborted")
                counters.count(f"aborted: {_why(reason)}")
                if self.current is not None:
                    self.current.capture_oracle.forget(checkpoint)
            case FreezeReaders():
                self.frozen_ms = self.world.context.now_ms if self.frozen_ms is None else self.frozen_ms
                self._broadcast(output)
            case PauseReaders(_, paused):
                counters.count("sources paused" if paused else "sources read on")
                self._watched_drains.sources_paused(paused)
                self._broadcast(output)
            case NotifyCheckpointComplete() | AbortCheckpoint() | SourceIdle() | NoMoreSplits():
                if isinstance(output, SourceIdle):
                    self._event_time.reported_idle(output.vertex)
                self._broadcast(output)
            case AssignSplits() | AdvanceWatermark():
                if self.current is not None:
                    self.splits.commanded(output)
                    self._event_time.commanded(output)
                    self.current.slots[output.index].command(output)

    def _decline(self, checkpoint: CheckpointId) -> None:
        if self._declines and self.current is not None and checkpoint in self.job.coordinator.in_flight:
            self._declines = False
            self.world.counters.count("in-flight drains declined")
            self.current.slots[0].uploads.declined(checkpoint, "a simulated refusal")

    def _broadcast(self, message: ToSubtask) -> None:
        if self.current is not None:
            for slot in self.current.slots:
                slot.command(message)

    def _snapshot_exists(self, metadata: SnapshotMetadata) -> None:
        self._restarts.completed(rows_read(metadata))
        self._tickets.exists(metadata)
        self._watched_drains.completed(metadata)
        self._watched_requests.ended(metadata.checkpoint)
        self.world.counters.count("completed")
        self.world.counters.count(f"completed {metadata.alignment}")
        self._completed += 1
        if self._completed == MANY_CHECKPOINTS:
            self._change_policy(replace(self.policy, interval_ms=self.policy.interval_ms * 10))

    def _stopped(self, checkpoint: CheckpointId) -> None:
        """End the driver: the last snapshot is committed and nothing after it. Another driver continues from there."""
        committed = max((epoch for table in self.world.external.tables.values() for epoch in table.epochs), default=0)
        if committed > checkpoint and self.job.generation == self.world.log.view.owner:
            raise SimulationFailure(f"stopped behind {checkpoint}, but epoch {committed} is visible", "requests")
        self.world.counters.count("queries stopped with a snapshot")
        self.world.counters.count(
            "queries drained of what is in flight", checkpoint in self._watched_drains.checkpoints
        )
        self._close()
        self.die()

    def _close(self) -> None:
        coordinator = self.job.coordinator
        try:
            self.executor.close(coordinator.committed_epoch, coordinator.next_checkpoint)
        except (Fenced, OSError) as problem:
            self.world.context.note(f"the end cannot be logged: {problem}")
        self.executor.refuse_takes("the query has ended")

    def _end(self) -> None:
        """End orderly: everything is read and committed.

        If another driver has taken over the location meanwhile, committed output may have been taken back. Then the
        query ends with that driver.
        """
        self._close()
        if self.job.generation == self.world.log.view.owner:
            self.world.counters.count("queries ended")
            self.world.on_query_ended(self)
        self.die()

    # -- Generations --------------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        self._carry_out(self.job.open(parallelism=self._parallelism()))
        return False

    def _parallelism(self) -> int | None:
        """Return the parallelism of the next Generation; None: that of the graph."""
        settings = self.world.settings
        if settings.first_parallelism is not None and not self.world.log.lineage:
            return settings.first_parallelism
        return self.world.context.random.choice(settings.parallelisms) if settings.parallelisms else None

    def _deploy(self, ready: GenerationReady, paused: bool) -> None:
        world = self.world
        world.newest_generation = max(world.newest_generation, ready.opened.generation)
        self.splits.opened(ready)
        self._event_time = EventTimeWatch(self)
        self.frozen_ms = None
        layers = {entry.layer for slot in ready.slots for subtask in slot for entry in subtask.inflight}
        world.counters.count("restarts with in-flight rows", len(layers) > 0)
        world.counters.count("restarts with several layers", len(layers) > 1)
        entries = (entry for slot in ready.slots for subtask in slot for entry in subtask.states)
        world.counters.count("restarts from chains of deltas", any(entry.kind == DELTA for entry in entries))
        restored = ready.restored
        if restored is not None:
            self._restarts.restored(rows_read(restored))
        if restored is not None and restored.parallelism != self.job.graph.parallelism:
            world.counters.count(f"rescaled {'up' if restored.parallelism < self.job.graph.parallelism else 'down'}")
            world.counters.count("rescaled with in-flight rows", len(layers) > 0)
        self.current = SimulatedGeneration(ready, world, self.job.graph, self._said, self._takes_input, paused)
        if world.interference is not None:
            world.interference.deployed(self.current, ready.inflight_rows)

    def _give_up_generation(self) -> None:
        if self.current is not None:
            self.current.orphan()
        self.current = None

    def _generation_failed(self, failure: Failure) -> None:
        generation = self.job.generation
        self.world.context.note(f"{self.name}: Generation {generation} failed: {failure.message}")
        self.world.counters.count(f"generations failed: {failure.kind}")
        self._give_up_generation()
        self.feed(GenerationEnded(generation, failure.message))
        decision = self._restarts.failed(failure, self.world.context.now_ms)
        self._restarts.check_invariants()
        if isinstance(decision, GiveUp):
            raise SimulationFailure(f"the query gives up: {decision.reason}", "progress")
        self.world.scheduler.wake(self._actor_reopen, decision.at_ms)


def _why(reason: str) -> str:
    """The kind of a reason, without what is special about it."""
    kinds = {
        "declined": "declined",
        "others had waited": "gave way",
        "not acknowledged": "timed out",
        "ended": "Generation ended",
        "newer": "subsumed",
        "metadata": "metadata not written",
        "logged": "not logged",
    }
    return next((kind for sign, kind in kinds.items() if sign in reason), "otherwise")
