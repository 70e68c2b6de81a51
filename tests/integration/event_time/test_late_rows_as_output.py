"""Late rows: counted as Spark counts them, obtainable, and never made by a file that is read beside another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

import penstock
from penstock.errors import ConfigError, NotSupported
from tests.support.queries.query_running import Inbox, Start, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES = [
    [(1, 1, 5.0), (2, 2, 31.0)],  # the watermark goes to 26
    [(1, 3, 6.0), (1, 4, 7.0), (2, 5, 12.0), (3, 6, 24.0)],  # windows 0 and 10 are closed for keys 1 and 2
    [(1, 7, 70.0), (2, 8, 6.0)],  # one late row, then the watermark goes to 65
    [(1, 9, 20.0), (1, 10, 20.0), (2, 11, 61.0), (4, 12, 69.0)],
]
LATE = [(1, 3), (1, 4), (2, 5), (2, 8), (1, 9), (1, 10)]
LATE_GROUPS, LATE_ROWS = [0, 2, 1, 1], [0, 3, 1, 2]
"""By file: groups, a key in a window, that have late rows; and late rows."""


def windows(df: DataFrame) -> DataFrame:
    grouped = df.withWatermark("at", "5 seconds").groupBy(F.window("at", "10 seconds"), "key")
    return grouped.agg(F.sum("value").alias("total"))


def test_late_rows_are_an_output_of_their_own(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    totals = windows(inbox.stream(spark))
    late = penstock.late(totals).select("key", "value", F.col("window.end").cast("long").alias("end"))
    writers = [
        penstock.writeStream(df).format("parquet").option("path", str(tmp_path / name))
        for df, name in ((totals.select("key", "total"), "totals"), (late, "late"))
    ]
    writers[1].options(checkpointLocation=str(tmp_path / "checkpoint"), parallelism=1)
    writers[0].option("checkpoint.interval", "200ms")
    query = penstock.start(writers)
    try:
        for rows in FILES:
            inbox.add(rows)
            query.processAllAvailable()
        dropped = [p.stateOperators[0].numRowsDroppedByWatermark for p in query.recentProgress]
    finally:
        query.stop()
    ends = {value: int(seconds // 10 * 10 + 10) for file in FILES for _, value, seconds in file}
    assert rows_of(tmp_path / "late") == sorted(((k, v, ends[v]) for k, v in LATE), key=repr)
    assert sum(dropped) == len(LATE)
    # Whatever was not late and is closed at 65 s has come out, and nothing of what was late is in it.
    assert rows_of(tmp_path / "totals") == sorted([(1, 1), (2, 2), (3, 6)], key=repr)


def dropped_by_file(query: Any, inbox: Inbox) -> list[int]:
    """Return the total number of dropped rows after each file; every file is processed before the next one comes."""
    dropped = []
    for rows in FILES:
        inbox.add(rows)
        query.processAllAvailable()
        dropped.append(sum(p.stateOperators[0].numRowsDroppedByWatermark for p in query.recentProgress))
    query.stop()
    return dropped


def test_late_rows_are_counted_as_spark_counts_them(spark: SparkSession, tmp_path: Path, start: Start) -> None:
    """Spark counts groups: its rows are aggregated on the map side before they are judged. It judges them by the
    watermark of the batch before, which is why it needs its batch without data behind every file."""
    ours, theirs = Inbox(tmp_path / "ours"), Inbox(tmp_path / "theirs")
    # Groups are of a slice: a machine that pauses takes a file in several, and counts a group in each.
    query = start(windows(ours.stream(spark)), format="noop", **{"checkpoint.interval": "10m"})
    expected, most = (list(itertools.accumulate(counts)) for counts in (LATE_GROUPS, LATE_ROWS))
    found = dropped_by_file(query, ours)
    assert all(low <= here <= high for low, here, high in zip(expected, found, most, strict=True)), found
    writer = windows(theirs.stream(spark)).writeStream.format("noop").trigger(processingTime="0 seconds")
    oracle = writer.option("checkpointLocation", str(tmp_path / "spark")).start()
    assert dropped_by_file(oracle, theirs) == expected


def test_a_new_file_never_makes_the_rows_of_another_late(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    """One reader has a file that ends far in the future, the others read old rows all the while."""
    inbox.add([(key, 1, float(second)) for second in range(100) for key in range(200)])
    inbox.add([(1, 1, 10_000.0)])
    inbox.add([(key, 1, float(second)) for second in range(10_000, 10_100) for key in range(20)])
    query = start(windows(inbox.stream(spark)), parallelism=3)
    inbox.add([(1, 1, 20_000.0)])
    query.processAllAvailable()
    progress = query.recentProgress
    assert sum(p.stateOperators[0].numRowsDroppedByWatermark for p in progress) == 0
    assert sum(total for _, _, total in rows_of(out)) == 100 * 200 + 1 + 100 * 20


def test_what_has_no_late_rows_is_refused(spark: SparkSession, inbox: Inbox, tmp_path: Path) -> None:
    raw = inbox.stream(spark)
    with pytest.raises(ConfigError, match="needs a DataFrame that drops late rows"):
        penstock.late(raw)
    counts = raw.groupBy("key").count()
    writer: Callable[[DataFrame], penstock.DataStreamWriter] = penstock.writeStream
    with pytest.raises(NotSupported, match="no row of this aggregation is ever late"):
        penstock.start(
            [writer(counts).outputMode("update").format("noop"), writer(penstock.late(counts)).format("noop")]
        )
