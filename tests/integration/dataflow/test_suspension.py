"""A query without slots, that goes on where it was: from its own snapshot, an older one, at another parallelism."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.coordinator.view import ExecutionState
from penstock.errors import CheckpointFailed, ConfigError, LocationError, QueryFailed, ResourceError
from penstock.model.elements import Alignment
from penstock.snapshots.commands.rolling_back import Output
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, run
from tests.support.dataflow.tiny import Numbers, assert_exact, committed, tiny_graph

ROWS = 40_000


@pytest.fixture
def query(tmp_path: Path, launcher: ProcessLauncher) -> Running:
    started = run(tiny_graph(tmp_path / "out", 2, Numbers(ROWS, rate=10_000)), tmp_path / "chk", launcher)
    started.until(lambda v: v.committed_epoch > 0, what="a commit")
    return started


def test_it_goes_on_where_it_was_and_loses_nothing(tmp_path: Path, launcher: ProcessLauncher, query: Running) -> None:
    execution = query.execution
    for round_ in range(2):
        taken = execution.suspend(f"pause-{round_}")
        assert taken is not None
        assert taken.label == f"pause-{round_}"
        assert (execution.is_active, execution.suspended, query.view.state) == (True, True, ExecutionState.SUSPENDED)
        assert not any(process.is_alive() for process in launcher.jobs[-1].processes)
        assert execution.suspend() == taken, "it is already"
        read = sum(s.rows_in for slot in taken.slots for s in slot.subtasks if s.vertex == 1)
        assert read == len(committed(tmp_path / "out"))
        execution.resume()
        execution.resume()  # it runs: nothing is done
        query.until(lambda v, at=taken: v.committed_epoch > at.checkpoint, what="a commit behind it")
        assert not execution.suspended
    execution.process_all_available(30)
    assert query.ends == []
    assert query.view.generation == 3
    execution.stop()
    assert query.ends == [None]
    assert_exact(tmp_path / "out", ROWS)


def test_what_is_asked_of_a_suspended_query(query: Running) -> None:
    execution = query.execution
    taken = execution.suspend()
    assert taken is not None
    for ask in (execution.process_all_available, execution.drain, execution.request_snapshot):
        with pytest.raises(QueryFailed, match=r"suspended: resume\(\) it first"):
            ask()
    assert not execution.await_termination(0.05)
    with pytest.raises(ConfigError, match="1 to maxParallelism"):
        execution.rescale(129)
    execution.rescale(3)
    execution.set_checkpoints(interval_ms=77, alignment=Alignment.ALIGNED)
    requested = execution.requested_state()
    assert (requested.parallelism, requested.checkpoint_interval_ms, requested.alignment) == (3, 77, "aligned")
    execution.resume()
    assert (query.view.state, query.view.parallelism) == (ExecutionState.RUNNING, 3)
    assert [slot.running for slot in query.view.slots] == [True] * 3
    query.until(lambda v: v.committed_epoch > taken.checkpoint, what="a commit")
    assert query.view.checkpoints[-1].alignment == "aligned"
    with pytest.raises(QueryFailed, match="the query runs: suspend it"):
        execution.resume("chk-1")


def test_it_goes_on_from_an_older_snapshot(tmp_path: Path, query: Running) -> None:
    execution = query.execution
    older = execution.request_snapshot("older")
    query.until(lambda v: v.committed_epoch > older.checkpoint + 1, what="commits behind it")
    newest = execution.suspend()
    assert newest is not None
    with pytest.raises(LocationError, match="there is no snapshot 'nothing'"):
        execution.resume("nothing")
    with pytest.raises(LocationError, match="Say --output"):
        execution.resume("older")
    assert execution.suspended
    assert query.view.state is ExecutionState.SUSPENDED
    execution.resume("older", Output.KEEP)
    view = query.until(lambda v: v.committed_epoch > newest.checkpoint, what="a commit")
    assert view.generation > newest.generation
    log = SnapshotLog(LocalStore(str(tmp_path / "chk"))).refresh()
    assert older.checkpoint in [record.checkpoint for record in log.lineage]
    assert newest.checkpoint not in [record.checkpoint for record in log.lineage]
    execution.process_all_available(30)
    execution.stop()
    values = [value for _, value, _ in committed(tmp_path / "out")]
    assert set(values) == set(range(ROWS))
    assert len(values) > ROWS, "what was kept came twice"


def test_its_snapshots_are_managed_like_those_of_a_stopped_one(tmp_path: Path, query: Running) -> None:
    older = query.execution.request_snapshot("older")
    query.execution.suspend()
    store = LocalStore(str(tmp_path / "chk"))
    deleted = CliRunner().invoke(app, ["snapshot", "delete", store.root, "older"])
    assert deleted.exit_code == 0, deleted.output
    assert older.checkpoint not in [record.checkpoint for record in SnapshotLog(store).refresh().snapshots]
    query.execution.resume()
    query.execution.process_all_available(30)
    query.execution.stop()
    assert_exact(tmp_path / "out", ROWS)


def test_snapshots_of_suspensions_go_by_retention_and_labelled_ones_stay(tmp_path: Path, query: Running) -> None:
    taken = []
    for label in ("mine", "", ""):
        metadata = query.execution.suspend(label)
        assert metadata is not None
        taken.append((metadata.label, metadata.requested, metadata.id))
        query.execution.resume()
    assert [one[:2] for one in taken] == [("mine", True), ("suspended", False), ("suspended", False)]
    newest = query.view.checkpoints[-1].checkpoint
    query.until(lambda v: v.committed_epoch > newest + 4, what="newer snapshots than are retained")
    ids = [taken_id for *_, taken_id in taken]
    query.until(
        lambda v: [(tmp_path / "chk" / "snapshots" / one).exists() for one in ids] == [True, False, False],
        what="the collection of what was not labelled",
    )


def test_a_suspended_query_can_be_stopped(tmp_path: Path, query: Running) -> None:
    taken = query.execution.suspend()
    assert query.execution.stop_with_snapshot() == taken
    assert (query.execution.is_active, query.execution.suspended, query.ends) == (False, False, [None])
    assert query.view.state is ExecutionState.STOPPED
    assert query.execution.await_termination(0)
    query.execution.stop()
    assert query.ends == [None]
    for call in (query.execution.resume, query.execution.suspend):
        with pytest.raises(QueryFailed, match="not running"):
            call()


def test_stopping_it_meanwhile_wins(query: Running) -> None:
    """However the two meet: it ends once, and is not suspended."""
    refused: list[Exception] = []

    def suspend() -> None:
        try:
            query.execution.suspend()
        except (CheckpointFailed, QueryFailed) as problem:
            refused.append(problem)

    suspending = threading.Thread(target=suspend)
    suspending.start()
    query.execution.stop()
    suspending.join(30)
    if query.execution.suspended:  # it was, when the stop began
        query.execution.stop()
    assert not query.execution.is_active
    assert query.ends == [None]


def test_a_resume_that_fails_leaves_it_suspended(query: Running, launcher: ProcessLauncher) -> None:
    taken = query.execution.suspend()
    assert taken is not None
    launcher.lose(7)
    with pytest.raises(ResourceError, match="2 slots, 1 are free"):
        query.execution.resume()
    assert query.execution.suspended
    assert query.view.state is ExecutionState.SUSPENDED
    assert query.ends == []
    launcher.lose(-7)
    query.execution.resume()
    query.until(lambda v: v.committed_epoch > taken.checkpoint, what="a commit")
