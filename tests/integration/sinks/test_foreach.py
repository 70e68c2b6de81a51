"""``foreach`` on Spark: the rows that user code gets are those that Spark's own ``foreach`` hands it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.errors import ConfigError, NotSupported
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually

pytestmark = pytest.mark.spark

Start = Callable[..., StreamingQuery]


def recorder(directory: Path) -> Any:
    """A writer whose rows go to a file per open; closed ones are renamed."""
    directory.mkdir()

    class Recorder:
        def open(self, partition_id: int, epoch_id: int) -> bool:
            import uuid

            self.path = directory / f"{partition_id}-{epoch_id}-{uuid.uuid4()}.open"
            self.file = self.path.open("w")
            return True

        def process(self, row: Any) -> None:
            self.file.write(f"{row!r}\n")

        def close(self, error: Exception | None) -> None:
            self.file.close()
            self.path.rename(self.path.with_suffix(".closed" if error is None else ".failed"))

    return Recorder()


def lines(directory: Path) -> list[str]:
    return sorted(line for file in directory.glob("*.closed") for line in file.read_text().splitlines())


def typed(df: DataFrame) -> DataFrame:
    return df.selectExpr(
        "key", "cast(value as decimal(10,2)) as d", "at", "cast(at as timestamp_ntz) as ntz", "cast(at as date) as day",
        "cast(value as string) as s", "cast(cast(value as string) as binary) as b", "value > 1 as big",
        "cast(value as double) as x", "cast(null as int) as nothing",
    )  # fmt: skip


def test_rows_are_those_that_spark_hands_over(
    spark: SparkSession, inbox: Inbox, checkpoint: Path, tmp_path: Path, start_writer: Start
) -> None:
    inbox.add([(1, 10, 1.5), (2, 0, 86_400.0), (3, -7, 0.0)])
    writer = penstock.writeStream(typed(inbox.stream(spark))).foreach(recorder(tmp_path / "ours"))
    query = start_writer(writer, checkpointLocation=str(checkpoint), parallelism=2)
    query.processAllAvailable()
    query.stop()
    theirs = typed(inbox.stream(spark)).writeStream.foreach(recorder(tmp_path / "theirs"))
    theirs.option("checkpointLocation", str(tmp_path / "spark")).trigger(availableNow=True).start().awaitTermination()
    assert lines(tmp_path / "ours") == lines(tmp_path / "theirs")
    assert len(lines(tmp_path / "ours")) == 3
    assert repr(Decimal("10.00")) in lines(tmp_path / "ours")[0]
    assert repr(datetime(1970, 1, 1, 0, 0, 1, 500_000)) in lines(tmp_path / "ours")[0]


def test_rows_are_seen_at_least_once_over_a_kill_and_epoch_ids_are_never_used_again(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: Start
) -> None:
    out = tmp_path / "out"
    query = start_writer(penstock.writeStream(inbox.stream(spark).select("key")).foreach(recorder(out)))
    inbox.add([(n, 0, 0.0) for n in range(10)])
    query.processAllAvailable()
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    inbox.add([(n, 0, 0.0) for n in range(10, 20)])
    eventually(lambda: query.generation == 2, "the next Generation")
    query.processAllAvailable()
    query.stop()
    assert set(lines(out)) == {f"Row(key={n})" for n in range(20)}
    ids = [tuple(file.name.split("-")[:2]) for file in out.iterdir()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "wrong", [3, object(), type("P", (), {"process": 1})(), type("O", (), {"open": 1, "process": print})()]
)
def test_what_is_no_foreach_writer_is_refused_as_in_pyspark(spark: SparkSession, inbox: Inbox, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"foreach takes a function of one row, or an object with process\(row\)"):
        penstock.writeStream(inbox.stream(spark)).foreach(wrong).start()
    with pytest.raises(NotSupported, match="'foreach' does not support partitioning"):
        penstock.writeStream(inbox.stream(spark)).foreach(print).partitionBy("key").start()
