"""Refused imports: each reason is named, and nothing is left behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import penstock
from penstock.errors import LocationError, NotSupported
from penstock.snapshots.log.snapshot_log import SnapshotLog
from tests.support.spark_import.spark_runs import Arrivals, OnSpark


class Aggregated:
    """A checkpoint of sums by user, with the input it was made from."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.arrivals = Arrivals(folder / "in")
        self.arrivals.add((1, "a", 2), (2, "b", 4))
        self.df = self.arrivals.stream(spark)
        self.checkpoint = folder / "spark"
        OnSpark(self.checkpoint, "update").run(self.sums())

    def sums(self) -> DataFrame:
        return self.df.groupBy("user").agg(F.sum("amount"), F.max("ratio"))


@pytest.fixture(scope="module")
def aggregated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Aggregated:
    return Aggregated(spark, tmp_path_factory.mktemp("aggregated"))


def refusal(df: DataFrame, checkpoint: Path, target: Path, kind: type[Exception], **arguments: Any) -> str:
    """Why the import is refused; nothing is there afterwards that was not there before."""
    before = sorted(target.parent.iterdir())
    with pytest.raises(kind) as refused:
        penstock.importSparkCheckpoint(df, str(checkpoint), str(target), parallelism=1, **arguments)
    assert sorted(target.parent.iterdir()) == before
    return str(refused.value)


def test_another_aggregation_is_told_by_keys_and_buffers(aggregated: Aggregated, tmp_path: Path) -> None:
    other = aggregated.df.groupBy("amount").agg(F.min("ratio"), F.avg("amount"))
    said = refusal(other, aggregated.checkpoint, tmp_path / "new", NotSupported, outputMode="update")
    assert "cannot be taken over as it is; nothing was written" in said
    assert "keys: Spark's are (string), not (int64)" in said
    assert "Spark's are (sum int64, max double), not (min double, sum double, count int64)" in said


def test_all_that_is_missing_is_in_one_table(aggregated: Aggregated, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    elsewhere = aggregated.df.sparkSession.readStream.schema("amount bigint").parquet(str(tmp_path / "elsewhere"))
    said = refusal(elsewhere, aggregated.checkpoint, tmp_path / "new", NotSupported)
    assert "which is there and which the DataFrame does not read" in said
    assert "state/0 (stateStoreSave): the DataFrame has none" in said
    rate = aggregated.df.sparkSession.readStream.format("rate").load()
    said = refusal(rate, aggregated.checkpoint, tmp_path / "new", NotSupported)
    assert "RateStreamV2" in said
    assert "has no counterpart" in said


def test_other_state_is_refused_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    arrivals = Arrivals(tmp_path / "in")
    arrivals.add((1, "a", 2), (2, "a", 4))
    df = arrivals.stream(spark)
    limited = df.limit(1)
    OnSpark(tmp_path / "spark", "append").run(limited)
    said = refusal(limited, tmp_path / "spark", tmp_path / "new", NotSupported)
    assert "state/0 (globalLimit): Penstock does not take over the state of such an operator" in said
    said = refusal(df.groupBy("user").count(), tmp_path / "spark", tmp_path / "new", NotSupported, outputMode="update")
    assert "state/0 (globalLimit)" in said
    assert "Spark's query kept none" in said


def test_state_that_is_missing_leaves_nothing_behind(aggregated: Aggregated, tmp_path: Path) -> None:
    shutil.copytree(aggregated.checkpoint, tmp_path / "spark")
    for path in (tmp_path / "spark/state/0").glob("*/1.*"):
        path.unlink()
    said = refusal(aggregated.sums(), tmp_path / "spark", tmp_path / "new", LocationError, outputMode="update")
    assert "Spark cannot read the state behind batch 0" in said
    assert "restore the checkpoint from a copy" in said
    shutil.rmtree(tmp_path / "spark/state/0/1")
    said = refusal(aggregated.sums(), tmp_path / "spark", tmp_path / "new", LocationError, outputMode="update")
    assert "says that it has 2 partitions and has 1" in said
    (tmp_path / "spark/state/0/_metadata/metadata").write_text("v1\n{")
    said = refusal(aggregated.sums(), tmp_path / "spark", tmp_path / "new", LocationError, outputMode="update")
    assert "Spark cannot read the state" in said
    shutil.rmtree(tmp_path / "spark/state/0/_metadata")
    said = refusal(aggregated.sums(), tmp_path / "spark", tmp_path / "new", LocationError, outputMode="update")
    assert "state/0 has no _metadata" in said
    shutil.rmtree(tmp_path / "spark/state")
    said = refusal(aggregated.sums(), tmp_path / "spark", tmp_path / "new", NotSupported, outputMode="update")
    assert "Spark's query kept none" in said


def test_a_target_that_is_taken_or_lies_in_sparks_checkpoint(aggregated: Aggregated, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").write_text("mine")
    said = refusal(aggregated.sums(), aggregated.checkpoint, tmp_path / "taken", LocationError, outputMode="update")
    assert "exists and is not an empty folder" in said
    inside = aggregated.checkpoint / "new"
    said = refusal(aggregated.sums(), aggregated.checkpoint, inside, LocationError, outputMode="update")
    assert "lies in Spark's checkpoint" in said


def test_a_disk_that_fails_at_the_last_moment_leaves_nothing(
    aggregated: Aggregated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SnapshotLog, "append", full)
    said = refusal(aggregated.sums(), aggregated.checkpoint, tmp_path / "new", LocationError, outputMode="update")
    assert "No space left on device" in said
