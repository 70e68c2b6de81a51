"""Snapshots of a query that runs, and is slow at one operator, as somebody else reads them meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.coordinator.view import CheckpointState
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.verifying import verify_location
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import run
from tests.support.dataflow.tiny import CountSpec, Numbers, tiny_graph


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_slow_operator_of_a_running_query_is_named(
    tmp_path: Path, launcher: ProcessLauncher, parallelism: int
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("300")
    graph = tiny_graph(tmp_path / "out", parallelism, Numbers(400_000), CountSpec(str(slow)))
    query = run(graph, tmp_path / "chk", launcher, snapshots_retained=50)
    query.until(
        lambda v: sum(c.state is CheckpointState.COMPLETE and c.inflight_rows > 50_000 for c in v.checkpoints) >= 2,
        what="queues that stand",
    )
    opened = open_location_to_read(str(tmp_path / "chk"))
    first, *_, newest = opened.view.snapshots
    shown = show_snapshot(opened, newest, newest.checkpoint, count_rows=True)
    assert shown.bottleneck.vertex == "RunningCount (count) + Files (files)"
    assert shown.snapshot.unaligned_subtasks > 0
    (table,) = [table for operator in shown.operators for table in operator.tables]
    (known,) = [t for o in show_snapshot(opened, newest, 0).operators for t in o.tables]
    assert table.rows == known.rows == 17, "what is counted is what the operators say"
    lines = list_snapshots(opened, newest.checkpoint).snapshots
    assert len(lines) == len(opened.view.snapshots)
    assert not any(line.problem for line in lines)
    diff = compare_snapshots(opened, first, newest)
    assert diff.sources[0].rows_in > 0
    assert all(not change.problem for change in diff.tables)
    assert not verify_location(str(tmp_path / "chk")).damage, "while it writes"
    query.execution.stop()
    after = verify_location(str(tmp_path / "chk"))
    assert (after.damage, after.unused_known) == ([], True)
