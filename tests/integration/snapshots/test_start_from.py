"""``startFrom``: a query that begins with a snapshot of another one, or goes on with one that has to be there."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import ConfigError, CorruptSnapshot, LocationError, PenstockError, PlanChanged, SinkError
from penstock.model.manifest import SnapshotMetadata
from penstock.snapshots.portable.export import export_snapshot
from tests.integration.sources.test_spark_bridge import MemoryStream, values
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def totals(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.sum("value").alias("total")).select("window.start", "key", "total")


def flow(first_s: int, last_s: int) -> list[tuple[int, int, float]]:
    return [(second % 3, second, float(second)) for second in range(first_s, last_s)]


def by_batch(spark: SparkSession, inbox: Inbox, before_s: int) -> list[tuple[object, ...]]:
    rows = totals(spark.read.schema(SCHEMA).parquet(str(inbox.directory))).where(f"unix_timestamp(start) < {before_s}")
    return sorted((tuple(row.values()) for row in rows.toArrow().to_pylist()), key=repr)


def a_fork_in(directory: Path) -> dict[str, str]:
    """A location and an output of its own."""
    return {"checkpointLocation": str(directory / "fork"), "path": str(directory / "theirs")}


def files_below(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_a_fork_goes_on_by_itself_and_its_origin_may_be_deleted(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    location, fork, theirs = tmp_path / "checkpoint", str(tmp_path / "fork"), tmp_path / "theirs"
    inbox.add(flow(0, 25))
    origin = start(totals(inbox.stream(spark)), parallelism=2)
    origin.processAllAvailable()
    snapshot = origin.snapshot(label="before")
    already = rows_of(out)
    assert already
    inbox.add(flow(25, 41))
    origin.processAllAvailable()
    settings = {"startFrom": f"{location}#before", "checkpointLocation": fork, "path": str(theirs), "parallelism": None}
    forked = start(totals(inbox.stream(spark)), **settings)
    forked.processAllAvailable()
    assert forked.id != origin.id
    assert forked.generation == snapshot.generation + 1
    assert Counter(rows_of(out)) == Counter(already) + Counter(rows_of(theirs)), "the origin was not stopped"
    origin.stop()
    shutil.rmtree(location)
    forked.snapshot()
    forked.stop()
    inbox.add(flow(41, 71))
    again = start(totals(inbox.stream(spark)), **settings)
    again.processAllAvailable()
    assert again.id == forked.id, "it went on; the origin is not asked any more"
    assert sorted([*already, *rows_of(theirs)], key=repr) == by_batch(spark, inbox, 70)


def test_rows_in_flight_go_along_and_all_forks_are_alike_also_from_a_portable_snapshot(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    gate = tmp_path / "open"

    def slowly(value: int) -> int:
        import os
        import time

        if not os.path.exists(gate):
            time.sleep(0.002)
        return value

    rows = inbox.stream(spark).repartition("key")
    df = rows.select("key", F.udf(slowly, "bigint", useArrow=False)("value").alias("value"))
    inbox.add([(n % 7, n, 0.0) for n in range(5000)])
    origin = start(df, **{"parallelism": 2, "checkpoint.interval": "10m", "exchange.flushInterval": "1ms"})

    def in_flight() -> int:
        taken.append(origin.snapshot(label=f"stuck-{len(taken)}", alignment="unaligned"))
        return sum(e.rows for slot in taken[-1].slots for subtask in slot.subtasks for e in subtask.inflight)

    taken: list[SnapshotMetadata] = []
    eventually(lambda: in_flight() > 0, "rows in flight", 60)
    eventually(lambda: origin.view().committed_epoch == taken[-1].checkpoint, "its commit")
    origin.stop()
    gate.touch()
    already = rows_of(out)
    native, portable = f"{tmp_path}/checkpoint", str(tmp_path / "portable")
    export_snapshot(native, taken[-1].id, portable)
    for name, origin_, parallelism in (
        ("one", f"{native}#{taken[-1].label}", None),
        ("two", f"{native}#{taken[-1].label}", None),
        ("three", portable, None),
        ("four", f"{portable}#{taken[-1].label}", 3),
    ):
        settings = {
            "checkpointLocation": str(tmp_path / f"{name}-c"),
            "path": str(tmp_path / name),
            "parallelism": parallelism,
        }
        forked = start(df, startFrom=origin_, **settings)
        assert forked.parallelism == (parallelism or 2)
        forked.processAllAvailable()
        forked.stop()
        again = start(df, startFrom=origin_, **settings)
        assert again.id == forked.id, "the script is run again as it is"
        again.stop()
        assert sorted(value for _, value in [*already, *rows_of(tmp_path / name)]) == list(range(5000))


def test_a_fork_of_the_spark_source_bridge_takes_its_staged_rows_along(
    spark: SparkSession, tmp_path: Path, out: Path, start: Start
) -> None:
    checkpoint, fork, gate = tmp_path / "checkpoint", tmp_path / "fork", tmp_path / "open"

    def slowly(value: int) -> int:
        import os
        import time

        if not os.path.exists(gate):
            time.sleep(0.05)
        return value

    def staged(place: Path) -> list[Path]:
        return list(place.glob("lane/*/*/part-*.parquet"))

    memory = MemoryStream(spark)
    memory.add(*range(600))  # half a minute's work, behind which the next range waits
    df = memory.frame().select(F.udf(slowly, "bigint", useArrow=False)("value").alias("value"))
    origin = start(df, parallelism=1)
    eventually(lambda: bool(staged(checkpoint)), "a staged range", 60)
    first = set(staged(checkpoint))
    memory.add(*range(600, 610))
    eventually(lambda: bool(set(staged(checkpoint)) - first), "another one", 60)
    origin.snapshot(alignment="unaligned")
    origin.stop()
    gate.touch()
    already = values(out)
    settings = {"checkpointLocation": str(fork), "path": str(tmp_path / "theirs"), "parallelism": None}
    forked = start(df, startFrom=str(checkpoint), **settings)
    assert staged(fork), "rows that nobody had read yet"
    shutil.rmtree(checkpoint)
    forked.processAllAvailable()
    assert sorted([*already, *values(tmp_path / "theirs")]) == list(range(610))


def test_a_damaged_snapshot_is_left_by_its_portable_form_as_the_error_says(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    origin = start(totals(inbox.stream(spark)))
    origin.processAllAvailable()
    assert origin.stop(snapshot=True, format="portable") is not None
    already = rows_of(out)
    for path in (tmp_path / "checkpoint" / "data").glob("*-state.*"):
        path.write_bytes(b"damaged")
    with pytest.raises(CorruptSnapshot, match="portable form") as refused:
        start(totals(inbox.stream(spark)))
    way_out = str(refused.value).rpartition("startFrom=")[2]
    inbox.add(flow(25, 71))
    forked = start(totals(inbox.stream(spark)), startFrom=way_out, **a_fork_in(tmp_path))
    forked.processAllAvailable()
    assert sorted([*already, *rows_of(tmp_path / "theirs")], key=repr) == by_batch(spark, inbox, 70)


def test_a_claim_goes_on_with_the_query_that_is_there(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    first = start(totals(inbox.stream(spark)))
    first.processAllAvailable()
    first.snapshot(label="old")
    new = first.stop(snapshot=True)  # the newest one, whatever the interval does meanwhile
    assert new is not None
    inbox.add(flow(25, 41))
    place = str(tmp_path / "checkpoint")
    with pytest.raises(LocationError, match=rf"goes on from {new.id}.*startMode=fork"):
        start(totals(inbox.stream(spark)), startFrom=f"{place}#old", startMode="claim", checkpointLocation=None)
    again = start(
        totals(inbox.stream(spark)), startFrom=f"{place}#{new.id}", startMode="claim", checkpointLocation=place
    )
    again.processAllAvailable()
    again.stop()
    assert again.id == first.id
    assert rows_of(out) == by_batch(spark, inbox, 40)
    writer = penstock.writeStream(totals(inbox.stream(spark))).option("startFrom", place).option("startMode", "claim")
    third = writer.start(str(out), parallelism=1)
    assert third.id == first.id
    third.stop()


def test_a_claim_of_nothing_does_not_begin_anew(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 5))
    with pytest.raises(LocationError, match="there is no such folder"):
        start(inbox.stream(spark), startFrom=str(tmp_path / "mistyped"), startMode="claim", checkpointLocation=None)
    assert not (tmp_path / "mistyped").exists()


def test_what_does_not_go_together_is_refused(spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start) -> None:
    inbox.add(flow(0, 5))
    df = inbox.stream(spark)
    here, there = str(tmp_path / "checkpoint"), str(tmp_path / "there")
    for options, message in (
        ({"startMode": "fork"}, "says nothing without startFrom"),
        ({"startFrom": there, "startMode": "steal"}, "choose fork, claim or drain"),
        ({"startFrom": "#chk-1"}, "write <location> or <location>#<snapshot>"),
        ({"startFrom": here}, "a fork needs one of its own"),
        ({"startFrom": f"file://{here}#chk-1"}, "a fork needs one of its own"),
        ({"startFrom": there, "startMode": "claim"}, "leave checkpointLocation .* out"),
    ):
        with pytest.raises(ConfigError, match=message):
            start(df, **options)
    assert not (tmp_path / "checkpoint").exists()


def test_a_refused_fork_leaves_nothing(
    spark: SparkSession, inbox: Inbox, out: Path, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    origin = start(totals(inbox.stream(spark)), parallelism=2)
    origin.processAllAvailable()
    origin.snapshot(label="kept")
    origin.stop()
    place, fork, portable = str(tmp_path / "checkpoint"), tmp_path / "fork", str(tmp_path / "portable")
    export_snapshot(place, "kept", portable)
    (tmp_path / "empty").mkdir()
    (tmp_path / "sparks" / "offsets").mkdir(parents=True)
    (tmp_path / "sparks" / "metadata").touch()
    other = totals(inbox.stream(spark).withColumn("value", F.col("value").cast("double")))
    same = totals(inbox.stream(spark))
    cleaning = totals(spark.readStream.schema(SCHEMA).option("cleanSource", "delete").parquet(str(inbox.directory)))
    refused: list[tuple[DataFrame, dict[str, object], type[PenstockError], str]] = [
        (same, {"startFrom": str(tmp_path / "nowhere")}, LocationError, "there is no such folder"),
        (same, {"startFrom": str(tmp_path / "empty")}, LocationError, "is empty"),
        (same, {"startFrom": str(tmp_path / "in")}, LocationError, "files that are not Penstock's"),
        (same, {"startFrom": str(tmp_path / "in" / "in-0000.parquet")}, LocationError, "Not a directory"),
        (same, {"startFrom": str(tmp_path / "sparks")}, LocationError, "Spark's own Structured Streaming"),
        (same, {"startFrom": f"{place}#chk-999"}, LocationError, r"no snapshot 'chk-999'.*\('kept'\)"),
        (other, {"startFrom": place}, PlanChanged, r"(?s)startFrom .*state of"),
        (cleaning, {"startFrom": place}, LocationError, "cleanSource takes files away that are read; leave it off"),
        (same, {"startFrom": place, "maxParallelism": 64}, LocationError, "taken with maxParallelism 128"),
        (same, {"startFrom": place, "path": str(out)}, SinkError, "writes to where query .* writes, of which"),
        (same, {"startFrom": f"{portable}#mine"}, LocationError, r"no snapshot 'mine'.*\('kept'\)"),
        (other, {"startFrom": portable}, PlanChanged, r"(?s)startFrom .*state of"),
        (cleaning, {"startFrom": portable}, LocationError, "cleanSource takes files away that are read; leave it off"),
        (same, {"startFrom": portable, "maxParallelism": 64}, LocationError, "taken with maxParallelism 128"),
        (same, {"startFrom": portable, "path": str(out)}, SinkError, "writes to where query .* writes, of which"),
        (
            same,
            {"startFrom": portable, "startMode": "claim", "checkpointLocation": None},
            LocationError,
            "is a portable",
        ),
    ]
    for df, options, kind, message in refused:
        settings = {"checkpointLocation": str(fork), "path": str(tmp_path / "theirs"), "parallelism": 2} | options
        with pytest.raises(kind, match=message):
            start(df, **settings)
        assert files_below(fork) == []
    forked = start(same, startFrom=place, checkpointLocation=str(fork), path=str(tmp_path / "theirs"), parallelism=2)
    forked.processAllAvailable()


def test_a_location_that_is_in_use_does_not_become_a_fork(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    for name in ("a", "b", "c"):
        query = start(
            totals(inbox.stream(spark)), checkpointLocation=str(tmp_path / name), path=str(tmp_path / f"o{name}")
        )
        query.processAllAvailable()
        for label in ("one", "two"):
            query.snapshot(label=label)
        query.stop()

    def fork(origin: str, to: str) -> None:
        start(
            totals(inbox.stream(spark)),
            startFrom=str(tmp_path / origin),
            checkpointLocation=str(tmp_path / to),
            path=str(tmp_path / f"o{to}"),
        ).stop()

    with pytest.raises(LocationError, match="holds a query that did not start from a snapshot"):
        fork("a", "b")
    fork("a#one", "fork")
    fork("a", "fork")
    fork("a#one", "fork")
    with pytest.raises(LocationError, match=r"started from chk-\d+ \('one'\)"):
        fork("a#two", "fork")
    with pytest.raises(LocationError, match="begun as a fork of query"):
        fork("c", "fork")


def test_a_query_that_takes_its_input_away_cannot_be_forked(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    reader = spark.readStream.schema(SCHEMA).option("cleanSource", "delete")
    query = start(totals(reader.parquet(str(inbox.directory))))
    query.processAllAvailable()
    query.snapshot()
    query.stop()
    with pytest.raises(LocationError, match=r"source-0 .* takes its input away .*fork this"):
        start(totals(inbox.stream(spark)), startFrom=str(tmp_path / "checkpoint"), **a_fork_in(tmp_path))
    assert files_below(tmp_path / "fork") == []


def test_a_refused_start_does_not_stop_the_fork_that_runs(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    query = start(totals(inbox.stream(spark)))
    query.processAllAvailable()
    query.snapshot(label="one")
    query.snapshot(label="two")
    settings = a_fork_in(tmp_path)
    forked = start(totals(inbox.stream(spark)), startFrom=f"{tmp_path}/checkpoint#one", **settings)
    with pytest.raises(LocationError, match="started from chk"):
        start(totals(inbox.stream(spark)), startFrom=f"{tmp_path}/checkpoint#two", **settings)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        writer = penstock.writeStream(totals(inbox.stream(spark))).format("noop").queryName("checkpoint")
        with pytest.raises(ConfigError, match="a fork needs one of its own"):
            writer.option("startFrom", str(tmp_path / "checkpoint")).start(parallelism=1)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert query.isActive
    assert forked.isActive


def test_a_drained_query_cannot_be_forked(spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start) -> None:
    inbox.add(flow(0, 25))
    query = start(totals(inbox.stream(spark)))
    query.stop(drain=True)
    with pytest.raises(LocationError, match="was drained"):
        start(totals(inbox.stream(spark)), startFrom=str(tmp_path / "checkpoint"), **a_fork_in(tmp_path))
    assert files_below(tmp_path / "fork") == []


def test_a_fork_into_a_console_needs_no_location(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    inbox.add(flow(0, 25))
    query = start(totals(inbox.stream(spark)))
    query.processAllAvailable()
    query.snapshot()
    query.stop()
    inbox.add(flow(25, 41))
    writer = penstock.writeStream(totals(inbox.stream(spark))).format("memory").queryName("tried_out")
    tried = writer.option("startFrom", str(tmp_path / "checkpoint")).start(parallelism=1)
    try:
        tried.processAllAvailable()
        assert spark.table("tried_out").count() == 6
    finally:
        tried.stop()
