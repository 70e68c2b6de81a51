"""The coordinator against random schedules: a model of the world checks every command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.coordinator.machines.checkpoint_events import (
    MAX_IN_FLIGHT,
    AllSlotsRunning,
    CheckpointAborted,
    CheckpointCommand,
    CheckpointCompleted,
    CheckpointEvent,
    CollectGarbage,
    CommitEpoch,
    CommitFailed,
    EpochCommitted,
    FailGeneration,
    GenerationEnded,
    GenerationOpened,
    IdsReserved,
    LogFailed,
    LogSnapshot,
    MetadataFailed,
    MetadataWritten,
    ReserveFailed,
    ReserveIds,
    SnapshotFailed,
    SnapshotLogged,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
    WriteMetadata,
)
from penstock.coordinator.machines.checkpoint_lifecycle import Phase
from penstock.coordinator.machines.checkpoints import ID_BLOCK, CheckpointCoordinator
from penstock.coordinator.machines.commits import CommitLedger, pending_commits
from penstock.model.elements import Alignment
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from penstock.snapshots.log.entries import LogView, MetadataRef, SnapshotRecord
from penstock.snapshots.retention import expired
from tests.support.coordinator.coordinator_kit import SINK, manifest, policy
from tests.support.effort import some

PARALLELISM = 2
PICKS = st.integers(0, 7)
ALIGNMENTS = [Alignment.UNALIGNED, Alignment.UNALIGNED, Alignment.AUTO, Alignment.ALIGNED]


class CoordinatorWorld(RuleBasedStateMachine):
    """Slots that stage one message per epoch, a slow executor that may fail, a store that keeps one periodic snapshot,
    and a sink that may be down."""

    @initialize(
        concurrent=st.integers(1, 4),
        pause=st.sampled_from([0, 0, 300]),
        tolerable=st.sampled_from([None, 0, 2]),
        alignment=st.sampled_from(list(Alignment)),
        interval=st.sampled_from([100, 1000]),
    )
    def choose(self, concurrent: int, pause: int, tolerable: int | None, alignment: Alignment, interval: int) -> None:
        self.policy = policy(
            interval_ms=interval,
            timeout_ms=3000,
            alignment=alignment,
            min_pause_ms=pause,
            max_concurrent=concurrent,
            tolerable_failures=tolerable,
        )
        self.machine = CheckpointCoordinator(self.policy, PARALLELISM, CommitLedger({2: SINK}))
        self.now = 0.0
        self.generation = 0
        self.tickets = 0
        self.answered: dict[int, int] = {}
        self.works: list[CheckpointCommand] = []
        self.replies: list[CheckpointEvent] = []
        self.store: dict[int, SnapshotRecord] = {}
        self.strict: dict[int, bool] = {}
        self.told = 0
        self.first = 1
        self.failing = False
        self.commit: CommitEpoch | None = None
        self.triggered: list[int] = []
        self.dead: set[int] = set()
        self.subsumed: set[int] = set()
        self.acked: dict[int, set[int]] = {}
        self.staged: dict[int, dict[int, bytes]] = {slot: {} for slot in range(PARALLELISM)}
        self.logged: list[WriteMetadata] = []
        self.written: dict[int, WriteMetadata] = {}
        self.visible: list[int] = []
        self.lost: set[int] = set()
        self.open_generation()

    def feed(self, event: CheckpointEvent) -> None:
        for command in self.machine.handle(event, self.now):
            match command:
                case TriggerCheckpoint():
                    self.check_trigger(command)
                    self.triggered.append(command.checkpoint)
                    self.acked[command.checkpoint] = set()
                case WriteMetadata():
                    assert self.acked[command.checkpoint] == set(range(PARALLELISM))
                    self.written[command.checkpoint] = command
                    self.works.append(command)
                case LogSnapshot() | ReserveIds() | CollectGarbage():
                    self.works.append(command)
                case CommitEpoch():
                    assert self.commit is None, "one commit at a time"
                    assert any(command.epoch <= write.checkpoint for write in self.logged), "only after the log"
                    assert not self.visible or command.epoch > self.visible[-1], "in order, once"
                    assert command.batch == len(self.visible), "numbered without gaps"
                    self.commit = command
                case CheckpointAborted():
                    self.dead.add(command.checkpoint)
                    self.strict.pop(command.checkpoint)
                    if command.reason.endswith("which is newer, is complete"):
                        assert not command.failed
                        assert command.checkpoint < self.machine.newest_complete
                        self.subsumed.add(command.checkpoint)
                case SnapshotFailed() if command.checkpoint:
                    assert command.checkpoint not in self.subsumed, "a user's snapshot is not superfluous"
                    self.answered[command.ticket] = self.answered.get(command.ticket, 0) + 1
                case CheckpointCompleted():
                    self.strict.pop(command.checkpoint)
                    for left in self.machine._pending.values():
                        older = left.periodic and left.checkpoint < command.checkpoint
                        assert not older or left.phase is Phase.LOGGING, "superfluous"
                case FailGeneration():
                    assert command.generation == self.generation
                    assert not self.failing, "said once"
                    self.failing = True
                case NotifyCheckpointComplete():
                    self.told = max(self.told, command.checkpoint)
                    assert command.checkpoint <= command.committed_epoch
                    for slot in self.staged:
                        self.staged[slot] = {e: m for e, m in self.staged[slot].items() if e > command.committed_epoch}
                case SnapshotSucceeded() | SnapshotFailed():
                    self.answered[command.ticket] = self.answered.get(command.ticket, 0) + 1
                case _:
                    pass

    def check_trigger(self, trigger: TriggerCheckpoint) -> None:
        assert not self.triggered or trigger.checkpoint > self.triggered[-1], "ids rise"
        assert not self.failing, "the Generation is to end"
        assert not any(self.strict.values()), "nothing beside a strictly aligned one"
        assert len(self.strict) < MAX_IN_FLIGHT
        assert trigger.base == self.told, "the newest that the slots were told of"
        strictly = trigger.alignment is Alignment.ALIGNED and trigger.remaining_ms is None
        self.strict[trigger.checkpoint] = strictly

    def alive(self) -> bool:
        return self.machine._running

    @staticmethod
    def one_of(checkpoints: list[int], pick: int) -> int:
        return checkpoints[pick % len(checkpoints)]

    @rule(step=st.sampled_from([1, 20, 100, 300, 1000]))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.feed(Tick())

    @precondition(lambda self: not self.alive() and not self.works and not self.replies)
    @rule()
    def open_generation(self) -> None:
        newest = max(self.logged, key=lambda w: w.checkpoint, default=None)
        restored = 0 if newest is None else newest.checkpoint
        self.generation += 1
        committed = self.machine.committed_epoch
        slots = () if newest is None else newest.slots
        batches = {} if newest is None else newest.batches
        pending = tuple(pending_commits(slots, {2: SINK}, committed, restored, batches))
        next_batch = max((write.next_batch for write in self.logged), default=0)
        for slot in self.staged:
            known = {} if newest is None else dict(newest.slots[slot].subtasks[0].pending_messages)
            self.lost |= {epoch for epoch in self.staged[slot] if epoch not in known and epoch > committed}
            self.staged[slot] = {epoch: m for epoch, m in known.items() if epoch > committed}
        first = self.first = self.machine.next_checkpoint
        self.told, self.failing = restored, False
        until = first + ID_BLOCK
        self.feed(GenerationOpened(self.generation, restored, first, until, committed, pending, None, next_batch))
        self.feed(AllSlotsRunning(self.generation))

    @precondition(lambda self: self.alive())
    @rule(indeed=st.sampled_from([False, False, False, False, True]))
    def generation_ends(self, indeed: bool) -> None:
        if not (indeed or self.failing):
            return
        self.feed(GenerationEnded(self.generation, "slot lost"))

    @rule(alignment=st.sampled_from(list(Alignment)), timeout_ms=st.sampled_from([None, None, 500]))
    def request_snapshot(self, alignment: Alignment, timeout_ms: int | None) -> None:
        self.tickets += 1
        self.feed(SnapshotRequested(alignment, timeout_ms=timeout_ms, ticket=self.tickets))

    @precondition(lambda self: self.alive() and self.triggered)
    @rule(pick=PICKS, slot=st.integers(0, PARALLELISM - 1))
    def slot_acknowledges(self, pick: int, slot: int) -> None:
        self.acknowledge(self.one_of(self.triggered[-6:], pick), slot)

    @precondition(lambda self: self.alive() and self.strict)
    @rule(pick=PICKS)
    def all_slots_acknowledge(self, pick: int) -> None:
        checkpoint = self.one_of(sorted(self.strict), pick)
        for slot in range(PARALLELISM):
            self.acknowledge(checkpoint, slot)

    def acknowledge(self, checkpoint: int, slot: int) -> None:
        fresh = checkpoint in self.machine.in_flight and slot not in self.acked[checkpoint]
        if fresh:  # barriers pass a slot in order, so its older epochs are staged by now
            for epoch in self.triggered:
                staged = max(self.staged[slot], default=self.machine.committed_epoch)
                if max(self.first, staged + 1) <= epoch <= checkpoint and epoch % 3:  # some epochs are empty
                    self.staged[slot][epoch] = b"%d/%d" % (self.generation, epoch)
            self.acked[checkpoint].add(slot)
        reported = {epoch: m for epoch, m in self.staged[slot].items() if epoch <= checkpoint}
        self.feed(AcknowledgeCheckpoint(checkpoint, manifest(slot, reported)))

    @precondition(lambda self: self.alive() and self.triggered)
    @rule(pick=PICKS, indeed=st.sampled_from([False, False, True]))
    def slot_declines(self, pick: int, indeed: bool) -> None:
        if indeed:
            self.feed(DeclineCheckpoint(0, self.one_of(self.triggered[-3:], pick), "no"))

    @precondition(lambda self: self.works)
    @rule(fails=st.lists(st.sampled_from([False] * 7 + [True]), min_size=1, max_size=4))
    def executor_works(self, fails: list[bool]) -> None:
        for one in fails[: len(self.works)]:
            self.work(one)

    def work(self, fails: bool) -> None:
        match self.works.pop(0):
            case WriteMetadata() as write:
                reply = MetadataFailed(write.checkpoint, "full") if fails else MetadataWritten(write.checkpoint)
                self.replies.append(reply)
            case LogSnapshot() as log:
                if fails:
                    self.replies.append(LogFailed(log.checkpoint, "full"))
                else:
                    self.log(self.written[log.checkpoint])
                    self.replies.append(SnapshotLogged(log.checkpoint, log.reserve))
            case ReserveIds() as reserve:
                self.replies.append(ReserveFailed("full") if fails else IdsReserved(reserve.reserve))
            case CollectGarbage() as collect:
                records = tuple(self.store[checkpoint] for checkpoint in sorted(self.store))
                for gone in expired(LogView(owner=self.generation, snapshots=records), 1, collect.pinned):
                    del self.store[gone]

    def log(self, write: WriteMetadata) -> None:
        self.logged.append(write)
        ref = MetadataRef("", 0, "")
        self.store[write.checkpoint] = SnapshotRecord(write.checkpoint, write.generation, write.requested, ref)

    @precondition(lambda self: self.replies)
    @rule(number=st.integers(1, 3))
    def the_coordinator_hears(self, number: int) -> None:
        for _ in range(min(number, len(self.replies))):
            self.feed(self.replies.pop(0))

    @precondition(lambda self: self.commit is not None)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def sink_answers(self, fails: bool) -> None:
        commit, self.commit = self.commit, None
        assert commit is not None
        if fails:
            self.feed(CommitFailed(commit.epoch, commit.operator_id, "down"))
            return
        assert commit.epoch not in self.lost, "what no complete snapshot holds is never committed"
        self.visible.append(commit.epoch)
        self.feed(EpochCommitted(commit.epoch, commit.operator_id))

    def check(self) -> None:
        """All invariants, where hypothesis does not do it."""
        self.machine_is_consistent()
        self.what_may_be_referred_to_exists()
        self.recovery_finds_the_newest()
        self.nothing_waits_for_ever()

    @invariant()
    def machine_is_consistent(self) -> None:
        self.machine.check_invariants()
        assert self.visible == sorted(set(self.visible)), "each epoch once, in order"
        assert all(count == 1 for count in self.answered.values()), "each request is answered once"
        assert not self.dead & set(self.machine.in_flight)

    @invariant()
    def what_may_be_referred_to_exists(self) -> None:
        for pending in self.machine._pending.values():
            assert {pending.base, pending.origin} - {0} <= set(self.store)

    @invariant()
    def recovery_finds_the_newest(self) -> None:
        newest = max((write.checkpoint for write in self.logged), default=0)
        assert newest == 0 or newest in self.store

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        waiting = self.machine.in_flight or self.machine.awaiting_commit
        busy = self.works or self.replies or self.commit is not None
        if waiting and not busy and not self.machine._has_failed:
            assert self.machine.next_wake_ms() is not None


CoordinatorWorld.TestCase.settings = settings(max_examples=some(100), stateful_step_count=50, deadline=None)
TestCoordinatorWorld = CoordinatorWorld.TestCase


def walk(seed: int, steps: int) -> Counter[str]:
    """The same world, mostly making progress, so that many checkpoints are in flight, logged and told at once."""
    chance = Random(seed)
    world = CoordinatorWorld()
    world.choose(
        concurrent=chance.choice([1, 3, 8]),
        pause=chance.choice([0, 0, 0, 300]),
        tolerable=chance.choice([None, 0, 2]),
        alignment=chance.choice([Alignment.AUTO, Alignment.UNALIGNED, Alignment.UNALIGNED, Alignment.ALIGNED]),
        interval=chance.choice([20, 100]),
    )
    seen: Counter[str] = Counter()
    for _ in range(steps):
        before, complete = set(world.machine.in_flight), world.machine.newest_complete
        step(world, chance)
        world.check()
        logged = {write.checkpoint for write in world.logged}
        for ended in before - set(world.machine.in_flight):
            late = ended in logged and ended < complete
            seen["late" if late else "complete" if ended in logged else "aborted"] += 1
        seen[f"{len(world.machine.in_flight)} in flight"] += 1
    seen["told"] += world.told > 0
    seen["generations"] += world.generation
    return seen


def step(world: CoordinatorWorld, chance: Random) -> None:
    actions: list[tuple[float, bool, Callable[[], None]]] = [
        (3, True, lambda: world.time_passes(step=chance.choice([1, 20, 100, 300]))),
        (2, True, lambda: world.request_snapshot(alignment=chance.choice(ALIGNMENTS), timeout_ms=None)),
        (5, bool(world.strict), lambda: world.all_slots_acknowledge(pick=chance.randrange(8))),
        (4, bool(world.works), lambda: world.executor_works(fails=[chance.random() < 0.05])),
        (3, bool(world.replies), lambda: world.the_coordinator_hears(number=1)),
        (2, world.commit is not None, lambda: world.sink_answers(fails=False)),
        (0.3, bool(world.triggered), lambda: world.slot_declines(pick=chance.randrange(8), indeed=True)),
        (9 if world.failing else 0.05, True, lambda: world.generation_ends(indeed=True)),
    ]
    if not world.alive():
        actions = [(weight, possible, act) for weight, possible, act in actions if act is not actions[-1][2]]
        actions.append((3, not world.works and not world.replies, world.open_generation))
    possible = [(weight, act) for weight, possible, act in actions if possible]
    (chosen,) = chance.choices([act for _, act in possible], [weight for weight, _ in possible])
    chosen()


def test_many_walks_with_much_in_flight() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen += walk(seed, 250)
    assert seen["late"] > 100, "completed out of order"
    assert seen["complete"] > 500
    assert seen["aborted"] > 300
    assert seen["8 in flight"] > 200
    assert seen["generations"] > 100
