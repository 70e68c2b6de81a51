"""Under full backpressure a query leaves a snapshot with nothing in flight, and an edited query starts from it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.coordinator.view import CheckpointState
from penstock.errors import CheckpointFailed, PlanChanged, QueryFailed
from penstock.model.elements import Alignment
from penstock.model.job_graph import JobGraph
from penstock.model.manifest import SnapshotMetadata
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, finish, run
from tests.support.dataflow.tiny import CountSpec, Numbers, committed, tiny_graph

ROWS = 60_000
COST_US = 200
SMALL_QUEUES = {"exclusive_window": 20_000, "memory_per_gate": 100_000}


@pytest.fixture
def job(tmp_path: Path) -> Callable[[int], JobGraph]:
    """A job whose counting is slow while the file ``slow`` is there."""
    slow = tmp_path / "slow"
    slow.write_text(str(COST_US))
    return lambda parallelism: tiny_graph(tmp_path / "out", parallelism, Numbers(ROWS), CountSpec(slow_file=str(slow)))


def edited(graph: JobGraph) -> JobGraph:
    """Another exchange: rows in flight on the old one have no place in it."""
    return replace(graph, edges=(replace(graph.edges[0], exchange_id="another"),))


def under_pressure(query: Running, inflight_bytes: int = 50_000) -> Running:
    query.until(lambda v: v.inflight_bytes > inflight_bytes, what="full queues")
    return query


def in_flight(metadata: SnapshotMetadata) -> int:
    return sum(entry.rows for slot in metadata.slots for subtask in slot.subtasks for entry in subtask.inflight)


def rows_in(metadata: SnapshotMetadata, vertex: int) -> int:
    return sum(s.rows_in for slot in metadata.slots for s in slot.subtasks if s.vertex == vertex)


def is_drained(metadata: SnapshotMetadata | None, folder: Path) -> int:
    """Nothing is in flight, and what was read is what is visible. Returns the number of rows."""
    assert metadata is not None
    assert in_flight(metadata) == 0
    assert rows_in(metadata, 0) == rows_in(metadata, 1) == len(committed(folder))
    return rows_in(metadata, 0)


def goes_on_edited(tmp_path: Path, launcher: ProcessLauncher, graph: JobGraph) -> None:
    (tmp_path / "slow").unlink()
    finish(run(edited(graph), tmp_path / "chk", launcher), tmp_path / "out", ROWS)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("alignment", [Alignment.UNALIGNED, Alignment.ALIGNED])
def test_an_edited_query_starts_from_a_drained_snapshot(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph], parallelism: int, alignment: Alignment
) -> None:
    graph = job(parallelism)
    query = under_pressure(run(graph, tmp_path / "chk", launcher, alignment, **SMALL_QUEUES))
    read = sum(s.metrics.rows_in for s in query.view.subtasks if s.metrics.vertex == 0)
    rows = is_drained(query.execution.stop_with_snapshot(drain=True), tmp_path / "out")
    assert query.ends == [None]
    assert read <= rows < ROWS
    goes_on_edited(tmp_path, launcher, graph)


def test_rows_in_flight_have_no_place_in_the_edited_query_until_the_old_one_is_started_to_drain(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph]
) -> None:
    query = under_pressure(run(job(2), tmp_path / "chk", launcher, **SMALL_QUEUES))
    taken = query.execution.stop_with_snapshot()
    assert taken is not None
    assert in_flight(taken) > 1_000
    assert rows_in(taken, 0) < ROWS
    with pytest.raises(PlanChanged, match=r"exchange 0, which has \d+ rows in flight: stored hash, now absent"):
        run(edited(job(2)), tmp_path / "chk", launcher)
    old = run(job(3), tmp_path / "chk", launcher, drains=True)
    assert old.execution.await_termination(60)
    assert old.ends == [None]
    newest = [c for c in old.view.checkpoints if c.state is CheckpointState.COMPLETE][-1]
    assert (newest.alignment, newest.inflight_rows) == ("aligned", 0)
    assert len(committed(tmp_path / "out")) == rows_in(taken, 0), "only what was in flight is processed"
    goes_on_edited(tmp_path, launcher, job(2))


def test_a_worker_is_killed_during_a_drain(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph]
) -> None:
    query = under_pressure(run(job(2), tmp_path / "chk", launcher))
    query.until(lambda v: any(c.state is CheckpointState.COMPLETE for c in v.checkpoints), what="a checkpoint")
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(query.execution.stop_with_snapshot, True)
        query.until(lambda v: v.checkpoints[-1].alignment == "aligned", what="the strictly aligned one")
        os.kill(launcher.jobs[-1].processes[0].pid, signal.SIGKILL)
        query.until_running(2)
        (tmp_path / "slow").write_text("20")
        is_drained(drained.result(60), tmp_path / "out")
    assert query.ends == [None]
    goes_on_edited(tmp_path, launcher, job(2))


def test_a_drain_goes_on_at_another_parallelism(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph]
) -> None:
    query = under_pressure(run(job(1), tmp_path / "chk", launcher))
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(query.execution.stop_with_snapshot, True)
        query.until(lambda v: v.checkpoints[-1].alignment == "aligned", what="the strictly aligned one")
        query.execution.rescale(3)
        (tmp_path / "slow").write_text("20")
        is_drained(drained.result(60), tmp_path / "out")
    assert (query.view.generation, query.view.parallelism) == (2, 3)
    goes_on_edited(tmp_path, launcher, job(3))


def test_a_drain_that_fails_lets_the_query_read_on(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph]
) -> None:
    query = run(job(2), tmp_path / "chk", launcher, Alignment.ALIGNED, checkpoint_timeout_ms=300, **SMALL_QUEUES)
    under_pressure(query)
    with pytest.raises(
        CheckpointFailed,
        match=r"not acknowledged by slots .* within \d+ ms\. All rows in flight .* checkpoint\.timeout",
    ):
        query.execution.stop_with_snapshot(drain=True)
    (tmp_path / "slow").unlink()
    finish(query, tmp_path / "out", ROWS)
    assert query.ends == [None]


def test_a_query_that_was_started_to_drain_does_not_read_on_when_that_fails(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph]
) -> None:
    query = under_pressure(run(job(2), tmp_path / "chk", launcher, **SMALL_QUEUES))
    taken = query.execution.stop_with_snapshot()
    assert taken is not None
    (tmp_path / "slow").write_text("3000")
    old = run(job(2), tmp_path / "chk", launcher, Alignment.ALIGNED, drains=True, checkpoint_timeout_ms=300)
    assert old.execution.await_termination(60)
    assert isinstance(old.execution.error, QueryFailed)
    assert "what was in flight was not drained" in str(old.execution.error)
    (tmp_path / "slow").unlink()
    again = run(job(2), tmp_path / "chk", launcher, drains=True)
    assert again.execution.await_termination(60)
    assert len(committed(tmp_path / "out")) == rows_in(taken, 0)
    finish(run(job(2), tmp_path / "chk", launcher), tmp_path / "out", ROWS)


def test_a_suspended_query_has_to_run_to_be_drained(
    tmp_path: Path, launcher: ProcessLauncher, job: Callable[[int], JobGraph]
) -> None:
    query = under_pressure(run(job(1), tmp_path / "chk", launcher, **SMALL_QUEUES))
    query.execution.suspend()
    with pytest.raises(QueryFailed, match=r"suspended: resume\(\) it first"):
        query.execution.stop_with_snapshot(drain=True)
    query.execution.resume()
    is_drained(query.execution.stop_with_snapshot(drain=True), tmp_path / "out")
