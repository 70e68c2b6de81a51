"""Rescaling with real slot processes: exact rows at any parallelism, under backpressure, by itself when slots go."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.coordinator.machines import scaling
from penstock.coordinator.service_events import Call
from penstock.coordinator.view import CheckpointState, ExecutionState, ExecutionView
from penstock.errors import ConfigError, QueryFailed, ResourceError
from penstock.model.elements import Alignment
from penstock.snapshots.commands.deleting import plan_files_of_deletion
from penstock.snapshots.commands.listing import list_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.commands.ownership import plan_takeover
from penstock.snapshots.commands.showing import show_snapshot
from penstock.snapshots.commands.snapshot_sizes import inflight_entries
from penstock.snapshots.format.sections import read_section
from penstock.snapshots.portable.portable_form import write_portable_form
from penstock.snapshots.store.store import LocalStore
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, finish, run
from tests.support.dataflow.tiny import CountSpec, Numbers, graph_with_slow_middle, tiny_graph


def slots(query: Running, parallelism: int) -> None:
    query.until(
        lambda v: v.parallelism == parallelism and len(v.slots) == parallelism and all(s.running for s in v.slots),
        what=f"{parallelism} slots",
    )


def some_rows(query: Running) -> None:
    before = sum(p.rows for p in query.progress)
    query.until(lambda v: sum(p.rows for p in query.progress) > before, what="rows")


def test_a_running_query_is_rescaled_up_and_down_and_its_rows_are_exact(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    total = 60_000
    query = run(tiny_graph(tmp_path / "out", 1, Numbers(total, rate=12_000)), tmp_path / "chk", launcher)
    for parallelism in (2, 4, 2, 1, 4, 1):
        some_rows(query)
        query.execution.rescale(parallelism, 30)
        slots(query, parallelism)
        assert query.view.restarts == (), "a rescale is no failure"
    finish(query, tmp_path / "out", total)


def test_who_looks_sees_what_a_rescale_a_snapshot_and_a_stop_are_at(
    tmp_path: Path, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("3000")
    graph = tiny_graph(tmp_path / "out", 1, Numbers(40_000), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20)
    query.until(lambda v: v.state is ExecutionState.RUNNING, what="it to run")
    service = query.execution._service
    assert service is not None
    asked: list[Future[Any]] = []
    take, service._scaler._snapshot = service._scaler._snapshot, asked.append
    with ThreadPoolExecutor(1) as pool:
        rescaled = pool.submit(query.execution.rescale, 2, 30)
        query.until(lambda _: bool(asked), what="the snapshot to be asked for")
        requested, view = query.execution.requested_state(), query.view
        assert (requested.parallelism, requested.is_rescaling, view.parallelism, view.state) == (
            2,
            True,
            1,
            ExecutionState.RUNNING,
        )
        service._queue.put(Call(lambda: take(asked[0])))
        query.until(lambda v: v.state is ExecutionState.STARTING, what="the next Generation")
        assert (query.view.parallelism, query.execution.requested_state().is_rescaling) == (2, False)
        rescaled.result(30)
    assert query.view.state is ExecutionState.RUNNING
    query.execution.begin_snapshot("mine", Alignment.ALIGNED)
    query.until(lambda v: [(c.requested, c.label) for c in v.checkpoints][-1] == (True, "mine"), what="it in flight")
    assert query.view.checkpoints[-1].state is CheckpointState.PENDING
    gone: list[int] = []
    monkeypatch.setattr(query.execution._metrics, "slot_gone", gone.append)
    query.execution.stop()
    assert sorted(gone) == [0, 1]


def test_under_full_backpressure_nothing_waits_and_rows_in_flight_change_hands(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    total, slow = 40_000, tmp_path / "slow"
    slow.write_text("3000")  # microseconds per row: what is in the queues takes minutes
    graph = tiny_graph(tmp_path / "out", 2, Numbers(total), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20)
    query.until(lambda v: v.committed_epoch >= 2, what="a first commit")
    waiting = query.execution.request_snapshot(kept=False)
    assert sum(metrics.inflight_rows for slot in waiting.slots for metrics in slot.metrics) > 100
    for parallelism in (4, 1, 2):
        query.execution.rescale(parallelism, 30)
        slots(query, parallelism)
        taken = query.execution.request_snapshot(alignment=Alignment.UNALIGNED, timeout_s=10, kept=False)
        entries = [entry for slot in taken.slots for subtask in slot.subtasks for entry in subtask.inflight]
        assert sum(entry.rows for entry in entries) > 100, "what was in flight still is"
        assert (taken.parallelism, len(taken.slots)) == (parallelism, parallelism)
    slow.unlink()
    finish(query, tmp_path / "out", total)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_a_backlog_without_keys_is_dealt_out_evenly(
    tmp_path: Path, launcher: ProcessLauncher, before: int, after: int
) -> None:
    total, slow = 60_000, tmp_path / "slow"
    slow.write_text("3000")
    graph = graph_with_slow_middle(tmp_path / "out", before, Numbers(total), slow)
    query = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20)
    query.until(
        lambda v: sum(m.metrics.input_queued_bytes for m in v.subtasks if m.metrics.vertex == 1) > before * 200_000,
        what="backpressure",
    )
    query.execution.rescale(after, 30)
    slots(query, after)
    view = query.until(lambda v: len(recovered_rows(v)) == after and all(recovered_rows(v)), what="recovered rows")
    left = recovered_rows(view)
    assert sum(left) > 10_000
    assert max(left) - min(left) < 0.05 * max(left), left
    slow.unlink()
    finish(query, tmp_path / "out", total)


def recovered_rows(view: ExecutionView) -> list[int]:
    """Return the recovered rows of each subtask behind the rebalance edge."""
    return [m.metrics.recovered_rows_left for m in view.subtasks if m.metrics.vertex == 1]


def test_another_driver_counts_the_rows_in_flight_of_a_rescaled_snapshot_exactly(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    """Subtasks had read shared sections to different ends, so the ranges of rows alone are an upper bound."""
    total, slow, location = 40_000, tmp_path / "slow", str(tmp_path / "chk")
    slow.write_text("300")
    graph = tiny_graph(tmp_path / "out", 1, Numbers(total), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20, checkpoint_interval_ms=3_600_000)
    query.until(lambda v: any(m.metrics.input_queued_bytes > 50_000 for m in v.subtasks), what="backpressure")
    query.execution.rescale(3, 30)
    slots(query, 3)
    query.until(lambda v: sum(recovered_rows(v)) > 30_000, what="recovered rows")
    query.until(lambda v: sum(recovered_rows(v)) < 30_000, what="some read rows")
    query.execution.request_snapshot(alignment=Alignment.UNALIGNED, timeout_s=10)
    query.execution.stop()

    graph = tiny_graph(tmp_path / "out", 3, Numbers(total), CountSpec(slow_file=str(slow)))
    again = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20, checkpoint_interval_ms=3_600_000)
    slots(again, 3)
    first = again.execution.request_snapshot(alignment=Alignment.UNALIGNED, timeout_s=10)
    for snapshot in (first, again.execution.request_snapshot(alignment=Alignment.UNALIGNED, timeout_s=10)):
        shown = next(one for one in again.view.checkpoints if one.snapshot_id == snapshot.id)
        listed = list_snapshots(open_location_to_read(location), 0).snapshots
        line = next(one for one in listed if one.id == snapshot.id)
        assert 0 < shown.inflight_rows == line.inflight_rows
    slow.unlink()
    again.execution.process_all_available(90)
    finish(again, tmp_path / "out", total)


def test_rows_and_bytes_in_flight_count_once_after_a_rescale(tmp_path: Path, launcher: ProcessLauncher) -> None:
    total, slow, location = 40_000, tmp_path / "slow", str(tmp_path / "chk")
    slow.write_text("3000")
    graph = tiny_graph(tmp_path / "out", 1, Numbers(total), CountSpec(slow_file=str(slow)))
    query = run(graph, tmp_path / "chk", launcher, memory_per_gate=1 << 20, checkpoint_interval_ms=3_600_000)
    query.until(lambda v: any(m.metrics.input_queued_bytes > 50_000 for m in v.subtasks), what="backpressure")
    query.execution.rescale(3, 30)
    slots(query, 3)
    taken = query.execution.request_snapshot(alignment=Alignment.UNALIGNED, timeout_s=10)
    entries = list(inflight_entries(taken))
    assert any(entry.narrowed for entry in entries)
    sections = {entry.section for entry in entries}
    stored = sum(batch.num_rows for one in sections for batch in read_section(LocalStore(location), one))
    named_thrice = sum(entry.rows for entry in entries)
    write_portable_form(location, taken.id)

    opened = open_location_to_read(location)
    line = next(one for one in list_snapshots(opened, 0).snapshots if one.id == taken.id)
    shown = show_snapshot(opened, opened.record(taken.id), 0)
    found = [edge for edge in shown.edges if edge.rows]
    assert 0 < line.inflight_rows <= stored < named_thrice
    checkpoint = next(one for one in query.view.checkpoints if one.snapshot_id == taken.id)
    assert line.inflight_rows == checkpoint.inflight_rows
    assert sum(edge.rows for edge in found) == line.inflight_rows
    assert sum(edge.bytes for edge in found) == line.inflight_bytes
    for edge in found:
        assert sum(channel.bytes for channel in edge.channels) == edge.bytes

    os.kill(query.view.slots[0].pid, signal.SIGKILL)
    query.until(lambda v: len(v.restarts) == 1 and v.restarts[0].running_ms is not None, what="the recovery")
    restart = query.view.restarts[0]
    listed = {one.id: one.inflight_rows for one in list_snapshots(open_location_to_read(location), 0).snapshots}
    assert restart.restored_inflight_rows == listed[restart.restored_from] > 0
    slow.unlink()
    query.execution.process_all_available(90)
    finish(query, tmp_path / "out", total)

    lines = list_snapshots(open_location_to_read(location), 0).snapshots
    assert len(lines) > 1
    for line in lines[:-1]:
        freed = plan_files_of_deletion(plan_takeover(LocalStore(location)), [line.checkpoint])
        assert line.exclusive_bytes == freed.bytes
    beside = sum(file.stat().st_size for file in (tmp_path / "chk/portable").rglob("*") if file.is_file())
    (both,) = [line for line in lines if line.id == taken.id]
    assert both.bytes > beside > 0
    assert both.exclusive_bytes > beside


@pytest.mark.parametrize("before", [1, 3])
def test_a_restart_may_have_another_parallelism(tmp_path: Path, launcher: ProcessLauncher, before: int) -> None:
    total = 30_000
    source = Numbers(total, rate=15_000)
    query = run(tiny_graph(tmp_path / "out", before, source), tmp_path / "chk", launcher)
    some_rows(query)
    query.execution.stop()
    for parallelism in (2, 4):  # the first may be over before it has taken a snapshot of its own
        query = run(tiny_graph(tmp_path / "out", parallelism, source), tmp_path / "chk", launcher)
        slots(query, parallelism)
        if parallelism == 2:
            query.execution.stop()
    finish(query, tmp_path / "out", total)


def test_what_cannot_be_had_is_refused_and_the_query_goes_on(tmp_path: Path, launcher: ProcessLauncher) -> None:
    query = run(tiny_graph(tmp_path / "out", 2, Numbers(20_000, rate=10_000)), tmp_path / "chk", launcher)
    slots(query, 2)
    with pytest.raises(ConfigError, match="1 to maxParallelism, which is 128"):
        query.execution.rescale(0)
    with pytest.raises(ConfigError, match="rescaled to 129"):
        query.execution.rescale(129)
    with pytest.raises(ResourceError, match="to 9: 8 slots are there"):
        query.execution.rescale(9)
    query.execution.rescale(2, 10)
    assert query.view.generation == 1, "it is there already"
    finish(query, tmp_path / "out", 20_000)
    with pytest.raises(QueryFailed, match="not running"):
        query.execution.rescale(2)


def test_when_slots_are_gone_for_good_it_goes_on_with_fewer_and_back_up_when_they_return(
    tmp_path: Path, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "POLL_MS", 100.0)
    total = 80_000
    query = run(
        tiny_graph(tmp_path / "out", 4, Numbers(total, rate=4_000)),
        tmp_path / "chk",
        launcher,
        restart_scale_down_after_ms=300,
        restart_attempts=50,
        restart_max_delay_ms=100,
    )
    slots(query, 4)
    some_rows(query)
    launcher.lose(5)  # of eight
    os.kill(query.view.slots[0].pid, signal.SIGKILL)
    slots(query, 3)
    some_rows(query)
    launcher.lose(-5)
    slots(query, 4)
    finish(query, tmp_path / "out", total)


def test_it_waits_for_slots_where_it_must_not_scale_down(tmp_path: Path, launcher: ProcessLauncher) -> None:
    query = run(
        tiny_graph(tmp_path / "out", 2, Numbers(20_000, rate=10_000)),
        tmp_path / "chk",
        launcher,
        restart_allow_scale_down=False,
        restart_scale_down_after_ms=1,
        restart_attempts=100,
        restart_max_delay_ms=50,
    )
    slots(query, 2)
    launcher.lose(7)
    os.kill(query.view.slots[0].pid, signal.SIGKILL)
    query.until(lambda v: len(v.restarts) >= 1 and not v.slots, what="the end of the first Generation")
    time.sleep(0.5)
    assert query.view.parallelism == 2
    launcher.lose(-7)
    slots(query, 2)
    finish(query, tmp_path / "out", 20_000)
