"""``penstock.SnapshotWriter``: a query that starts from a written snapshot goes on as if it had read everything."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import ConfigError, DataError, LocationError
from penstock.snapshots.commands.verifying import verify_location
from tests.support.snapshots.spark_data_kit import Input, Start, as_set, read, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema([("user", pa.string()), ("value", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


def flow(first_s: int, last_s: int) -> list[dict[str, Any]]:
    return [
        {"user": None if s % 7 == 0 else f"u{s % 5}", "value": s, "at": BEGIN + timedelta(seconds=s)}
        for s in range(first_s, last_s)
    ]


def totals(df: DataFrame) -> DataFrame:
    return df.groupBy("user").agg(F.count("*").alias("n"), F.sum("value").alias("total"), F.avg("value").alias("mean"))


def windows(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"), "user")
    return grouped.agg(F.max("value").alias("most"), F.count("*").alias("n"))


def totals_state(history: DataFrame) -> DataFrame:
    return history.groupBy("user").agg(
        F.count("*").alias("__a0_count"),
        F.sum("value").alias("__a1_sum"),
        F.lit(True).alias("__a1_seen"),
        F.sum(F.col("value").cast("double")).alias("__a2_sum"),
        F.count("value").alias("__a2_count"),
    )


def last_by_user(rows: list[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {row["user"]: row for row in rows}


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "in", SCHEMA)


@pytest.mark.parametrize(("parallelism", "mode"), [(1, "complete"), (3, "update")])
def test_an_aggregation_is_bootstrapped_from_history(
    spark: SparkSession, source: Input, tmp_path: Path, start: Start, parallelism: int, mode: str
) -> None:
    source.add(flow(1000, 1040))
    history = spark.createDataFrame(flow(0, 1000), "user string, value long, at timestamp")
    df = totals(source.stream(spark))
    writer = penstock.SnapshotWriter.from_plan(df, mode, parallelism=parallelism, max_parallelism=32)
    assert writer.tables == ["aggregate-0/groups"]
    assert writer.schema("aggregate-0/groups").names == totals_state(history).columns
    writer.with_state("aggregate-0/groups", totals_state(history)).write(str(tmp_path / "made"), label="history")
    assert verify_location(str(tmp_path / "made")).damage == []
    line = read(spark, tmp_path / "made").collect()[0]
    assert (line.id, line.label, line.kind, line.state_rows) == ("chk-1", "history", "requested", 6)
    settings = {"checkpointLocation": str(tmp_path / "made"), "maxParallelism": 32, "outputMode": mode}
    query = start(df, **settings, format="memory", queryName=f"t{parallelism}", parallelism=None)
    query.processAllAvailable()
    expected = totals(spark.createDataFrame(flow(0, 1040), "user string, value long, at timestamp"))
    assert as_set(spark.table(f"t{parallelism}")) == as_set(expected), "every user has new input"


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_files_that_history_was_made_from_are_not_read_again(
    spark: SparkSession, tmp_path: Path, start: Start, form: str
) -> None:
    folder = tmp_path / "in put"  # inputFiles() tells it percent-encoded

    def add(rows: list[dict[str, Any]]) -> None:
        spark.createDataFrame(rows, "user string, value long").coalesce(1).write.mode("append").format(form).save(
            str(folder)
        )

    def of(first: int, last: int) -> list[dict[str, Any]]:
        return [{"user": row["user"], "value": row["value"]} for row in flow(first, last)]

    schema = "user string, value long"
    add(of(0, 100))
    history = spark.read.schema(schema).format(form).load(str(folder))
    state, files = totals_state(history), history.inputFiles()
    state = spark.createDataFrame(state.collect(), state.schema)  # Spark would look at the folder again
    add(of(100, 140))
    df = totals(spark.readStream.schema(schema).format(form).load(str(folder)))
    writer = penstock.SnapshotWriter.from_plan(df, "update", parallelism=2)
    assert writer.sources == ["source-0"]
    writer.with_state("aggregate-0/groups", state).with_position("source-0", files).write(str(tmp_path / "made"))
    query = start(
        df, checkpointLocation=str(tmp_path / "made"), outputMode="update", format="memory", queryName=f"behind_{form}"
    )
    query.processAllAvailable()
    assert query.lastProgress["numInputRows"] <= 40
    expected = last_by_user([row.asDict() for row in totals(spark.createDataFrame(of(0, 140), schema)).collect()])
    assert last_by_user([row.asDict() for row in spark.table(f"behind_{form}").collect()]) == expected


def test_positions_that_a_source_cannot_have_are_refused(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    source.add(flow(0, 10))
    writer = penstock.SnapshotWriter.from_plan(totals(source.stream(spark)), "update")
    strange = tmp_path / "strange.parquet"
    strange.write_bytes(b"")
    for position, message in (
        ({"topic": {"0": 1}}, "give a list of paths for files"),
        ("/in/a.parquet", "give a list of paths for files"),
        ([str(strange)], f"does not read {strange}"),
        ([f"{strange}.gone"], "cannot have read .*gone"),
    ):
        with pytest.raises(ConfigError, match=message):
            writer.with_position("source-0", position)
    with pytest.raises(ConfigError, match=r"no source 'source-9'.*there are: source-0"):
        writer.with_position("source-9", [])
    rate = penstock.SnapshotWriter.from_plan(spark.readStream.format("rate").load())
    with pytest.raises(ConfigError, match="has no position to begin at"):
        rate.with_position(rate.sources[0], [])


def test_windows_are_bootstrapped_with_the_watermark_of_their_history(
    spark: SparkSession, source: Input, tmp_path: Path, start: Start
) -> None:
    before, after = flow(0, 48), flow(40, 42) + flow(50, 95) + [flow(3, 4)[0]]  # some late, some just in time
    source.add(after)
    df = windows(source.stream(spark))
    reached = BEGIN + timedelta(seconds=47 - 5)
    history = spark.createDataFrame(before, "user string, value long, at timestamp")
    open_windows = (
        history.groupBy(F.window("at", "10 seconds"), "user")
        .agg(F.max("value").alias("__a0_max"), F.count("*").alias("__a1_count"))
        .where(F.col("window.end") > F.lit(reached))
    )
    writer = penstock.SnapshotWriter.from_plan(df, parallelism=2, watermark=reached)
    writer.with_state("aggregate-0/groups", open_windows).write(str(tmp_path / "made"))
    marks = read(spark, tmp_path / "made", view="scalars").where("name = 'watermark_us'").collect()
    assert [(row.subtask, int(row.value)) for row in marks] == [(n, int(reached.timestamp() * 1e6)) for n in range(2)]
    query = start(df, checkpointLocation=str(tmp_path / "made"), parallelism=3)
    query.processAllAvailable()
    query.stop()

    whole = Input(tmp_path / "whole", SCHEMA)
    whole.add(before)
    reference = start(
        windows(whole.stream(spark)), checkpointLocation=str(tmp_path / "other"), path=str(tmp_path / "all")
    )
    reference.processAllAvailable()
    whole.add(after)
    reference.processAllAvailable()
    reference.stop()
    closed = [row for row in rows_in(tmp_path / "all") if row["window"]["end"] <= reached]
    expected = [row for row in rows_in(tmp_path / "all") if row not in closed]
    assert closed
    assert expected
    assert sorted(rows_in(tmp_path / "out"), key=repr) == sorted(expected, key=repr)


def test_one_key_is_repaired_one_dropped_one_added(
    spark: SparkSession, source: Input, tmp_path: Path, start: Start
) -> None:
    source.add(flow(0, 100))
    df = totals(source.stream(spark))
    query = start(df, parallelism=2, outputMode="update", format="noop")
    query.processAllAvailable()
    query.snapshot(label="wrong")
    query.stop()
    state = read(spark, tmp_path / "checkpoint", snapshot="wrong", state="aggregate-0/groups")
    repaired = state.where("user is null or user != 'u3'").withColumn(
        "__a0_count", F.when(F.col("user") == "u1", F.lit(7_000).cast("long")).otherwise(F.col("__a0_count"))
    )
    added = repaired.limit(1).withColumn("user", F.lit("new")).withColumn("__a0_count", F.lit(500).cast("long"))
    writer = penstock.SnapshotWriter.from_snapshot(str(tmp_path / "checkpoint"), "wrong")
    writer.with_state("aggregate-0/groups", repaired.union(added)).write(str(tmp_path / "fixed"))
    assert verify_location(str(tmp_path / "fixed")).damage == []
    source.add([{"user": user, "value": 1, "at": BEGIN} for user in ("u1", "u2", "u3", "new", None)])
    settings = {"outputMode": "update", "format": "memory", "queryName": "repaired"}
    again = start(df, startFrom=str(tmp_path / "fixed"), checkpointLocation=str(tmp_path / "next"), **settings)
    again.processAllAvailable()
    counts = {row.user: row.n for row in spark.table("repaired").collect()}
    before = {row.user: row.n for row in totals(source.batch(spark)).collect()}
    assert counts == {"u1": 7_001, "u2": before["u2"], "u3": 1, "new": 501, None: before[None]}
    assert again.generation == 2


def test_rows_that_say_so_are_handed_on_without_input(
    spark: SparkSession, source: Input, tmp_path: Path, start: Start
) -> None:
    source.add(flow(0, 10)[:0])
    df = totals(source.stream(spark))
    state = totals_state(spark.createDataFrame(flow(0, 50), "user string, value long, at timestamp"))
    writer = penstock.SnapshotWriter.from_plan(df, "update", parallelism=2)
    writer.with_state("aggregate-0/groups", state.withColumn("__changed", F.expr("user <=> 'u2'")))
    writer.write(str(tmp_path / "made"))
    query = start(df, checkpointLocation=str(tmp_path / "made"), outputMode="update", format="memory", queryName="told")
    query.processAllAvailable()
    query.snapshot()
    query.processAllAvailable()
    assert [row.user for row in spark.table("told").collect()] == ["u2"]


def test_a_renamed_operator_finds_its_state(spark: SparkSession, source: Input, tmp_path: Path, start: Start) -> None:
    source.add(flow(0, 60))
    query = start(totals(source.stream(spark)), parallelism=3, outputMode="update", format="noop")
    query.processAllAvailable()
    query.snapshot()
    query.stop()
    writer = penstock.SnapshotWriter.from_snapshot(str(tmp_path / "checkpoint"))
    writer.rename_operator("aggregate-0", "by-user").rename_operator("source-0", "clicks")
    assert writer.tables == ["by-user/groups"]
    writer.write(str(tmp_path / "renamed"))
    source.add(flow(60, 100))
    df = penstock.named(totals(penstock.named(source.stream(spark), "clicks")), "by-user")
    settings = {"outputMode": "update", "format": "memory", "queryName": "renamed", "parallelism": None}
    again = start(df, checkpointLocation=str(tmp_path / "renamed"), **settings)
    again.processAllAvailable()
    assert as_set(spark.table("renamed")) == as_set(totals(source.batch(spark)))


def test_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, source: Input, tmp_path: Path
) -> None:
    source.add(flow(0, 5))
    df = totals(source.stream(spark))
    state = totals_state(source.batch(spark))
    target = tmp_path / "made"
    name = "aggregate-0/groups"

    def refused(expected: str, frame: DataFrame, table: str = name) -> None:
        with pytest.raises(ConfigError, match=expected):
            penstock.SnapshotWriter.from_plan(df, "update").with_state(table, frame).write(str(target))
        assert not target.exists()

    refused("no state table 'sums'; there are: aggregate-0/groups", state, "sums")
    refused("__a1_seen boolean is missing.*It needs: user string, __a0_count bigint", state.drop("__a1_seen"))
    refused("user is bigint instead of string", state.withColumn("user", F.lit(1).cast("long")))
    refused("total is no column of it", state.withColumn("total", F.lit(1)))
    refused("not a streaming one", source.stream(spark))
    with pytest.raises(ConfigError, match="no operator 'nobody'"):
        penstock.SnapshotWriter.from_plan(df, "update").rename_operator("nobody", "x")
    with pytest.raises(ConfigError, match="an operator 'source-0' already"):
        penstock.SnapshotWriter.from_plan(df, "update").rename_operator("aggregate-0", "source-0")
    with pytest.raises(ConfigError, match="has no watermark"):
        penstock.SnapshotWriter.from_plan(df, "update", watermark=BEGIN)


def test_rows_that_are_no_table_leave_nothing_behind(spark: SparkSession, source: Input, tmp_path: Path) -> None:
    source.add(flow(0, 50))
    df = totals(source.stream(spark))
    state = totals_state(source.batch(spark))
    target = tmp_path / "made"

    def refused(expected: str, frame: DataFrame) -> None:
        writer = penstock.SnapshotWriter.from_plan(df, "update").with_state("aggregate-0/groups", frame)
        with pytest.raises(DataError, match=expected):
            writer.write(str(target))
        assert [path for path in target.rglob("*") if path.is_file()] == []

    refused(r"two rows have the key \((None|'u1')\)", state.union(state.where("user is null or user = 'u1'")))
    refused("column __a0_count has a null", state.withColumn("__a0_count", F.lit(None).cast("long")))
    penstock.SnapshotWriter.from_plan(df, "update").with_state("aggregate-0/groups", state).write(str(target))
    with pytest.raises(LocationError, match="is in use"):
        penstock.SnapshotWriter.from_plan(df, "update").write(str(target))
    assert as_set(read(spark, target, state="aggregate-0/groups").drop("key_group")) == as_set(state)
