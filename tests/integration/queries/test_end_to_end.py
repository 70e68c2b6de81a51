"""Whole queries on Spark: exactly once over restarts and kills, modes, failures, and the query's own methods."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, sum, udf, window  # noqa: A004 - as Spark calls them

import penstock
from penstock.coordinator import generation_slots as attempt
from penstock.errors import CheckpointFailed, ConfigError, CorruptSnapshot, FunctionError, PlanChanged
from penstock.snapshots.portable.export import export_snapshot
from penstock.spark.snapshot_jobs import in_executors
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("generated_code")]


def sums(df: DataFrame) -> DataFrame:
    """Ten-second windows by key."""
    grouped = df.withWatermark("at", "5 seconds").groupBy(window("at", "10 seconds"), "key")
    return grouped.agg(count("*").alias("n"), sum("value").alias("total")).select("window.start", "key", "n", "total")


def expected_sums(rows: list[tuple[int, int, float]], before_s: float) -> list[tuple[object, ...]]:
    """Return the sums of the windows that end at or before ``before_s``."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for key, value, seconds in rows:
        groups[int(seconds // 10) * 10, key].append(value)
    found = [
        (datetime.fromtimestamp(start, tz=UTC), key, len(values), sum_of(values))
        for (start, key), values in groups.items()
        if start + 10 <= before_s
    ]
    return sorted(found, key=repr)


def sum_of(values: list[int]) -> int:
    total = 0
    for value in values:
        total += value
    return total


def flow(first_s: int, last_s: int) -> list[tuple[int, int, float]]:
    return [(second % 3, second, float(second)) for second in range(first_s, last_s)]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_come_out_exactly_once_over_a_stop_and_a_kill(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "JOB_GRACE_S", 10.0)  # on a busy machine slots may need more to end by themselves
    inbox.add(flow(0, 40))
    query = start(sums(inbox.stream(spark)), parallelism=parallelism)
    query.processAllAvailable()
    assert rows_of(out) == expected_sums(flow(0, 40), before_s=34)
    first_id, first_run = query.id, query.runId
    query.stop()
    assert not query.isActive
    assert query.awaitTermination(0) is True

    inbox.add(flow(40, 70))
    query = start(sums(inbox.stream(spark)), parallelism=parallelism)
    query.processAllAvailable()
    assert (query.id, query.runId == first_run) == (first_id, False)
    assert query.generation == 2
    assert rows_of(out) == expected_sums(flow(0, 70), before_s=64)

    until, kept = 70, False
    while not kept and until < 160:  # a slot that is killed the moment that a checkpoint completes need not know it yet
        before, generation = query.view().slots, query.generation
        os.kill(before[-1].pid, signal.SIGKILL)
        inbox.add(flow(until, until + 30))
        until += 30
        eventually(lambda: query.generation > generation, "the next Generation")  # noqa: B023 - called at once
        query.processAllAvailable()
        after = query.view().slots
        kept = [slot.kept_tables for slot in after] == [1, 0][-parallelism:]
        assert query.isActive
        assert query.exception() is None
        assert rows_of(out) == expected_sums(flow(0, until), before_s=until - 6)
    assert kept, "what survived was not read again"
    assert [slot.pid for slot in after[:-1]] == [slot.pid for slot in before[:-1]]


def test_process_all_available_leaves_no_closed_window_behind(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    """The checkpoint that it waits for lies behind the watermark of the last rows, every time."""
    query = start(sums(inbox.stream(spark)), parallelism=2, **{"checkpoint.interval": "1h"})
    for part in range(1, 9):
        inbox.add(flow(part * 20 - 20, part * 20))
        query.processAllAvailable()
        assert rows_of(out) == expected_sums(flow(0, part * 20), before_s=part * 20 - 6)


def test_without_aggregation_every_row_comes_out_once(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    query = start(inbox.stream(spark).where("value % 2 = 0").select("key", (col("value") * 10).alias("v")))
    for part in range(3):
        inbox.add(flow(part * 10, part * 10 + 10))
        query.processAllAvailable()
        expected = [(second % 3, second * 10) for second in range(part * 10 + 10) if second % 2 == 0]
        assert rows_of(out) == sorted(expected, key=repr)
    assert [row.v for row in spark.read.parquet(str(out)).orderBy("v").collect()] == [s * 10 for s in range(0, 30, 2)]


def test_update_mode_gives_each_changed_key_with_its_latest_value(
    spark: SparkSession, inbox: Inbox, start: Start
) -> None:
    totals = inbox.stream(spark).groupBy("key").agg(sum("value").alias("total"))
    query = start(totals, format="memory", queryName="totals", outputMode="update")
    assert spark.table("totals").count() == 0
    inbox.add([(1, 10, 0.0), (2, 20, 0.0)])
    query.processAllAvailable()
    assert sorted(spark.table("totals").collect()) == [(1, 10), (2, 20)]
    inbox.add([(1, 5, 0.0)])
    query.processAllAvailable()
    assert sorted(spark.table("totals").collect()) == [(1, 10), (1, 15), (2, 20)]


def plus(amount: int) -> Callable[[int], int]:
    return lambda value: value + amount


def test_an_edited_function_resumes_from_the_checkpoint(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    def job(amount: int) -> DataFrame:
        return inbox.stream(spark).select("key", udf(plus(amount), "bigint")("value").alias("v"))

    inbox.add([(1, 1, 0.0)])
    query = start(job(100))
    query.processAllAvailable()
    query.stop()
    inbox.add([(2, 2, 0.0)])
    query = start(job(1000))
    query.processAllAvailable()
    assert rows_of(out) == [(1, 101), (2, 1002)]


def test_another_plan_is_refused(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add(flow(0, 5))
    query = start(inbox.stream(spark).groupBy("key").count(), format="noop", outputMode="update")
    query.processAllAvailable()
    query.stop()
    with pytest.raises(PlanChanged):
        start(inbox.stream(spark).groupBy("value").count(), format="noop", outputMode="update")


def test_a_function_that_raises_ends_the_query_with_its_traceback(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    @udf("bigint")
    def broken_on_three(value):
        if value == 3:
            raise ValueError("three is not to be borne")
        return value

    inbox.add([(1, 1, 0.0)])
    query = start(inbox.stream(spark).select(broken_on_three("value").alias("v")))
    query.processAllAvailable()
    inbox.add([(1, 3, 0.0)])
    with pytest.raises(StreamingQueryException, match="three is not to be borne") as caught:
        query.awaitTermination(60)
    text = str(caught.value)
    assert "udf-0" in text
    assert "broken_on_three" in text
    assert "Traceback" in text
    assert query.id in text
    assert isinstance(caught.value.__cause__, FunctionError)
    assert caught.value.__cause__.operator.startswith("udf-0")
    assert not query.isActive
    assert str(query.exception()) == text
    assert "three" in query.status["message"]
    with pytest.raises(StreamingQueryException, match="three"):
        query.processAllAvailable()
    assert rows_of(out) == [(1,)], "what was committed stays"


def test_status_progress_and_await_termination(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    query = start(sums(inbox.stream(spark)), queryName="told")
    assert query.isActive
    assert (query.name, query.lastProgress, query.exception()) == ("told", None, None)
    assert query.awaitTermination(0) is False
    inbox.add(flow(0, 40))
    query.processAllAvailable()
    assert query.lastProgress is not None, "progress is there when processAllAvailable returns"
    assert query.lastProgress.numInputRows == 40
    inbox.add(flow(40, 60))
    query.processAllAvailable()
    idle = {"message": "Waiting for data to arrive", "isDataAvailable": False, "isTriggerActive": False}
    eventually(lambda: query.status == idle, "an idle query, as Spark tells it")
    progresses = query.recentProgress
    assert sum_of([progress.numInputRows for progress in progresses]) == 60
    assert [p.batchId for p in progresses] == sorted({p.batchId for p in progresses})
    last = query.lastProgress
    assert last is not None
    assert last.eventTime["watermark"] == "1970-01-01T00:00:54.000Z"
    assert last.name == "told"
    assert str(last.id) == query.id
    assert last.stateOperators[0].memoryUsedBytes > 0
    assert "FileStreamSource" in last.sources[0].description
    assert last.sink.description.startswith("FileSink[")
    assert last.stateOperators[0].numRowsDroppedByWatermark == 0
    query.stop()
    query.stop()
    assert query.awaitTermination() is None
    assert query.status["message"] == "Stopped"


def test_a_snapshot_on_request(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add(flow(0, 40))
    query = start(sums(inbox.stream(spark)), **{"checkpoint.interval": "1h"})
    metadata = query.snapshot(label="mine", alignment="aligned", timeout=30)
    assert (metadata.label, metadata.requested, metadata.alignment) == ("mine", True, "aligned")
    assert [query.snapshot(alignment=a).alignment for a in ("auto", "unaligned")] == ["auto", "unaligned"]
    assert query.snapshot().alignment == "auto", "the query's own"
    with pytest.raises(ConfigError, match="choose auto, aligned or unaligned"):
        query.snapshot(alignment="sideways")
    query.stop()
    with pytest.raises(CheckpointFailed):
        query.snapshot()


def test_the_format_of_a_query_s_snapshots(inbox: Inbox, spark: SparkSession, start: Start, tmp_path: Path) -> None:
    inbox.add(flow(0, 40))
    location = tmp_path / "both"
    query = start(inbox.stream(spark), checkpointLocation=str(location), **{"snapshots.format": "Portable"})
    taken = [query.snapshot(), query.snapshot(format="native"), query.snapshot(wait=False).result(60)]
    query.stop()
    assert [(location / "portable" / one.id / "manifest.json").exists() for one in taken] == [True, False, True]
    assert len(list((location / "portable").iterdir())) == 2, "periodic checkpoints and the others are native"
    with pytest.raises(ConfigError, match=r"snapshots.format='zip': choose native or portable"):
        start(inbox.stream(spark), checkpointLocation=str(tmp_path / "c"), **{"snapshots.format": "zip"})


def test_a_snapshot_in_both_formats(spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path) -> None:
    inbox.add(flow(0, 40))
    location = tmp_path / "both"
    query = start(sums(inbox.stream(spark)), checkpointLocation=str(location), **{"checkpoint.interval": "1h"})
    query.processAllAvailable()
    metadata = query.snapshot(format="portable", wait=False).result(60)
    query.stop()
    place = location / "portable" / metadata.id
    (table,) = place.glob("state/*/groups")
    groups = {(row["key"], row["__a0_count"]) for row in spark.read.parquet(str(table)).collect()}
    assert {(0, 4), (1, 3), (2, 3)} <= groups, "those of the last window, which is open"
    by_spark = tmp_path / "by-spark"
    export_snapshot(str(location), metadata.id, by_spark, run=in_executors(spark))
    files = sorted(path.relative_to(place) for path in place.rglob("*") if path.is_file())
    assert [(by_spark / path).read_bytes() for path in files] == [(place / path).read_bytes() for path in files]
    (location / "data").rename(tmp_path / "away")
    with pytest.raises(CorruptSnapshot, match="is missing"):
        export_snapshot(str(location), metadata.id, tmp_path / "damaged", run=in_executors(spark))
    assert not (tmp_path / "damaged").exists()


def test_two_active_queries_cannot_have_one_name(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    query = start(inbox.stream(spark), format="noop", queryName="taken")
    with pytest.raises(ConfigError, match="'taken' is active"):
        start(inbox.stream(spark), format="noop", queryName="taken", checkpointLocation=None)
    query.stop()


def test_a_temporary_location_is_removed_at_the_end(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    query = penstock.writeStream(inbox.stream(spark)).format("noop").option("parallelism", 1).start()
    [directory] = tmp_path.glob("penstock-checkpoint-*")
    inbox.add(flow(0, 3))
    query.processAllAvailable()
    assert (directory / "query.json").exists()
    query.stop()
    eventually(lambda: not directory.exists(), "the location to be removed", 10)


def test_explain_shows_vertices_and_edges(
    spark: SparkSession, inbox: Inbox, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    query = start(sums(inbox.stream(spark)))
    query.explain(extended=True)
    text = capsys.readouterr().out
    assert "2 vertices x 1 slots" in text
    assert "--hash(" in text
    assert "FileStreamSource" in text
    assert "FileSink[" in text
    assert "state" in text
