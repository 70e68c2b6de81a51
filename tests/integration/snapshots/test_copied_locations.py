"""Copies of a location, and locations that were put back from a backup: no row comes twice, none is lost."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.api import start as start_module
from penstock.coordinator import claimed_location
from penstock.errors import LocationError, SinkError
from penstock.queries.active_queries import Reservation
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.commands.moving import move_query
from penstock.snapshots.commands.rolling_back import Output, roll_back
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.stores import store_at
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

CHECKPOINT = "checkpoint"


def keys(out: Path) -> list[int]:
    return [row[0] for row in rows_of(out)]


@pytest.fixture
def run(spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path) -> Callable[..., StreamingQuery]:
    """``run(key, location)`` adds a row, has it committed, and stops."""

    def run_once(key: int, location: str = CHECKPOINT, **options: Any) -> StreamingQuery:
        inbox.add([(key, key, float(key))])
        query = start(inbox.stream(spark), checkpointLocation=str(tmp_path / location), **options)
        query.processAllAvailable()
        query.stop()
        return query

    return run_once


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each start runs like in another container: without other queries and without the origin of a copy."""
    monkeypatch.setattr(claimed_location, "check_not_copied", lambda store, origin, query_id, access: None)
    monkeypatch.setattr(
        start_module, "_reserve_run", lambda spark, name, location, query_id, undo: Reservation("", name, location)
    )


def test_two_copies_that_run_at_the_same_time(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path, run: Any, tmp_path: Path, elsewhere: None
) -> None:
    run(1)
    shutil.copytree(tmp_path / CHECKPOINT, tmp_path / "copy")
    # Until one of them has committed, each may take the fence from the other, again and again.
    options = {"restart.attempts": 50}
    queries = [
        start(inbox.stream(spark), checkpointLocation=str(tmp_path / name), **options) for name in (CHECKPOINT, "copy")
    ]
    for key in range(2, 6):
        inbox.add([(key, key, float(key))])
    eventually(lambda: any(not query.isActive for query in queries), "one of them to be refused")
    (lost,) = [query for query in queries if not query.isActive]
    (kept,) = [query for query in queries if query.isActive]
    assert isinstance(lost.exception().__cause__, SinkError)
    assert "newer output" in str(lost.exception())
    inbox.add([(6, 6, 6.0)])
    kept.processAllAvailable()
    assert keys(out) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("output", Output)
def test_a_location_that_was_put_back_is_refused_until_it_is_rolled_back(
    out: Path, run: Any, tmp_path: Path, output: Output
) -> None:
    run(1)
    shutil.copytree(tmp_path / CHECKPOINT, tmp_path / "backup")
    run(2)
    run(3)
    shutil.rmtree(tmp_path / CHECKPOINT)
    shutil.copytree(tmp_path / "backup", tmp_path / CHECKPOINT)
    with pytest.raises(SinkError, match=r"newer output of query .*rollback LOCATION SNAPSHOT --over ") as told:
        run(4)
    over = re.findall(r"--over (\S+?)`", str(told.value))
    store = store_at(str(tmp_path / CHECKPOINT))
    newest = SnapshotLog(store).refresh().lineage[-1].checkpoint
    assert not roll_back(store, f"chk-{newest}", output=Output.KEEP).changed
    with pytest.raises(SinkError, match="newer output"):
        run(4)
    assert roll_back(store, f"chk-{newest}", output=output, over=over).changed
    run(5)
    run(6)
    again = [] if output is Output.RETRACT else [2, 3]
    assert keys(out) == sorted([1, 2, 3, 4, 4, 5, 6, *again])


def test_a_location_that_was_put_back_while_its_query_runs(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path, run: Any, tmp_path: Path
) -> None:
    """The backup has the entry with which the driver opened the fence: what it committed later tells."""
    inbox.add([(1, 1, 1.0)])
    query = start(inbox.stream(spark))
    query.processAllAvailable()
    shutil.copytree(tmp_path / CHECKPOINT, tmp_path / "backup")
    inbox.add([(2, 2, 2.0)])
    query.processAllAvailable()
    query.stop()
    shutil.rmtree(tmp_path / CHECKPOINT)
    shutil.copytree(tmp_path / "backup", tmp_path / CHECKPOINT)
    with pytest.raises(SinkError, match="newer output"):
        run(3)
    assert keys(out) == [1, 2]


def test_a_table_is_fenced_too(spark: SparkSession, inbox: Inbox, start_writer: Any, tmp_path: Path) -> None:
    import penstock

    def run_once(key: int) -> None:
        inbox.add([(key, key, float(key))])
        writer = penstock.writeStream(inbox.stream(spark)).option("checkpointLocation", str(tmp_path / CHECKPOINT))
        query = writer.option("parallelism", 1).toTable("put_back")
        query.processAllAvailable()
        query.stop()

    try:
        run_once(1)
        shutil.copytree(tmp_path / CHECKPOINT, tmp_path / "backup")
        run_once(2)
        shutil.rmtree(tmp_path / CHECKPOINT)
        shutil.copytree(tmp_path / "backup", tmp_path / CHECKPOINT)
        with pytest.raises(SinkError, match="table put_back has newer output"):
            run_once(3)
        assert sorted(row.key for row in spark.table("put_back").collect()) == [1, 2]
    finally:
        spark.sql("DROP TABLE IF EXISTS put_back")


def _moved(root: Path) -> str:
    (root / CHECKPOINT).rename(root / "moved")
    return "moved"


def _linked(root: Path) -> str:
    (root / "link").symlink_to(root / CHECKPOINT)
    return "link"


def _remounted(root: Path) -> str:
    """Both paths lead to it."""
    (root / "volume").mkdir()
    (root / CHECKPOINT).rename(root / "volume" / "data")
    (root / CHECKPOINT).symlink_to(root / "volume" / "data")
    return "volume/data"


def _copied_and_origin_deleted(root: Path) -> str:
    shutil.copytree(root / CHECKPOINT, root / "copy")
    shutil.rmtree(root / CHECKPOINT)
    return "copy"


def _moved_by_command(root: Path) -> str:
    (root / "target").mkdir()
    move_query(store_at(str(root / CHECKPOINT)), store_at(str(root / "target")))
    return "target"


MOVES = (_moved, _linked, _remounted, _copied_and_origin_deleted, _moved_by_command)


@pytest.mark.parametrize("move", MOVES)
def test_a_location_at_another_path_goes_on(out: Path, run: Any, tmp_path: Path, move: Callable[[Path], str]) -> None:
    run(1)
    location = move(tmp_path)
    run(2, location)
    run(3, location)
    assert keys(out) == [1, 2, 3]


@pytest.mark.parametrize("command", ["cp -a", "cp -al"])
def test_a_copy_whose_origin_exists_is_refused_unless_it_is_claimed(
    out: Path, run: Any, tmp_path: Path, command: str
) -> None:
    run(1)
    subprocess.run([*command.split(), str(tmp_path / CHECKPOINT), str(tmp_path / "copy")], check=True)
    before = sorted(path.name for path in (tmp_path / "copy").rglob("*"))
    with pytest.raises(
        LocationError, match=r"looks like a copy of .*/checkpoint, which still exists: .*startMode=fork"
    ):
        run(2, "copy")
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == before
    run(3)
    claim = {"startFrom": str(tmp_path / "copy"), "startMode": "claim"}
    with pytest.raises(SinkError, match="newer output"):
        run(4, "copy", **claim)
    assert keys(out) == [1, 2, 3]


def test_a_copy_that_was_claimed_goes_on_and_its_origin_does_not(out: Path, run: Any, tmp_path: Path) -> None:
    run(1)
    shutil.copytree(tmp_path / CHECKPOINT, tmp_path / "copy")
    run(2, "copy", startFrom=str(tmp_path / "copy"), startMode="claim")
    run(3, "copy")
    with pytest.raises(SinkError, match=r"newer output .*written by the location at '.*/copy'"):
        run(4)
    assert keys(out) == [1, 2, 3]


def test_a_copy_that_is_claimed_does_not_stop_its_origin(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path, run: Any, tmp_path: Path
) -> None:
    run(1)
    shutil.copytree(tmp_path / CHECKPOINT, tmp_path / "copy")
    query = start(inbox.stream(spark))
    with pytest.raises(LocationError, match=r"runs at .*/checkpoint in this application: stop it before its copy"):
        run(2, "copy", startFrom=str(tmp_path / "copy"), startMode="claim")
    query.processAllAvailable()
    assert query.isActive
    assert keys(out) == [1, 2]


def test_a_start_that_passes_over_a_snapshot_whose_rows_are_there_is_refused(
    out: Path, run: Any, tmp_path: Path
) -> None:
    """A copy that was made while the query ran may lack files that its log names."""
    run(1)
    store = store_at(str(tmp_path / CHECKPOINT))
    older = SnapshotLog(store).refresh().lineage[-1]
    run(2)
    for record in SnapshotLog(store).refresh().lineage:
        if record.checkpoint > older.checkpoint:  # the newest may be a checkpoint without rows
            (tmp_path / CHECKPOINT / record.metadata.path).write_bytes(b"damaged")
    with pytest.raises(SinkError, match="newer output"):
        run(3, **{"snapshots.allowOlder": True})
    roll_back(store, f"chk-{older.checkpoint}", output=Output.RETRACT)
    run(4)
    assert keys(out) == [1, 2, 3, 4]
