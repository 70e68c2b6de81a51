"""Checkpoints reach the history whatever the store does, and nobody waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.coordinator.history_writer import MAX_QUEUED, HistoryWriter
from penstock.coordinator.view import CheckpointState, CheckpointView
from penstock.model.manifest import CaptureMetrics
from penstock.snapshots.history.reading import History
from penstock.snapshots.history.records import MAX_REASON
from penstock.snapshots.history.segment_writer import SegmentWriter
from penstock.snapshots.history.segments import StoredCheckpoint
from penstock.snapshots.store.store import LocalStore, MemoryStore, Store


def view(number: int, reason: str = "", subtasks: int = 2) -> CheckpointView:
    return CheckpointView(
        checkpoint=number,
        generation=3,
        alignment="auto",
        requested=False,
        label="",
        state=CheckpointState.FAILED if reason else CheckpointState.COMPLETE,
        triggered_ms=1_700_000_000_000,
        duration_ms=7.25,
        acknowledged=1,
        reason=reason,
        snapshot_id="" if reason else f"chk-{number}",
        subtasks=() if reason else tuple(CaptureMetrics(0, index, inflight_bytes=5) for index in range(subtasks)),
    )


def known(store: Store) -> list[int]:
    return [one.checkpoint for one in History(store).page(None, 1000)]


def test_a_reason_is_kept_without_the_secret_that_it_is_cut_in(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = HistoryWriter(SegmentWriter(store))
    writer.ended(view(1, reason="x" * (MAX_REASON - 20) + "https://me:hunter2hunter2@host"))
    writer.close(10)
    failed = History(store).find(1)
    assert failed is not None
    assert failed.reason.endswith("xhttps://me:***@host")


class Failing(SegmentWriter):
    """The store fails until it is told not to."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.fails = True
        self.tried = threading.Event()

    def append(self, entries: Sequence[StoredCheckpoint]) -> None:
        self.tried.set()
        if self.fails:
            raise OSError(28, "No space left on device")
        super().append(entries)


def test_what_ended_is_written_soon_and_the_rest_at_the_end(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = HistoryWriter(SegmentWriter(store), pause_s=0.05)
    writer.ended(view(1))
    deadline_s = time.monotonic() + 10
    while known(store) != [1]:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    patient = HistoryWriter(SegmentWriter(store), pause_s=60)
    patient.ended(view(2, reason="too slow, \udcff" + "x" * 2 * MAX_REASON))
    patient.ended(view(3))
    patient.close(10)
    writer.close(10)
    patient.ended(view(4))
    assert known(store) == [3, 2, 1]
    failed, complete = History(store).find(2), History(store).find(3)
    assert failed is not None
    assert complete is not None
    assert (failed.state, failed.reason[:11], len(failed.reason)) == ("failed", "too slow, ?", MAX_REASON)
    assert (complete.state, complete.inflight_bytes, complete.generation) == ("complete", 10, 3)
    assert complete.duration_ms == 7.25
    assert [one.index for one in complete.subtasks] == [0, 1]


def test_a_store_that_fails_costs_history_alone_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    keeper = Failing(store)
    writer = HistoryWriter(keeper, pause_s=0.001, retry_s=0.001)
    with caplog.at_level(logging.WARNING, "penstock"):
        for number in range(1, 2 * MAX_QUEUED + 1):
            writer.ended(view(number))
        assert keeper.tried.wait(10)
        time.sleep(0.05)
        keeper.fails = False
        writer.close(10)
    assert known(store) == list(range(2 * MAX_QUEUED, MAX_QUEUED, -1))
    assert len([line for line in caplog.messages if "No space left" in line]) == 1


def test_a_store_that_hangs_holds_nobody_up() -> None:
    go_on = threading.Event()

    class Hanging(SegmentWriter):
        def append(self, entries: Sequence[StoredCheckpoint]) -> None:
            go_on.wait(30)

    writer = HistoryWriter(Hanging(MemoryStore()), pause_s=0.0)
    began_s = time.monotonic()
    for number in range(1, 1000):
        writer.ended(view(number))
    writer.close(0.1)
    assert time.monotonic() - began_s < 20
    go_on.set()


def test_a_run_without_checkpoints_begins_no_thread() -> None:
    before = set(threading.enumerate())
    writer = HistoryWriter(SegmentWriter(MemoryStore()))
    assert set(threading.enumerate()) <= before
    writer.close(1)
