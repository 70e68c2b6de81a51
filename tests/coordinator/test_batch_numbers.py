"""Batch numbers: each sink's non-empty epochs are 0, 1, 2..., over whatever drivers come and go."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.commits import CommitLedger, pending_commits
from penstock.snapshot.log_entries import EpochCommitted, GenerationOpened, LogView, fold
from penstock.snapshot.model import NOTHING_COMMITTED, CommitPoint, SlotManifest, SubtaskManifest

SINKS = {2: "b-sink", 3: "a-sink"}

STEPS = ("abort", "complete", "complete", "commit", "commit", "fail", "log", "tell", "restart", "crash")


@dataclass
class _Query:
    """A location, its slots, and one driver after the other."""

    logged: CommitPoint = NOTHING_COMMITTED
    epoch: int = 0
    staged: dict[int, dict[int, bytes]] = field(default_factory=dict)
    restorable: tuple[int, list[SlotManifest]] = (0, [])
    ledger: CommitLedger = field(default_factory=lambda: CommitLedger(SINKS))
    made: dict[str, dict[int, int]] = field(default_factory=lambda: {name: {} for name in SINKS.values()})

    def step(self, name: str, writing: frozenset[int]) -> None:
        if name in ("abort", "complete"):
            self.epoch += 1
            for vertex in sorted(writing):
                self.staged.setdefault(vertex, {})[self.epoch] = b"%d" % self.epoch
        match name:
            case "complete":
                slots = [
                    SlotManifest(0, [SubtaskManifest(v, 0, pending_messages=dict(m)) for v, m in self.staged.items()])
                ]
                self.logged = self.ledger.committed
                self.restorable = self.epoch, slots
                self.ledger.completed(self.epoch, slots)
            case "commit" | "fail":
                self._commit(name == "fail")
            case "log":
                self.logged = self.ledger.committed
            case "tell":
                for messages in self.staged.values():
                    for epoch in [e for e in messages if e <= self.ledger.committed_epoch]:
                        del messages[epoch]
            case "restart":
                self._recover(self.ledger.committed)
            case "crash":
                self.ledger = CommitLedger(SINKS)
                self._recover(self.logged)
        self.ledger.check_invariants()

    def _commit(self, fails: bool) -> None:
        entry = self.ledger.take()
        if entry is None:
            return
        batch = self.ledger.next_batch(entry.operator_id)
        assert self.made[entry.operator_id].setdefault(entry.epoch, batch) == batch, "the same when it comes again"
        (self.ledger.failed if fails else self.ledger.done)(entry.epoch, entry.operator_id)

    def _recover(self, committed: CommitPoint) -> None:
        checkpoint, slots = self.restorable
        self.logged = committed
        self.staged = {
            subtask.vertex: {e: m for e, m in subtask.pending_messages.items() if e > committed.epoch}
            for slot in slots
            for subtask in slot.subtasks
        }
        self.ledger.recovered(committed, pending_commits(slots, SINKS, committed.epoch, checkpoint), checkpoint)


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.frozensets(st.sampled_from(sorted(SINKS)))), min_size=25, max_size=80)
)
def test_numbers_are_consecutive_and_stay_over_crashes_at_every_point(steps: list[tuple[str, frozenset[int]]]) -> None:
    query = _Query()
    for name, writing in steps:
        query.step(name, writing)
    for made in query.made.values():
        assert [batch for _, batch in sorted(made.items())] == list(range(len(made)))


def test_half_an_epoch_does_not_count() -> None:
    query = _Query()
    query.step("complete", frozenset({2, 3}))
    query.step("commit", frozenset())
    assert query.ledger.committed == CommitPoint(0, {"a-sink": 0}), "the other sink's half is not visible"
    query.step("commit", frozenset())
    assert query.ledger.committed == CommitPoint(1, {"a-sink": 1, "b-sink": 1})


def test_the_log_keeps_epoch_and_counts_together() -> None:
    view = fold(LogView(), GenerationOpened(1, 0, 1, 65, 0))
    view = fold(view, EpochCommitted(1, 7, 65, {"a-sink": 3}))
    view = fold(view, EpochCommitted(1, 5, 65, {"a-sink": 9}))
    assert view.committed == CommitPoint(7, {"a-sink": 3})
    assert fold(view, GenerationOpened(2, 0, 65, 129, 6, {"a-sink": 9})).committed == CommitPoint(7, {"a-sink": 3})
