"""The log: one truth, one owner."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.errors import CorruptSnapshot, Fenced
from penstock.snapshots.log.entries import (
    EpochCommitted,
    GenerationOpened,
    LogView,
    MetadataRef,
    SnapshotComplete,
    SnapshotDeleted,
    fold,
)
from penstock.snapshots.log.snapshot_log import SNAPSHOTS_PER_ENTRY, SUMMARY_EVERY, SnapshotLog, entry_path
from penstock.snapshots.store.store import Effect, MemoryStore
from tests.support.snapshots.snapshot_kit import tokens

REF = MetadataRef("snapshots/chk-1/metadata.json", 2, "aa")


def opened(generation: int, restored: int = 0, first: int = 1, committed: int = 0) -> GenerationOpened:
    return GenerationOpened(generation, restored, first, first + 64, committed)


def complete(generation: int, checkpoint: int, committed: int = 0) -> SnapshotComplete:
    return SnapshotComplete(generation, checkpoint, False, REF, committed, checkpoint + 65, next_batch=0)


def log_of(store: MemoryStore, prefix: str = "t") -> SnapshotLog:
    log = SnapshotLog(store, tokens(prefix))
    log.refresh()
    return log


def ids(view: LogView) -> list[int]:
    return [record.checkpoint for record in view.lineage]


def test_a_reader_sees_what_the_owner_wrote() -> None:
    store = MemoryStore()
    log = log_of(store)
    for entry in (opened(1), complete(1, 1), complete(1, 2, committed=1), SnapshotDeleted(1, 1)):
        log.append(entry)
    assert sorted(store.files) == [f"log/{n:020d}.json" for n in range(1, 5)]
    view = log_of(store).view
    assert view == log.view
    assert (view.owner, ids(view), view.committed_epoch, view.next_checkpoint, view.next_generation) == (
        1,
        [2],
        1,
        67,
        2,
    )


def test_a_driver_that_loses_its_next_number_is_fenced() -> None:
    store = MemoryStore()
    old, new = log_of(store, "old"), log_of(store, "new")
    old.append(opened(1))
    new.refresh()
    new.append(opened(2, first=65))
    with pytest.raises(Fenced, match="log entry 2"):
        old.append(complete(1, 1))
    assert ids(log_of(store).view) == []
    with pytest.raises(Fenced):
        old.append(EpochCommitted(1, 1, 65))


def test_a_write_whose_outcome_is_unknown_is_told_by_its_token() -> None:
    store = MemoryStore()
    log = log_of(store)

    def lose_the_answer(effect: Effect) -> None:
        if effect.phase == "after":
            raise OSError("connection reset")

    store.hook = lose_the_answer
    assert log.append(opened(1)).owner == 1
    store.hook = None
    assert log.append(complete(1, 1)).next_seq == 3

    def refuse(effect: Effect) -> None:
        if effect.operation == "create_if_absent":
            raise OSError("No space left on device")

    store.hook = refuse
    with pytest.raises(OSError, match="No space"):
        log.append(complete(1, 2))
    store.hook = None
    assert ids(log.view) == [1]
    assert ids(log.append(complete(1, 3))) == [1, 3]


def test_recovery_follows_the_lineage() -> None:
    view = LogView()
    for entry in (
        opened(1),
        complete(1, 1),
        complete(1, 2),
        complete(1, 3),
        opened(2, restored=2, first=70),
        complete(2, 70),
        opened(3, restored=70, first=140),
    ):
        view = fold(view, entry)
    assert ids(view) == [1, 2, 70]
    assert [record.checkpoint for record in view.snapshots] == [1, 2, 3, 70]
    assert ids(fold(view, opened(4, restored=0, first=300))) == []


def test_the_committed_epoch_never_falls_not_even_by_a_roll_back() -> None:
    view = LogView()
    for entry in (opened(1), complete(1, 9, committed=8), opened(2, restored=0, first=80, committed=3)):
        view = fold(view, entry)
    assert view.committed_epoch == 8


@pytest.mark.parametrize(
    "entry",
    [opened(1, first=99), complete(1, 70), complete(2, 64), complete(2, 65), SnapshotDeleted(1, 65)],
    ids=["generation reused", "old owner", "id of the past", "completed twice", "old owner deletes"],
)
def test_entries_that_contradict_the_log_are_found(entry: GenerationOpened) -> None:
    view = fold(fold(fold(LogView(), opened(1)), opened(2, first=65)), complete(2, 65))
    with pytest.raises(ValueError, match=r"."):
        fold(view, entry)


def test_readers_start_from_the_last_summary() -> None:
    store = MemoryStore()
    log = log_of(store)
    log.append(opened(1))
    for checkpoint in range(1, 3 * SUMMARY_EVERY):
        log.append(complete(1, checkpoint, committed=checkpoint - 1))
        if checkpoint > 3:
            log.append(SnapshotDeleted(1, checkpoint - 3))
        log.summarise()
    read: list[str] = []
    store.hook = lambda effect: read.append(effect.path) if effect.operation == "read" else None
    fresh = log_of(store)
    assert fresh.view == log.view
    assert len(read) <= SUMMARY_EVERY + 3
    assert ids(fresh.view) == [189, 190, 191]
    store.hook = None
    assert fresh.append(complete(1, 500)).next_seq == log.view.next_seq + 1
    assert log.refresh() == fresh.view, "a view that is behind catches up"


def test_summaries_of_many_snapshots_are_written_less_often() -> None:
    """Each names them all: the log would grow by that every 64 entries."""
    log = log_of(MemoryStore())
    log.append(opened(1))
    summaries = []
    for checkpoint in range(1, 3_000):
        log.append(complete(1, checkpoint))
        if log.summarise().last_summary not in summaries:
            summaries.append(log.view.last_summary)
    gaps = [later - earlier for earlier, later in pairwise(summaries[1:])]
    assert gaps[0] == SUMMARY_EVERY + 1
    assert gaps[-1] >= 2_500 // SNAPSHOTS_PER_ENTRY


@pytest.mark.parametrize("position", [0, 20, 60, -20, -2])
def test_every_flipped_byte_of_an_entry_is_found_and_named(position: int) -> None:
    store = MemoryStore()
    log = log_of(store)
    log.append(opened(1))
    log.append(complete(1, 1))
    data = bytearray(store.files[entry_path(2)])
    data[position] ^= 1
    store.files[entry_path(2)] = bytes(data)
    with pytest.raises(CorruptSnapshot, match=entry_path(2)):
        log_of(store)


def test_missing_renamed_and_foreign_entries_are_found() -> None:
    store = MemoryStore()
    log = log_of(store)
    for entry in (opened(1), complete(1, 1), complete(1, 2)):
        log.append(entry)
    saved = dict(store.files)
    del store.files[entry_path(2)]
    with pytest.raises(CorruptSnapshot, match=r"0002.json is missing"):
        log_of(store)
    store.files = dict(saved)
    store.files[entry_path(2)] = saved[entry_path(1)]
    with pytest.raises(CorruptSnapshot, match="copied or renamed"):
        log_of(store)
    store.files = {**saved, "log/zz.json": b"{}"}
    with pytest.raises(CorruptSnapshot, match="zz"):
        log_of(store)


def test_a_removed_log_is_not_continued() -> None:
    store = MemoryStore()
    log = log_of(store)
    assert log.deletion_text() == "", "there is none yet"
    log.append(opened(1))
    assert log.deletion_text() == ""
    store.files.clear()
    with pytest.raises(FileNotFoundError, match=r"is gone while the query runs: log/0{19}1\.json is missing"):
        log.append(complete(1, 1))
    assert store.files == {}
