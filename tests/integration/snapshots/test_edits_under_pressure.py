"""An edit changes an exchange under full backpressure: the old query is drained, and the new one loses nothing."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import CheckpointFailed, ConfigError, LocationError, PlanChanged
from penstock.model.manifest import SnapshotMetadata
from penstock.queries.streaming_query import StreamingQuery
from penstock.snapshots.catalog import Catalog
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.store.store import LocalStore
from tests.support.queries.query_running import SCHEMA, Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 30_000
COST_US = 100


@pytest.fixture
def cost(tmp_path: Path, inbox: Inbox) -> Path:
    """A file with the microseconds that a row takes. All rows are there."""
    inbox.add((number % 7, number, float(number)) for number in range(ROWS))
    path = tmp_path / "cost"
    path.write_text(str(COST_US))
    return path


def slowly(df: DataFrame, cost: Path) -> DataFrame:
    path = str(cost)

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(path) as file:
                time.sleep(batch.num_rows * float(file.read() or 0) / 1e6)
            yield batch

    return df.mapInArrow(wait, df.schema)


def before(df: DataFrame, cost: Path) -> DataFrame:
    return slowly(df.select("key", "value").repartition(2, "key"), cost).select("value")


def after(df: DataFrame, cost: Path) -> DataFrame:
    """The exchange has one more column, which rows in flight lack."""
    return slowly(df.selectExpr("key", "value", "value * 2 AS more").repartition(2, "key"), cost).select("value")


def under_pressure(query: StreamingQuery) -> None:
    eventually(lambda: query.view().inflight_bytes > 100_000, "full queues")


def newest(location: Path) -> SnapshotMetadata:
    store = LocalStore(location)
    return Catalog(store).read(SnapshotLog(store).refresh().lineage[-1])


def in_flight(metadata: SnapshotMetadata) -> int:
    return sum(entry.rows for slot in metadata.slots for subtask in slot.subtasks for entry in subtask.inflight)


def goes_on_edited(spark: SparkSession, inbox: Inbox, cost: Path, out: Path, start: Start) -> None:
    cost.write_text("0")
    query = start(after(inbox.stream(spark), cost))
    query.processAllAvailable()
    assert [value for (value,) in sorted(rows_of(out))] == list(range(ROWS))


def test_a_stop_with_nothing_in_flight(
    spark: SparkSession, inbox: Inbox, cost: Path, out: Path, tmp_path: Path, start: Start
) -> None:
    query = start(before(inbox.stream(spark), cost))
    under_pressure(query)
    taken = query.stop(snapshot=True, inflight="drain")
    assert taken is not None
    assert in_flight(taken) == 0
    assert newest(tmp_path / "checkpoint").id == taken.id
    goes_on_edited(spark, inbox, cost, out, start)


def test_the_old_query_is_drained_from_its_unaligned_snapshot(
    spark: SparkSession, inbox: Inbox, cost: Path, out: Path, tmp_path: Path, start: Start
) -> None:
    location = tmp_path / "checkpoint"
    query = start(before(inbox.stream(spark), cost))
    under_pressure(query)
    query.setCheckpoints(alignment="unaligned")
    older = query.snapshot(alignment="unaligned")
    taken = query.stop(snapshot=True)
    assert taken is not None
    assert in_flight(taken) > 0
    with pytest.raises(PlanChanged, match=r"(?s)rows in flight.*startMode=drain"):
        start(after(inbox.stream(spark), cost))
    cost.write_text("10")
    with pytest.raises(LocationError, match=rf"goes on from {taken.id}"):
        start(
            before(inbox.stream(spark), cost),
            checkpointLocation=None,
            startFrom=f"{location}#{older.id}",
            startMode="drain",
        )
    old = start(before(inbox.stream(spark), cost), checkpointLocation=None, startFrom=str(location), startMode="drain")
    old.awaitTermination()
    assert in_flight(newest(location)) == 0
    goes_on_edited(spark, inbox, cost, out, start)


def test_a_portable_snapshot_is_drained_in_a_location_of_its_own(
    spark: SparkSession, inbox: Inbox, cost: Path, tmp_path: Path, start: Start
) -> None:
    query = start(before(inbox.stream(spark), cost), **{"checkpoint.alignment": "unaligned"})
    under_pressure(query)
    taken = query.stop(snapshot=True, format="portable")
    assert taken is not None
    assert in_flight(taken) > 0
    portable, fork, out = tmp_path / "checkpoint/portable" / taken.id, tmp_path / "fork", tmp_path / "forked"
    given = {"checkpointLocation": str(tmp_path / "edited"), "startFrom": str(portable), "path": str(out)}
    with pytest.raises(
        PlanChanged, match=r"(?s)a portable one, make a location of its own with 'penstock snapshot fork'"
    ):
        start(after(inbox.stream(spark), cost), **given)
    cost.write_text("10")
    said = CliRunner().invoke(app, ["snapshot", "fork", str(portable), taken.id, str(fork)], prog_name="penstock")
    assert said.exit_code == 0, said.output
    old = before(inbox.stream(spark), cost)
    start(old, checkpointLocation=None, startFrom=str(fork), startMode="drain", path=str(out)).awaitTermination()
    assert in_flight(newest(fork)) == 0
    cost.write_text("0")
    query = start(after(inbox.stream(spark), cost), checkpointLocation=str(fork), path=str(out))
    query.processAllAvailable()
    found = [value for (value,) in rows_of(out)]
    assert sorted([*found, *(value for (value,) in rows_of(tmp_path / "out"))]) == list(range(ROWS))


def test_the_command_line_drains_with_the_users_program(
    spark: SparkSession, inbox: Inbox, cost: Path, out: Path, tmp_path: Path, start: Start
) -> None:
    location = tmp_path / "checkpoint"
    job = tmp_path / "old_job.py"
    job.write_text(
        "import penstock\n"
        "from pathlib import Path\n"
        "from tests.integration.snapshots.test_edits_under_pressure import before\n"
        "def build(spark):\n"
        f"    rows = spark.readStream.schema({SCHEMA!r}).parquet({str(inbox.directory)!r})\n"
        f"    writer = penstock.writeStream(before(rows, Path({str(cost)!r})))\n"
        f"    return writer.format('parquet').option('path', {str(out)!r}).option('parallelism', 1)\n"
        "def frame(spark):\n"
        "    return spark.range(3)\n"
    )

    def drained(*words: str) -> tuple[int, str]:
        said = CliRunner().invoke(app, ["snapshot", "drain", *words], prog_name="penstock")
        return said.exit_code, said.output

    query = start(before(inbox.stream(spark), cost))
    under_pressure(query)
    assert drained(str(location), "--query", f"{job}:build")[0] == 1, "it runs"
    taken = query.stop(snapshot=True)
    assert taken is not None
    code, said = drained(str(location), "--query", f"{job}:frame")
    assert (code, "it must return a writer" in said) == (2, True), said
    assert drained(f"{location}#chk-77", "--query", f"{job}:build")[0] == 1
    assert drained(str(tmp_path / "nothing"), "--query", f"{job}:build")[0] == 1
    cost.write_text("10")
    code, said = drained(f"{location}#{taken.id}", "--query", f"{job}:build", "--json")
    assert code == 0, said
    assert json.loads(said) == {"snapshot": newest(location).id}
    assert in_flight(newest(location)) == 0
    goes_on_edited(spark, inbox, cost, out, start)


def test_what_does_not_go_together(spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start) -> None:
    inbox.add([(1, 1, 1.0)])
    query = start(inbox.stream(spark).select("value"))
    for wrong in ({"inflight": "drain"}, {"snapshot": True, "inflight": "keep"}, {"drain": True, "inflight": "drain"}):
        with pytest.raises(ConfigError, match=r"say 'drain', with snapshot=True"):
            query.stop(**wrong)
    assert query.isActive
    query.stop()
    with pytest.raises(CheckpointFailed, match="not running"):
        query.stop(snapshot=True, inflight="drain")
    with pytest.raises(ConfigError, match="startMode=drain says nothing without startFrom"):
        start(inbox.stream(spark).select("value"), startMode="drain")
    with pytest.raises(LocationError):
        start(
            inbox.stream(spark).select("value"),
            checkpointLocation=None,
            startFrom=str(tmp_path / "nothing"),
            startMode="drain",
        )
    assert not (tmp_path / "nothing").exists()


def with_pid(df: DataFrame, cost: Path) -> DataFrame:
    """Slowly, and with the process that did it."""
    path = str(cost)

    def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with open(path) as file:
                time.sleep(batch.num_rows * float(file.read() or 0) / 1e6)
            pids = pa.array([os.getpid()] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays([*batch.columns, pids], names=[*batch.schema.names, "pid"])

    return df.mapInArrow(told, "key bigint, value bigint, bucket bigint, at timestamp, pid bigint")


def totals(rows: DataFrame, cost: Path, *spread_by: str) -> DataFrame:
    path = str(cost)

    def wait(values: pd.Series) -> pd.Series:
        with open(path) as file:
            slow = len(values) + 20 * int((values % 7 == 0).sum())  # so that one subtask falls behind
            time.sleep(slow * float(file.read() or 0) / 1e6)
        return values

    timed = rows.selectExpr("key", "value", "value % 5 AS bucket", "at").withWatermark("at", "0 seconds")
    told = timed.repartition(2, *spread_by).withColumn("value", F.pandas_udf(wait, "bigint")("value"))
    grouped = told.groupBy(F.window("at", "100 seconds"), "bucket")
    return grouped.agg(F.sum("value"), F.count("value")).drop("window")


def test_rows_in_flight_go_on_over_an_exchange_with_other_keys(
    spark: SparkSession, inbox: Inbox, cost: Path, tmp_path: Path, start: Start
) -> None:
    rows = inbox.stream(spark).selectExpr("key", "value", "value % 5 AS bucket", "at")
    old, new = tmp_path / "old", tmp_path / "new"
    query = start(with_pid(rows.repartition(2, "key"), cost), path=str(old), parallelism=2)
    under_pressure(query)
    taken = query.stop(snapshot=True)
    assert taken is not None
    assert in_flight(taken) > 1_000
    cost.write_text("0")
    query = start(with_pid(rows.repartition(2, "bucket"), cost), path=str(new), parallelism=2)
    query.processAllAvailable()
    query.stop()
    assert sorted(row[1] for row in [*rows_of(old), *rows_of(new)]) == list(range(ROWS))
    pids: dict[int, set[int]] = {}
    for _, _, bucket, _, pid in rows_of(new):
        pids.setdefault(bucket, set()).add(pid)
    assert {len(found) for found in pids.values()} == {1}, "each bucket has one owner"
    assert len(set.union(*pids.values())) == 2
    assert len(rows_of(new)) >= in_flight(taken)


@pytest.mark.parametrize("spread_by", [("bucket",), ()])
def test_no_row_in_flight_is_late_when_another_subtask_reads_it(
    spark: SparkSession, inbox: Inbox, cost: Path, out: Path, tmp_path: Path, start: Start, spread_by: tuple[str, ...]
) -> None:
    query = start(totals(inbox.stream(spark), cost, "key"), parallelism=2)
    under_pressure(query)
    eventually(lambda: len(rows_of(out)) > 50, "closed windows")
    taken = query.stop(snapshot=True)
    assert taken is not None
    assert in_flight(taken) > 1_000
    cost.write_text("0")
    query = start(totals(inbox.stream(spark), cost, *spread_by), parallelism=2)
    query.processAllAvailable()
    closed = ROWS // 100 - 1
    expected = [
        (bucket, sum(range(start_s + bucket, start_s + 100, 5)), 20)
        for start_s in range(0, closed * 100, 100)
        for bucket in range(5)
    ]
    assert rows_of(out) == sorted(expected, key=repr)
