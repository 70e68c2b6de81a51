"""Workers run every task, survive tasks that hang or die, and are gone at the end."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from simulator import workers as parallel
from simulator.schedule import Result, Task
from simulator.workers import HANGS, Workers

LIMIT_S = 2.0


def answer(task: Task) -> Result:
    """Seed 3 hangs, seed 5 dies."""
    if task.seed == 3:
        time.sleep(60)
    if task.seed == 5:
        os._exit(9)
    return Result(task, digest=f"{task.seed}", counters={"pid": os.getpid()})


def children() -> list[psutil.Process]:
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def before() -> set[int]:
    return {child.pid for child in children()}


def test_every_task_is_run_once_and_a_hanging_or_dying_one_is_reported(before: set[int]) -> None:
    with Workers(2, limit_s=LIMIT_S, run=answer) as workers:
        results = {result.task.seed: result for result in workers.run(Task(seed) for seed in range(8))}
    assert sorted(results) == list(range(8))
    assert {seed for seed, result in results.items() if result.failure} == {3, 5}
    assert {result.failure.oracle for result in results.values() if result.failure} == {HANGS}
    assert {result.digest for result in results.values() if not result.failure} == set("012467")
    assert {child.pid for child in children()} <= before | {_tracker_pid()}


def test_workers_are_used_again_and_a_closed_run_stops_what_still_runs(before: set[int]) -> None:
    with Workers(2, limit_s=60, run=answer) as workers:
        first = {result.counters["pid"] for result in workers.run(Task(seed) for seed in (0, 1, 2))}
        again = {result.counters["pid"] for result in workers.run(Task(seed) for seed in (6, 7))}
        assert again <= first
        running = workers.run(Task(seed) for seed in (3, 4))
        assert next(iter(running)).task.seed == 4
        began = time.monotonic()
        running.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 30
        assert [result.digest for result in workers.run([Task(1)])] == ["1"]
    assert {child.pid for child in children()} <= before | {_tracker_pid()}


def test_a_worker_is_replaced_before_it_is_large(monkeypatch: pytest.MonkeyPatch, before: set[int]) -> None:
    monkeypatch.setattr(parallel, "SCHEDULES_PER_WORKER", 3)
    with Workers(1, limit_s=60, run=answer) as workers:
        by = [result.counters["pid"] for result in workers.run(Task(seed) for seed in (0, 1, 2, 4, 6, 7, 8))]
    assert by[0] == by[1] == by[2]
    assert by[3] == by[4] == by[5]
    assert len(set(by)) == 3
    assert {child.pid for child in children()} <= before | {_tracker_pid()}


def _tracker_pid() -> int:
    """Python's own resource tracker, which multiprocessing starts once."""
    from multiprocessing import resource_tracker

    return resource_tracker._resource_tracker._pid or 0  # type: ignore[attr-defined]
