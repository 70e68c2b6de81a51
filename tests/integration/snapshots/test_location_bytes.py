"""Locations with files that sources and sinks keep there: no byte says where they are, and they can be moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import penstock
from penstock.queries.streaming_query import StreamingQuery
from tests.integration.sources.test_spark_bridge import MemoryStream
from tests.support.byte_scan import files_with
from tests.support.queries.query_running import Inbox, eventually

pytestmark = pytest.mark.spark
StartWriter = Callable[..., StreamingQuery]


def rows_in(batches: dict[int, list[int]]) -> list[int]:
    return sorted(row for batch in batches.values() for row in batch)


def test_staged_rows_of_foreach_batch_are_named_from_the_location_on(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start_writer: StartWriter
) -> None:
    """The query dies with an epoch pending whose rows lie at the location, which is moved before it goes on."""
    before, after = tmp_path / "before", tmp_path / "after"
    found: dict[int, list[int]] = {}
    refuses = [False]

    def take(df: DataFrame, batch: int) -> None:
        if refuses[0]:
            raise ValueError("not now")
        found[batch] = sorted(row.key for row in df.collect())

    writer = penstock.writeStream(inbox.stream(spark)).foreachBatch(take)
    inbox.add([(key, key, 0.0) for key in range(10)])
    query = start_writer(writer, checkpointLocation=str(before), **{"restart.attempts": 1})
    eventually(lambda: rows_in(found) == list(range(10)), "the first rows", 120)
    query.snapshot(label="a label", note="a note")
    refuses[0] = True
    inbox.add([(key, key, 0.0) for key in range(10, 20)])
    eventually(lambda: not query.isActive, "the end", 60)
    assert list(before.glob("staged/*/*.parquet"))
    assert files_with(before, str(before)) == []

    before.rename(after)
    refuses[0] = False
    start_writer(writer, checkpointLocation=str(after))
    eventually(lambda: rows_in(found) == list(range(20)), "the rows that were staged", 60)
    assert sorted(found) == list(range(len(found)))
    assert not before.exists()


def test_files_that_splits_name_are_named_from_the_location_on(
    spark: SparkSession, tmp_path: Path, start_writer: StartWriter
) -> None:
    """Rows that Spark read for the query lie at the location until they are committed."""
    before, after = tmp_path / "before", tmp_path / "after"
    memory = MemoryStream(spark)
    found: dict[int, list[int]] = {}

    def take(df: DataFrame, batch: int) -> None:
        found[batch] = sorted(row.value for row in df.collect())

    writer = penstock.writeStream(memory.frame()).foreachBatch(take)
    memory.add(*range(10))
    query = start_writer(writer, checkpointLocation=str(before), **{"checkpoint.interval": "1h"})
    eventually(lambda: bool(list(before.glob("lane/*/*/part-*"))), "the first rows", 120)
    query.snapshot(label="a label")
    memory.add(*range(10, 20))
    eventually(lambda: bool(list(before.glob("lane/*/0000000001-*/part-*"))), "later rows", 120)
    query.stop()
    assert list(before.glob("lane/*/*/part-*")), "no snapshot has them, so they are still to be read"
    assert files_with(before, str(before)) == []

    before.rename(after)
    start_writer(writer, checkpointLocation=str(after))
    eventually(lambda: rows_in(found) == list(range(20)), "all rows", 120)
    assert sorted(found) == list(range(len(found)))
    assert not before.exists()
