"""Sources whose discovery is finished end the query by itself, with everything committed exactly once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.coordinator.view import CheckpointState, ExecutionState
from penstock.model.elements import Alignment
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import Numbers, assert_exact, committed, tiny_graph


@dataclass(frozen=True)
class Bounded(Numbers):
    """Says so when the last number was found."""

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        found = super().discover(state, parallelism)
        return replace(found, finished=found.state == self.total)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("alignment", list(Alignment))
def test_a_query_ends_by_itself_when_all_input_ended(
    tmp_path: Path, launcher: ProcessLauncher, parallelism: int, alignment: Alignment
) -> None:
    graph = tiny_graph(tmp_path / "out", parallelism, Bounded(20_000))
    query = run(graph, tmp_path / "chk", launcher, alignment, checkpoint_interval_ms=3_600_000)
    assert query.execution.await_termination(30)
    assert query.execution.error is None
    assert not query.execution.is_active
    assert query.ends == [None]
    assert query.view.state is ExecutionState.STOPPED
    assert_exact(tmp_path / "out", 20_000)
    assert sum(p.rows for p in query.progress) == 20_000
    query.execution.process_all_available(1)
    assert [process.exitcode for process in launcher.jobs[0].processes] == [0] * parallelism


def test_demands_are_met_by_the_end_and_a_restart_ends_again_without_a_row(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    graph = tiny_graph(tmp_path / "out", 2, Bounded(20_000, rate=20_000))
    query = run(graph, tmp_path / "chk", launcher)
    query.execution.process_all_available(30)
    assert_exact(tmp_path / "out", 20_000)
    assert query.execution.await_termination(30)
    again = run(graph, tmp_path / "chk", launcher)
    assert again.execution.await_termination(30)
    assert again.execution.error is None
    assert sum(p.rows for p in again.progress) == 0
    assert_exact(tmp_path / "out", 20_000)


def test_a_stopped_query_whose_sources_had_finished_finding_goes_on_and_ends(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    """All is found at once, so that the restored discovery never looks again: splits are pending or half read."""
    graph = tiny_graph(tmp_path / "out", 2, Bounded(8000, per_split=2000, rate=4000))
    query = run(graph, tmp_path / "chk", launcher)
    query.until(lambda v: v.committed_epoch > 0 and len(committed(tmp_path / "out")) > 0, what="rows")
    query.execution.stop()
    assert len(committed(tmp_path / "out")) < 8000
    again = run(graph, tmp_path / "chk", launcher)
    assert again.execution.await_termination(30)
    assert_exact(tmp_path / "out", 8000)


def test_too_many_failed_checkpoints_in_a_row_restart_the_query(tmp_path: Path, launcher: ProcessLauncher) -> None:
    """The data folder is replaced by a file, as if the disk were full; after the restart it is back."""
    graph = tiny_graph(tmp_path / "out", 2, Bounded(40_000, rate=8000))
    query = run(graph, tmp_path / "chk", launcher, checkpoint_tolerable_failures=2, restart_delay_ms=1000)
    query.until(lambda v: v.committed_epoch > 0, what="a commit")
    data = tmp_path / "chk" / "data"
    data.rename(tmp_path / "aside")
    data.write_text("no folder")
    view = query.until(lambda v: v.restarts != (), what="a restart")
    data.unlink()
    (tmp_path / "aside").rename(data)
    assert "3 periodic checkpoints failed in a row" in view.restarts[0].cause
    assert "cannot write data/" in view.restarts[0].cause
    failed = [c.reason for c in view.checkpoints if c.state is CheckpointState.FAILED]
    assert sum("declined" in reason or "metadata cannot be written" in reason for reason in failed) == 3, failed
    assert query.execution.await_termination(30)
    assert query.execution.error is None
    assert_exact(tmp_path / "out", 40_000)
