"""A running query that is asked by request files, from outside, and stopped with a snapshot."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.config import SnapshotFormat
from penstock.coordinator.view import ExecutionState
from penstock.errors import CheckpointFailed, LocationError, QueryFailed
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.commands import ownership
from penstock.snapshots.commands import requests as rq
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable import portable_form
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.portable_form import write_portable_form
from penstock.snapshots.store.store import LocalStore, Store
from tests.support.dataflow.process_launcher import ProcessLauncher
from tests.support.dataflow.running import Running, run
from tests.support.dataflow.tiny import Numbers, assert_exact, committed, tiny_graph


def penstock(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["snapshot", *map(str, words)])


def read_query_log(location: Path) -> LogView:
    return SnapshotLog(LocalStore(str(location))).refresh()


def started(tmp_path: Path, launcher: ProcessLauncher, rows: int = 40_000, **options: Any) -> Running:
    graph = tiny_graph(tmp_path / "out", 2, Numbers(rows, rate=10_000))
    query = run(graph, tmp_path / "chk", launcher, **options)
    query.until(lambda v: v.committed_epoch > 0, what="a commit")
    return query


def test_a_running_query_takes_deletes_and_collects_when_it_is_asked_from_outside(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    location = tmp_path / "chk"
    query = started(tmp_path, launcher)
    taken = penstock("take", location, "--label", "mine", "--note", "from outside", "--alignment", "unaligned")
    assert taken.exit_code == 0, taken.output
    record = next(r for r in read_query_log(location).snapshots if f"chk-{r.checkpoint}" == taken.output.strip())
    assert (record.label, record.note, record.requested) == ("mine", "from outside", True)
    assert Catalog(LocalStore(str(location))).read(record).alignment == "unaligned"
    query.until(lambda v: v.committed_epoch > record.checkpoint + 1, what="a newer snapshot")
    refused = penstock("delete", location, "mine", "nothing")
    assert (refused.exit_code, "there is no snapshot 'nothing'" in refused.stderr) == (1, True)
    deleted = penstock("delete", location, "mine", "--json")
    assert json.loads(deleted.output)["snapshots"] == [taken.output.strip()]
    assert record not in read_query_log(location).snapshots
    for words in (["gc", location, "--dry-run"], ["gc", location]):
        assert penstock(*words).output.startswith(("0 files", "1 file"))  # it collects all the time
    assert list((location / "requests").iterdir()) == []
    assert query.view.generation == 1
    query.execution.process_all_available(30)
    query.execution.stop()
    assert_exact(tmp_path / "out", 40_000)
    nobody = penstock("take", location)
    assert (nobody.exit_code, "no query runs at this location" in nobody.stderr) == (1, True)
    (location / "data" / "0-1-0.arrows").write_bytes(b"12345")
    assert "1 file, 5 bytes would go" in penstock("gc", location, "--dry-run").output
    assert json.loads(penstock("gc", location, "--json").output) == {"files": 1, "bytes": 5, "dry_run": False}
    assert read_query_log(location).owner == 2, "an ended query needs no driver"


def test_a_running_query_writes_a_portable_form_when_it_is_asked_for_and_does_not_wait(
    tmp_path: Path, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = tmp_path / "chk"
    query = started(tmp_path, launcher, rows=100_000)
    epochs: list[int] = []

    def slow(store: Store, snapshot: str, access: object) -> str:
        epochs.append(query.view.committed_epoch)
        query.until(lambda v: v.committed_epoch > epochs[0] + 2, what="commits meanwhile")
        return write_portable_form(store, snapshot)

    monkeypatch.setattr(portable_form, "write_portable_form", slow)
    taken = penstock("take", location, "--format", "portable", "--label", "both", "--json")
    assert taken.exit_code == 0, taken.output
    said = json.loads(taken.output)
    assert said["format"] == "portable"
    convert_snapshot(location / "portable" / said["snapshot"], tmp_path / "back")
    [record] = read_query_log(tmp_path / "back").snapshots
    assert (f"chk-{record.checkpoint}", record.label) == (said["snapshot"], "both")
    wrong = penstock("take", location, "--format", "parquet")
    assert (wrong.exit_code, "--format='parquet': choose native or portable" in wrong.stderr) == (2, True)
    monkeypatch.setattr(
        portable_form, "write_portable_form", lambda *_: (_ for _ in ()).throw(LocationError("the disk is full"))
    )
    refused = penstock("take", location, "--format", "portable")
    assert refused.exit_code == 1
    assert "was taken, but its portable form was not written: the disk is full" in refused.stderr
    query.execution.stop()


def test_the_format_of_a_query_counts_where_a_command_says_none(tmp_path: Path, launcher: ProcessLauncher) -> None:
    query = started(tmp_path, launcher, rows=100_000, snapshots_format=SnapshotFormat.PORTABLE)
    location = tmp_path / "chk"
    taken = json.loads(penstock("take", location, "--json").output)
    assert set(taken) == {"snapshot"}
    assert (location / "portable" / taken["snapshot"] / "manifest.json").exists()
    native = json.loads(penstock("take", location, "--format", "native", "--json").output)
    assert native["format"] == "native"
    assert not (location / "portable" / native["snapshot"]).exists()
    query.execution.stop()


def test_a_snapshot_that_waits_for_the_query_to_recover_is_refused_when_the_query_ends(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    query = started(tmp_path, launcher, restart_delay_ms=60_000)
    store = LocalStore(str(tmp_path / "chk"))
    os.kill(query.view.slots[0].pid, signal.SIGKILL)
    query.until(lambda v: v.state is ExecutionState.RESTARTING, what="the failure")
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(ownership.request_snapshot, store, rq.TakeSnapshot("mine"))
        query.until(
            lambda _: any(path.endswith(rq.CLAIM) for path in store.list(rq.FOLDER)), what="the request in hand"
        )
        query.execution.stop()
        with pytest.raises(LocationError, match="the query has ended"):
            taken.result(30)
    assert store.list(rq.FOLDER) == []


def test_stop_with_a_snapshot_commits_all_of_it_and_nothing_behind_it(
    tmp_path: Path, launcher: ProcessLauncher
) -> None:
    query = started(tmp_path, launcher)
    metadata = query.execution.stop_with_snapshot()
    assert metadata is not None
    assert not query.execution.is_active
    assert query.ends == [None]
    view = read_query_log(tmp_path / "chk")
    assert view.ended
    assert (view.lineage[-1].checkpoint, view.committed_epoch) == (metadata.checkpoint, metadata.checkpoint)
    assert view.lineage[-1].requested
    read = sum(subtask.rows_in for slot in metadata.slots for subtask in slot.subtasks if subtask.vertex == 1)
    assert read == len(committed(tmp_path / "out"))
    with pytest.raises(QueryFailed, match="not running"):
        query.execution.stop_with_snapshot()
    again = run(tiny_graph(tmp_path / "out", 2, Numbers(40_000)), tmp_path / "chk", launcher)
    again.execution.process_all_available(30)
    again.execution.stop()
    assert_exact(tmp_path / "out", 40_000)


def test_a_snapshot_that_is_not_waited_for_is_answered_in_any_case(tmp_path: Path, launcher: ProcessLauncher) -> None:
    query = started(tmp_path, launcher)
    first = query.execution.begin_snapshot("mine", note="later")
    assert not first.cancel()
    assert (first.result(30).label, first.result().note) == ("mine", "later")
    halt = threading.Event()
    futures = []

    def ask_on() -> None:
        while not halt.is_set():
            try:
                futures.append(query.execution.begin_snapshot())
            except QueryFailed:
                return
            time.sleep(0.001)

    asker = threading.Thread(target=ask_on)
    asker.start()
    query.execution.stop()
    halt.set()
    asker.join(10)
    assert futures
    for future in futures:
        error = future.exception(10)
        assert error is None or isinstance(error, CheckpointFailed)
