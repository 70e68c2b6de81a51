"""Job coordinator and command executor together: whole lives of one driver."""

from __future__ import annotations

import pytest

from penstock.coordinator.commands import EpochsCommitted, SnapshotCompleted
from penstock.coordinator.machines.checkpoint_events import (
    CommitEpoch,
    FailQuery,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
)
from penstock.errors import CommitFailed, CommitUnknown, CorruptSnapshot, ProtocolViolation
from penstock.model.commits import EpochCommit
from penstock.model.elements import Alignment
from penstock.model.manifest import SlotManifest
from penstock.model.messages import (
    AcknowledgeCheckpoint,
    AssignSplits,
    DeclineCheckpoint,
    FromSlot,
    SlotRunning,
    SourceIdle,
    TriggerCheckpoint,
)
from penstock.model.splits import Split
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import MemoryStore
from tests.support.snapshots.snapshot_kit import COUNT, SINK, Driver, NoSource, Target, driver, state


def test_a_first_start_restores_nothing_and_numbers_from_one() -> None:
    player = driver(parallelism=2)
    ready = player.start()
    assert (ready.restored, ready.slots) == (None, [[], []])
    assert (ready.opened.generation, ready.opened.committed_epoch) == (1, 0)
    assert player.checkpoint() == 1
    assert player.core.coordinator.committed_epoch == 1
    assert EpochsCommitted(1) in player.others
    exists = next(o for o in player.others if isinstance(o, SnapshotCompleted))
    assert [slot.slot for slot in exists.metadata.slots] == [0, 1]


def test_no_checkpoint_before_every_slot_runs() -> None:
    player = driver(parallelism=2)
    player.take(player.core.open())
    player.work()
    player.feed(FromSlot(1, SlotRunning(0)))
    player.now = 10_000
    player.feed(Tick())
    assert not any(isinstance(o, TriggerCheckpoint) for o in player.others)
    player.feed(FromSlot(1, SlotRunning(1)))
    player.trigger()


def test_a_lost_generation_is_restored_with_exact_ids_state_and_uncommitted_messages() -> None:
    target = Target()
    player = driver(target=target)
    player.start()
    player.checkpoint()
    aborted = player.trigger()
    player.end_generation()
    with pytest.raises(ProtocolViolation):
        player.take([*player.core.open(), *player.core.open()])
    player.core._opening = False
    ready = player.start()
    assert (ready.opened.generation, ready.opened.next_checkpoint, ready.opened.committed_epoch) == (2, aborted + 1, 1)
    assert ready.restored is not None
    assert ready.restored.checkpoint == 1
    count = next(m for m in ready.slots[0] if m.vertex == 1)
    restored = load_restore(count, player.store)
    assert restored.operators[COUNT].rows("counts") == [state(0, 1)]
    assert restored.operators[COUNT].scalars == {"seen": 1}
    assert restored.pending_messages == {}, "epoch 1 is committed"
    assert player.checkpoint() == aborted + 1
    assert sorted(target.visible) == [1, aborted + 1], "the aborted epoch of a lost Generation never shows"
    assert player.committer.abandoned == [1]


def test_a_new_driver_commits_what_the_dead_one_had_logged_but_not_committed() -> None:
    store, target = MemoryStore(), Target()
    dead = Driver(store, target, "A")
    dead.start()
    checkpoint = dead.trigger()
    dead.acknowledge(checkpoint)
    while not any(isinstance(work, CommitEpoch) for work in dead.works):
        event = dead.effects.execute(dead.works.pop(0))
        assert event is not None
        dead.feed(event)
    assert target.visible == {}
    fresh = Driver(store, target, "B")
    ready = fresh.start()
    assert [p.epoch for p in ready.opened.pending] == [checkpoint]
    assert target.visible == {checkpoint: {0: b"g1 c1 s0"}}
    assert ready.opened.next_checkpoint == 66, "ids that the dead driver may have used are skipped"
    assert fresh.checkpoint() == 66


def test_an_orderly_end_leaves_no_gap_and_nothing_to_commit_again() -> None:
    store, target = MemoryStore(), Target()
    player = Driver(store, target, "A")
    player.start()
    last = player.checkpoint()
    player.end_generation("stopped")
    player.effects.close(player.core.coordinator.committed_epoch, player.core.coordinator.next_checkpoint)
    fresh = Driver(store, target, "B")
    ready = fresh.start()
    assert (ready.opened.next_checkpoint, ready.opened.committed_epoch, ready.opened.pending) == (last + 1, last, ())
    assert target.calls == [("A", last)]


def test_splits_are_captured_with_the_trigger_and_go_on_after_a_restore() -> None:
    source = NoSource(limit=3)
    player = driver(source=source)
    player.start()
    for now in (200, 400):
        player.now = now
        player.feed(Tick())
        player.work()
    player.ask(0, generation=1)
    assert AssignSplits(0, 0, (Split("s0", {"n": 0}),)) in player.others
    player.now = 600
    player.feed(Tick())
    player.work()
    checkpoint = player.trigger()
    captured = player.core.assigners[0].capture().manifest
    assert [split.split_id for split in captured.pending] == ["s1", "s2"]
    player.ask(0, generation=1)  # after the trigger: not in that snapshot
    player.acknowledge(checkpoint)
    player.work()
    player.end_generation()
    ready = player.start()
    assert ready.restored is not None
    assert [split.split_id for split in ready.restored.sources[0].pending] == ["s1", "s2"]
    player.ask(0, generation=2)
    player.ask(0, generation=1)  # of a dead Generation
    assigned = [o.splits[0].split_id for o in player.others if isinstance(o, AssignSplits)]
    assert assigned == ["s0", "s1", "s1"]


def test_an_acknowledgement_of_a_dead_generation_is_ignored() -> None:
    player = driver()
    player.start()
    player.trigger()
    player.end_generation()
    player.start()
    checkpoint = player.trigger()
    for slot in (0, 1):
        ack = AcknowledgeCheckpoint(checkpoint, SlotManifest(slot, []))
        assert player.core.handle(FromSlot(1, ack), player.now) == []
    assert player.core.handle(FromSlot(2, DeclineCheckpoint(0, checkpoint, "no")), player.now) != []


def test_a_source_is_told_only_of_what_a_complete_snapshot_has_behind_it() -> None:
    source = NoSource(limit=2)
    player = driver(source=source)
    player.start()
    for now in (200, 400):
        player.now = now
        player.feed(Tick())
        player.work()
    player.checkpoint()
    assert source.told == [], "both splits are pending"
    for _ in range(3):
        player.ask(0, generation=1)
    player.checkpoint()
    assert source.told == [2]
    player.checkpoint()
    assert source.told == [2], "once"


def test_dry_is_said_over_the_driver() -> None:
    player = driver()
    player.start()
    player.ask(0, generation=1, seen_us=5)
    player.work()
    player.now = 500
    player.feed(Tick())
    player.work()
    assert SourceIdle(0, 5) in player.others
    assert not player.core.is_idle, "the reader has not sent the watermark that it may rise to"
    player.ask(0, generation=1, seen_us=5, sent_us=5)
    assert player.core.is_idle


@pytest.mark.parametrize("unknown", [False, True])
def test_a_sink_that_fails_is_tried_again_unless_its_outcome_is_unknown(unknown: bool) -> None:
    target = Target()
    player = driver(target=target)
    commit = player.committer.commit
    failures = [CommitUnknown("link lost") if unknown else CommitFailed("busy")]

    def flaky(permit: EpochCommit) -> None:
        if failures:
            raise failures.pop()
        commit(permit)

    player.committer.commit = flaky  # type: ignore[method-assign]
    player.start()
    player.checkpoint()
    if unknown:
        assert FailQuery(f"epoch 1 of sink {SINK}: link lost") in player.others
        return
    assert target.visible == {}
    player.now += 150
    player.feed(Tick())
    player.work()
    assert sorted(target.visible) == [1]


def test_user_snapshots_carry_their_label_and_are_answered() -> None:
    player = driver()
    player.start()
    player.feed(SnapshotRequested(Alignment.ALIGNED, "before-upgrade", ticket=42))
    player.acknowledge(1)
    player.work()
    assert SnapshotSucceeded(42, 1) in player.others
    (record,) = player.effects.view.snapshots
    assert (record.requested, record.label) == (True, "before-upgrade")
    exists = next(o for o in player.others if isinstance(o, SnapshotCompleted))
    assert (exists.metadata.label, exists.metadata.alignment, exists.metadata.requested) == (
        "before-upgrade",
        "aligned",
        True,
    )
    assert exists.metadata == Catalog(player.store).read(record), "the owner sees what was written"
    assert exists.metadata.created_ms > 0


def test_a_roll_back_past_a_corrupt_snapshot_happens_only_when_allowed_and_starts_a_new_lineage() -> None:
    store, target = MemoryStore(), Target()
    player = Driver(store, target, "A")
    player.start()
    first, second = player.checkpoint(), player.checkpoint()
    store.files[f"data/1-{second}-0-state.arrows"] = b"torn"
    with pytest.raises(CorruptSnapshot, match=f"chk-{second}"):
        Driver(store, target, "B").start()
    bold = Driver(store, target, "C", allow_older=True)
    ready = bold.start()
    assert ready.restored is not None
    assert ready.restored.checkpoint == first
    assert f"chk-{second}" in ready.skipped[0]
    third = bold.checkpoint()
    assert [r.checkpoint for r in bold.effects.view.lineage] == [first, third]
    assert bold.effects.view.snapshot(second) is None, "it is out of the lineage and was collected"
    assert sorted(target.visible) == [first, second, third]
