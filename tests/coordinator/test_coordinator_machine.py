"""The coordinator against random schedules: a model of the world checks every command."""

from __future__ import annotations

from coordinator_kit import SINK, manifest, policy
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.protocol import coordinator_types as ct
from penstock.protocol.commits import CommitLedger, pending_commits
from penstock.protocol.coordinator import ID_BLOCK, Coordinator
from penstock.protocol.elements import Alignment

PARALLELISM = 2


class CoordinatorWorld(RuleBasedStateMachine):
    """Slots that stage one message per epoch, an executor that may fail, and a sink that may be down."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Coordinator(policy(timeout_ms=3000), PARALLELISM, CommitLedger({2: SINK}))
        self.now = 0.0
        self.generation = 0
        self.tickets = 0
        self.answered: dict[int, int] = {}
        self.works: list[ct.Command] = []
        self.commit: ct.CommitEpoch | None = None
        self.triggered: list[int] = []
        self.dead: set[int] = set()
        self.acked: dict[int, set[int]] = {}
        self.staged: dict[int, dict[int, bytes]] = {slot: {} for slot in range(PARALLELISM)}
        self.logged: list[ct.WriteMetadata] = []
        self.written: dict[int, ct.WriteMetadata] = {}
        self.visible: list[int] = []
        self.lost: set[int] = set()

    def feed(self, event: ct.Event) -> None:
        for command in self.machine.handle(event, self.now):
            match command:
                case ct.Trigger():
                    assert not self.triggered or command.checkpoint > self.triggered[-1], "ids rise"
                    self.triggered.append(command.checkpoint)
                    self.acked[command.checkpoint] = set()
                case ct.WriteMetadata():
                    assert self.acked[command.checkpoint] == set(range(PARALLELISM))
                    self.written[command.checkpoint] = command
                    self.works.append(command)
                case ct.LogComplete() | ct.ReserveIds():
                    self.works.append(command)
                case ct.CommitEpoch():
                    assert self.commit is None, "one commit at a time"
                    assert any(command.epoch <= write.checkpoint for write in self.logged), "only after the log"
                    assert not self.visible or command.epoch > self.visible[-1], "in order, once"
                    self.commit = command
                case ct.Abort():
                    self.dead.add(command.checkpoint)
                case ct.NotifyComplete():
                    assert command.checkpoint <= command.committed_epoch
                    for slot in self.staged:
                        self.staged[slot] = {e: m for e, m in self.staged[slot].items() if e > command.committed_epoch}
                case ct.SnapshotSucceeded() | ct.SnapshotFailed():
                    self.answered[command.ticket] = self.answered.get(command.ticket, 0) + 1
                case _:
                    pass

    def alive(self) -> bool:
        return self.machine._running

    @rule(step=st.integers(1, 2000))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.feed(ct.Tick())

    @precondition(lambda self: not self.alive() and not self.works)
    @rule()
    def open_generation(self) -> None:
        newest = max(self.logged, key=lambda w: w.checkpoint, default=None)
        restored = 0 if newest is None else newest.checkpoint
        self.generation += 1
        committed = self.machine.committed_epoch
        slots = () if newest is None else newest.slots
        pending = tuple(pending_commits(slots, {2: SINK}, committed, restored))
        for slot in self.staged:
            known = {} if newest is None else dict(newest.slots[slot].subtasks[0].pending_messages)
            self.lost |= {epoch for epoch in self.staged[slot] if epoch not in known and epoch > committed}
            self.staged[slot] = {epoch: m for epoch, m in known.items() if epoch > committed}
        first = self.machine.next_checkpoint
        self.feed(ct.GenerationOpened(self.generation, restored, first, first + ID_BLOCK, committed, pending))
        self.feed(ct.AllRunning(self.generation))

    @precondition(lambda self: self.alive())
    @rule()
    def generation_ends(self) -> None:
        self.feed(ct.GenerationEnded(self.generation, "slot lost"))

    @rule(alignment=st.sampled_from(list(Alignment)))
    def request_snapshot(self, alignment: Alignment) -> None:
        self.tickets += 1
        self.feed(ct.SnapshotRequested(self.tickets, alignment))

    @precondition(lambda self: self.alive() and self.triggered)
    @rule(data=st.data(), slot=st.integers(0, PARALLELISM - 1), stale=st.booleans())
    def slot_acknowledges(self, data: st.DataObject, slot: int, stale: bool) -> None:
        checkpoint = data.draw(st.sampled_from(self.triggered[-3:]))
        if stale:
            self.feed(ct.Ack(self.generation - 1, checkpoint, manifest(slot, {checkpoint: b"stale"})))
            return
        fresh = checkpoint in self.machine.in_flight and slot not in self.acked[checkpoint]
        if fresh:  # barriers pass a slot in order, so its older epochs are staged by now
            for epoch in self.triggered:
                if epoch <= checkpoint and epoch > max(self.staged[slot], default=self.machine.committed_epoch):
                    self.staged[slot][epoch] = b"%d/%d" % (self.generation, epoch)
            self.acked[checkpoint].add(slot)
        reported = {epoch: m for epoch, m in self.staged[slot].items() if epoch <= checkpoint}
        self.feed(ct.Ack(self.generation, checkpoint, manifest(slot, reported)))

    @precondition(lambda self: self.alive() and self.triggered)
    @rule(data=st.data())
    def slot_declines(self, data: st.DataObject) -> None:
        self.feed(ct.Decline(self.generation, data.draw(st.sampled_from(self.triggered[-3:])), 0, "no"))

    @precondition(lambda self: self.works)
    @rule(fails=st.booleans())
    def executor_works(self, fails: bool) -> None:
        match self.works.pop(0):
            case ct.WriteMetadata() as write:
                reply = ct.MetadataFailed(write.checkpoint, "full") if fails else ct.MetadataWritten(write.checkpoint)
                self.feed(reply)
            case ct.LogComplete() as log:
                if fails:
                    self.feed(ct.LogFailed(log.checkpoint, "full"))
                else:
                    self.logged.append(self.written[log.checkpoint])
                    self.feed(ct.CompleteLogged(log.checkpoint, log.reserve))
            case ct.ReserveIds() as reserve:
                self.feed(ct.ReserveFailed("full") if fails else ct.IdsReserved(reserve.reserve))

    @precondition(lambda self: self.commit is not None)
    @rule(fails=st.sampled_from([False, False, False, True]))
    def sink_answers(self, fails: bool) -> None:
        commit, self.commit = self.commit, None
        assert commit is not None
        if fails:
            self.feed(ct.CommitFailed(commit.epoch, commit.operator_id, "down"))
            return
        assert commit.epoch not in self.lost, "what no complete snapshot holds is never committed"
        self.visible.append(commit.epoch)
        self.feed(ct.EpochCommitted(commit.epoch, commit.operator_id))

    @invariant()
    def machine_is_consistent(self) -> None:
        self.machine.check_invariants()
        assert self.visible == sorted(set(self.visible)), "each epoch once, in order"
        assert all(count == 1 for count in self.answered.values()), "each request is answered once"
        assert not self.dead & set(self.machine.in_flight)

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        waiting = self.machine.in_flight or self.machine.awaiting_commit
        if waiting and not self.works and self.commit is None and not self.machine._gave_up:
            assert self.machine.next_wake_ms() is not None


CoordinatorWorld.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestCoordinatorWorld = CoordinatorWorld.TestCase
