"""``function.isolation=process`` end to end: exactly once over kills, and functions that end their process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import psutil
import pyarrow as pa
import pytest
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.errors.exceptions.base import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's convention

from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

register_pickle_by_value(sys.modules[__name__])

ISOLATED = {"function.isolation": "process", "parallelism": 2}


def process_of(key: pd.Series) -> pd.Series:
    return pd.Series([os.getpid()] * len(key))


def holding(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A call that holds the GIL for a while, per batch; rows of the epoch are counted at its end."""
    rows = 0
    for batch in batches:
        sum(range(1_000_000))
        rows += batch.num_rows
        yield batch.append_column("total", pa.array([0] * batch.num_rows, pa.int64()))
    yield pa.record_batch({"value": pa.array([-1]), "process": pa.array([os.getpid()]), "total": pa.array([rows])})


def test_rows_are_there_once_although_slots_and_function_processes_are_killed(
    spark: SparkSession, inbox: Inbox, out: Path, start: Start
) -> None:
    df = inbox.stream(spark).select("value", F.pandas_udf(process_of, "long")("key").alias("process"))
    df = df.repartition("value").mapInArrow(holding, "value bigint, process bigint, total bigint")
    query = start(df, **ISOLATED)
    for part in range(6):
        inbox.add([(0, part * 100 + number, 0.0) for number in range(100)])
        eventually(lambda: any(row[0] // 100 == part for row in rows_of(out)), "rows of the part")  # noqa: B023
        if part in (1, 3):
            slot = query.view().slots[0]
            functions = psutil.Process(slot.pid).children(recursive=True)
            assert len(functions) == 2, "one for each vertex with functions"
            if part == 3:
                functions[0].kill()  # which shows with the next rows
                continue
            psutil.Process(slot.pid).kill()
            eventually(lambda: not any(_alive(process) for process in functions), "their end")  # noqa: B023
    query.processAllAvailable()
    rows = rows_of(out)
    assert sorted(row[0] for row in rows if row[0] >= 0) == list(range(600))
    assert sum(row[2] for row in rows) == 600, "every epoch's iterator was ended in its epoch"
    slots = {slot.pid for slot in query.view().slots}
    assert not slots & {row[1] for row in rows}
    assert query.view().generation == 3


def test_a_function_that_ends_its_process_ends_the_query_by_name(
    spark: SparkSession, inbox: Inbox, start: Start
) -> None:
    def leaves(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            os._exit(3)
            yield batch

    inbox.add([(0, 1, 0.0)])
    query = start(inbox.stream(spark).mapInArrow(leaves, "key bigint, value bigint, at timestamp"), **ISOLATED)
    with pytest.raises(
        StreamingQueryException, match=r"MapInArrow \(leaves\)\) raised .* exited with status 3 at split"
    ):
        query.awaitTermination(60)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and _functions():
        time.sleep(0.02)
    assert not _functions(), "no process is left behind"


def _functions() -> list[psutil.Process]:
    ours = psutil.Process().children(recursive=True)
    return [p for p in ours if _alive(p) and "penstock.operators.python.isolation.child" in " ".join(p.cmdline())]


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
