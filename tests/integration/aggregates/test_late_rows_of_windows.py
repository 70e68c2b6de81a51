"""Append output with late rows equals Structured Streaming's, file by file: sessions, sliding windows, and windows
of windows."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.support.aggregates.aggregate_kit import Job, Plan, assert_same_rows, compiled

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("i", pa.int64())])
DDL = "ts timestamp, k string, i long"
START = datetime(2024, 5, 1, tzinfo=UTC)
FILES = 4
SESSION = "session_window(ts, '1500 milliseconds')"
COMPUTED = "session_window(ts, case k when 'a' then concat(i, ' seconds') when 'b' then '1500 milliseconds' end)"
CHAIN = "select window(ts, '5 seconds') as w, k, sum(i) as s from {df} group by window(ts, '5 seconds'), k"
SLIDING = "window(ts, '15 seconds', '5 seconds', '1 second')"
UNEVEN = "window(ts, '10 seconds', '4 seconds')"
OUTER = "window(window_time(w), '15 seconds')"

PLANS: dict[str, tuple[int, Plan]] = {
    "sessions": (
        2,
        lambda df: df.sparkSession.sql(
            f"select {SESSION} as w, k, count(*) as n, sum(i) as s from {{df}} group by {SESSION}, k",
            df=df.withWatermark("ts", "4 seconds"),
        ),
    ),
    "sessions with computed gaps": (
        2,
        lambda df: df.sparkSession.sql(
            f"select {COMPUTED} as w, k, count(*) as n, sum(i) as s from {{df}} group by {COMPUTED}, k",
            df=df.withWatermark("ts", "4 seconds"),
        ),
    ),
    "sliding windows": (
        2,
        lambda df: df.sparkSession.sql(
            f"select {SLIDING} as w, k, count(*) as n, sum(i) as s from {{df}} group by {SLIDING}, k",
            df=df.withWatermark("ts", "4 seconds"),
        ),
    ),
    "uneven sliding windows": (
        2,
        lambda df: df.sparkSession.sql(
            f"select {UNEVEN} as w, k, count(*) as n, sum(i) as s from {{df}} group by {UNEVEN}, k",
            df=df.withWatermark("ts", "4 seconds"),
        ),
    ),
    "windows of windows": (
        1,
        lambda df: df.sparkSession.sql(
            f"select {OUTER} as w, count(*) as n, sum(s) as s from ({CHAIN}) group by {OUTER}",
            df=df.withWatermark("ts", "4 seconds"),
        ),
    ),
}


def make_files() -> list[pa.Table]:
    """Event time goes on by 20 s a file; a fifth of the rows is up to 30 s behind, and null now and then.
    Sessions touch, and the watermark meets ends exactly."""
    chance = random.Random(5)
    files = []
    for number in range(FILES):
        rows = []
        for row in range(60):
            second = number * 20 + row / 3 - (chance.uniform(0, 30) if chance.random() < 0.2 else chance.uniform(0, 3))
            at = None if chance.random() < 0.03 else START + timedelta(seconds=round(2 * second) / 2)
            rows.append({"ts": at, "k": chance.choice("abc"), "i": chance.randint(-9, 9)})
        files.append(pa.Table.from_pylist(rows, SCHEMA))
    return files


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PLANS)
def test_append_output_equals_structured_streaming(
    spark: SparkSession, spark_conf: Callable[[str, str], None], tmp_path: Path, name: str
) -> None:
    spark_conf("spark.sql.shuffle.partitions", "1")
    keys, plan = PLANS[name]
    files = make_files()
    folder = tmp_path / "in"
    folder.mkdir()
    stream = plan(spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder)))
    table = name.replace(" ", "_")
    query = stream.writeStream.format("memory").queryName(table).outputMode("append").start()
    dropped = 0
    try:
        for number, rows in enumerate(files):
            pq.write_table(rows, tmp_path / "next.parquet")
            (tmp_path / "next.parquet").rename(folder / f"{number}.parquet")
            query.processAllAvailable()
        dropped = sum(
            operator["numRowsDroppedByWatermark"]
            for progress in query.recentProgress
            for operator in progress["stateOperators"]
        )
    finally:
        query.stop()
    expected = spark.table(table).toArrow()
    job = Job(compiled(stream, "append"))
    for number, rows in enumerate(files):
        job.feed(rows.to_batches())
        job.restored(2 if number % 2 == 0 else 1)
    job.close()
    assert_same_rows(pa.Table.from_batches(job.output), expected, keys)
    assert expected.num_rows > 5
    assert job.late == dropped > 0
