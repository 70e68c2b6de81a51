"""Temporary and permanent outages while a query runs: of sinks, the output's disk, the checkpoint location."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

import penstock
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.errors import ConfigError, LocationError, SinkFenced
from penstock.queries.streaming_query import StreamingQuery
from penstock.rest.metrics import families
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.log.snapshot_log import SnapshotLog
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

Away = Callable[[], bool]
"""Return True during an outage of the sink."""
ROWS = [(key, key, 0.0) for key in range(4)]


def function_sink(writer: penstock.DataStreamWriter, folder: Path, away: Away) -> penstock.DataStreamWriter:
    def write(df: DataFrame, batch: int) -> None:
        if away():
            raise ConnectionError("the database is starting up")
        df.write.mode("overwrite").parquet(str(folder / f"batch={batch}"))

    return writer.foreachBatch(write)


def python_sink(writer: penstock.DataStreamWriter, folder: Path, away: Away) -> penstock.DataStreamWriter:
    """A flag file, since the writer is pickled; ``commit`` runs on the driver."""

    class Done(WriterCommitMessage):
        def __init__(self, values: list[int]) -> None:
            self.values = values

    class Writer(DataSourceStreamWriter):
        def __init__(self, folder: str) -> None:
            self.folder = folder

        def write(self, rows: Any) -> WriterCommitMessage:
            return Done([row.key for row in rows])

        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - PySpark's name
            import json
            import os

            if os.path.exists(f"{self.folder}.away"):
                raise ConnectionError("the database is starting up")
            with open(f"{self.folder}/{batchId}.json", "w") as file:
                json.dump([value for message in messages if message for value in message.values], file)

        def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
            raise AssertionError("epochs are not aborted")

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "away"

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return Writer(self.options["folder"])

    folder.mkdir()
    return writer.format(Source).option("folder", str(folder))


def file_sink(writer: penstock.DataStreamWriter, folder: Path, away: Away) -> penstock.DataStreamWriter:
    return writer.format("parquet").option("path", str(folder))


SINKS = {"foreachBatch": function_sink, "python": python_sink, "parquet": file_sink}


@pytest.mark.parametrize("kind", SINKS)
def test_a_sink_that_is_away_is_waited_for_and_seen(
    kind: str, spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, flag = tmp_path / "target", tmp_path / "target.away"
    flag.touch()
    rename = os.rename

    def full_disk(source: Any, target: Any, **options: Any) -> None:
        if flag.exists() and str(target).startswith(str(folder)) and "_penstock" not in str(target):
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target, **options)

    monkeypatch.setattr(os, "rename", full_disk)
    inbox.add(ROWS)
    writer = SINKS[kind](penstock.writeStream(inbox.stream(spark)), folder, flag.exists)
    options = {"sink.retryTimeout": "5m", "restart.attempts": 1, "restart.maxDelay": "300ms"}
    query = start_writer(writer, checkpointLocation=str(tmp_path / "checkpoint"), **options)
    eventually(lambda: query.view().commit_errors > 4, "commits that fail")
    assert query.isActive
    assert query.lastProgress is None
    (outage,) = query.view().outages
    assert (outage.what, outage.failures > 4) == ("sink sink-0", True)
    reason = "No space left" if kind == "parquet" else "the database is starting up"
    assert "sink sink-0: " in query.status["message"]
    assert reason in query.status["message"]
    values = {family.name: family.samples[0].value for family in families([query.facts()]) if family.samples}
    assert (values["penstock_query_outages"], values["penstock_query_commit_errors"] > 4) == (1, True)
    flag.unlink()
    query.processAllAvailable()
    assert query.view().outages == ()
    assert "sink-0" not in query.status["message"]
    assert query.lastProgress["checkpoint"]["commitFailures"] > 4
    query.stop()
    assert spark.read.format("json" if kind == "python" else "parquet").load(str(folder)).count()


def test_a_sink_that_stays_away_ends_the_query_as_the_options_say(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start
) -> None:
    inbox.add(ROWS)
    writer = function_sink(penstock.writeStream(inbox.stream(spark)), tmp_path / "target", lambda: True)
    query = start_writer(writer, checkpointLocation=str(tmp_path / "checkpoint"), **{"sink.retryTimeout": "700ms"})
    told = r"(?s)the database is starting up.*The commit is not repeated any more: \d failures in 1 s"
    with pytest.raises(StreamingQueryException, match=told):
        query.awaitTermination(30)


def delete(location: Path) -> None:
    """The query goes on writing meanwhile: what appears while a folder is removed is removed, too."""
    while location.exists():
        shutil.rmtree(location, ignore_errors=True)


def empty(location: Path) -> None:
    for path in location.iterdir():
        delete(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("remove", [delete, empty])
def test_a_checkpoint_location_that_is_removed_ends_the_query_with_a_clear_error(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start, remove: Callable[[Path], None]
) -> None:
    location = tmp_path / "checkpoint"
    inbox.add(ROWS)
    query: StreamingQuery = start(inbox.stream(spark), **{"restart.attempts": 4, "restart.delay": "200ms"})
    query.processAllAvailable()
    written = rows_of(out)
    remove(location)
    inbox.add(ROWS)
    eventually(lambda: "the checkpoint location" in query.status["message"], "a status that names it")
    assert query.isActive
    with pytest.raises(StreamingQueryException, match=r"is gone while the query runs: log/.* is missing") as raised:
        query.awaitTermination(60)
    assert isinstance(raised.value.__cause__, LocationError)
    assert rows_of(out) == written
    assert not list(location.glob("log/*")), "no log begins in its middle"


def test_a_checkpoint_location_that_comes_back_is_gone_on_with(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    """The location disappears and returns, like a mount."""
    location, aside = tmp_path / "checkpoint", tmp_path / "aside"
    inbox.add(ROWS)
    query: StreamingQuery = start(inbox.stream(spark), **{"sink.retryTimeout": "5m", "restart.maxDelay": "200ms"})
    query.processAllAvailable()
    os.rename(location, aside)
    inbox.add(ROWS)
    eventually(lambda: "the checkpoint location" in query.status["message"], "a status that names it")
    shutil.rmtree(location, ignore_errors=True)
    os.rename(aside, location)
    query.processAllAvailable()
    assert query.view().outages == ()
    assert len(rows_of(out)) == 2 * len(ROWS)


@pytest.mark.parametrize("instead", ["nothing", "an empty folder"])
def test_a_recovery_waits_for_a_checkpoint_location_that_comes_back(
    instead: str,
    spark: SparkSession,
    inbox: Inbox,
    out: Path,
    tmp_path: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    location, aside = tmp_path / "checkpoint", tmp_path / "aside"
    inbox.add(ROWS)
    query: StreamingQuery = start(inbox.stream(spark), **{"restart.attempts": 1000, "restart.maxDelay": "100ms"})
    query.processAllAvailable()
    os.rename(location, aside)
    if instead == "an empty folder":
        location.mkdir()
    recoveries: list[int] = []
    refresh = SnapshotLog.refresh
    monkeypatch.setattr(SnapshotLog, "refresh", lambda log: (recoveries.append(1), refresh(log))[1])
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    eventually(lambda: len(recoveries) > 3 or not query.isActive, "tries to recover")
    assert query.isActive, query.exception()
    shutil.rmtree(location, ignore_errors=True)
    os.rename(aside, location)
    inbox.add(ROWS)
    query.processAllAvailable()
    assert len(rows_of(out)) == 2 * len(ROWS)


def test_a_wrong_option_that_only_shows_while_the_query_runs_ends_it_at_once(
    spark: SparkSession, inbox: Inbox, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.connectors.files.source import FileSource

    looks: list[int] = []

    def refuse(*_: Any) -> Any:
        looks.append(1)
        raise ConfigError("option x of the source: there is no such place")

    monkeypatch.setattr(FileSource, "discover", refuse)
    query: StreamingQuery = start(inbox.stream(spark), **{"restart.attempts": 100})
    with pytest.raises(StreamingQueryException, match="ConfigError: option x of the source"):
        query.awaitTermination(20)
    assert looks == [1]


@pytest.mark.parametrize(
    ("kind", "step", "problem"),
    [
        (Catalog, "choose_newest", OSError(errno.EIO, "the store does not answer")),
        (FileSinkCommitter, "fence", SinkFenced("another driver takes the output over at this moment")),
    ],
)
def test_a_recovery_is_repeated(
    spark: SparkSession,
    inbox: Inbox,
    out: Path,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    step: str,
    problem: Exception,
) -> None:
    inbox.add(ROWS)
    query: StreamingQuery = start(inbox.stream(spark), **{"restart.attempts": 1000, "restart.maxDelay": "100ms"})
    query.processAllAvailable()
    asked: list[int] = []

    def away(*_: Any, **__: Any) -> Any:
        asked.append(1)
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(kind, step, away)
        os.kill(query.view().slots[0].pid, signal.SIGKILL)
        eventually(lambda: len(asked) > 3, "tries to recover")
        assert query.isActive
    inbox.add(ROWS)
    query.processAllAvailable()
    assert len(rows_of(out)) == 2 * len(ROWS)


def test_a_store_that_stays_away_ends_the_query(
    spark: SparkSession, inbox: Inbox, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    query: StreamingQuery = start(inbox.stream(spark))
    eventually(lambda: bool(query.view().slots), "slots")

    def away(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "the store does not answer")

    monkeypatch.setattr(Catalog, "choose_newest", away)
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    with pytest.raises(StreamingQueryException, match=r"gave up: 2 restarts without progress"):
        query.awaitTermination(30)
