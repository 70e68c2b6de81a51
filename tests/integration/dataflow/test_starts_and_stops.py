"""Time limits of slots that start, and of a query without work that stops."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from penstock.config import RestartStrategy
from penstock.coordinator import generation_slots as attempt
from penstock.coordinator.view import ExecutionState
from penstock.worker import slot
from penstock.worker.slot_task import SlotTask
from tests.support.dataflow.process_launcher import ProcessJob, ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.thread_launcher import ThreadJob, ThreadLauncher
from tests.support.dataflow.tiny import Numbers, assert_exact, tiny_graph


class ShortLauncher(ProcessLauncher):
    """Starts one slot less than it was asked for, up to the launch with number ``short``."""

    def __init__(self, short: int) -> None:
        super().__init__()
        self._short = short

    def launch(self, task: SlotTask, parallelism: int) -> ProcessJob:
        return super().launch(task, parallelism - (len(self.jobs) < self._short))


def test_slots_that_do_not_start_in_time_end_the_generation_and_the_error_names_the_option(tmp_path: Path) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(10))
    query = run(graph, tmp_path / "chk", ShortLauncher(9), slot_start_timeout_ms=300, restart_attempts=1)
    assert query.execution.await_termination(10)
    text = str(query.execution.error)
    assert re.search("only [01] of 2 slots started within 0.3 s", text)
    assert "give them more time with spark.penstock.slot.startTimeout" in text
    (restart,) = query.view.restarts
    assert (restart.given_up, restart.running_ms) == (True, None), "no recovery is under way in a query that has failed"


def test_a_failure_that_ends_the_query_is_no_recovery(tmp_path: Path) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(10))
    options = {"restart_strategy": RestartStrategy.NONE, "slot_start_timeout_ms": 100}
    query = run(graph, tmp_path / "chk", ShortLauncher(9), **options)  # type: ignore[arg-type]
    assert query.execution.await_termination(10)
    assert query.view.state is ExecutionState.FAILED
    assert (query.view.restarts, query.view.restarts_begun) == ((), 0)


def test_a_generation_whose_slots_start_in_time_follows_one_whose_slots_did_not(tmp_path: Path) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(500))
    query = run(graph, tmp_path / "chk", ShortLauncher(1), slot_start_timeout_ms=2000)
    query.execution.process_all_available(20)
    assert_exact(tmp_path / "out", 500)
    assert [one.cause.partition(":")[0] for one in query.view.restarts] == ["only 1 of 2 slots started within 2 s"]


class LateJob(ThreadJob):
    """Its last slot starts ``LATE_S`` after the others."""

    LATE_S = 2.0

    def _run(self, index: int, task: SlotTask) -> None:
        if index == task.graph.parallelism - 1:
            time.sleep(self.LATE_S)
        super()._run(index, task)


class LateLauncher(ThreadLauncher):
    def launch(self, task: SlotTask, parallelism: int) -> ThreadJob:
        self.jobs.append(LateJob(task, parallelism))
        return self.jobs[-1]


def test_slots_that_started_early_wait_for_the_others_as_long_as_these_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter limits of the slots themselves, and of silence, do not count meanwhile."""
    monkeypatch.setattr(slot, "DEPLOY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(attempt, "HEARTBEAT_TIMEOUT_S", 1.2)
    query = run(tiny_graph(tmp_path / "out", 2, Numbers(500)), tmp_path / "chk", LateLauncher())
    query.execution.process_all_available(20)
    assert_exact(tmp_path / "out", 500)
    assert query.view.restarts == ()
