"""A join with a static side as a whole query: over a kill with what was read at the start, over a restart read anew."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import NotSupported
from tests.support.queries.query_running import Inbox, Start, eventually, rows_of

pytestmark = pytest.mark.spark


def write(directory: Path, names: dict[int, str]) -> None:
    directory.mkdir(exist_ok=True)
    table = pa.table({"key": pa.array(names, pa.int64()), "name": pa.array(names.values(), pa.string())})
    pq.write_table(table, directory / "names.parquet")


def named(spark: SparkSession, inbox: Inbox, directory: Path) -> DataFrame:
    """Name the DataFrame as a program does that is started again."""
    names = spark.read.schema("key bigint, name string").parquet(str(directory))
    return inbox.stream(spark).join(names, "key", "left").select("value", "name")


def test_generations_share_what_was_read_and_a_restart_reads_anew(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, out: Path, start: Start
) -> None:
    write(tmp_path / "names", {1: "one", 2: "two"})
    inbox.add([(1, 10, 1.0), (2, 20, 1.0), (3, 30, 1.0)])
    query = start(named(spark, inbox, tmp_path / "names"), parallelism=2)
    query.processAllAvailable()
    assert rows_of(out) == [(10, "one"), (20, "two"), (30, None)]
    write(tmp_path / "names", {1: "uno", 3: "tre"})
    os.kill(query.view().slots[0].pid, signal.SIGKILL)
    inbox.add([(1, 11, 2.0), (3, 31, 2.0)])
    eventually(lambda: query.generation == 2, "the next Generation")
    query.processAllAvailable()
    query.stop()
    before = [(10, "one"), (11, "one"), (20, "two"), (30, None), (31, None)]
    assert rows_of(out) == before
    inbox.add([(1, 12, 3.0), (3, 32, 3.0)])
    again = start(named(spark, inbox, tmp_path / "names"), parallelism=2)
    again.processAllAvailable()
    assert rows_of(out) == sorted([*before, (12, "uno"), (32, "tre")])


def test_a_static_side_beyond_the_limit_starts_nothing(
    spark: SparkSession, inbox: Inbox, tmp_path: Path, start: Start
) -> None:
    write(tmp_path / "names", {key: f"name {key}" for key in range(1_000)})
    df = named(spark, inbox, tmp_path / "names")
    with pytest.raises(NotSupported, match=r"Relation \[key,name\] parquet: .*join\.maxStaticBytes"):
        start(df, **{"join.maxStaticBytes": "4k"})
    inbox.add([(1, 10, 1.0)])
    start(df, **{"join.maxStaticBytes": "1m"}).processAllAvailable()
