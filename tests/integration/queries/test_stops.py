"""``stop`` of a query without work, and ``processAllAvailable`` of one that is stopped or whose source never rests."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from penstock.errors import QueryFailed
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

RATE = 50
ROW = timedelta(seconds=1) / RATE


def rate(spark: SparkSession, source: str = "rate", **options: int):  # type: ignore[no-untyped-def]  # PySpark's
    return spark.readStream.format(source).options(**options).load()


def test_an_idle_query_stops_within_a_tenth_of_a_second(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path
) -> None:
    """The best of five, since other processes may need the processors."""
    inbox.add([(1, 1, 0.0)])
    times_s = []
    for number in range(5):
        query = start(inbox.stream(spark), format="noop", checkpointLocation=str(tmp_path / str(number)))
        query.processAllAvailable()
        began_s = time.monotonic()
        query.stop()
        times_s.append(time.monotonic() - began_s)
    assert min(times_s) < 0.1, times_s


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_the_rate_source_had_at_the_call_is_committed(
    spark: SparkSession, start: Start, out: Path, parallelism: int
) -> None:
    query = start(rate(spark, rowsPerSecond=RATE), parallelism=parallelism)
    eventually(lambda: bool(rows_of(out)), "first rows")
    called_s = time.time()
    query.processAllAvailable()
    assert time.time() - called_s < 5, "it does not wait for a source without new rows"
    table = pq.read_table(out)
    values = sorted(table["value"].to_pylist())
    assert values == list(range(len(values)))
    last_s = max(table["timestamp"].to_pylist()).timestamp()
    assert last_s > called_s - ROW.total_seconds(), "every row that was due at the call"


def test_a_source_beside_the_rate_source_is_read_to_its_end(
    spark: SparkSession, inbox: Inbox, start: Start, out: Path
) -> None:
    """Like Spark, each call waits for files that exist at the call, and no call waits for the rate source to end."""
    files = inbox.stream(spark).select("key")
    query = start(rate(spark, rowsPerSecond=RATE).selectExpr("-1L as key").union(files))
    for number in range(1, 4):
        inbox.add([(number, 0, 0.0)])
        query.processAllAvailable()
        assert {key for (key,) in rows_of(out)} >= set(range(1, number + 1))


def test_a_stopped_query_has_nothing_to_wait_for(spark: SparkSession, inbox: Inbox, start: Start) -> None:
    query = start(inbox.stream(spark))
    query.stop()
    assert query.processAllAvailable() is None  # type: ignore[func-returns-value]


def test_a_wait_for_a_source_that_always_has_a_next_batch_ends_with_the_query(
    spark: SparkSession, start: Start, out: Path
) -> None:
    query = start(rate(spark, "rate-micro-batch", rowsPerBatch=10))
    waiting = threading.Thread(target=query.processAllAvailable, daemon=True)
    waiting.start()
    eventually(lambda: bool(rows_of(out)), "first rows")
    assert waiting.is_alive()
    query.stop()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_failed_or_suspended_query_says_so(spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path) -> None:
    fail = udf(lambda key: {}[f"no such key: {key}"], "int")
    inbox.add([(1, 1, 0.0)])
    failing = start(inbox.stream(spark).select(fail("key")), path=str(tmp_path / "failing"), parallelism=1)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="no such key"):
            failing.processAllAvailable()
    elsewhere = str(tmp_path / "elsewhere")
    query = start(inbox.stream(spark), path=str(tmp_path / "other"), checkpointLocation=elsewhere)
    query.suspend()
    with pytest.raises(QueryFailed, match="suspended"):
        query.processAllAvailable()
