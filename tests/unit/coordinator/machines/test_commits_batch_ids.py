"""Batch ids: every epoch with output has an id of its own, over changes of the driver and dropped snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.machines.commits import CommitLedger, pending_commits
from penstock.errors import CorruptSnapshot
from penstock.model.manifest import FORMAT_VERSION, SlotManifest, SnapshotMetadata, SubtaskManifest
from penstock.snapshots.format.metadata_checks import check_metadata
from penstock.snapshots.log.entries import (
    BatchCounts,
    EpochCommitted,
    Forked,
    GenerationOpened,
    LogView,
    MetadataRef,
    SnapshotComplete,
    SnapshotRecord,
    SummaryOfVersion1,
    SummaryOfVersion2,
    fold,
    summary_of,
)

SINKS = {2: "b-sink", 3: "a-sink"}
REF = MetadataRef("snapshots/chk-1/metadata.json", 1, "00")

STEPS = (
    "abort", "number", "complete", "complete", "complete", "commit", "commit", "commit", "fail", "log", "tell",
    "restart", "crash", "roll back",
)  # fmt: skip


@dataclass(frozen=True)
class _Snapshot:
    checkpoint: int = 0
    slots: tuple[SlotManifest, ...] = ()
    batches: dict[int, int] = field(default_factory=dict)


@dataclass
class _Query:
    """A location, its slots, and one driver after the other."""

    logged: int = 0
    next_batch: int = 0
    epoch: int = 0
    staged: dict[int, dict[int, bytes]] = field(default_factory=dict)
    lineage: list[_Snapshot] = field(default_factory=lambda: [_Snapshot()])
    ledger: CommitLedger = field(default_factory=lambda: CommitLedger(SINKS))
    seen: dict[int, int] = field(default_factory=dict)
    rolled_back: bool = False

    def step(self, name: str, writing: frozenset[int]) -> None:
        if name in ("abort", "number", "complete"):
            self.epoch += 1
            for vertex in sorted(writing):
                self.staged.setdefault(vertex, {})[self.epoch] = b"%d" % self.epoch
        match name:
            case "number":
                self.ledger.numbered(self.epoch, self.slots())
            case "complete":
                self._complete()
            case "commit" | "fail":
                self._commit(name == "fail")
            case "log":
                self.logged = self.ledger.committed_epoch
            case "tell":
                for messages in self.staged.values():
                    for epoch in [e for e in messages if e <= self.ledger.committed_epoch]:
                        del messages[epoch]
            case "restart":
                self._recover(self.ledger.committed_epoch)
            case "crash":
                self._new_driver()
            case "roll back" if len(self.lineage) > 1:
                self.lineage.pop()
                self.rolled_back = True
                self._new_driver()
        self.ledger.check_invariants()

    def slots(self) -> tuple[SlotManifest, ...]:
        return (SlotManifest(0, [SubtaskManifest(v, 0, pending_messages=dict(m)) for v, m in self.staged.items()]),)

    def _complete(self) -> None:
        """Complete a snapshot: write its metadata, log it, and notify the ledger."""
        slots = self.slots()
        batches, next_batch = self.ledger.numbered(self.epoch, slots)
        self.next_batch = max(self.next_batch, next_batch)
        self.logged = self.ledger.committed_epoch
        self.lineage.append(_Snapshot(self.epoch, slots, batches))
        self.ledger.completed(self.epoch, slots)

    def _commit(self, fails: bool) -> None:
        entry = self.ledger.take()
        if entry is None:
            return
        known = self.seen.get(entry.epoch)
        assert known in (None, entry.batch), "the same when it comes again, and for every sink"
        if known is None:
            assert entry.batch > max(self.seen.values(), default=-1), "no other epoch ever had it"
        self.seen[entry.epoch] = entry.batch
        (self.ledger.failed if fails else self.ledger.done)(entry.epoch, entry.operator_id)

    def _new_driver(self) -> None:
        self.ledger = CommitLedger(SINKS)
        self._recover(self.logged)

    def _recover(self, committed: int) -> None:
        self.logged = committed
        newest = self.lineage[-1]
        self.staged = {
            subtask.vertex: {e: m for e, m in subtask.pending_messages.items() if e > committed}
            for slot in newest.slots
            for subtask in slot.subtasks
        }
        pending = pending_commits(newest.slots, SINKS, committed, newest.checkpoint, newest.batches)
        self.ledger.recovered(committed, pending, newest.checkpoint, self.next_batch)


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.frozensets(st.sampled_from(sorted(SINKS)))), min_size=25, max_size=80)
)
def test_no_epoch_gets_the_id_of_another_over_crashes_and_rollbacks_at_every_point(
    steps: list[tuple[str, frozenset[int]]],
) -> None:
    query = _Query()
    for name, writing in steps:
        query.step(name, writing)
    if not query.rolled_back:
        assert [batch for _, batch in sorted(query.seen.items())] == list(range(len(query.seen))), "without gaps"


def test_ids_of_dropped_epochs_are_not_reused_and_kept_epochs_keep_theirs() -> None:
    query = _Query()
    for name in ("complete", "complete", "complete", "commit"):
        query.step(name, frozenset({2}))
    assert query.seen == {1: 0}
    query.step("roll back", frozenset())
    query.step("complete", frozenset({2}))
    for _ in range(3):
        query.step("commit", frozenset())
    assert query.seen == {1: 0, 2: 1, 4: 3}, "epoch 3 may have been handed over as batch 2 by a driver that died"


def test_all_outputs_see_one_id_and_a_sink_that_changes_its_place_sees_no_id_twice() -> None:
    query = _Query()
    for writing in ({2, 3}, {2}, {3}):
        query.step("complete", frozenset(writing))
    commits = []
    while (entry := query.ledger.take()) is not None:
        commits.append((entry.operator_id, entry.epoch, entry.batch))
        query.ledger.done(entry.epoch, entry.operator_id)
    assert commits == [("a-sink", 1, 0), ("b-sink", 1, 0), ("b-sink", 2, 1), ("a-sink", 3, 2)]


def test_a_stored_epoch_without_an_id_is_refused() -> None:
    slots = [SlotManifest(0, [SubtaskManifest(2, 0, pending_messages={3: b"3", 4: b"4"})])]
    with pytest.raises(CorruptSnapshot, match="checkpoint 5 has no batch id of epoch 4"):
        pending_commits(slots, SINKS, 0, 5, {3: 0})


def complete(checkpoint: int, next_batch: int | None, **more: object) -> SnapshotComplete:
    return SnapshotComplete(1, checkpoint, False, REF, 0, 65, next_batch=next_batch, **more)  # type: ignore[arg-type]


def test_the_log_never_forgets_an_id() -> None:
    view = fold(LogView(), GenerationOpened(1, 0, 1, 65, 0))
    for entry in (complete(2, 5), complete(1, 3), GenerationOpened(2, 1, 65, 129, 0), EpochCommitted(2, 1, 129)):
        view = fold(view, entry)
    assert view.next_batch == 5
    assert fold(view, summary_of(view)).next_batch == 5


def test_a_fork_goes_on_after_its_snapshot() -> None:
    record = SnapshotRecord(7, 2, False, REF)
    view = fold(LogView(), Forked("origin", record, 9, next_batch=4))
    assert (view.committed_epoch, view.next_batch) == (7, 4)


def test_logs_of_earlier_releases_give_bounds_that_no_count_exceeded() -> None:
    opened = fold(LogView(), GenerationOpened(1, 0, 1, 65, 0))
    view = fold(opened, complete(6, None, batches={"a-sink": 2}))
    assert view.next_batch == 6
    summed_up = fold(view, SummaryOfVersion1(1, 1, 0, 6, 65, [], {"a-sink": 3}))
    assert summed_up.next_batch == 65
    forked = fold(LogView(), Forked("origin", SnapshotRecord(7, 2, False, REF), 9))
    assert forked.next_batch == 7


def test_what_earlier_releases_counted_belongs_to_its_epoch_and_stays() -> None:
    view = fold(LogView(), GenerationOpened(1, 0, 1, 65, 0))
    view = fold(view, EpochCommitted(1, 7, 65, {"a-sink": 3}))
    view = fold(view, EpochCommitted(1, 5, 65, {"a-sink": 9}))
    assert (view.committed_epoch, view.counted) == (7, BatchCounts(7, {"a-sink": 3}))
    view = fold(fold(view, GenerationOpened(2, 0, 65, 129, 8)), EpochCommitted(2, 9, 129))
    assert (view.committed_epoch, view.counted) == (9, BatchCounts(7, {"a-sink": 3}))
    summary = SummaryOfVersion2(2, 65, 0, 9, 70, 129, [], counted={"a-sink": 3}, counted_epoch=7)
    assert fold(view, summary).counted == BatchCounts(7, {"a-sink": 3})
    summary_1 = SummaryOfVersion1(2, 65, 0, 9, 129, [], {"a-sink": 3})
    assert fold(LogView(), summary_1).counted == BatchCounts(9, {"a-sink": 3})


FORGED = {
    "batch ids do not rise with the epochs": {"batches": {1: 4, 2: 4}, "next_batch": 5},
    "a batch id is not below the next one": {"batches": {1: 4, 2: 5}, "next_batch": 5},
    "a batch id is of a later epoch": {"batches": {3: 4}, "next_batch": 5},
    "batch ids of another format version": {"next_batch": None},
}


@pytest.mark.parametrize("complaint", sorted(FORGED))
def test_impossible_ids_are_refused_when_they_are_read(complaint: str) -> None:
    whole = SnapshotMetadata(
        FORMAT_VERSION, "chk-2", "q", 1, 2, "aligned", False, "", 0, 1, 128, [SlotManifest(0, [])], [],
        batches={1: 4, 2: 5}, next_batch=6,
    )  # fmt: skip
    check_metadata(whole)
    with pytest.raises(ValueError, match=complaint):
        check_metadata(msgspec.structs.replace(whole, **FORGED[complaint]))
