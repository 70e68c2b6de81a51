"""Tables that survive a failure in their worker's memory: which ones are used, and that rows are exact all the same."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.coordinator import generation_slots as attempt
from penstock.coordinator.generation_slots import match_slots_to_tasks
from penstock.coordinator.metrics import QueryMetrics
from tests.support.dataflow.running import Running, finish, run, stop_executions
from tests.support.dataflow.tiny import CountSpec, Numbers, tiny_graph
from tests.support.dataflow.worker_pool import PoolLauncher

log = logging.getLogger(__name__)

PARALLELISM, KEYS = 3, 2000


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[PoolLauncher]:
    monkeypatch.setattr(attempt, "JOB_GRACE_S", 10.0)  # on a busy machine slots may need more to end by themselves
    made = PoolLauncher()
    yield made
    stop_executions()
    made.end()


def complete(query: Running, more: int = 1) -> None:
    """Wait for checkpoints that begin from here on."""
    newest = max((c.checkpoint for c in query.view.checkpoints), default=0)
    query.until(lambda v: v.committed_epoch >= newest + more, what="a checkpoint")


def kill(query: Running, slots: list[int]) -> dict[int, tuple[int, int]]:
    """Returns the processes and kept tables of the next Generation."""
    before = query.view
    for slot in slots:
        os.kill(before.slots[slot].pid, signal.SIGKILL)
    after = query.until_running(before.generation + 1)
    return {slot.slot: (slot.pid, slot.kept_tables) for slot in after.slots}


def test_slots_that_survive_keep_their_numbers_and_tables_and_the_result_is_exact(
    tmp_path: Path, pool: PoolLauncher
) -> None:
    total = 24_000
    source = Numbers(total, keys=KEYS, rate=6_000)
    query = run(tiny_graph(tmp_path / "out", PARALLELISM, source), tmp_path / "chk", pool)
    chance = random.Random(1)
    for _ in range(4):
        complete(query)
        time.sleep(chance.random() * 0.15)  # somewhere between two checkpoints
        pids = {slot.slot: slot.pid for slot in query.view.slots}
        victims = chance.sample(range(PARALLELISM), chance.choice((1, 1, 2)))
        for slot, (pid, kept) in kill(query, victims).items():
            assert (pid == pids[slot], kept) == (slot not in victims, int(slot not in victims)), f"slot {slot}"
    finish(query, tmp_path / "out", total, KEYS)


def test_a_second_failure_before_the_next_checkpoint_goes_back_to_the_same_one(
    tmp_path: Path, pool: PoolLauncher
) -> None:
    total = 20_000
    source = Numbers(total, keys=KEYS, rate=4_000)
    query = run(tiny_graph(tmp_path / "out", PARALLELISM, source), tmp_path / "chk", pool, checkpoint_interval_ms=3000)
    complete(query)
    restored = set()
    for victim in (0, 1, 0):
        assert sum(kept for _, kept in kill(query, [victim]).values()) == PARALLELISM - 1
        restored.add(query.view.restarts[-1].restored_from)
    assert len(restored) == 1
    finish(query, tmp_path / "out", total, KEYS)


def test_after_a_rescale_nothing_is_taken_that_is_not_what_was_asked_for(tmp_path: Path, pool: PoolLauncher) -> None:
    total = 20_000
    source = Numbers(total, keys=KEYS, rate=5_000)
    query = run(tiny_graph(tmp_path / "out", PARALLELISM, source), tmp_path / "chk", pool)
    complete(query)
    query.execution.rescale(2, 30)
    complete(query)
    assert [slot.kept_tables for slot in query.view.slots] == [0, 0], "its slots were stopped"
    assert kill(query, [0])[1][1] == 1
    complete(query)
    os.kill(query.view.slots[0].pid, signal.SIGKILL)
    query.execution.rescale(PARALLELISM, 30)
    complete(query)
    assert all(slot.kept_tables == 0 for slot in query.view.slots), "other key groups"
    finish(query, tmp_path / "out", total, KEYS)


def test_a_slot_that_failed_by_itself_reads_its_tables_anew(
    tmp_path: Path, pool: PoolLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Generation fails at once behind its checkpoint: too soon, maybe, for a view of it."""
    kept: dict[int, set[int]] = {}
    slot_runs = QueryMetrics.slot_runs

    def noted(figures: QueryMetrics, slot: int, kept_tables: int) -> None:
        if figures._generation > 1:
            kept.setdefault(slot, set()).add(kept_tables)
        slot_runs(figures, slot, kept_tables)

    monkeypatch.setattr(QueryMetrics, "slot_runs", noted)
    graph = tiny_graph(tmp_path / "out", 2, Numbers(12_000, keys=KEYS, rate=2_000), CountSpec(fail_at=11_000))
    query = run(graph, tmp_path / "chk", pool, restart_attempts=3)
    complete(query)
    query.execution.await_termination(30)
    assert "11000" in str(query.execution.error)
    assert sorted(map(sorted, kept.values())) == [[0], [1]]


@pytest.mark.parametrize(
    ("remembered", "task_numbers"),
    [
        ([[], [], []], [0, 1, 2]),
        ([[2], [], [0]], [2, 1, 0]),
        ([[1], [], []], [1, 0, 2]),
        ([[7], [0], []], [1, 0, 2]),
        ([[0, 1], [0, 1], [1]], [0, 1, 2]),
        ([[1], [1], [1]], [1, 0, 2]),
    ],
)
def test_a_worker_becomes_the_slot_that_it_remembers(remembered: list[list[int]], task_numbers: list[int]) -> None:
    found = match_slots_to_tasks(remembered)
    assert sorted(found) == list(range(len(remembered)))
    assert found == task_numbers
