"""``penstock.streams``, query names, restarts at one location, and what a notebook shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import ConfigError, LocationError, SinkError
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

STOP_ACTIVE_RUN = "spark.sql.streaming.stopActiveRunOnRestart"


@pytest.fixture(autouse=True)
def forgotten(spark: SparkSession) -> Iterator[None]:
    """Nothing has terminated yet, as far as ``awaitAnyTermination`` knows."""
    penstock.streams.resetTerminated()
    yield
    penstock.streams.resetTerminated()


def failing(df: DataFrame) -> DataFrame:
    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            raise ValueError("it <fails> on purpose")
        yield from ()

    return df.mapInArrow(fail, df.schema)


class Table(HTMLParser):
    """The texts of a table's cells by their row's heading; fails on anything but well-formed tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open: list[str] = []
        self._cells: list[str] = []
        self.title = ""
        self.feed(text)
        assert self._open == []
        self.facts = dict(zip(self._cells[::2], self._cells[1::2], strict=True))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"div", "p", "b", "table", "tr", "th", "td"}
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] in ("th", "td"):
            self._cells.append(data)
        else:
            self.title += data


def test_streams_lists_gets_and_waits_for_the_sessions_queries(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    assert penstock.streams.active == []
    assert penstock.streams.awaitAnyTermination(timeout=0.05) is False
    query = start(inbox.stream(spark), format="noop", queryName="listed")
    assert penstock.streams.active == [query]
    assert penstock.streams.get(query.id) is query
    assert penstock.streams.get("00000000-0000-0000-0000-000000000000") is None
    with pytest.raises(ConfigError, match="'listed' is not a query's id"):
        penstock.streams.get("listed")
    assert penstock.streams.awaitAnyTermination(0.05) is False
    query.stop()
    assert penstock.streams.active == []
    assert penstock.streams.get(query.id) is None
    assert penstock.streams.awaitAnyTermination(10) is True
    assert penstock.streams.awaitAnyTermination() is None
    penstock.streams.resetTerminated()
    assert penstock.streams.awaitAnyTermination(0.05) is False
    with pytest.raises(ValueError, match="negative"):
        penstock.streams.awaitAnyTermination(-1)


def test_a_failure_is_what_awaitanytermination_raises(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path
) -> None:
    """Also when an orderly end came before, as in Spark."""
    inbox.add([(1, 1, 0.0)])
    start(inbox.stream(spark), format="noop", checkpointLocation=str(tmp_path / "other")).stop()
    broken = start(failing(inbox.stream(spark)), format="noop")
    eventually(lambda: not broken.isActive, "the failure")
    with pytest.raises(StreamingQueryException, match="fails"):
        penstock.streams.awaitAnyTermination()
    with pytest.raises(StreamingQueryException, match="fails"):
        penstock.streams.awaitAnyTermination(5)


def test_sessions_have_names_and_lists_of_their_own(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    first = start(inbox.stream(spark), format="noop", queryName="twin")
    other = spark.newSession()
    second = penstock.writeStream(inbox.stream(other)).format("noop").queryName("twin").option("parallelism", 1).start()
    try:
        assert first.isActive
        assert second.isActive
        assert penstock.streams.active == [first]
        with pytest.raises(ConfigError, match="named 'twin' is active"):
            penstock.writeStream(inbox.stream(spark)).format("noop").queryName("twin").start()
    finally:
        second.stop()


def test_a_cell_that_is_run_again_just_works(spark: SparkSession, inbox: Inbox, out: Path, start: Start) -> None:
    """Same location, same name: the older run is stopped, the newer goes on where it was."""
    inbox.add([(1, 1, 0.0)])
    first = start(inbox.stream(spark), queryName="cell")
    first.processAllAvailable()
    second = start(inbox.stream(spark), queryName="cell")
    assert not first.isActive
    assert first.exception() is None
    assert second.id == first.id
    assert second.runId != first.runId
    inbox.add([(2, 2, 1.0)])
    second.processAllAvailable()
    assert [row[:2] for row in rows_of(out)] == [(1, 1), (2, 2)]
    assert penstock.streams.active == [second]


def test_without_the_setting_the_older_run_stays(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path, spark_conf
) -> None:  # type: ignore[no-untyped-def]
    spark_conf(STOP_ACTIVE_RUN, "false")
    first = start(inbox.stream(spark), format="noop")
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint")
    for location in ("checkpoint", "link"):
        with pytest.raises(LocationError, match=f"query {first.id} .* is active at .*{STOP_ACTIVE_RUN}"):
            start(inbox.stream(spark), format="noop", checkpointLocation=str(tmp_path / location))
    assert first.isActive


def test_a_query_has_one_run_wherever_its_location_is(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path, spark_conf
) -> None:  # type: ignore[no-untyped-def]
    """A location that was moved while its query runs belongs to the same query, as in Spark."""
    inbox.add([(1, 1, 0.0)])
    first = start(inbox.stream(spark), **{"checkpoint.interval": "1h"})  # a checkpoint would miss the location
    first.processAllAvailable()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "moved")
    (tmp_path / "checkpoint").rename(tmp_path / "gone")
    spark_conf(STOP_ACTIVE_RUN, "false")
    with pytest.raises(LocationError, match=f"query {first.id} .* is active at .*{STOP_ACTIVE_RUN}"):
        start(inbox.stream(spark), checkpointLocation=str(tmp_path / "moved"))
    assert first.isActive
    spark_conf(STOP_ACTIVE_RUN, "true")
    second = start(inbox.stream(spark), checkpointLocation=str(tmp_path / "moved"))
    assert not first.isActive
    assert second.id == first.id
    inbox.add([(2, 2, 1.0)])
    second.processAllAvailable()
    assert [row[:2] for row in rows_of(out)] == [(1, 1), (2, 2)]


def test_a_copy_is_refused_before_the_run_of_its_origin_is_touched(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start, tmp_path: Path
) -> None:
    inbox.add([(1, 1, 0.0)])
    first = start(inbox.stream(spark))
    first.processAllAvailable()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    with pytest.raises(LocationError, match=r"copy looks like a copy of .*/checkpoint, which still exists.*startMode"):
        start(inbox.stream(spark), checkpointLocation=str(tmp_path / "copy"))
    claimed = {"startFrom": str(tmp_path / "copy"), "startMode": "claim", "checkpointLocation": None}
    with pytest.raises(LocationError, match=r"runs at .*/checkpoint in this application: stop it"):
        start(inbox.stream(spark), **claimed)
    assert first.isActive
    first.stop()
    second = start(inbox.stream(spark), **claimed)
    inbox.add([(2, 2, 1.0)])
    second.processAllAvailable()
    second.stop()
    with pytest.raises(SinkError, match=r"newer output of query .*by the location at .*/copy.*rollback"):
        start(inbox.stream(spark))
    assert [row[:2] for row in rows_of(out)] == [(1, 1), (2, 2)]


def test_a_refused_restart_leaves_the_older_run_alone(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path
) -> None:
    first = start(inbox.stream(spark), format="noop")
    third = start(inbox.stream(spark), format="noop", queryName="taken", checkpointLocation=str(tmp_path / "third"))
    with pytest.raises(ConfigError, match="'taken' is active"):
        start(inbox.stream(spark), format="noop", queryName="taken")
    with pytest.raises(ConfigError, match="unknown option"):
        start(inbox.stream(spark), format="noop", **{"spark.penstock.nonsense": "1"})
    assert first.isActive
    assert third.isActive


def test_a_notebook_shows_a_query(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add([(1, 1, 0.0), (2, 2, 5.0)])
    late = inbox.stream(spark).withWatermark("at", "1 second")
    query = start(late, format="noop", queryName="<b>bold</b>")
    assert Table(query._repr_html_()).facts["snapshot"] == "none yet" or query.view().committed_epoch
    query.processAllAvailable()
    query.snapshot(label="a & b")
    shown = Table(query._repr_html_())
    assert shown.title == "<b>bold</b>"
    assert shown.facts["id"] == query.id
    assert shown.facts["run"] == query.runId
    assert "Generation 1, parallelism 1" in shown.facts["state"]
    assert shown.facts["rates"].endswith("rows/s processed")
    assert shown.facts["last commit"].startswith("epoch ")
    assert shown.facts["watermark"] == "1970-01-01T00:00:04.000Z"
    assert "complete" in shown.facts["checkpoints"]
    assert "“a & b”" in shown.facts["snapshot"]
    query.stop()
    facts = Table(query._repr_html_()).facts
    assert facts["state"] == "Stopped (Generation 1)"
    assert "rates" not in facts, "nothing is read any more"
    assert "last commit" in facts


def test_a_notebook_counts_all_checkpoints(
    spark: SparkSession, inbox: Inbox, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.coordinator.metrics.HISTORY_SIZE", 2)
    query = start(inbox.stream(spark), format="noop", **{"checkpoint.interval": "10m"})
    for _ in range(4):
        query.snapshot()
    assert Table(query._repr_html_()).facts["checkpoints"] == "4 complete, 0 given up"


def test_a_notebook_shows_a_failed_query(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    inbox.add([(1, 1, 0.0)])
    broken = start(failing(inbox.stream(spark)), format="noop")
    eventually(lambda: not broken.isActive, "the failure")
    shown = Table(broken._repr_html_())
    assert shown.title == "StreamingQuery"
    assert "it <fails> on purpose" in shown.facts["state"]
    assert shown.facts["snapshot"]
