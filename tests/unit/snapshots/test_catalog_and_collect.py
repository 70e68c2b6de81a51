"""Metadata, the choice of the newest snapshot, restore plans, retention and garbage."""

from __future__ import annotations

import msgspec
import pytest

from penstock.coordinator.machines.checkpoint_events import GenerationEnded, SnapshotRequested
from penstock.errors import CorruptSnapshot, LocationError
from penstock.model.elements import Alignment, Side
from penstock.model.ids import ChannelId
from penstock.model.manifest import SlotManifest, SnapshotMetadata
from penstock.model.messages import TriggerCheckpoint
from penstock.operators.base import OperatorState
from penstock.snapshots.catalog import Catalog, metadata_path, plan_restore
from penstock.snapshots.format.sections import state_path
from penstock.snapshots.log.entries import LogView, MetadataRef, SnapshotRecord
from penstock.snapshots.restoring.restore import load_inflight
from penstock.snapshots.retention import expired, orphans
from penstock.snapshots.store.store import MemoryStore
from penstock.state.stored_form import BatchCapture
from tests.support.snapshots.snapshot_kit import (
    COUNT,
    Target,
    capture,
    captured,
    driver,
    graph,
    manifests,
    rows,
    state,
    write_captures,
)

REF = MetadataRef("x", 0, "")


def metadata(slots: list[SlotManifest], checkpoint: int = 1, parallelism: int = 2) -> SnapshotMetadata:
    return SnapshotMetadata(
        1, f"chk-{checkpoint}", "q", 1, checkpoint, "unaligned", False, "", 0, parallelism, 128, slots, []
    )


def view(*snapshots: SnapshotRecord, owner: int = 1, first: int = 1) -> LogView:
    return LogView(owner=owner, first_checkpoint=first, snapshots=snapshots)


def record(checkpoint: int, generation: int = 1, requested: bool = False, in_lineage: bool = True) -> SnapshotRecord:
    return SnapshotRecord(checkpoint, generation, requested, REF, in_lineage=in_lineage)


def test_metadata_is_written_only_when_all_it_refers_to_is_there() -> None:
    store = MemoryStore()
    part = capture(1, 0, operators={COUNT: OperatorState({"counts": BatchCapture(state(1))})})
    slot = write_captures(store, graph(), 1, 0, [part])
    catalog = Catalog(store)
    whole = metadata([slot], parallelism=1)
    ref = catalog.write(whole)
    assert ref.path == "snapshots/chk-1/metadata.json"
    assert catalog.write(whole) == ref, "repeating it is harmless"
    with pytest.raises(LocationError, match="other content"):
        catalog.write(msgspec.structs.replace(whole, label="x"))
    found = record(1)
    assert Catalog(store).read(msgspec.structs.replace(found, metadata=ref)) == whole
    for damage in ("short", "gone"):
        other = MemoryStore()
        path = "data/1-1-0-state.arrows"
        if damage == "short":
            other.files[path] = store.files[path][:-1]
        with pytest.raises(CorruptSnapshot, match=path):
            Catalog(other).write(whole)
        assert metadata_path(1) not in other.files


def test_the_newest_snapshot_is_used_and_a_corrupt_one_is_named() -> None:
    player = driver()
    store = player.store
    assert isinstance(store, MemoryStore)
    player.start()
    first, second = player.checkpoint(), player.checkpoint()
    log_view = player.effects.view
    chosen = Catalog(store).choose_newest(log_view)
    assert chosen.metadata is not None
    assert chosen.metadata.checkpoint == second
    path = f"data/1-{second}-0-state.arrows"
    damaged = bytearray(store.files[path])
    damaged[len(damaged) // 2] ^= 4
    store.files[path] = bytes(damaged)
    with pytest.raises(CorruptSnapshot, match=rf"chk-{second}.*{path}.*allowOlder=true"):
        Catalog(store).choose_newest(log_view)
    assert Catalog(store).choose_newest(log_view, checksums=False).metadata == chosen.metadata, "lengths are right"
    older = Catalog(store).choose_newest(log_view, allow_older=True)
    assert older.metadata is not None
    assert older.metadata.checkpoint == first
    assert len(older.skipped) == 1
    assert path in older.skipped[0]
    del store.files[f"data/1-{first}-0-state.arrows"]
    with pytest.raises(CorruptSnapshot, match=rf"chk-{second}.*chk-{first}"):
        Catalog(store).choose_newest(log_view, allow_older=True)


def test_the_portable_form_of_a_damaged_snapshot_is_named() -> None:
    player = driver()
    store = player.store
    assert isinstance(store, MemoryStore)
    player.start()
    checkpoint = player.checkpoint()
    del store.files[f"data/1-{checkpoint}-0-state.arrows"]
    with pytest.raises(CorruptSnapshot) as without:
        Catalog(store).choose_newest(player.effects.view)
    assert "portable" not in str(without.value)
    store.files[f"portable/chk-{checkpoint}/manifest.json"] = b"{}"
    with pytest.raises(CorruptSnapshot, match=rf"startFrom={store.root}/portable/chk-{checkpoint}$"):
        Catalog(store).choose_newest(player.effects.view)


@pytest.mark.parametrize("damage", ["flip", "tear", "remove"])
def test_damaged_metadata_is_named(damage: str) -> None:
    player = driver()
    assert isinstance(player.store, MemoryStore)
    player.start()
    checkpoint = player.checkpoint()
    path, files = metadata_path(checkpoint), player.store.files
    if damage == "remove":
        del files[path]
    else:
        files[path] = files[path][:-3] if damage == "tear" else files[path].replace(b"unaligned", b"unAligned")
    with pytest.raises(CorruptSnapshot, match=path):
        Catalog(player.store).choose_newest(player.effects.view)


def test_in_flight_entries_move_wholly_to_their_consumer_in_restore_order() -> None:
    store, job = MemoryStore(), graph()
    to_zero, from_one = ChannelId(0, 0, 0), ChannelId(0, 1, 0)
    carried_slot = write_captures(
        store, job, 1, 0, [capture(1, 0, inflight=[captured(from_one, Side.PRODUCER, 1, rows(1))])]
    )
    carried = list(carried_slot.subtasks[0].inflight)
    slots = [
        write_captures(
            store,
            job,
            2,
            0,
            [
                capture(0, 0, 2, inflight=[captured(to_zero, Side.PRODUCER, 9, rows(5), layer=1)]),
                capture(
                    1, 0, 2, carried=carried, inflight=[captured(to_zero, Side.CONSUMER, 8, rows(4), layer=1)],
                    messages={1: b"old", 2: b"new"},
                ),
            ],
        ),
        write_captures(
            store,
            job,
            2,
            1,
            [
                capture(0, 1, 2, inflight=[captured(from_one, Side.PRODUCER, 3, rows(6), layer=1)]),
                capture(1, 1, 2),
            ],
        ),
    ]  # fmt: skip
    plan = plan_restore(metadata(slots[::-1]), job, committed_epoch=1)
    assert [[(m.vertex, m.index) for m in slot] for slot in plan] == [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    assert [len(m.inflight) for slot in plan for m in slot] == [0, 4, 0, 0]
    order = [load_inflight(store, entry)[0].column(0)[0].as_py() for entry in plan[0][1].inflight]
    assert order == [1, 4, 5, 6], "layer 0; then layer 1: the consumer's own part, then the producers' by slot"
    assert plan[0][1].pending_messages == {2: b"new"}, "what is committed is not carried on"
    total = sum(entry.rows for m in manifests(slots) for entry in m.inflight)
    assert sum(entry.rows for slot in plan for m in slot for entry in m.inflight) == total


def test_a_restore_of_in_flight_rows_without_their_consumer_is_refused() -> None:
    store = MemoryStore()
    lost = captured(ChannelId(0, 0, 1), Side.PRODUCER, 1, rows(1))
    slots = [write_captures(store, graph(), 1, 0, [capture(0, 0, inflight=[lost])])]
    with pytest.raises(CorruptSnapshot, match="no manifest"):
        plan_restore(metadata(slots), graph())


def test_retention_keeps_the_newest_periodic_ones_and_never_takes_requested_or_pinned_ones() -> None:
    held = view(record(1), record(2, requested=True), record(3), record(4), record(5), record(6, requested=True))
    assert expired(held, 2, ()) == [1, 3]
    assert expired(held, 2, (3,)) == [1]
    assert expired(held, 9, ()) == []
    only_requested_newest = view(record(1), record(2, requested=True))
    assert expired(only_requested_newest, 1, ()) == []


def test_what_left_the_lineage_goes_once_the_new_generation_has_a_snapshot() -> None:
    rolled_back = [record(5), record(6, in_lineage=False), record(7, in_lineage=False, requested=True)]
    assert expired(view(*rolled_back, owner=2, first=70), 1, ()) == []
    assert expired(view(*rolled_back, record(70, generation=2), owner=2, first=70), 5, ()) == [6]


def test_orphans_are_of_older_generations_or_older_than_the_last_complete_one_and_never_in_flight() -> None:
    files = [
        "data/1-3-0.arrows",
        "data/1-4-0.arrows",
        "data/2-70-0-state.arrows",
        "data/2-70-0.arrows",
        "data/2-71-0.arrows",
        "data/2-72-0.arrows",
        "data/2-73-0.arrows",
        "data/3-99-0.arrows",
        "data/notes.txt",
        "snapshots/chk-4/metadata.json",
        "snapshots/chk-66/metadata.json",
        "snapshots/chk-71/metadata.json",
        "snapshots/chk-72/metadata.json",
        "snapshots/chk-73/metadata.json",
        "snapshots/readme",
    ]
    held = view(record(4), record(72, generation=2), owner=2, first=70)
    assert orphans(held, files, {"data/1-4-0.arrows", "data/2-72-0.arrows"}, in_flight=(71,)) == [
        "data/1-3-0.arrows",
        "data/2-70-0-state.arrows",
        "data/2-70-0.arrows",
        "snapshots/chk-66/metadata.json",
    ]


def test_a_driver_keeps_what_it_should_and_removes_the_rest() -> None:
    player = driver(retained=2)
    assert isinstance(player.store, MemoryStore)
    player.start()
    player.feed(SnapshotRequested(Alignment.UNALIGNED, "mine", ticket=1))
    requested = next(o.checkpoint for o in player.others if isinstance(o, TriggerCheckpoint))
    player.acknowledge(requested)
    player.work()
    aborted = player.trigger()
    player.acknowledge(aborted)
    player.feed(GenerationEnded(1, "lost before it was written"))
    player.work()
    player.start()
    for _ in range(4):
        newest = player.checkpoint()
    kept = [requested, newest - 1, newest]
    assert [r.checkpoint for r in player.effects.view.snapshots] == kept
    assert sorted(player.store.list("snapshots")) == sorted(metadata_path(c) for c in kept)
    expected = [state_path(1, requested, 0), state_path(2, newest - 1, 0), state_path(2, newest, 0)]
    assert sorted(player.store.list("data")) == sorted(expected)


def test_a_carried_section_outlives_the_snapshot_that_wrote_it() -> None:
    player = driver(retained=1)
    assert isinstance(player.store, MemoryStore)
    player.start()
    channel = ChannelId(0, 0, 0)
    first = player.trigger()
    player.acknowledge(first, inflight=[captured(channel, Side.CONSUMER, 1, rows(1, 2, 3))])
    player.work()
    player.end_generation()
    ready = player.start()
    assert ready.inflight_rows == 3
    entry = ready.slots[0][1].inflight[0]
    second = player.trigger()
    player.acknowledge(second, carried=[msgspec.structs.replace(entry, row_start=2, rows=1)])
    player.work()
    assert [r.checkpoint for r in player.effects.view.snapshots] == [second]
    assert player.store.exists(f"data/1-{first}-0.arrows"), "chk-2 refers to it"
    player.end_generation()
    again = player.start()
    assert again.inflight_rows == 1
    assert load_inflight(player.store, again.slots[0][1].inflight[0]) == [rows(3)]
    player.checkpoint()
    player.checkpoint()
    assert not player.store.exists(f"data/1-{first}-0.arrows"), "nobody refers to it any more"


def test_a_snapshot_whose_references_cannot_be_read_stops_the_collection_of_files() -> None:
    target = Target()
    player = driver(target=target, retained=3)
    assert isinstance(player.store, MemoryStore)
    player.start()
    first = player.checkpoint()
    player.checkpoint()  # this one is restored, and what it refers to is known
    player.end_generation()
    fresh = driver(player.store, target, name="B", retained=3)
    fresh.start()
    player.store.files["data/1-40-0.arrows"] = b"an orphan of Generation 1"
    saved = player.store.files.pop(metadata_path(first))
    newest = fresh.checkpoint()
    assert player.store.exists("data/1-40-0.arrows"), "it could be referred to by the one that cannot be read"
    player.store.files[metadata_path(first)] = saved
    fresh.checkpoint()
    assert not player.store.exists("data/1-40-0.arrows")
    assert newest in [r.checkpoint for r in fresh.effects.view.snapshots]


def test_metadata_that_no_reader_would_take_is_not_written() -> None:
    store = MemoryStore()
    with pytest.raises(CorruptSnapshot, match="it has 0 slots, but parallelism 2"):
        Catalog(store).write(metadata([]))
    assert not store.files
