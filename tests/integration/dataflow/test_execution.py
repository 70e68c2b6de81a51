"""Whole queries over slot processes: parallelism 1 (local channels) and 2 (local channels and TCP)."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import threading
import time
from pathlib import Path

import psutil
import pytest

from penstock.config import Options
from penstock.coordinator import generations, shutdown
from penstock.coordinator.launching import SlotJob
from penstock.coordinator.view import CheckpointState, ExecutionState
from penstock.errors import (
    CheckpointFailed,
    DataError,
    FunctionError,
    LocationError,
    PenstockError,
    QueryFailed,
    ResourceError,
)
from penstock.model.elements import Alignment
from penstock.network.secret import Secret
from penstock.worker.slot import slot_main
from penstock.worker.slot_task import SlotTask
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import CountSpec, Numbers, assert_exact, committed, tiny_graph


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("alignment", list(Alignment))
def test_everything_available_is_committed_exactly_once(
    tmp_path: Path, launcher: ProcessLauncher, parallelism: int, alignment: Alignment
) -> None:
    graph = tiny_graph(tmp_path / "out", parallelism, Numbers(60_000))
    query = run(graph, tmp_path / "chk", launcher, alignment)
    query.execution.process_all_available(30)
    assert_exact(tmp_path / "out", 60_000)
    view = query.view
    assert view.state is ExecutionState.RUNNING
    assert view.sources_idle
    assert {(s.name, s.slot) for s in view.subtasks} == {
        (n, i) for n in ("Numbers", "Count") for i in range(parallelism)
    }
    done = [c for c in view.checkpoints if c.state is CheckpointState.COMPLETE]
    assert done[-1].acknowledged == parallelism
    assert len(done[-1].subtasks) == 2 * parallelism
    query.execution.stop()
    assert not query.execution.is_active
    assert query.execution.error is None
    assert query.ends == [None]
    assert sum(p.rows for p in query.progress) == 60_000
    assert sum(p.sink_rows for p in query.progress) == 60_000
    assert query.progress[-1].states[0].state_rows == 17
    assert query.progress[-1].sink_description == f"Files[{tmp_path / 'out'}]"


def test_a_stopped_query_goes_on_where_it_was(tmp_path: Path, launcher: ProcessLauncher) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(30_000, rate=20_000))
    for generation in (1, 2, 3):
        query = run(graph, tmp_path / "chk", launcher)
        query.until(lambda v: v.committed_epoch > 0 and v.subtasks != (), what="a commit")
        assert query.view.generation == generation
        query.execution.stop()
    last = run(graph, tmp_path / "chk", launcher)
    assert last.execution.query_id == query.execution.query_id
    last.execution.process_all_available(30)
    last.execution.stop()
    assert_exact(tmp_path / "out", 30_000)


def test_a_requested_snapshot_is_labelled_kept_and_of_the_wanted_kind(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(10**9, rate=5000))
    query = run(graph, tmp_path / "chk", launcher, snapshots_retained=1)
    query.until_running(1)
    aligned = query.execution.request_snapshot("before-upgrade", Alignment.ALIGNED, 20)
    assert (aligned.label, aligned.requested, aligned.alignment) == ("before-upgrade", True, "aligned")
    query.until(lambda v: v.committed_epoch >= aligned.checkpoint + 4, what="later checkpoints")
    query.execution.stop()
    kept = sorted(path.name for path in (tmp_path / "chk" / "snapshots").iterdir())
    assert f"chk-{aligned.checkpoint}" in kept
    assert len(kept) <= 3


def test_checkpoints_wait_side_by_side_and_a_newer_snapshot_makes_them_superfluous(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    """Behind a slow operator aligned barriers wait; an unaligned snapshot overtakes and turns them unaligned."""
    slow = tmp_path / "slow"
    slow.write_text("2000")
    graph = tiny_graph(tmp_path / "out", 2, Numbers(60_000), CountSpec(slow_file=str(slow)))
    options = {"checkpoint_max_concurrent": 3, "checkpoint_alignment_timeout_ms": 600_000}
    query = run(graph, tmp_path / "chk", launcher, Alignment.AUTO, **options)
    waiting = query.until(
        lambda v: sum(c.state is CheckpointState.PENDING for c in v.checkpoints) == 3, what="three in flight"
    )
    older = [c.checkpoint for c in waiting.checkpoints if c.state is CheckpointState.PENDING]
    mine = query.execution.request_snapshot("mine", Alignment.UNALIGNED, 30)
    assert mine.checkpoint > older[-1]
    view = query.until(
        lambda v: not [c for c in v.checkpoints if c.checkpoint in older and c.state is CheckpointState.PENDING],
        what="the end of the older ones",
    )
    ended = [c for c in view.checkpoints if c.checkpoint in older]
    assert all("is newer" in c.reason for c in ended if c.state is CheckpointState.FAILED)
    slow.unlink()
    query.execution.process_all_available(60)
    assert query.view.generation == 1
    query.execution.stop()
    assert_exact(tmp_path / "out", 60_000)


def test_a_strictly_aligned_snapshot_behind_a_slow_operator_holds_no_checkpoint_back(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("2000")
    graph = tiny_graph(tmp_path / "out", 2, Numbers(60_000), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, Alignment.AUTO, checkpoint_alignment_timeout_ms=0)
    query.until(lambda v: sum(s.metrics.input_queued_bytes for s in v.subtasks) > 100_000, what="full queues")
    before = query.view.committed_epoch
    with pytest.raises(CheckpointFailed) as raised:
        query.execution.request_snapshot("strict", Alignment.ALIGNED, 60)
    reason = str(raised.value)
    assert "the last of 4 times. A strictly aligned snapshot waits for all queued data; an unaligned one" in reason
    assert re.search(r"The busiest operator there is 'Count', subtask [01]: at work for \d+% of the time", reason)
    view = query.until(lambda v: v.committed_epoch >= before + 4, what="the checkpoints for which it gave way")
    strict = [c for c in view.checkpoints if c.label == "strict"]
    assert [c.state for c in strict] == [CheckpointState.FAILED] * 4
    between = [
        c.checkpoint
        for c in view.checkpoints
        if c.state is CheckpointState.COMPLETE and strict[0].checkpoint < c.checkpoint < strict[-1].checkpoint
    ]
    assert len(between) >= 3, "one for each time"
    slow.unlink()
    query.execution.process_all_available(60)
    query.execution.stop()
    assert_exact(tmp_path / "out", 60_000)


def test_user_code_that_raises_ends_the_query_with_its_traceback(tmp_path: Path, launcher: ProcessLauncher) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(5000), CountSpec(fail_at=2600))
    query = run(graph, tmp_path / "chk", launcher, restart_attempts=2)
    assert query.execution.await_termination(20)
    error = query.execution.error
    assert isinstance(error, QueryFailed)
    assert isinstance(error.__cause__, FunctionError)
    assert error.__cause__.operator == "count (RunningCount)"
    assert "Traceback of the user" in str(error)
    assert query.ends == [error]
    assert query.view.state is ExecutionState.FAILED
    with pytest.raises(QueryFailed):
        query.execution.request_snapshot()


def test_too_few_slots_are_told_by_start(tmp_path: Path) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(10))
    before = set(threading.enumerate())  # an earlier test's driver may still be ending
    with pytest.raises(ResourceError, match="2 slots, 1 are free"):
        run(graph, tmp_path / "chk", ProcessLauncher(slots=1))
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("penstock")]


def test_a_foreign_location_is_told_by_start(tmp_path: Path, launcher: ProcessLauncher) -> None:
    (tmp_path / "chk").mkdir()
    (tmp_path / "chk" / "something.txt").write_text("mine")
    with pytest.raises(LocationError, match=r"something\.txt"):
        run(tiny_graph(tmp_path / "out", 1, Numbers(10)), tmp_path / "chk", launcher)


def test_a_refused_output_leaves_the_location_to_another_plan(tmp_path: Path, launcher: ProcessLauncher) -> None:
    (tmp_path / "file").write_text("mine")
    for graph in (tiny_graph(tmp_path / "file", 1, Numbers(10)), tiny_graph(tmp_path / "file", 2, Numbers(10))):
        with pytest.raises(PenstockError, match="file"):
            run(graph, tmp_path / "chk", launcher)
        assert list((tmp_path / "chk").iterdir()) == []


def test_a_slot_that_starts_too_late_ends_silently(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_at_once:
        port = closed_at_once.getsockname()[1]
    graph = tiny_graph(tmp_path / "out", 1, Numbers(10))
    task = SlotTask("q", "", 1, graph, Options(), str(tmp_path), "127.0.0.1", port, Secret.generate())
    before = set(threading.enumerate())  # an earlier test's driver may still be ending
    slot_main(0, task, own_process=False)
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("penstock")]
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_cannot_be_listed_ends_the_query_with_its_cause(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    class Unlistable(Numbers):
        def discover(self, state: object, parallelism: int) -> object:  # type: ignore[override]
            raise DataError("the folder is gone")

    query = run(tiny_graph(tmp_path / "out", 1, Unlistable(10)), tmp_path / "chk", launcher, restart_attempts=2)
    assert query.execution.await_termination(20)
    assert isinstance(query.execution.error, QueryFailed)
    assert "the folder is gone" in str(query.execution.error)
    assert len(launcher.jobs) == 3


def test_a_checkpoint_that_finds_no_room_on_disk_is_declined_and_the_query_goes_on(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    """The data folder is replaced by a file: creating a data file in it fails as a full disk does, with OSError."""
    graph = tiny_graph(tmp_path / "out", 2, Numbers(40_000, rate=8000))
    query = run(graph, tmp_path / "chk", launcher)
    query.until(lambda v: v.committed_epoch > 0, what="a commit")
    data = tmp_path / "chk" / "data"
    shutil.move(data, tmp_path / "aside")
    data.write_text("no folder")
    failed = query.until(
        lambda v: any(c.state is CheckpointState.FAILED for c in v.checkpoints), what="a declined checkpoint"
    )
    reason = next(c.reason for c in failed.checkpoints if c.state is CheckpointState.FAILED)
    assert "declined" in reason
    assert "cannot write data/1-" in reason
    with pytest.raises(CheckpointFailed, match="cannot write"):
        query.execution.request_snapshot()
    data.unlink()
    shutil.move(tmp_path / "aside", data)
    query.execution.process_all_available(30)
    assert query.view.generation == 1
    query.execution.stop()
    assert_exact(tmp_path / "out", 40_000)


def test_an_orderly_end_leaves_nothing(
    tmp_path: Path, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "STOP_TIMEOUT_S", 200.0)
    monkeypatch.setattr(shutdown, "STOP_TIMEOUT_S", 200.0)
    me = psutil.Process()
    graph = tiny_graph(tmp_path / "out", 2, Numbers(10**9, rate=5000))
    first = run(graph, tmp_path / "first", launcher)  # what a process opens once and keeps
    first.until_running(1)
    first.execution.stop()
    assert launcher.jobs.pop(0).wait(30)
    sockets = len(me.net_connections(kind="inet"))
    files = me.num_fds()
    query = run(graph, tmp_path / "chk", launcher)
    view = query.until_running(1)
    began = time.monotonic()
    query.execution.stop()
    assert time.monotonic() - began < 60, "it took a time-out to stop"
    assert launcher.jobs[0].wait(30)
    assert [process.exitcode for process in launcher.jobs[0].processes] == [0, 0]  # 3: threads were left in the slot
    assert not any(psutil.pid_exists(slot.pid) for slot in view.slots)
    assert len(me.net_connections(kind="inet")) == sockets
    assert me.num_fds() <= files + 4  # sentinels of the two processes that ended
    assert not list((tmp_path / "chk").rglob("*.tmp"))


def test_a_stranger_on_the_control_port_changes_nothing(tmp_path: Path, launcher: ProcessLauncher) -> None:
    tasks: list[SlotTask] = []
    launch = launcher.launch
    launcher.launch = lambda task, parallelism: (tasks.append(task), launch(task, parallelism))[1]  # type: ignore[method-assign]
    query = run(tiny_graph(tmp_path / "out", 1, Numbers(20_000, rate=10_000)), tmp_path / "chk", launcher)
    query.until_running(1)
    with socket.create_connection((tasks[0].control_host, tasks[0].control_port)) as sock:
        sock.sendall(os.urandom(100))
        query.execution.process_all_available(20)
    assert query.view.generation == 1
    query.execution.stop()
    assert_exact(tmp_path / "out", 20_000)
    assert tasks[0].secret.key.hex() not in repr(tasks[0])


def test_a_location_without_rights_is_told_by_start(tmp_path: Path, launcher: ProcessLauncher) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "chk").mkdir()
    (tmp_path / "chk").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(LocationError):
        run(tiny_graph(tmp_path / "out", 1, Numbers(10)), tmp_path / "chk", launcher)
    assert committed(tmp_path / "out") == []


class TakesTheClaimBack(ProcessLauncher):
    """Stands for the driver that made the claim and then failed."""

    claim: Path

    def launch(self, task: SlotTask, parallelism: int) -> SlotJob:
        self.claim.unlink()
        return super().launch(task, parallelism)


def test_a_claim_that_its_maker_took_back_is_made_anew(tmp_path: Path) -> None:
    launcher = TakesTheClaimBack()
    launcher.claim = tmp_path / "chk" / "query.json"
    query = run(tiny_graph(tmp_path / "out", 1, Numbers(100)), tmp_path / "chk", launcher)
    assert query.execution.query_id in launcher.claim.read_text()
    query.execution.process_all_available(30)
    assert_exact(tmp_path / "out", 100)
