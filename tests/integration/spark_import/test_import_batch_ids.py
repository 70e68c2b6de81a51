"""Batch ids continue from Spark to Penstock and back; a batch that Spark had planned is processed as planned."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.errors import ConfigError, LocationError, NotSupported
from tests.support.spark_import.counting_sources import Counter
from tests.support.spark_import.spark_runs import Arrivals, OnSpark, on_penstock

Batch = tuple[str, int, list[int]]


@dataclass
class Sink:
    """Function for ``foreachBatch`` of both engines: records the caller and the batch, and keeps each row once."""

    spark: SparkSession
    calls: list[Batch] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    newest: dict[str, int] = field(default_factory=dict)
    fails_after: int | None = None

    def __call__(self, df: DataFrame, batch: int) -> None:
        writer = self.spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        rows = sorted(row[0] for row in df.collect())
        self.calls.append((writer, batch, rows))
        if batch > self.newest.get(writer, -1):
            self.kept += rows
            self.newest[writer] = batch
        if batch == self.fails_after:
            raise RuntimeError("killed when all was written")


@pytest.fixture
def sink(spark: SparkSession) -> Sink:
    return Sink(spark)


def spark_id(checkpoint: Path) -> str:
    return (checkpoint / "metadata").read_text().split('"')[3]


def run_spark(df: DataFrame, sink: Sink, checkpoint: Path) -> None:
    writer = df.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    if sink.fails_after is None:
        query.awaitTermination()
        return
    with pytest.raises(StreamingQueryException, match="killed when all"):
        query.awaitTermination()
    sink.fails_after = None


def run_penstock(df: DataFrame, sink: Any, location: Path, parallelism: int = 2, **options: str) -> str:
    writer = penstock.writeStream(df).foreachBatch(sink).trigger(availableNow=True).options(**options)
    query = writer.option("checkpointLocation", str(location)).option("parallelism", parallelism).start()
    assert query.awaitTermination(90)
    return str(query.id)


def amounts(arrivals: Arrivals, *many: int) -> None:
    for amount in many:
        arrivals.add((amount, "u", amount))


def test_ids_continue_after_the_last_batch_of_spark(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount")
    amounts(arrivals, 0, 1, 2)
    run_spark(df, sink, tmp_path / "spark")
    penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"))
    amounts(arrivals, 3, 4)
    moved = run_penstock(df, sink, tmp_path / "moved")
    amounts(arrivals, 5)
    assert run_penstock(df, sink, tmp_path / "moved") == moved != spark_id(tmp_path / "spark")
    ids = [batch for _, batch, _ in sink.calls]
    assert ids == list(range(len(ids)))
    assert {writer for writer, batch, _ in sink.calls if batch > 2} == {moved}
    assert sorted(sink.kept) == list(range(6))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_planned_batch_is_processed_first_with_its_rows_and_identity(
    spark: SparkSession, tmp_path: Path, sink: Sink, parallelism: int
) -> None:
    """The sink has the whole batch or nothing: each row is there once in both cases, also after a failure."""
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount")
    amounts(arrivals, 0, 1, 2, 3)
    sink.fails_after = 2
    run_spark(df, sink, tmp_path / "spark")
    taken = penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"), parallelism=2)
    assert (taken.batch, taken.planned) == (1, 2)
    amounts(arrivals, 4)
    before = spark_id(tmp_path / "spark")

    def fails(df: DataFrame, batch: int) -> None:
        sink(df, batch)
        raise RuntimeError("not this time")

    with pytest.raises(StreamingQueryException, match="not this time"):
        run_penstock(df, fails, tmp_path / "moved", parallelism, **{"sink.retryTimeout": "1s"})
    assert set(map(repr, sink.calls[3:])) == {repr((before, 2, [2]))}, "as often as it was tried"
    moved = run_penstock(df, sink, tmp_path / "moved", parallelism)
    own = [call for call in sink.calls if call[0] == moved]
    assert [batch for _, batch, _ in own] == list(range(3, 3 + len(own)))
    assert sorted(sink.kept) == [0, 1, 2, 3, 4]
    amounts(arrivals, 5)
    run_penstock(df, sink, tmp_path / "moved", parallelism)
    assert sorted(sink.kept) == [0, 1, 2, 3, 4, 5]


def with_planned_batch(
    spark: SparkSession, tmp_path: Path, sink: Sink, where: str = "true"
) -> tuple[Arrivals, DataFrame, str]:
    """Import a checkpoint whose batch 1, of the amount 1, Spark had planned only.

    Returns:
        Where more amounts arrive, the query's rows, and the snapshot that was imported.
    """
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount").where(where)
    amounts(arrivals, 0, 1)
    sink.fails_after = 1
    run_spark(df, sink, tmp_path / "spark")
    taken = penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"), parallelism=1)
    return arrivals, df, taken.snapshot


def test_a_running_query_processes_the_planned_batch_alone_and_then_continues(
    spark: SparkSession, tmp_path: Path, sink: Sink
) -> None:
    """The query has frequent checkpoints, an immediate snapshot request of a user, and a drain."""
    arrivals, df, _ = with_planned_batch(spark, tmp_path, sink)
    amounts(arrivals, 2, 3)
    writer = penstock.writeStream(df).foreachBatch(sink).option("checkpointLocation", str(tmp_path / "moved"))
    query = writer.option("checkpoint.interval", "10ms").option("parallelism", 1).start()
    query.snapshot(label="asked for at once")
    query.stop(drain=True)
    assert sink.calls[2] == (spark_id(tmp_path / "spark"), 1, [1])
    assert {writer for writer, _, _ in sink.calls[3:]} == {query.id}
    assert [batch for _, batch, _ in sink.calls[3:]] == list(range(2, len(sink.calls) - 1))
    assert sorted(sink.kept) == [0, 1, 2, 3]


def test_the_id_of_a_planned_batch_without_output_is_used(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    arrivals, df, _ = with_planned_batch(spark, tmp_path, sink, "amount != 1")
    amounts(arrivals, 2)
    moved = run_penstock(df, sink, tmp_path / "moved")
    assert sink.calls[2:] == [(moved, 2, [2])]


def test_after_a_rollback_to_the_beginning_the_planned_batch_is_ordinary_input(
    spark: SparkSession, tmp_path: Path, sink: Sink
) -> None:
    from typer.testing import CliRunner

    from penstock.cli.main import app

    _, df, snapshot = with_planned_batch(spark, tmp_path, sink)
    moved = run_penstock(df, sink, tmp_path / "moved", **{"snapshots.retained": "100"})
    words = ["snapshot", "rollback", str(tmp_path / "moved"), snapshot, "--output", "keep"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    run_penstock(df, sink, tmp_path / "moved")
    assert sink.calls[-1] == (moved, 2, [1])


def test_a_range_of_a_python_source_is_read_again(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    spark.dataSource.register(Counter)
    end = tmp_path / "end"

    def numbers(until: int) -> DataFrame:
        end.write_text(str(until))
        return spark.readStream.format("counter").option("end", until).option("file", str(end)).load().select("n")

    run_spark(numbers(4), sink, tmp_path / "spark")
    sink.fails_after = sink.calls[-1][1] + 1
    run_spark(numbers(9), sink, tmp_path / "spark")
    begun = sink.calls[-1]
    penstock.importSparkCheckpoint(numbers(15), str(tmp_path / "spark"), str(tmp_path / "moved"), parallelism=2)
    run_penstock(numbers(15), again := Sink(spark), tmp_path / "moved")
    assert again.calls[0] == begun
    assert begun[2] == [4, 5, 6, 7]
    assert sorted(n for _, _, rows in again.calls[1:] for n in rows) == list(range(8, 15))


def test_operators_that_depend_on_the_batch_are_refused_unless_rows_may_be_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds")).count()
    arrivals.add((1, "a", 1))
    arrivals.add((25, "b", 2))
    OnSpark(tmp_path / "spark", "append").run(df, fail_at=1)
    with pytest.raises(NotSupported, match=r"(?s)batch 1 .*watermark.*availableNow=True.*planned=\"again\""):
        penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"))
    with pytest.raises(ConfigError, match="choose exact or again"):
        penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"), planned="maybe")
    assert not (tmp_path / "moved").exists()
    penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"), planned="again")
    arrivals.add((45, "c", 3))
    ids: list[int] = []
    run_penstock(df, lambda rows, batch: ids.append(batch), tmp_path / "moved")
    assert ids[0] == 2, "batch 1 may be at the sink already, with other rows"
    assert len(on_penstock(df, tmp_path / "moved", "append")) == 0


def test_other_checkpoints_with_planned_batches_are_refused(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount")
    amounts(arrivals, 0, 1, 2)
    first = tmp_path / "first"
    sink.fails_after = 0
    run_spark(df, sink, first)
    with pytest.raises(LocationError, match=r"batch 0 was planned: .*trigger\(availableNow=True\)"):
        penstock.importSparkCheckpoint(df, str(first), str(tmp_path / "moved"))
    run_spark(df, sink, tmp_path / "spark")
    for number in (1, 2):
        (tmp_path / f"spark/commits/{number}").unlink()
    with pytest.raises(NotSupported, match="several batches after 0"):
        penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"))
    (tmp_path / "spark/offsets/99999999999").write_text((tmp_path / "spark/offsets/2").read_text())
    with pytest.raises(LocationError, match="has a batch above"):
        penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"))


def test_a_missing_file_of_the_planned_batch_is_named(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount")
    amounts(arrivals, 0, 1)
    sink.fails_after = 1
    run_spark(df, sink, tmp_path / "spark")
    gone = sorted(arrivals.directory.glob("part*"))[-1]
    gone.unlink()
    with pytest.raises(NotSupported, match=rf"{gone.name} no longer exists"):
        penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "moved"))


def test_spark_continues_after_the_last_id_of_penstock(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    """After an import back, Penstock continues after Spark's ids."""
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount")
    for amount in range(3):
        amounts(arrivals, amount)
        run_penstock(df, sink, tmp_path / "location")
    given = [batch for _, batch, _ in sink.calls]
    written = penstock.exportSparkOffsets(df, str(tmp_path / "location"), str(tmp_path / "spark"))
    assert written.batch == given[-1] == 2
    amounts(arrivals, 3, 4)
    run_spark(df, sink, tmp_path / "spark")
    assert sink.calls[3:] == [(spark_id(tmp_path / "spark"), batch, [batch]) for batch in (3, 4)]
    penstock.importSparkCheckpoint(df, str(tmp_path / "spark"), str(tmp_path / "back"), parallelism=1)
    amounts(arrivals, 5)
    assert sink.calls[5:] == []
    back = run_penstock(df, sink, tmp_path / "back")
    assert sink.calls[5:] == [(back, 5, [5])]
    assert sorted(sink.kept) == list(range(6))


def test_an_imported_query_exports_the_id_that_it_begins_with(spark: SparkSession, tmp_path: Path, sink: Sink) -> None:
    arrivals = Arrivals(tmp_path / "in")
    df = arrivals.stream(spark).select("amount").where("amount != 1")
    amounts(arrivals, 0)
    run_penstock(df.where("amount > 5"), sink, tmp_path / "location")
    written = penstock.exportSparkOffsets(df.where("amount > 5"), str(tmp_path / "location"), str(tmp_path / "spark"))
    assert (written.batch, sink.calls) == (0, []), "nothing was given away, and Spark needs a batch to go on after"
    amounts(arrivals, 7)
    run_spark(df, sink, tmp_path / "spark")
    assert sink.calls == [(spark_id(tmp_path / "spark"), 1, [7])]
