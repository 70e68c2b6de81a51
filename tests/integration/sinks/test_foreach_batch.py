"""``foreachBatch``: ids without gaps and the same rows under each, over kills, restarts and functions that raise."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import penstock
from penstock.errors import ConfigError, NotSupported, ResourceError
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import Inbox, eventually

pytestmark = pytest.mark.spark

Start = Callable[..., StreamingQuery]


class Calls:
    """A function for ``foreachBatch``: what it was called with, and when it is to raise."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[tuple[Any, ...]]]] = []
        self.fails = 0

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        rows = sorted(tuple(row) for row in df.collect())
        self.seen.append((batch_id, rows))
        if self.fails:
            self.fails -= 1
            raise ValueError(f"no, not {batch_id}")

    def batches(self) -> dict[int, list[tuple[Any, ...]]]:
        """Each batch once; a repeated one had the same rows."""
        found: dict[int, list[tuple[Any, ...]]] = {}
        for batch_id, rows in self.seen:
            assert found.setdefault(batch_id, rows) == rows, "the same id, the same rows"
        assert sorted(found) == list(range(len(found))), "consecutive from 0"
        return found

    def keys(self) -> list[int]:
        """The first column of every batch's rows."""
        return sorted(row[0] for rows in self.batches().values() for row in rows)


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def run(spark: SparkSession, inbox: Inbox, checkpoint: Path, start_writer: Start) -> Callable[..., StreamingQuery]:
    """``run(func, **options)`` starts the inbox into ``func``."""

    def start(func: Any, **options: Any) -> StreamingQuery:
        writer = penstock.writeStream(inbox.stream(spark).select("key", "value")).foreachBatch(func)
        return start_writer(writer, checkpointLocation=str(checkpoint), **options)

    return start


def rows(first: int, last: int) -> list[tuple[int, int, float]]:
    return [(number, number * 10, float(number)) for number in range(first, last)]


def staged(checkpoint: Path) -> list[str]:
    return sorted(path.name for path in (checkpoint / "staged").rglob("*.parquet"))


def test_batches_are_numbered_from_0_over_a_kill_and_a_restart_and_nothing_is_left_behind(
    inbox: Inbox, checkpoint: Path, calls: Calls, run: Start
) -> None:
    query = run(calls)
    for first in (0, 10):
        inbox.add(rows(first, first + 10))
        query.processAllAvailable()
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    inbox.add(rows(20, 30))
    eventually(lambda: query.generation == 2, "the next Generation")
    query.processAllAvailable()
    query.stop()
    assert calls.keys() == list(range(30))
    assert staged(checkpoint) == [], "an orderly end settles everything"

    inbox.add(rows(30, 40))
    query = run(calls)
    query.processAllAvailable()
    query.stop()
    assert calls.keys() == list(range(40))
    assert len(calls.batches()) == len(calls.seen), "nothing failed, nothing was repeated"
    assert staged(checkpoint) == []


def test_a_function_that_raises_is_called_again_with_the_same_batch(inbox: Inbox, calls: Calls, run: Start) -> None:
    calls.fails = 2
    inbox.add(rows(0, 10))
    query = run(calls)
    query.processAllAvailable()
    assert [batch_id for batch_id, _ in calls.seen] == [0, 0, 0]
    inbox.add(rows(10, 20))
    query.processAllAvailable()
    assert calls.keys() == list(range(20))


def test_after_the_query_gave_up_the_next_start_repeats_the_batch(inbox: Inbox, calls: Calls, run: Start) -> None:
    inbox.add(rows(0, 5))
    query = run(calls, **{"restart.attempts": 1})
    query.processAllAvailable()
    calls.fails = 2
    inbox.add(rows(5, 10))
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(60)
    text = str(raised.value)
    assert "batch 1" in text
    assert "ValueError" in text
    assert "no, not 1" in text
    assert 'in __call__\n    raise ValueError(f"no, not {batch_id}")' in text, "the user's traceback"

    query = run(calls)
    query.processAllAvailable()
    assert [batch_id for batch_id, _ in calls.seen] == [0, 1, 1, 1]
    assert calls.keys() == list(range(10))


def test_the_dataframe_is_one_of_the_session_in_exactly_the_query_s_schema(
    spark: SparkSession, inbox: Inbox, checkpoint: Path, tmp_path: Path, start_writer: Start
) -> None:
    nested = StructType.fromDDL(
        "key long, things struct<a: decimal(20,3), b: array<timestamp>, c: map<string, timestamp_ntz>>"
    )

    def nest(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        schema = to_arrow_schema(nested, timezone="UTC")
        for batch in batches:
            things = [
                {"a": Decimal(key), "b": [at, None], "c": {"x": datetime(1066, 10, 14)}}
                for key, at in zip(batch["key"].to_pylist(), batch["at"].to_pylist(), strict=True)
            ]
            yield pa.RecordBatch.from_pydict({"key": batch["key"], "things": things}, schema=schema)

    mapped = inbox.stream(spark).mapInArrow(nest, nested)
    wide = mapped.select("key", "things", col("key").alias("key"), lit("x").alias("never null"))
    found: list[Any] = []

    def look(df: DataFrame, batch_id: int) -> None:
        df.persist()
        found.append((df.schema, df.count(), df.collect()))
        df.sparkSession.range(3).count()
        df.select("things").write.mode("append").parquet(str(tmp_path / "copy"))
        df.unpersist()
        found.append((df.sparkSession is spark, SparkSession.active() is spark, df.isStreaming))

    inbox.add([(7, 70, 1.5)])
    query = start_writer(penstock.writeStream(wide).foreachBatch(look), checkpointLocation=str(checkpoint))
    query.processAllAvailable()
    (schema, count, (row,)), about = found
    assert schema == wide.schema
    assert about == (True, True, False)
    at = datetime.fromtimestamp(1.5)
    hastings = datetime(1066, 10, 14)
    assert (count, tuple(row)) == (1, (7, (Decimal("7.000"), [at, None], {"x": hastings}), 7, "x"))
    assert spark.read.parquet(str(tmp_path / "copy")).count() == 1


def test_a_batch_waits_for_a_slot_that_somebody_else_took(
    spark: SparkSession, inbox: Inbox, calls: Calls, run: Start
) -> None:
    query = run(calls, parallelism=3)
    # The fourth thread of local[4] is busy with a job that ends when it is told to, by a file.
    flag = inbox.directory.parent / "go-on"

    def wait_for_flag(batches: Any) -> Any:
        import os.path
        import time

        while not os.path.exists(flag):
            time.sleep(0.05)
        yield from batches

    other = threading.Thread(target=lambda: spark.range(0, 1, 1, 1).mapInArrow(wait_for_flag, "id long").count())
    other.start()
    inbox.add(rows(0, 10))
    query.snapshot()  # complete, and the batch it holds waits
    assert calls.seen == []
    flag.touch()
    other.join()
    query.processAllAvailable()
    assert query.exception() is None
    assert calls.keys() == list(range(10))


def test_what_is_no_foreach_batch_is_refused_at_start(
    spark: SparkSession, inbox: Inbox, calls: Calls, run: Start
) -> None:
    with pytest.raises(ConfigError, match="function of a DataFrame and a batch id, not int"):
        run(3)
    with pytest.raises(NotSupported, match="'foreachBatch' does not support partitioning"):
        run(calls, partitionBy="key")
    with pytest.raises(ResourceError):
        run(calls, parallelism=4)
