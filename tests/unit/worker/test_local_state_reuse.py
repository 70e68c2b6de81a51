"""Local state of a worker: only for its own query, and for a limited time."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from penstock.model.ids import SubtaskId
from penstock.snapshots.restoring.local_state import LocalStateStore, RetainedTable
from penstock.snapshots.writing.state_index import TableId
from penstock.state.memory_table import MemoryTable
from penstock.state.table import TableSpec
from penstock.worker import local_state_reuse
from penstock.worker.local_state_reuse import Remembered, recall, remember


def remembered(query_id: str, slot: int) -> tuple[Remembered, MemoryTable]:
    table, kept = MemoryTable(TableSpec(pa.schema([("k", pa.int64())]), 1, 128)), LocalStateStore()
    point = table.capture().keep()
    assert point is not None
    kept.add(1, {TableId(SubtaskId(0, slot), "count", "counts"): RetainedTable([], point)})
    return Remembered(query_id, slot, kept), table


def forgetters() -> int:
    return sum(thread.name == local_state_reuse.FORGETTER for thread in threading.enumerate())


def test_it_is_recalled_once_by_its_own_query_and_let_go_for_another_one() -> None:
    (mine, my_table), (other, other_table) = remembered("mine", 2), remembered("other", 0)
    remember(mine)
    remember(other)
    assert recall("mine") == [mine]
    assert my_table._log.is_captured
    assert not other_table._log.is_captured
    assert recall("mine") == []
    mine.tables.release()


def test_what_nobody_asks_for_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_state_reuse, "FORGET_AFTER_S", 0.05)
    one, table = remembered("mine", 0)
    remember(one)
    deadline = time.monotonic() + 10
    while table._log.is_captured and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not table._log.is_captured
    assert recall("mine") == []
    while forgetters() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert forgetters() == 0
