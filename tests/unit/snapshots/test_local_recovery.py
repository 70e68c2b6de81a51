"""Tables that need not be read again: which checkpoint they go back to, when they must not, and what is let go."""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import CheckpointFailed
from penstock.model.ids import SubtaskId
from penstock.model.manifest import SlotManifest, SubtaskManifest
from penstock.operators.base import OperatorState
from penstock.snapshots.restoring.local_state import LocalStateRestore, LocalStateStore
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.store import MemoryStore
from penstock.snapshots.writing.slot_writer import SlotWriter
from penstock.snapshots.writing.state_index import TableId
from penstock.state.memory_table import MemoryTable
from penstock.state.table import TableSpec
from tests.support.snapshots.snapshot_kit import COUNT, capture, graph

SPEC = TableSpec(pa.schema([("key", pa.int64()), ("count", pa.int64())]), 1, 128)
TABLE = TableId(SubtaskId(1, 0), COUNT, "counts")


def put(table: MemoryTable, counts: dict[int, int]) -> None:
    with table.edit([pa.array(counts.keys(), pa.int64())], len(counts)) as edited:
        edited.values[0].set(edited.rows, pa.array(counts.values(), pa.int64()))


def content(table: MemoryTable) -> dict[int, int]:
    found: dict[int, int] = {}
    for rows in table.scan(100):
        found |= zip(rows.keys[0].to_pylist(), rows.values[0].to_arrow(np.asarray(rows.rows)).to_pylist(), strict=True)
    return found


class Slot:
    """One with a single table."""

    def __init__(self, store: MemoryStore, generation: int = 1) -> None:
        self.local_state = LocalStateStore()
        self.table = MemoryTable(SPEC)
        self.writer = SlotWriter(store, graph(), generation, 0, whole_bytes=0, local_state=self.local_state)

    def write(self, checkpoint: int, base: int) -> SlotManifest:
        self.writer.begin(checkpoint, base)
        self.writer.write(capture(0, 0, checkpoint))
        operators = {COUNT: OperatorState({"counts": self.table.capture()})}
        assert self.writer.write(capture(1, 0, checkpoint, operators=operators))
        return self.writer.finish(checkpoint)

    def checkpoint(self, checkpoint: int, base: int = 0) -> list[SubtaskManifest]:
        manifest = self.write(checkpoint, base)
        self.writer.confirm(checkpoint)
        return manifest.subtasks

    @property
    def keeps(self) -> int:
        """Moments that the table can go back to."""
        return len(self.table._log._kept)


@pytest.fixture
def slot() -> Slot:
    made = Slot(MemoryStore())
    put(made.table, dict.fromkeys(range(100), 1))
    return made


def test_it_goes_back_to_the_checkpoint_that_is_restored_whatever_was_written_since(slot: Slot) -> None:
    snapshots, expected = {}, {}
    for checkpoint in (1, 2, 3):
        put(slot.table, {checkpoint: 10 * checkpoint, 100 + checkpoint: 1})
        snapshots[checkpoint] = slot.checkpoint(checkpoint, checkpoint - 1)
        expected[checkpoint] = content(slot.table)
    slot.local_state.checkpoint_completed(2)
    assert slot.keeps == 2, "3 may be complete, and nobody has heard of it"
    put(slot.table, {7: 70})
    slot.table.close()
    points = slot.local_state.take_matching(2, snapshots[2])
    assert slot.keeps == 1
    assert points[TABLE].restore() is slot.table
    assert content(slot.table) == expected[2]
    assert slot.keeps == 0


def test_only_what_the_snapshot_has_is_taken(slot: Slot) -> None:
    first, second = slot.checkpoint(1), slot.checkpoint(2, 1)
    put(slot.table, {1: 2})
    other = slot.checkpoint(3, 2)
    for checkpoint, manifests in ((3, first), (4, other), (3, []), (3, [_narrowed(other[1])])):
        local_state = LocalStateStore()
        local_state.add(3, dict(slot.local_state._checkpoints[3]))
        assert local_state.take_matching(checkpoint, manifests) == {}
        slot.write(5, 3)
        slot.writer.abandon(5)
    assert slot.keeps == 2, "those of 1 and 2; that of 3 was let go"
    assert list(slot.local_state.take_matching(2, second)) == [TABLE], "what did not change is what it was"


def _narrowed(manifest: SubtaskManifest) -> SubtaskManifest:
    """Narrow the entries as a rescale does."""
    states = [msgspec.structs.replace(entry, key_group_last=entry.key_group_last - 1) for entry in manifest.states]
    return msgspec.structs.replace(manifest, states=states)


def test_nothing_is_kept_of_checkpoints_that_are_over(slot: Slot) -> None:
    slot.checkpoint(1)
    assert slot.keeps == 1
    slot.write(2, 1)
    slot.writer.abandon(2)
    assert slot.keeps == 1
    slot.checkpoint(3, 1)
    slot.writer.abandon(3)
    assert slot.keeps == 1, "acknowledged, then given up"
    slot.checkpoint(4, 1)
    slot.local_state.checkpoint_completed(4)
    assert slot.keeps == 1
    slot.local_state.release()
    assert slot.keeps == 0


def test_nothing_is_kept_of_what_cannot_be_written(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise CheckpointFailed("full")

    monkeypatch.setattr("penstock.snapshots.writing.state_sections.StateWriter.write", full)
    with pytest.raises(CheckpointFailed):
        slot.write(1, 0)
    slot.writer.abandon(1)
    assert (slot.keeps, slot.table._log.is_captured) == (0, False)


def test_a_restored_table_can_go_back_to_what_it_began_with_and_its_next_checkpoint_is_a_delta(slot: Slot) -> None:
    store = slot.writer._store
    snapshot, expected = slot.checkpoint(1), content(slot.table)
    for points in ({}, slot.local_state.take_matching(1, snapshot)):
        again = Slot(store, 2 + len(points))
        local = LocalStateRestore(1, points, again.local_state)
        filled = load_restore(snapshot[1], store, local=local).operators[COUNT].fill("counts", again.table)
        assert local.reused_tables == len(points)
        assert (filled is slot.table) == bool(points)
        assert isinstance(filled, MemoryTable)
        again.table = filled
        again.writer.restored(1, snapshot)
        put(filled, {1: 5, 200: 1})
        manifest = again.checkpoint(2 + len(points), 1)[1]
        assert [entry.rows for entry in manifest.states if entry.kind == "delta"] == [2]
        (point,) = again.local_state.take_matching(1, snapshot).values()
        assert point.restore() is filled
        assert content(filled) == expected


class AnotherTable(MemoryTable):
    """Table of another backend."""


@pytest.mark.parametrize(
    "other", [MemoryTable(TableSpec(SPEC.schema, 1, 128, initial_values=(7,))), AnotherTable(SPEC)]
)
def test_a_table_of_another_make_is_read(slot: Slot, other: MemoryTable) -> None:
    snapshot = slot.checkpoint(1)
    local = LocalStateRestore(1, slot.local_state.take_matching(1, snapshot), LocalStateStore())
    filled = load_restore(snapshot[1], slot.writer._store, local=local).operators[COUNT].fill("counts", other)
    assert filled is other
    assert (local.reused_tables, len(other)) == (0, 100)
    assert slot.keeps == 0
