"""Whole queries whose queues stand: rows in flight are written once, and a limit bounds them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from penstock.coordinator.view import CheckpointState, CheckpointView, ExecutionView
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, run
from tests.support.dataflow.tiny import CountSpec, Numbers, assert_exact, tiny_graph
from tests.support.newest_snapshot import newest_snapshot

ROWS = 400_000
SLOW_US_PER_ROW = "300"


def completed(view: ExecutionView) -> list[CheckpointView]:
    return [c for c in view.checkpoints if c.state is CheckpointState.COMPLETE]


def persisted(checkpoint: CheckpointView) -> int:
    return sum(metrics.inflight_persisted_bytes for metrics in checkpoint.subtasks)


def files_of_newest(location: Path) -> tuple[list[str], list[str]]:
    """The data files in which the newest snapshot's in-flight rows lie: its own, and older ones."""
    metadata = newest_snapshot(location)
    subtasks = [subtask for slot in metadata.slots for subtask in slot.subtasks]
    files = dict.fromkeys(entry.section.path for subtask in subtasks for entry in subtask.inflight)
    own = [path for path in files if path.split("-")[1] == str(metadata.checkpoint)]
    return own, [path for path in files if path not in own]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_that_wait_over_several_checkpoints_are_written_once(
    tmp_path: Path, launcher: ProcessLauncher, parallelism: int
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(SLOW_US_PER_ROW)
    graph = tiny_graph(tmp_path / "out", parallelism, Numbers(ROWS), CountSpec(str(slow)))
    query = run(graph, tmp_path / "chk", launcher)
    query.until(lambda v: len([c for c in completed(v) if c.inflight_rows > 10_000]) >= 6, what="queues that stand")
    full = [c for c in completed(query.view) if c.inflight_rows > 10_000]
    # On a busy machine much is new in some of them; one that wrote all rows again would have a share of 1.
    shares = [persisted(c) / c.inflight_bytes for c in full[1:]]
    assert min(shares) < 0.5, f"written of what was captured: {shares}"
    query.execution.stop()
    slow.write_text("0")
    _, older = files_of_newest(tmp_path / "chk")
    assert older, "what is restored lies in files of several checkpoints"
    again = run(graph, tmp_path / "chk", launcher)
    again.execution.process_all_available(60)
    assert_exact(tmp_path / "out", ROWS)


def test_a_damaged_file_fails_the_checkpoints_that_refer_to_it_and_the_next_one_writes_everything(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(SLOW_US_PER_ROW)
    graph = tiny_graph(tmp_path / "out", 2, Numbers(ROWS), CountSpec(str(slow)))
    query = run(graph, tmp_path / "chk", launcher)
    query.until(lambda v: len([c for c in completed(v) if c.inflight_rows > 10_000]) >= 3, what="queues that stand")
    older = files_of_newest(tmp_path / "chk")[1]
    assert older, "the newest snapshot refers to files of older ones"
    for path in older:
        os.truncate(tmp_path / "chk" / path, 100)
    query.until(lambda v: any("is damaged" in c.reason for c in v.checkpoints), what="a checkpoint that fails")
    failed = max(c.checkpoint for c in query.view.checkpoints if "is damaged" in c.reason)
    query.until(lambda v: any(c.checkpoint > failed for c in completed(v)), what="a checkpoint that completes")
    query.execution.stop()
    slow.write_text("0")
    again = run(graph, tmp_path / "chk", launcher)
    again.execution.process_all_available(60)
    assert_exact(tmp_path / "out", ROWS)


def run_slowly(tmp_path: Path, launcher: ProcessLauncher, max_inflight_bytes: int) -> Running:
    slow = tmp_path / "slow"
    slow.write_text(SLOW_US_PER_ROW)
    graph = tiny_graph(tmp_path / "out", 2, Numbers(ROWS), CountSpec(str(slow)))
    return run(graph, tmp_path / "chk", launcher, checkpoint_max_inflight_bytes=max_inflight_bytes)


def finish_quickly(query: Running, tmp_path: Path) -> None:
    (tmp_path / "slow").write_text("0")
    query.execution.process_all_available(60)
    assert_exact(tmp_path / "out", ROWS)
    assert not query.view.restarts


def test_queues_hold_no_more_than_a_checkpoint_may_capture(tmp_path: Path, launcher: ProcessLauncher) -> None:
    query = run_slowly(tmp_path, launcher, 100_000)
    query.until(lambda v: len([c for c in completed(v) if c.inflight_rows > 100]) >= 4, what="queues that stand")
    assert not query.view.checkpoints_failed
    for checkpoint in completed(query.view):
        for slot in range(2):
            assert sum(m.inflight_bytes for m in checkpoint.subtasks if m.index == slot) <= 100_000
    finish_quickly(query, tmp_path)


def test_with_a_limit_below_the_smallest_queues_a_checkpoint_waits_until_it_fits_and_says_so(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    query = run_slowly(tmp_path, launcher, 1_000)
    query.until(lambda v: len([c for c in completed(v) if c.reason]) >= 2, what="checkpoints that waited")
    assert not query.view.checkpoints_failed
    for checkpoint in completed(query.view):
        assert re.fullmatch(r"|waited \d+ ms for checkpoint\.maxInflightBytes", checkpoint.reason)
        for slot in range(2):
            assert sum(m.inflight_bytes for m in checkpoint.subtasks if m.index == slot) <= 1_000
    finish_quickly(query, tmp_path)
