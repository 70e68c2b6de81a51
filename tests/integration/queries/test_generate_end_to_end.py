"""A generator between source and aggregation, with snapshots in the middle of its output, a kill and a restart."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark

MANY = 150_000
"""Elements of one row: several output batches."""


def rows(first: int, last: int) -> list[tuple[int, int, float]]:
    return [(number % 3, MANY if number % 10 == 0 else number % 4, float(number)) for number in range(first, last)]


def expected(given: list[tuple[int, int, float]], before_s: float) -> Counter[tuple[int, int, int]]:
    """(Window, key) -> how many elements, and their sum."""
    groups: dict[tuple[int, int], list[int]] = {}
    for key, size, seconds in given:
        groups.setdefault((int(seconds // 10) * 10, key), []).append(size)
    return Counter(
        (start, sum(sizes), sum(size * (size + 1) // 2 for size in sizes))
        for (start, _), sizes in groups.items()
        if start + 10 <= before_s and sum(sizes)
    )


def test_elements_come_out_exactly_once(spark: SparkSession, inbox: Inbox, out: Path, start: Start) -> None:
    exploded = inbox.stream(spark).select(
        "key", "at", F.explode(F.filter(F.sequence(F.lit(0), "value"), lambda e: e > 0)).alias("element")
    )
    sums = (
        exploded.withWatermark("at", "5 seconds")
        .groupBy(F.window("at", "10 seconds"), "key")
        .agg(F.count("*").alias("n"), F.sum("element").alias("total"))
        .select(F.unix_timestamp("window.start").alias("start"), "n", "total")
    )
    inbox.add(rows(0, 40))
    query = start(sums, parallelism=2)
    for alignment in ("unaligned", "aligned"):
        assert query.snapshot(alignment=alignment, timeout=60).alignment == alignment
    generation = query.generation
    os.kill(query.view().slots[-1].pid, signal.SIGKILL)
    inbox.add(rows(40, 60))
    eventually(lambda: query.generation > generation, "the next Generation")
    query.processAllAvailable()
    assert Counter(rows_of(out)) == expected(rows(0, 60), before_s=54)
    query.stop()

    inbox.add(rows(60, 80))
    query = start(sums, parallelism=2)
    query.processAllAvailable()
    assert Counter(rows_of(out)) == expected(rows(0, 80), before_s=74)
