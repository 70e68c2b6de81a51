"""The driver's brain and hands when all input ends; and which files a snapshot may refer to."""

from __future__ import annotations

import msgspec
import pytest

from penstock.coordinator.commands import LaunchSlots, QueryFinished, SnapshotCompleted, WriteSnapshot
from penstock.coordinator.machines.checkpoint_events import (
    CheckpointAborted,
    CheckpointPolicy,
    CommitEpoch,
    GenerationEnded,
    LogSnapshot,
    PolicyChanged,
    SnapshotFailed,
    SnapshotRequested,
    SnapshotSucceeded,
    Tick,
)
from penstock.coordinator.machines.endings import FINAL_RETRY_MS
from penstock.model.elements import Alignment
from penstock.model.manifest import InflightEntry, SectionRef
from penstock.model.messages import (
    DeclineCheckpoint,
    FromSlot,
    NoMoreSplits,
    PauseReaders,
    SubtaskFinished,
    TriggerCheckpoint,
)
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from penstock.snapshots.store.store import MemoryStore
from tests.support.snapshots.snapshot_kit import Driver, NoSource, Target, driver


class Bounded(NoSource):
    """Finished with its last split."""

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = super().discover(state, parallelism)
        return Discovery(found.splits, found.state, finished=found.state == self.limit)


def read_everything(player: Driver) -> None:
    """The only reader asks until nothing comes any more."""
    for _ in range(10):
        player.now += 200
        player.feed(Tick())
        player.work()
        player.ask(0)


def finish(player: Driver) -> None:
    for vertex in (0, 1):
        player.feed(FromSlot(player.core.generation, SubtaskFinished(vertex, 0)))


def all_of(player: Driver, kind: type) -> list[object]:
    return [output for output in player.others if isinstance(output, kind)]


def test_the_query_ends_when_the_final_checkpoint_is_committed() -> None:
    target = Target()
    player = driver(target=target, source=Bounded(2))
    player.start()
    read_everything(player)
    assert all_of(player, NoMoreSplits) == [NoMoreSplits(0)]
    assert player.core.finished_sources == (0,)
    assert player.core.is_idle
    before = len(all_of(player, TriggerCheckpoint))
    finish(player)
    (final,) = all_of(player, TriggerCheckpoint)[before:]
    assert isinstance(final, TriggerCheckpoint)
    assert final.alignment is Alignment.UNALIGNED
    player.acknowledge(final.checkpoint)
    while not any(isinstance(work, CommitEpoch) for work in player.works):
        event = player.effects.execute(player.works.pop(0))
        assert event is not None
        player.feed(event)
    assert all_of(player, QueryFinished) == [], "not before its epoch is visible"
    player.work()
    assert player.others[-1] == QueryFinished(final.checkpoint)
    assert final.checkpoint in target.visible
    assert not player.effects.view.snapshots[-1].requested, "retention may take it"
    assert all_of(player, SnapshotSucceeded) == [], "no client requested it"


def test_a_final_checkpoint_that_is_declined_is_taken_again() -> None:
    player = driver(source=Bounded(0))
    player.start()
    player.checkpoint()
    player.feed(PolicyChanged(CheckpointPolicy(3_600_000, 60_000, Alignment.UNALIGNED)))
    player.checkpoint()  # the next periodic one is an hour away
    player.ask(0, generation=1)
    player.work()
    finish(player)
    first = all_of(player, TriggerCheckpoint)[-1]
    assert isinstance(first, TriggerCheckpoint)
    player.feed(FromSlot(1, DeclineCheckpoint(0, first.checkpoint, "disk full")))
    assert all_of(player, SnapshotFailed) == []
    assert player.core.finished_sources == (0,)
    assert player.core.next_wake_ms() == player.now + FINAL_RETRY_MS
    player.now += FINAL_RETRY_MS
    player.feed(Tick())
    second = all_of(player, TriggerCheckpoint)[-1]
    assert isinstance(second, TriggerCheckpoint)
    assert second.checkpoint > first.checkpoint
    player.acknowledge(second.checkpoint)
    player.work()
    assert player.others[-1] == QueryFinished(second.checkpoint)


def test_the_end_waits_for_a_snapshot_that_a_user_still_awaits() -> None:
    player = driver(source=Bounded(0))
    player.start()
    player.feed(SnapshotRequested(Alignment.UNALIGNED, ticket=7))
    finish(player)
    mine, final = (o.checkpoint for o in all_of(player, TriggerCheckpoint) if isinstance(o, TriggerCheckpoint))
    player.acknowledge(final)
    player.work()
    assert all_of(player, QueryFinished) == []
    player.acknowledge(mine)
    player.work()
    assert SnapshotSucceeded(7, mine) in player.others
    assert isinstance(player.others[-1], QueryFinished)


def test_the_end_does_not_wait_for_a_final_checkpoint_when_a_newer_one_is_committed() -> None:
    player = driver(source=Bounded(0))
    player.start()
    finish(player)
    lost = all_of(player, TriggerCheckpoint)[-1]
    newer = player.trigger()
    assert isinstance(lost, TriggerCheckpoint)
    assert lost.checkpoint < newer
    player.acknowledge(newer)
    player.work()
    assert player.core.coordinator.in_flight == (lost.checkpoint,), "an acknowledgement may be lost"
    assert player.others[-1] == QueryFinished(newer)


def test_a_generation_lost_before_the_end_is_restored_and_ends_again() -> None:
    player = driver(source=Bounded(2))
    player.start()
    read_everything(player)
    (final,) = player.core.coordinator.in_flight
    player.acknowledge(final)
    player.work()
    player.feed(FromSlot(1, SubtaskFinished(0, 0)))
    player.end_generation()
    ready = player.start()
    assert ready.restored is not None
    assert ready.restored.checkpoint == final
    player.feed(FromSlot(1, SubtaskFinished(1, 0)))  # said by a slot of the lost Generation
    assert player.core._ending.finished == 0
    player.ask(0, generation=2)
    assert all_of(player, NoMoreSplits) == [NoMoreSplits(0), NoMoreSplits(0)]
    finish(player)
    last = all_of(player, TriggerCheckpoint)[-1]
    assert isinstance(last, TriggerCheckpoint)
    player.acknowledge(last.checkpoint)
    player.work()
    assert player.others[-1] == QueryFinished(last.checkpoint)


# -- references -------------------------------------------------------------------------------------------------------


def with_reference(player: Driver, checkpoint: int, section: SectionRef) -> None:
    """Acknowledge; the counting subtask refers to rows of an older section."""
    entry = InflightEntry(0, 0, 0, 0, "consumer", 0, 1, 0, 127, section)
    player.acknowledge(checkpoint, carried=[entry])


def section_of(player: Driver) -> SectionRef:
    """Return the section of the newest complete snapshot."""
    exists = all_of(player, SnapshotCompleted)[-1]
    assert isinstance(exists, SnapshotCompleted)
    return exists.metadata.slots[0].subtasks[1].states[0].section


def test_a_snapshot_may_refer_to_what_an_existing_one_holds_even_if_that_is_deleted_later() -> None:
    player = driver(retained=1)
    player.start()
    player.checkpoint()
    old = section_of(player)
    with_reference(player, player.trigger(), old)
    player.work()
    assert [record.checkpoint for record in player.effects.view.snapshots] == [2]
    assert old.path in player.store.files  # type: ignore[attr-defined]
    with_reference(player, player.trigger(), old)
    player.work()
    assert [record.checkpoint for record in player.effects.view.snapshots] == [3]


def test_a_reference_into_an_aborted_checkpoint_fails_the_snapshot_by_name() -> None:
    store = MemoryStore()
    player = driver(store)
    player.start()
    player.checkpoint()
    aborted = player.trigger()
    player.acknowledge(aborted)
    player.feed(GenerationEnded(1, "lost"))
    player.work()
    path = f"data/1-{aborted}-0-state.arrows"
    section = msgspec.structs.replace(section_of(player), path=path)
    assert path in store.files, "the file is there, and long enough"
    player.start()
    checkpoint = player.trigger()
    with_reference(player, checkpoint, section)
    player.work()
    (abort,) = [
        o for o in all_of(player, CheckpointAborted) if isinstance(o, CheckpointAborted) and o.checkpoint == checkpoint
    ]
    assert f"refers to {path}, which belongs to no complete snapshot" in abort.reason
    assert player.effects.view.snapshot(checkpoint) is None


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_references_into_older_files_are_checked_before_the_entry_is_written(damage: str) -> None:
    store = MemoryStore()
    player = driver(store)
    player.start()
    player.checkpoint()
    old = section_of(player)
    if damage == "missing":
        del store.files[old.path]
    else:
        store.files[old.path] = store.files[old.path][: old.offset + old.length - 1]
    checkpoint = player.trigger()
    with_reference(player, checkpoint, old)
    player.work()
    assert player.effects.view.snapshot(checkpoint) is None
    (abort,) = all_of(player, CheckpointAborted)
    assert isinstance(abort, CheckpointAborted)
    assert old.path in abort.reason


def test_metadata_of_a_superfluous_checkpoint_is_not_kept() -> None:
    player = driver()
    player.start()
    player.feed(PolicyChanged(CheckpointPolicy(1000, 60_000, Alignment.UNALIGNED, max_concurrent=2)))
    first, second = player.trigger(), player.trigger()
    player.work()
    player.acknowledge(second, messages={first: b"first", second: b"second"})  # as subtasks do: what is not committed
    written = player.effects.execute(player.works.pop(0))
    assert written is not None
    player.feed(written)
    player.acknowledge(first)
    log, write = player.works
    assert isinstance(log, LogSnapshot)
    assert isinstance(write, WriteSnapshot)
    player.work()
    assert [o.checkpoint for o in all_of(player, CheckpointAborted) if isinstance(o, CheckpointAborted)] == [first]
    assert [record.checkpoint for record in player.effects.view.snapshots] == [second]
    assert player.effects._written == {}


def test_sources_are_paused_before_the_trigger_of_a_drained_snapshot_and_read_on_when_it_fails() -> None:
    player = driver()
    player.start()
    player.others.clear()
    player.feed(SnapshotRequested(Alignment.ALIGNED, last=True, drain=True, ticket=7))
    told = [o for o in player.others if isinstance(o, PauseReaders | TriggerCheckpoint)]
    assert [type(one) for one in told] == [PauseReaders, TriggerCheckpoint]
    assert told[0] == PauseReaders(0, True)
    player.feed(GenerationEnded(player.core.generation, "a slot was lost"))
    player.start()
    assert [o.paused for o in player.others if isinstance(o, LaunchSlots)] == [True]
    *_, again = all_of(player, TriggerCheckpoint)
    assert isinstance(again, TriggerCheckpoint)
    player.feed(FromSlot(player.core.generation, DeclineCheckpoint(0, again.checkpoint, "its disk is full")))
    assert all_of(player, PauseReaders)[-1] == PauseReaders(0, False)
    player.feed(GenerationEnded(player.core.generation, "a slot was lost"))
    player.start()
    assert [o.paused for o in player.others if isinstance(o, LaunchSlots)] == [True, False]
