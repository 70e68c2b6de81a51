"""References into older checkpoints' files, together with the driver that pins, verifies and collects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.machines.checkpoint_events import CheckpointAborted
from penstock.model.elements import Captured, Side
from penstock.model.ids import ChannelId
from penstock.model.manifest import SnapshotMetadata, SubtaskManifest
from penstock.model.messages import AcknowledgeCheckpoint, DeclineCheckpoint, FromSlot, TriggerCheckpoint
from penstock.operators.base import OperatorState
from penstock.snapshots.catalog import Catalog, metadata_path, sections_of
from penstock.snapshots.format.sections import check_reference, data_path, state_path
from penstock.snapshots.restoring.restore import load_inflight, load_restore
from penstock.snapshots.store.store import MemoryStore
from penstock.snapshots.writing.slot_writer import SlotWriter
from simulator.jobs.count_table import CountTable, merged
from simulator.jobs.rows import state_schema
from tests.support.effort import some
from tests.support.snapshots.snapshot_kit import COUNT, Driver, Target, capture, captured, rows

CHANNEL = ChannelId(0, 0, 0)


class Bench:
    """A driver, one slot whose channel holds ``waiting``, and files that are collected as soon as they may be."""

    def __init__(self, retained: int = 1) -> None:
        self.store = MemoryStore()
        self.driver = Driver(self.store, Target(), retained=retained)
        self.driver.start()
        self.slot = SlotWriter(self.store, self.driver.graph, self.driver.core.generation, 0)
        self.waiting: list[Captured] = []
        self._seq = 0

    def arrive(self, *keys: int) -> None:
        self.waiting.append(captured(CHANNEL, Side.CONSUMER, self._seq, rows(*keys)))
        self._seq += 1

    def trigger(self) -> TriggerCheckpoint:
        before = len(self.driver.others)
        checkpoint = self.driver.trigger()
        trigger = next(o for o in self.driver.others[before:] if isinstance(o, TriggerCheckpoint))
        assert trigger.checkpoint == checkpoint
        return trigger

    def acknowledge(self, trigger: TriggerCheckpoint) -> None:
        checkpoint = trigger.checkpoint
        self.slot.begin(checkpoint, trigger.base)
        self.slot.write(capture(0, 0, checkpoint))
        assert self.slot.write(capture(1, 0, checkpoint, inflight=self.waiting, messages={checkpoint: b"m"}))
        manifest = self.slot.finish(checkpoint)
        self.slot.confirm(checkpoint)
        self.driver.feed(FromSlot(self.driver.core.generation, AcknowledgeCheckpoint(checkpoint, manifest)))

    def checkpoint(self) -> int:
        trigger = self.trigger()
        self.acknowledge(trigger)
        self.driver.work()
        self.check()
        return trigger.checkpoint

    def check(self) -> None:
        """Every existing snapshot is whole."""
        for record in self.driver.effects.view.snapshots:
            for ref in sections_of(Catalog(self.store).read(record)):
                check_reference(self.store, ref)

    def data(self) -> Iterator[str]:
        return (path for path in sorted(self.store.files) if path.startswith("data/"))


def test_a_file_lives_as_long_as_a_snapshot_refers_to_it_and_no_longer() -> None:
    bench = Bench()
    bench.arrive(1, 2, 3)
    first = data_path(1, bench.checkpoint(), 0)
    for key in range(4, 8):
        bench.arrive(key)
        newest = bench.checkpoint()
        assert first in bench.data()
        assert len(bench.driver.effects.view.snapshots) <= 2
    metadata = Catalog(bench.store).choose_newest(bench.driver.effects.view).metadata
    assert metadata is not None
    assert metadata.checkpoint == newest
    batches = [b for e in metadata.slots[0].subtasks[1].inflight for b in load_inflight(bench.store, e)]
    assert [key for batch in batches for key in batch.column(0).to_pylist()] == [1, 2, 3, 4, 5, 6, 7]
    bench.waiting.clear()
    bench.checkpoint()
    bench.checkpoint()
    assert list(bench.data()) == []


def test_a_snapshot_whose_referred_file_is_gone_is_not_completed() -> None:
    bench = Bench()
    bench.arrive(1)
    first = bench.checkpoint()
    trigger = bench.trigger()
    del bench.store.files[data_path(1, first, 0)]
    bench.acknowledge(trigger)
    bench.driver.work()
    aborts = [o for o in bench.driver.others if isinstance(o, CheckpointAborted)]
    assert [abort.checkpoint for abort in aborts] == [trigger.checkpoint]


@pytest.mark.parametrize("fate", ["declined", "acknowledged"])
def test_the_base_stays_while_a_checkpoint_is_in_flight(fate: str) -> None:
    bench = Bench()
    bench.arrive(1)
    base = bench.checkpoint()
    trigger = bench.trigger()
    assert trigger.base == base
    bench.driver.work()
    assert data_path(1, base, 0) in bench.data()
    if fate == "declined":
        bench.driver.feed(FromSlot(1, DeclineCheckpoint(0, trigger.checkpoint, "no")))
        bench.slot.abandon(trigger.checkpoint)
    else:
        bench.acknowledge(trigger)
    bench.driver.work()
    bench.check()
    assert bench.trigger().base == (base if fate == "declined" else trigger.checkpoint)


@settings(max_examples=some(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans())))
def test_no_collection_takes_what_a_snapshot_refers_to(steps: list[tuple[int, int, bool]]) -> None:
    bench = Bench()
    key = 0
    for consumed, arrived, declined in steps:
        del bench.waiting[:consumed]
        for _ in range(arrived):
            bench.arrive(key)
            key += 1
        trigger = bench.trigger()
        if declined:
            bench.driver.feed(FromSlot(1, DeclineCheckpoint(0, trigger.checkpoint, "no")))
            bench.slot.abandon(trigger.checkpoint)
        else:
            bench.acknowledge(trigger)
        bench.driver.work()
        bench.check()
        if not declined:
            metadata = Catalog(bench.store).choose_newest(bench.driver.effects.view).metadata
            assert metadata is not None
            loaded = [b for e in metadata.slots[0].subtasks[1].inflight for b in load_inflight(bench.store, e)]
            assert [k for b in loaded for k in b.column(0).to_pylist()] == [
                k for c in bench.waiting for k in c.buffer.payload.column(0).to_pylist()  # type: ignore[attr-defined]
            ]  # fmt: skip


# -- state, over several Generations ----------------------------------------------------------------------------------


class StateBench:
    """A driver and one slot with one table; every checkpoint is collected behind, one snapshot is retained."""

    def __init__(self, keys: int) -> None:
        self.store = MemoryStore()
        self.driver = Driver(self.store, Target(), retained=1)
        self.start()
        self.table.update(((key,), 0) for key in range(keys))

    def start(self) -> None:
        ready = self.driver.start()
        self.table = CountTable(state_schema("key", "count"), 128)
        self.slot = SlotWriter(self.store, self.driver.graph, ready.opened.generation, 0, whole_bytes=0)
        if ready.restored is not None:
            self.slot.restored(ready.opened.restored, ready.slots[0])
            self.table.load(_pieces(self.store, ready.slots[0][1]))

    def restart(self, rival: bool) -> None:
        """Restart, with the same driver or another one."""
        if rival:
            self.driver = Driver(self.store, Target(), "B", retained=1)
        else:
            self.driver.end_generation()
        self.start()

    def checkpoint(self, declined: bool = False) -> TriggerCheckpoint:
        before = len(self.driver.others)
        checkpoint = self.driver.trigger()
        trigger = next(o for o in self.driver.others[before:] if isinstance(o, TriggerCheckpoint))
        operators = {COUNT: OperatorState({"counts": self.table.capture()})}
        self.slot.begin(checkpoint, trigger.base)
        self.slot.write(capture(0, 0, checkpoint))
        assert self.slot.write(capture(1, 0, checkpoint, operators=operators, messages={checkpoint: b"m"}))
        manifest = self.slot.finish(checkpoint)
        self.slot.confirm(checkpoint)
        if declined:
            self.driver.feed(FromSlot(self.driver.core.generation, DeclineCheckpoint(0, checkpoint, "no")))
            self.slot.abandon(checkpoint)
        else:
            self.driver.feed(FromSlot(self.driver.core.generation, AcknowledgeCheckpoint(checkpoint, manifest)))
        self.driver.work()
        return trigger

    @property
    def newest(self) -> SnapshotMetadata:
        metadata = Catalog(self.store).choose_newest(self.driver.effects.view).metadata
        assert metadata is not None
        return metadata


def _pieces(store: MemoryStore, manifest: SubtaskManifest):  # type: ignore[no-untyped-def]
    return load_restore(manifest, store).operators[COUNT].tables["counts"]


def test_the_first_checkpoint_after_a_restart_is_a_delta_of_what_was_restored() -> None:
    for rival in (False, True):
        bench = StateBench(500)
        first = bench.checkpoint().checkpoint
        bench.restart(rival)
        bench.table[3,] = 1
        trigger = bench.checkpoint()
        assert trigger.base == first
        entries = bench.newest.slots[0].subtasks[1].states
        own = [e for e in entries if e.section.path == state_path(2, trigger.checkpoint, 0)]
        assert [(e.kind, e.rows) for e in own] == [("delta", 1)]
        assert [record.checkpoint for record in bench.driver.effects.view.snapshots] == [trigger.checkpoint]
        assert state_path(1, first, 0) in bench.store.files, "the snapshot is gone, its file is referred to"


@pytest.mark.parametrize("damage", ["torn", "gone"])
def test_metadata_that_is_damaged_behind_a_restore_fails_no_later_checkpoint(damage: str) -> None:
    """It was whole when it was restored, and what is based on it has metadata of its own."""
    bench = StateBench(500)
    first = bench.checkpoint().checkpoint
    bench.restart(rival=True)
    if damage == "torn":
        bench.store.files[metadata_path(first)] = bench.store.files[metadata_path(first)][:-1]
    else:
        del bench.store.files[metadata_path(first)]
    bench.table[3,] = 1
    second = bench.checkpoint()
    assert second.base == first
    assert bench.newest.checkpoint == second.checkpoint
    assert state_path(1, first, 0) in {ref.path for ref in sections_of(bench.newest)}
    found = merged(_pieces(bench.store, bench.newest.slots[0].subtasks[1]), 1)
    assert {(key,): count for key, count in found} == dict(bench.table)


def test_a_corrupt_snapshot_that_was_passed_over_does_not_hinder_references_to_the_older_one() -> None:
    bench = StateBench(500)
    first, second = bench.checkpoint(), bench.checkpoint()
    bench.driver = Driver(bench.store, Target(), "B", retained=3)
    bench.start()
    bench.table[3,] = 1
    third = bench.checkpoint().checkpoint
    bench.table[4,] = 1
    fourth = bench.checkpoint().checkpoint
    assert first.checkpoint < second.checkpoint < third < fourth
    bench.store.files[metadata_path(fourth)] += b" "
    bench.driver = Driver(bench.store, Target(), "C", retained=3, allow_older=True)
    bench.start()
    assert (bench.table[3,], bench.table[4,]) == (1, 0)
    bench.table[5,] = 1
    assert bench.checkpoint().base == third
    assert {key for (key,), count in bench.table.items() if count} == {3, 5}
    found = merged(_pieces(bench.store, bench.newest.slots[0].subtasks[1]), 1)
    assert {(key,): count for key, count in found} == dict(bench.table)


@settings(max_examples=some(40), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "", "declined", "restart", "rival"]), st.lists(st.integers(0, 199)))))
def test_no_collection_takes_what_a_chain_refers_to(steps: list[tuple[str, list[int]]]) -> None:
    bench = StateBench(200)
    bench.checkpoint()
    stored = dict(bench.table)
    for number, (what, changed) in enumerate(steps, start=1):
        for key in changed:
            bench.table[key,] = number
        bench.checkpoint(declined=what == "declined")
        if what != "declined":
            stored = dict(bench.table)
        if what in ("restart", "rival"):
            bench.restart(rival=what == "rival")
            assert dict(bench.table) == stored
        found = merged(_pieces(bench.store, bench.newest.slots[0].subtasks[1]), 1)
        assert {(key,): count for key, count in found} == stored
    referred = {ref.path for ref in sections_of(bench.newest)}
    bench.checkpoint()
    files = {path for path in bench.store.files if path.startswith("data/")}
    assert files <= referred | {ref.path for ref in sections_of(bench.newest)}, "nothing is left that nobody needs"
