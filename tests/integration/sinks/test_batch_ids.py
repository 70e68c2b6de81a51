"""Batch ids and writer ids, over forks, rollbacks, damaged snapshots and edits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import ConfigError, SinkError
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually

pytestmark = pytest.mark.spark

Start = Callable[..., StreamingQuery]


@dataclass
class Upserts:
    """A function for ``foreachBatch`` that is idempotent as docs/batch-ids.md asks for: by query id and batch id."""

    spark: SparkSession
    newest: dict[str, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    seen: list[tuple[str, int]] = field(default_factory=list)

    def __call__(self, df: DataFrame, batch: int) -> None:
        context = self.spark.sparkContext
        writer = context.getLocalProperty("sql.streaming.queryId")
        assert context.getLocalProperty("streaming.sql.batchId") == str(batch)
        self.seen.append((writer, batch))
        if batch > self.newest.get(writer, -1):
            self.kept += [row.key for row in df.collect()]
            self.newest[writer] = batch

    @property
    def ids(self) -> list[int]:
        return [batch for _, batch in self.seen]


@pytest.fixture
def upserts(spark: SparkSession) -> Upserts:
    return Upserts(spark)


@pytest.fixture
def run(spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start) -> Start:
    """``run(func, **options)`` starts a query from the inbox to ``func``, by default at ``tmp_path/c``."""

    def start(func: Any, **options: Any) -> StreamingQuery:
        writer = penstock.writeStream(inbox.stream(spark).select("key", "value")).foreachBatch(func)
        return start_writer(writer, **{"checkpointLocation": str(tmp_path / "c"), **options})

    return start


def rows(first: int, last: int) -> list[tuple[int, int, float]]:
    return [(number, number * 10, float(number)) for number in range(first, last)]


def done(*words: str | Path) -> None:
    result = CliRunner().invoke(app, ["snapshot", *map(str, words)])
    assert result.exit_code == 0, result.output


def two_batches(inbox: Inbox, run: Start, upserts: Upserts, **options: Any) -> StreamingQuery:
    """Run batches 0 and 1 with the snapshot ``good`` between them."""
    query = run(upserts, **options)
    inbox.add(rows(0, 10))
    query.processAllAvailable()
    query.snapshot(label="good")
    inbox.add(rows(10, 20))
    query.processAllAvailable()
    assert upserts.ids == [0, 1]
    return query


def test_a_fork_needs_a_sink_target_and_continues_after_the_snapshot(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    query = two_batches(inbox, run, upserts)
    query.stop(snapshot=True)
    inbox.add(rows(20, 30))
    fork = {"checkpointLocation": str(tmp_path / "fork"), "startFrom": str(tmp_path / "c")}
    with pytest.raises(SinkError, match=rf"sink-0 \(ForeachBatchSink\).*fork of query {query.id}.*sinkTarget=own"):
        run(upserts, **fork)
    assert not (tmp_path / "fork/log").exists() or not list((tmp_path / "fork/log").iterdir()), "nothing is left behind"
    with pytest.raises(ConfigError, match="choose own or shared"):
        run(upserts, sinkTarget="mine", **fork)
    forked = run(upserts, sinkTarget="shared", **fork)
    forked.processAllAvailable()
    forked.stop()
    inbox.add(rows(30, 40))
    again = run(upserts, sinkTarget="own", **fork)
    again.processAllAvailable()
    assert upserts.seen == [(query.id, 0), (query.id, 1), (forked.id, 2), (forked.id, 3)]
    assert again.id == forked.id != query.id
    assert sorted(upserts.kept) == list(range(40))


def test_a_fork_of_an_older_snapshot_continues_after_it(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    query = two_batches(inbox, run, upserts)
    fork = {"checkpointLocation": str(tmp_path / "fork"), "startFrom": f"{tmp_path / 'c'}#good", "sinkTarget": "own"}
    forked = run(theirs := Upserts(upserts.spark), **fork)
    forked.processAllAvailable()
    assert theirs.seen == [(forked.id, 1)], "not the id of another epoch of its own"
    assert theirs.kept == list(range(10, 20))
    eventually(lambda: bool(forked.recentProgress), "its progress")
    told = [(progress.checkpoint["sinkBatchId"], progress["batchId"]) for progress in forked.recentProgress]
    assert [batch for batch, _ in told if batch is not None] == [1], told
    assert min(epoch for _, epoch in told) > 1, "epochs are numbered above batch ids"
    assert query.isActive


def test_a_fork_of_the_command_line_needs_a_sink_target_too(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    two_batches(inbox, run, upserts).stop()
    done("fork", tmp_path / "c", "good", tmp_path / "fork")
    with pytest.raises(SinkError, match="sinkTarget=shared"):
        run(upserts, checkpointLocation=str(tmp_path / "fork"))
    forked = run(upserts, checkpointLocation=str(tmp_path / "fork"), sinkTarget="shared")
    forked.processAllAvailable()
    assert upserts.seen[2:] == [(forked.id, 1)]


@pytest.mark.parametrize("sink", ["foreach", "python"])
def test_other_sinks_with_user_code_need_a_sink_target_too(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts, start_writer: Start, sink: str
) -> None:
    two_batches(inbox, run, upserts).stop()
    writer = penstock.writeStream(inbox.stream(spark).select("key"))
    writer = writer.foreach(lambda row: None) if sink == "foreach" else writer.format(_source(tmp_path / "told"))
    fork = {"checkpointLocation": str(tmp_path / "fork"), "startFrom": str(tmp_path / "c")}
    with pytest.raises(SinkError, match="sinkTarget"):
        start_writer(writer, **fork)
    start_writer(writer, sinkTarget="own", **fork).stop()


def test_sinks_with_a_known_target_need_no_sink_target(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts, start_writer: Start
) -> None:
    two_batches(inbox, run, upserts).stop()
    for name, writer in (
        ("files", penstock.writeStream(inbox.stream(spark)).option("path", str(tmp_path / "files"))),
        ("memory", penstock.writeStream(inbox.stream(spark)).format("memory").queryName("batch_ids_memory")),
        ("console", penstock.writeStream(inbox.stream(spark)).format("console")),
    ):
        start_writer(writer, checkpointLocation=str(tmp_path / f"c-{name}"), startFrom=str(tmp_path / "c")).stop()


@pytest.mark.parametrize("output", ["retract", "keep"])
def test_a_rollback_never_uses_an_id_again(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts, output: str, spark: SparkSession
) -> None:
    """Rows are delivered again with new ids, so the sink does not mistake them for written ones."""
    query = two_batches(inbox, run, upserts)
    query.stop()
    if output == "retract":
        result = CliRunner().invoke(app, ["snapshot", "rollback", str(tmp_path / "c"), "good", "--output", output])
        assert result.exit_code == 0
        with pytest.raises(SinkError, match="to be taken back, but not by sink-0"):
            run(upserts)
    done("rollback", tmp_path / "c", "good", "--output", "keep")
    again = run(upserts)
    again.processAllAvailable()
    inbox.add(rows(20, 30))
    again.processAllAvailable()
    assert upserts.seen == [(query.id, batch) for batch in range(4)]
    assert sorted(upserts.kept) == sorted([*range(30), *range(10, 20)])


def test_an_id_is_not_reused_after_a_death_in_a_commit_and_a_rollback(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    """The log has no commit of batch 1, and its snapshot is dropped."""
    query = two_batches(inbox, run, upserts)
    query.stop()
    entries = sorted((tmp_path / "c/log").iterdir())
    kept = [path for path in entries if json.loads(path.read_bytes())["body"]["entry"]["type"] == "snapshot-complete"]
    for path in entries[entries.index(kept[-1]) + 1 :]:
        path.unlink()  # as if the driver had died when the function had returned
    done("rollback", tmp_path / "c", "good", "--output", "keep", "--force")
    run(upserts).processAllAvailable()
    assert upserts.ids[2] == 2
    assert upserts.kept[-10:] == list(range(10, 20))


def test_ids_are_new_after_a_fallback_to_an_older_snapshot(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    query = two_batches(inbox, run, upserts)
    query.snapshot(label="bad")
    query.stop()
    bad = max((tmp_path / "c/snapshots").iterdir(), key=lambda path: int(path.name.removeprefix("chk-")))
    (bad / "metadata.json").write_bytes(b"{}")
    inbox.add(rows(20, 30))
    again = run(upserts, **{"snapshots.allowOlder": True})
    again.processAllAvailable()
    assert upserts.ids == list(range(len(upserts.ids)))
    assert set(upserts.kept) == set(range(30))


def test_reordered_outputs_never_repeat_an_id(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    """Two outputs with one target are two writers."""

    def started(*functions: Upserts) -> StreamingQuery:
        stream = inbox.stream(spark)
        frames = [stream.select("key"), stream.where("key >= 5").select("key")]
        writers = [penstock.writeStream(df).foreachBatch(f) for df, f in zip(frames, functions, strict=True)]
        options = {"checkpointLocation": str(tmp_path / "several"), "parallelism": 1, "checkpoint.interval": "200ms"}
        return penstock.start([writer.options(**options) for writer in writers])

    one, other = Upserts(spark), Upserts(spark)
    query = started(one, other)
    for first in (0, 10):
        inbox.add(rows(first, first + 4 if not first else 20))
        query.processAllAvailable()
    query.stop()
    assert (one.ids, other.ids) == ([0, 1], [1]), "an epoch has one id"
    assert one.seen[-1] == (query.id, 1)
    assert other.seen[-1] == (f"{query.id}/sink-1", 1)
    swapped = started(other, one)
    inbox.add(rows(20, 30))
    swapped.processAllAvailable()
    swapped.stop()
    assert (one.ids, other.ids) == ([0, 1, 2], [1, 2])


def test_jobs_of_a_commit_have_the_properties_of_spark(spark: SparkSession, inbox: Inbox, run: Start) -> None:
    told: list[dict[str, str | None]] = []
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel", "__is_continuous_processing",
             "sql.streaming.queryId", "streaming.sql.batchId")  # fmt: skip

    def on_either(df: DataFrame, batch: int) -> None:
        context = df.sparkSession.sparkContext
        told.append({name: context.getLocalProperty(name) for name in names})

    inbox.add(rows(0, 3))
    query = run(on_either, queryName="told")
    query.processAllAvailable()
    query.stop()
    reader = inbox.stream(spark).writeStream.foreachBatch(on_either).queryName("told").trigger(availableNow=True)
    on_spark = reader.option("checkpointLocation", str(inbox.directory.parent / "spark")).start()
    on_spark.awaitTermination()
    ours, theirs = (
        {name: str(text).replace(q.id, "ID").replace(q.runId, "RUN") for name, text in said.items()}
        for q, said in zip((query, on_spark), told, strict=True)
    )
    assert ours == theirs
    assert ours["spark.job.description"] == "told\nid = ID\nrunId = RUN\nbatch = 0"


def test_foreach_finds_the_query_in_its_tasks(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start
) -> None:
    told = tmp_path / "told"
    told.mkdir()

    def tell(row: Row) -> None:
        context = TaskContext.get()
        assert context is not None
        (told / str(context.getLocalProperty("sql.streaming.queryId"))).touch()

    inbox.add(rows(0, 3))
    writer = penstock.writeStream(inbox.stream(spark).select("key")).foreach(tell)
    query = start_writer(writer, checkpointLocation=str(tmp_path / "c"))
    query.processAllAvailable()
    assert [path.name for path in told.iterdir()] == [query.id]


def test_a_python_sink_finds_the_query_and_the_batch_when_it_commits(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start
) -> None:
    told = tmp_path / "told"
    writer = penstock.writeStream(inbox.stream(spark).select("key")).format(_source(told))
    query = start_writer(writer, checkpointLocation=str(tmp_path / "c"))
    for first in (0, 3):
        inbox.add(rows(first, first + 3))
        query.processAllAvailable()
    assert told.read_text().split() == [f"{query.id}:{batch}:{batch}" for batch in (0, 1)]


def _source(told: Path) -> type[DataSource]:
    class Writer(DataSourceStreamWriter):
        def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
            list(iterator)
            return WriterCommitMessage()

        def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
            context = spark.sparkContext
            names = ("sql.streaming.queryId", "streaming.sql.batchId")
            with told.open("a") as file:
                file.write(":".join([*(str(context.getLocalProperty(name)) for name in names), f"{batchId}\n"]))

        def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
            raise AssertionError("never called")

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "batch_ids_sink"

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return Writer()

    return Source


def test_a_repaired_snapshot_continues_after_all_ids_of_its_origin(
    inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    query = two_batches(inbox, run, upserts)
    query.stop()
    penstock.SnapshotWriter.from_snapshot(str(tmp_path / "c"), "good").write(str(tmp_path / "repaired"))
    with pytest.raises(SinkError, match="sinkTarget"):
        run(upserts, checkpointLocation=str(tmp_path / "repaired"))
    again = run(upserts, checkpointLocation=str(tmp_path / "repaired"), sinkTarget="shared")
    again.processAllAvailable()
    assert upserts.seen[2:] == [(again.id, 2)]


def test_a_snapshot_from_a_plan_begins_at_0_and_needs_no_sink_target(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, run: Start, upserts: Upserts
) -> None:
    penstock.SnapshotWriter.from_plan(inbox.stream(spark).select("key", "value")).write(str(tmp_path / "made"))
    inbox.add(rows(0, 3))
    run(upserts, checkpointLocation=str(tmp_path / "made")).processAllAvailable()
    assert upserts.ids == [0]
