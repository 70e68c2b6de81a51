"""Runs that end with what is there, and drained ones: exactly what was there, over restarts and kills."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.coordinator.command_executor import CommandExecutor
from penstock.coordinator.query_execution import QueryExecution
from penstock.errors import Fenced, LocationError, NotSupported, QueryFailed
from penstock.model.plain import Plain
from penstock.model.splits import Discovery
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.stores import store_at
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import Numbers, assert_exact, committed, tiny_graph


@dataclass(frozen=True)
class Arriving(Numbers):
    """``there``: a file that says how many numbers there are by now."""

    there: str = ""
    frozen: list[int] = field(default_factory=list)

    def discover(self, state: Plain, parallelism: int) -> Discovery:
        there = self.frozen[-1] if self.frozen else self._there()
        found = Numbers(there, self.per_split).discover(state, parallelism)
        return Discovery(found.splits, found.state, finished=bool(self.frozen) and found.state == there)

    def freeze(self) -> None:
        self.frozen.append(self._there())

    def _there(self) -> int:
        return int(Path(self.there).read_text())


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def arriving(there: Path, rate: float | None = None) -> Arriving:
    return Arriving(10**9, 500, rate=rate, there=str(there))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_runs_read_what_is_there_and_go_on_where_the_last_one_ended(
    tmp_path: Path, launcher: ProcessLauncher, there: Path, parallelism: int
) -> None:
    for number, first_lines in enumerate((5_000, 5_000, 12_345)):
        there.write_text(str(first_lines))
        graph = tiny_graph(tmp_path / "out", parallelism, arriving(there))
        query = run(graph, tmp_path / "chk", launcher, until_available=True, checkpoint_interval_ms=3_600_000)
        assert query.execution.await_termination(60), number
        assert query.execution.error is None
        assert query.ends == [None]
        assert_exact(tmp_path / "out", first_lines)
    there.write_text("13000")
    graph = tiny_graph(tmp_path / "out", parallelism, arriving(there))
    query = run(graph, tmp_path / "chk", launcher)
    query.until(lambda v: len(committed(tmp_path / "out")) == 13_000, 60, "rows under another trigger")
    assert query.execution.is_active
    assert_exact(tmp_path / "out", 13_000)


def test_a_killed_slot_does_not_keep_a_run_from_its_end(tmp_path: Path, launcher: ProcessLauncher, there: Path) -> None:
    there.write_text("20000")
    graph = tiny_graph(tmp_path / "out", 2, arriving(there, rate=10_000))
    query = run(graph, tmp_path / "chk", launcher, until_available=True)
    view = query.until(lambda v: len(committed(tmp_path / "out")) > 0, 60, "a commit")
    os.kill(view.slots[1].pid, signal.SIGKILL)
    assert query.execution.await_termination(60)
    assert query.execution.error is None
    assert query.view.generation == 2
    assert_exact(tmp_path / "out", 20_000)


def test_a_drained_query_has_read_what_was_there_and_is_not_started_again(
    tmp_path: Path, launcher: ProcessLauncher, there: Path
) -> None:
    there.write_text("20000")
    graph = tiny_graph(tmp_path / "out", 2, arriving(there, rate=10_000))
    query = run(graph, tmp_path / "chk", launcher)
    view = query.until(lambda v: len(committed(tmp_path / "out")) > 0, 60, "a commit")
    os.kill(view.slots[0].pid, signal.SIGKILL)  # the wish waits for the next Generation
    assert query.execution.drain(60)
    assert query.execution.error is None
    assert not query.execution.is_active
    assert_exact(tmp_path / "out", 20_000)
    assert query.execution.drain(1), "it is"
    again = tiny_graph(tmp_path / "out", 2, arriving(there))
    with pytest.raises(LocationError, match=r"was drained .*empty checkpointLocation"):
        run(again, tmp_path / "chk", launcher)


def test_a_source_that_cannot_be_frozen_is_refused_and_goes_on(tmp_path: Path, launcher: ProcessLauncher) -> None:
    graph = tiny_graph(tmp_path / "out", 1, Numbers(3_000))
    with pytest.raises(NotSupported, match=r"Numbers\[3000\]"):
        run(graph, tmp_path / "chk", launcher, until_available=True)
    assert not (tmp_path / "chk").exists()
    query = run(graph, tmp_path / "chk", launcher)
    with pytest.raises(NotSupported, match=r"Numbers\[3000\]"):
        query.execution.drain(10)
    assert query.execution.is_active
    query.execution.process_all_available(60)
    assert_exact(tmp_path / "out", 3_000)
    query.execution.stop()
    with pytest.raises(QueryFailed, match="not running"):
        query.execution.drain(10)


def _stopped(query: QueryExecution) -> None:
    query.stop()


def _stopped_with_snapshot(query: QueryExecution) -> None:
    with pytest.raises(QueryFailed, match="failed after its last snapshot"):
        query.stop_with_snapshot()


def _suspended(query: QueryExecution) -> None:
    with pytest.raises(QueryFailed, match="failed after its last snapshot"):
        query.suspend()
    assert not query.suspended


def _drained(query: QueryExecution) -> None:
    with pytest.raises(QueryFailed, match="ended before it was drained"):
        query.drain(60)


def _ended_by_itself(query: QueryExecution) -> None:
    assert query.await_termination(60)
    with pytest.raises(QueryFailed):
        query.process_all_available(10)


def _rolled_back(location: Path) -> None:
    store = store_at(str(location))
    oldest = SnapshotLog(store).refresh().lineage[0]
    roll_back(store, f"chk-{oldest.checkpoint}", output=Output.RETRACT, force=True, ask=lambda *arguments: None)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("end", [_stopped, _stopped_with_snapshot, _suspended, _drained, _ended_by_itself])
@pytest.mark.parametrize(("lose", "error"), [(_rolled_back, Fenced), (shutil.rmtree, LocationError)])
def test_a_query_that_loses_its_location_at_its_end_has_failed(
    tmp_path: Path,
    launcher: ProcessLauncher,
    there: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[QueryExecution], None],
    lose: Callable[[Path], None],
    error: type[Exception],
) -> None:
    """After its last commit and before its last log entry: its rows may be taken back, so it is no success."""
    there.write_text("2000")
    graph = tiny_graph(tmp_path / "out", 1, arriving(there))
    query = run(graph, tmp_path / "chk", launcher, until_available=end is _ended_by_itself)
    if end is not _ended_by_itself:
        query.execution.process_all_available(60)
    close = CommandExecutor.close

    def lost_before(effects: CommandExecutor, committed_epoch: int, next_checkpoint: int) -> None:
        lose(tmp_path / "chk")
        close(effects, committed_epoch, next_checkpoint)

    monkeypatch.setattr(CommandExecutor, "close", lost_before)
    end(query.execution)
    assert isinstance(query.execution.error, error)
    assert query.ends == [query.execution.error]
