"""Rollbacks and forks that share a sink, end to end: the output is that of a run to which nothing happened."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.errors import LocationError, SinkError
from tests.integration.snapshots.test_start_from import by_batch, flow, totals
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark


def penstock(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["snapshot", *map(str, words)])


def done(*words: str | Path) -> dict[str, object]:
    result = penstock(*words, "--json")
    assert result.exit_code == 0, result.output
    said: dict[str, object] = json.loads(result.stdout)
    return said


def a_query_that_wrote_behind_a_snapshot(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    """The snapshot is called ``good``."""
    inbox.add(flow(0, 25))
    query = start(totals(inbox.stream(spark)), parallelism=2)
    query.processAllAvailable()
    query.snapshot(label="good")
    for first_s, last_s in ((25, 41), (41, 62)):
        inbox.add(flow(first_s, last_s))
        query.processAllAvailable()
    query.stop()


def test_a_rollback_is_reprocessed_without_or_with_its_rows_twice(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    location = tmp_path / "checkpoint"
    a_query_that_wrote_behind_a_snapshot(spark, inbox, start)
    written = rows_of(out)
    refused = penstock("rollback", location, "good")
    assert refused.exit_code == 1
    assert "--output retract" in refused.stderr
    assert done("rollback", location, "good", "--output", "retract")["retracts"] is True
    assert rows_of(out) == written, "nothing happens before the next start"
    again = start(totals(inbox.stream(spark)), parallelism=2)
    again.processAllAvailable()
    inbox.add(flow(62, 81))
    again.processAllAvailable()
    again.stop()
    calm = by_batch(spark, inbox, 80)
    assert rows_of(out) == calm

    assert done("rollback", location, "good", "--output", "keep")["retracts"] is False
    third = start(totals(inbox.stream(spark)), parallelism=2)
    third.processAllAvailable()
    third.stop()
    twice = Counter(rows_of(out)) - Counter(calm)
    assert twice, "those behind the snapshot came a second time"
    assert twice <= Counter(calm)
    assert set(rows_of(out)) == set(calm)


def test_a_sink_that_cannot_take_back_refuses_the_start_until_output_is_kept(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    import penstock as ps

    location = tmp_path / "checkpoint"
    a_query_that_wrote_behind_a_snapshot(spark, inbox, start)
    good = done("rollback", location, "good", "--output", "retract")["snapshot"]
    batches: list[int] = []

    def collect(df: DataFrame, batch: int) -> None:
        batches.append(batch)

    writer = ps.writeStream(totals(inbox.stream(spark))).foreachBatch(collect)
    with pytest.raises(SinkError, match=rf"sink-0 \(ForeachBatchSink\).*rollback LOCATION {good} --output keep"):
        writer.option("checkpointLocation", str(location)).start(parallelism=2)
    with pytest.raises(SinkError, match="does not write any more to where that output is"):
        start(totals(inbox.stream(spark)), path=str(tmp_path / "elsewhere"), parallelism=2)
    assert batches == []
    done("rollback", location, "good", "--output", "keep")
    start(totals(inbox.stream(spark)), path=str(tmp_path / "elsewhere"), parallelism=2).stop()


@pytest.mark.parametrize("how", ["retract", "keep", "allowOlder"])
def test_input_that_was_removed_has_to_be_put_back(
    how: str, spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    location, archive = tmp_path / "checkpoint", tmp_path / "archive" / "of" / "input"

    def run(label: str = "") -> None:
        files = spark.readStream.schema(SCHEMA).options(cleanSource="archive", sourceArchiveDir=str(archive))
        query = start(files.parquet(str(inbox.directory)).select("key"), **{"snapshots.allowOlder": "true"})
        query.processAllAvailable()
        query.snapshot(label=label)
        if label:
            eventually(lambda: not list(inbox.directory.glob("*.parquet")), "archived input")
        query.stop()

    for key in (1, 2):
        inbox.add([(key, 0, 0.0)])
        run(label=f"of {key}")
    listed = json.loads(penstock("list", location, "--json").stdout)["snapshots"]
    first = next(str(one["id"]) for one in listed if one["label"] == "of 1")
    if how == "allowOlder":
        for metadata in (location / "snapshots").glob("chk-*/metadata.json"):
            if metadata.parent.name != first:
                metadata.write_bytes(b"{}")
        with pytest.raises(LocationError, match=rf"source-0 .*since {first} would be missing.*--input-restored"):
            run()
    output = "keep" if how == "allowOlder" else how
    refused = penstock("rollback", location, first, "--output", output)
    assert refused.exit_code == 1
    assert "cleanSource" in refused.stderr
    for file in archive.rglob("*.parquet"):
        os.rename(file, inbox.directory / file.name)
    done("rollback", location, first, "--output", output, "--input-restored")
    run()
    assert rows_of(out) == ([(1,), (2,)] if how == "retract" else [(1,), (2,), (2,)])


def test_a_fork_shares_the_sink_of_its_origin_only_if_it_is_allowed_to(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    origin = start(totals(inbox.stream(spark)))
    origin.processAllAvailable()
    origin.stop(snapshot=True)
    inbox.add(flow(25, 41))
    fork = {"checkpointLocation": str(tmp_path / "fork"), "path": str(out)}
    done("fork", tmp_path / "checkpoint", "chk-" + newest(tmp_path / "checkpoint"), tmp_path / "fork")
    with pytest.raises(SinkError, match=r"sink-0 .* writes to where query .* writes.*allowSharedSink=true"):
        start(totals(inbox.stream(spark)), **fork)
    for _ in range(2):
        forked = start(totals(inbox.stream(spark)), allowSharedSink=True, **fork)
        forked.processAllAvailable()
        forked.stop()
        inbox.add(flow(41, 62)) if not _ else None
    assert forked.id != origin.id
    assert rows_of(out) == by_batch(spark, inbox, 60)
    with pytest.raises(SinkError, match="allowSharedSink=true"):
        start(totals(inbox.stream(spark)), **fork)


def newest(location: Path) -> str:
    listed = json.loads(penstock("list", location, "--json").stdout)["snapshots"]
    return str(listed[-1]["checkpoint"])


def test_an_archive_is_begun_from_and_never_run_and_a_moved_query_goes_on(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    location, archive = tmp_path / "checkpoint", tmp_path / "archive"
    a_query_that_wrote_behind_a_snapshot(spark, inbox, start)
    first = done("copy", location, archive)
    assert first["present"] == []
    assert done("copy", location, archive)["copied"] == []
    for options in (
        {"checkpointLocation": str(archive)},
        {"checkpointLocation": None, "startFrom": f"{archive}#good", "startMode": "claim"},
    ):
        with pytest.raises(LocationError, match="this is an archive"):
            start(totals(inbox.stream(spark)), **options)
    with pytest.raises(LocationError, match=r"say which with .*archive#<snapshot>: chk-"):
        start(totals(inbox.stream(spark)), startFrom=str(archive), checkpointLocation=str(tmp_path / "x"))
    calm = rows_of(out)
    fork = {"checkpointLocation": str(tmp_path / "fork"), "path": str(tmp_path / "theirs"), "parallelism": 2}
    forked = start(totals(inbox.stream(spark)), startFrom=f"{archive}#good", **fork)
    forked.processAllAvailable()
    forked.stop()
    theirs = rows_of(tmp_path / "theirs")
    assert theirs
    assert not Counter(theirs) - Counter(calm)

    moved = tmp_path / "moved"
    done("move", location, moved)
    with pytest.raises(LocationError, match="was moved to another one"):
        start(totals(inbox.stream(spark)), parallelism=2)
    inbox.add(flow(62, 81))
    again = start(totals(inbox.stream(spark)), checkpointLocation=str(moved), parallelism=2)
    again.processAllAvailable()
    again.stop()
    assert rows_of(out) == by_batch(spark, inbox, 80)
