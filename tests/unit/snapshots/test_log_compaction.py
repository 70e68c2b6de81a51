"""Log compaction: covered entries are removed, and the log stays the fence and the truth."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from penstock.decoding import convert
from penstock.errors import CorruptSnapshot, Fenced
from penstock.model.commits import LogPosition
from penstock.snapshots.commands.location_cache import LogCache
from penstock.snapshots.commands.log_check import check_log
from penstock.snapshots.commands.moving import move_query
from penstock.snapshots.format.envelope import open_envelope
from penstock.snapshots.location import claim_identity, identity_of
from penstock.snapshots.log import entries as log_entries
from penstock.snapshots.log.entries import (
    EpochCommitted,
    Forked,
    GenerationOpened,
    LogView,
    MetadataRef,
    Moved,
    SnapshotComplete,
    SnapshotCopied,
    SnapshotDeleted,
    SnapshotLabelled,
    SnapshotRecord,
    Summary,
    SummaryOfVersion1,
    SummaryOfVersion2,
    fold,
)
from penstock.snapshots.log.snapshot_log import SUMMARY_EVERY, SnapshotLog, entry_number, entry_path
from penstock.snapshots.store.store import Effect, LocalStore, MemoryStore
from tests.support.effort import some
from tests.support.places import GOLDEN
from tests.support.snapshots.snapshot_kit import Driver, Target, tokens

COMPACTED = GOLDEN / "compacted"
CHECKPOINTS = some(20_000)
FILES = 198
"""With up to 1280 snapshots; see ``docs/log-compaction.md``, Bounds."""
REF = MetadataRef("snapshots/chk-1/metadata.json", 2, "aa")
EarlierEntry = (
    GenerationOpened
    | SnapshotComplete
    | SnapshotDeleted
    | SnapshotLabelled
    | EpochCommitted
    | Forked
    | SnapshotCopied
    | Moved
    | SummaryOfVersion1
    | SummaryOfVersion2
)
"""What the release before knows."""


class Owner:
    """A driver's use of the log, without the rest of it."""

    def __init__(self, store: MemoryStore | LocalStore, name: str, every: int = 4) -> None:
        self.log = SnapshotLog(store, tokens(name), summary_every=every)
        self.positions: list[LogPosition] = []
        view = self.log.refresh()
        restored = view.lineage[-1].checkpoint if view.lineage else 0
        self._append(GenerationOpened(view.next_generation, restored, view.next_checkpoint, view.next_checkpoint, 0))
        self.log.summarise()

    def checkpoint(self, retained: int = 2) -> None:
        view = self.log.view
        number = max(view.next_checkpoint, view.lineage[-1].checkpoint + 1 if view.lineage else 1)
        self._append(SnapshotComplete(view.owner, number, False, REF, number - 1, number + 1, next_batch=0))
        for record in self.log.view.snapshots[:-retained]:
            self._append(SnapshotDeleted(view.owner, record.checkpoint))
        self.log.summarise()
        self.log.remove_covered()

    def _append(self, entry: log_entries.Entry) -> None:
        self.log.append(entry)
        self.positions.append(self.log.position)


def compacted(store: MemoryStore | LocalStore, name: str = "one", checkpoints: int = 12) -> Owner:
    owner = Owner(store, name)
    for _ in range(checkpoints):
        owner.checkpoint()
    return owner


def numbers(store: MemoryStore | LocalStore) -> list[int]:
    return [entry_number(path) for path in store.list("log")]


def test_the_files_of_a_log_stay_below_the_stated_bound() -> None:
    """``make fuzz`` does 20,000 checkpoints, and ``benchmarks/suites/location_files.py`` a million."""
    store = MemoryStore()
    owner, most = Owner(store, "one", SUMMARY_EVERY), 0
    for _ in range(CHECKPOINTS):
        owner.checkpoint(retained=10)
        most = max(most, len(store.files))
    assert SUMMARY_EVERY < most <= FILES
    assert owner.log.view.next_seq > 2 * CHECKPOINTS - 10
    assert SnapshotLog(store).refresh() == owner.log.view


def test_only_the_head_and_what_follows_the_last_summary_is_left() -> None:
    store = MemoryStore()
    view = compacted(store).log.view
    assert view.head == 2
    assert view.kept_from < view.last_summary
    assert numbers(store) == [1, 2, *range(view.kept_from, view.next_seq)]


def test_a_driver_that_slept_cannot_go_on_with_a_number_that_was_removed() -> None:
    store = MemoryStore()
    sleeper = Owner(store, "sleeper")
    sleeper.checkpoint()
    before = sleeper.log.view
    owner = compacted(store, "owner")
    assert before.next_seq not in numbers(store)
    with pytest.raises(Fenced):
        sleeper.log.check_owned()
    with pytest.raises(Fenced):
        sleeper.checkpoint()
    assert sleeper.log.view == before
    assert before.next_seq in numbers(store), "it has created the number again"
    assert SnapshotLog(store).refresh() == owner.log.view
    assert not check_log(store).problems
    assert owner.log.contains(owner.positions[0]), "whoever has created that number again"
    stray = LogPosition(before.next_seq, json.loads(store.files[entry_path(before.next_seq)])["body"]["token"])
    assert not owner.log.contains(stray)
    for _ in range(4):
        owner.checkpoint()
    assert before.next_seq not in numbers(store)


def test_a_driver_whose_last_entry_was_removed_is_fenced_and_one_whose_location_is_gone_is_told_so() -> None:
    store = MemoryStore()
    sleeper = compacted(store)
    compacted(store, "owner")
    assert sleeper.log.deletion_text() == ""
    with pytest.raises(Fenced):
        sleeper.checkpoint()
    store.files.clear()
    assert "is gone while the query runs" in sleeper.log.deletion_text()


def test_a_listing_that_misses_everything_is_found_out_by_the_entry_itself() -> None:
    """Acts as if the process had slept in the middle of ``readdir``."""
    store = MemoryStore()
    sleeper, owner = Owner(store, "sleeper"), compacted(store, "owner")
    listed = store.list

    def misses(folder: str, after: str = "") -> list[str]:
        store.list = listed  # type: ignore[method-assign]
        for _ in range(4):
            owner.checkpoint()  # removes the number that the sleeper has created, too
        return []

    create = store.create_if_absent

    def created(path: str, data: bytes) -> bool:
        store.create_if_absent = create  # type: ignore[method-assign]
        made = create(path, data)
        store.list = misses  # type: ignore[method-assign]
        return made

    store.create_if_absent = created  # type: ignore[method-assign]
    with pytest.raises(Fenced):
        sleeper.log.append(EpochCommitted(1, 1, 9))


def test_a_removal_that_is_interrupted_is_continued_by_the_next_owner() -> None:
    store = MemoryStore()
    owner = Owner(store, "one")

    def fails(effect: Effect) -> None:
        if effect.operation == "delete":
            raise OSError("no network")

    store.hook = fails
    for _ in range(8):
        with suppress(OSError):
            owner.checkpoint()
    store.hook = None
    left = numbers(store)
    assert left == list(range(1, owner.log.view.next_seq)), "nothing was removed"
    assert compacted(store, "two", 4).log.view.next_seq > len(numbers(store))


def test_positions_are_known_for_long_after_their_entries_were_removed() -> None:
    store = MemoryStore()
    positions = [position for name in "abc" for position in compacted(store, name).positions]
    log = SnapshotLog(store)
    log.refresh()
    assert len(numbers(store)) < len(positions) / 3
    assert all(log.contains(position) for position in positions)
    other = MemoryStore()
    others = [position for name in "xyz" for position in compacted(other, name).positions]
    assert not any(log.contains(position) for position in others)
    assert not log.contains(LogPosition(log.view.next_seq + 1, positions[-1].token))


def test_a_copy_that_diverged_does_not_know_what_the_other_one_has_done_since() -> None:
    here, there = MemoryStore(), MemoryStore()
    both = compacted(here)
    there.files = dict(here.files)
    before = list(both.positions)
    for _ in range(12):
        both.checkpoint()
    compacted(there, "copy")
    log = SnapshotLog(there)
    log.refresh()
    assert all(log.contains(position) for position in before)
    assert not any(log.contains(position) for position in both.positions[len(before) :])


def test_only_the_newest_writers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_entries, "WRITERS_AT_MOST", 6)
    store = MemoryStore()
    owners = [compacted(store, f"writer {number}") for number in range(9)]
    log = SnapshotLog(store)
    view = log.refresh()
    assert len(view.writers) == 6
    assert [log.contains(owner.positions[3]) for owner in owners] == [False] * 3 + [True] * 6
    assert view.recent_from == owners[6].positions[0].seq, "older positions are replaced when a fence is opened"
    assert compacted(MemoryStore()).log.view.recent_from == 0


def test_whether_a_snapshot_covers_a_position_is_known_without_the_entry() -> None:
    store = MemoryStore()
    owner = compacted(store)
    kept = owner.log.view.snapshots[0]
    at = {position.seq: position for position in owner.positions}
    for _ in range(6):
        owner.checkpoint(retained=100)
    assert owner.log.view.is_covered(kept.logged_at)
    assert not owner.log.may_be_later(at[kept.logged_at], kept.checkpoint)
    assert not owner.log.may_be_later(at[kept.logged_at - 2], kept.checkpoint)
    assert owner.log.may_be_later(owner.positions[-1], kept.checkpoint)
    assert not owner.log.may_be_later(owner.positions[-1], owner.log.view.snapshots[-1].checkpoint)


def test_a_snapshot_that_completes_after_a_later_one_does_not_say_which_entries_it_covers() -> None:
    store = MemoryStore()
    log = SnapshotLog(store, tokens(), summary_every=4)
    log.append(GenerationOpened(1, 0, 1, 65, 0))
    log.append(SnapshotComplete(1, 2, False, REF, 0, 65, next_batch=0))
    later = log.position
    log.append(SnapshotComplete(1, 1, True, REF, 0, 65, next_batch=0))
    assert [record.logged_at for record in log.view.snapshots] == [0, 2]
    assert log.may_be_later(later, 1)


def test_an_earlier_release_refuses_the_log_by_the_name_of_its_summary() -> None:
    store = MemoryStore()
    view = compacted(store).log.view
    for seq in (view.head, view.last_summary):
        entry = open_envelope(store.files[entry_path(seq)], "")["entry"]  # type: ignore[index]
        assert isinstance(convert(entry, log_entries.Entry), Summary)
        with pytest.raises(msgspec.ValidationError, match=r"summary \(format version 3\)"):
            convert(entry, EarlierEntry)


def test_a_log_of_an_earlier_release_keeps_its_entries_and_grows_no_more() -> None:
    store = MemoryStore()
    earlier = SnapshotLog(store, lambda: tokens("earlier")())
    earlier.append(GenerationOpened(1, 0, 1, 65, 0))
    for checkpoint in range(1, 30):
        earlier.append(SnapshotComplete(1, checkpoint, False, REF, 0, 65, next_batch=0))
    position = earlier.position
    assert earlier.view.head == 0
    owner = compacted(store, "new", 20)
    assert owner.log.view.head == 32, "the summary after the first entry"
    assert numbers(store)[:32] == list(range(1, 33))
    assert len(numbers(store)) < 45
    assert owner.log.contains(position)


def test_a_reader_lists_again_if_entries_are_removed_while_it_reads() -> None:
    store = MemoryStore()
    owner = compacted(store)
    reader = SnapshotLog(store)

    def remove(effect: Effect) -> None:
        if effect.operation == "read":
            store.hook = None
            for _ in range(8):
                owner.checkpoint()

    store.hook = remove
    assert reader.refresh() == owner.log.view


def test_a_missing_entry_that_no_summary_covers_is_damage() -> None:
    store = MemoryStore()
    view = compacted(store).log.view
    del store.files[entry_path(view.last_summary)]
    with pytest.raises(CorruptSnapshot, match=f"{view.last_summary}.json is missing"):
        SnapshotLog(store).refresh()


def test_a_check_of_the_log_names_what_is_missing_and_nothing_that_was_removed() -> None:
    store = MemoryStore()
    view = compacted(store, checkpoints=14).log.view
    assert view.next_seq - view.last_summary >= 3
    checked = check_log(store)
    assert (checked.problems, checked.missing, checked.view) == ({}, 0, view)
    del store.files[entry_path(view.next_seq - 2)]
    assert list(check_log(store).problems) == [entry_path(view.next_seq - 2)]
    store.files[entry_path(view.next_seq - 1)] = b"{"
    del store.files[entry_path(1)]
    assert sorted(check_log(store).problems) == [entry_path(seq) for seq in (1, view.next_seq - 2, view.next_seq - 1)]


@pytest.mark.parametrize("writers", [[(5, "b"), (3, "a")], [(3, "a"), (3, "b")], [(1, "a")], [(99, "a")]])
def test_a_summary_with_writers_that_cannot_be_is_refused(writers: list[tuple[int, str]]) -> None:
    view = compacted(MemoryStore()).log.view
    summary = log_entries.summary_of(view)
    forged = [log_entries.LogWriter(first, stem) for first, stem in writers]
    with pytest.raises(ValueError, match="writers"):
        fold(view, msgspec.structs.replace(summary, writers=forged))
    with pytest.raises(ValueError, match="head"):
        fold(view, msgspec.structs.replace(summary, head=view.next_seq + 1))


def test_what_a_process_remembers_of_a_log_is_not_used_for_another_one(tmp_path: Path) -> None:
    store, memory = LocalStore(tmp_path), LogCache()
    view = compacted(store).log.view
    shutil.rmtree(tmp_path / "log")
    memory.put(store, view)  # its last entry was removed since it was read
    assert memory.get(store) == LogView()


def test_the_log_of_a_fork_still_says_how_it_began() -> None:
    store = MemoryStore()
    begun = Forked("query-0", SnapshotRecord(7, 1, True, REF), 8, next_batch=0)
    SnapshotLog(store, tokens()).append(begun)
    compacted(store)
    assert SnapshotLog(store).fork_entry() == begun


@pytest.mark.parametrize("version", ["3"])
def test_a_golden_location_with_a_compacted_log_goes_on(version: str, tmp_path: Path) -> None:
    shutil.copytree(COMPACTED / version / "location", tmp_path / "location")
    said = json.loads((COMPACTED / f"{version}.json").read_text())
    store = LocalStore(tmp_path / "location")
    log = SnapshotLog(store)
    view = log.refresh()
    assert (view.lineage[-1].checkpoint, view.committed_epoch) == (said["checkpoint"], said["committed_epoch"])
    assert len(store.list("log")) < view.next_seq / 3
    assert all(log.contains(LogPosition(*position)) for position in said["positions"])
    assert not check_log(store).problems
    driver = Driver(store, Target(), "third")
    assert driver.start().opened.restored == said["checkpoint"]
    assert driver.checkpoint() > said["checkpoint"]


def test_a_query_with_a_compacted_log_is_moved() -> None:
    there, here, target = MemoryStore(), MemoryStore(), Target()
    there.root, here.root = "memory:there", "memory:here"
    sleeper = Driver(there, target, "sleeper", summary_every=4)
    claim_identity(there, identity_of(sleeper.graph, "query-1"))
    sleeper.start()
    sleeper.checkpoint()
    owner = Driver(there, target, "owner", summary_every=4)
    owner.start()
    for _ in range(8):
        owner.checkpoint()
    positions = [position for _, position in owner.effects._log._positions]
    owner.effects.close(owner.core.coordinator.committed_epoch, owner.core.coordinator.next_checkpoint)
    view = move_query(there, here)
    moved = SnapshotLog(here)
    assert moved.refresh() == view
    assert len(numbers(here)) < view.next_seq / 2
    assert all(moved.contains(position) for position in positions)
    assert not check_log(here).problems
    with pytest.raises(Fenced):
        sleeper.checkpoint()
    successor = Driver(here, target, "successor")
    assert successor.start().opened.restored == view.lineage[-1].checkpoint
    successor.checkpoint()
    assert len(target.visible) == 1 + 8 + 1
