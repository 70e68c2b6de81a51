"""Deduplication against Spark's own engine, file by file: late rows, rows out of order, a kill, other parallelisms."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.queries.streaming_query import StreamingQuery
from tests.support.queries.query_running import ARROW, SCHEMA, SECOND_US, eventually, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DELAY_S = 5
Rows = Sequence[tuple[int | None, int, float | None]]
"""Keys, values, seconds of event time."""


class Files:
    """A directory to which both engines' input comes, a file at a time."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.directory.mkdir()
        self.count = 0

    def add(self, rows: Rows) -> None:
        keys, values, seconds = zip(*rows, strict=True) if rows else ((), (), ())
        at = pa.array([None if s is None else round(s * SECOND_US) for s in seconds], ARROW.field("at").type)
        table = pa.Table.from_arrays([pa.array(keys, pa.int64()), pa.array(values, pa.int64()), at], schema=ARROW)
        hidden = self.directory / f".{self.count}"
        pq.write_table(table, hidden)
        os.utime(hidden, (1_700_000_000 + self.count,) * 2)  # the order in which Spark reads
        os.replace(hidden, self.directory / f"in-{self.count:04d}.parquet")
        self.count += 1

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self.directory))


def marked(df: DataFrame) -> DataFrame:
    return df.withWatermark("at", f"{DELAY_S} seconds")


Plan = Callable[[DataFrame, DataFrame], DataFrame]
"""Of the input, and of the same with its watermark."""

PLANS: dict[str, Plan] = {
    "without": lambda raw, _: raw.dropDuplicates(["key", "value"]),
    "beside": lambda _, df: df.dropDuplicates(["value"]),
    "among": lambda _, df: df.dropDuplicates(["key", "at"]),
    "within": lambda _, df: df.dropDuplicatesWithinWatermark(["key"]),
    "window": lambda _, df: df.select("key", "value", F.window("at", "4 seconds").alias("at")).drop_duplicates(),
}
CHAINED: dict[str, Plan] = {
    "counted": lambda _, df: (
        df.dropDuplicates(["key", "at"])
        .groupBy(F.window("at", "6 seconds").alias("at"))
        .agg(F.count("key").alias("key"), F.sum("value").alias("value"))
    ),
    "counts": lambda _, df: (
        df.groupBy(F.window("at", "2 seconds").alias("at"))
        .agg(F.count("*").alias("key"), F.count("*").alias("value"))
        .dropDuplicates(["value"])
    ),
}


def flat(df: DataFrame) -> DataFrame:
    """All plans yield the same columns; of a window its end."""
    at = F.col("at.end") if "struct" in dict(df.dtypes)["at"] else F.col("at")
    return df.select("key", "value", at.alias("at"))


def some_files(seed: int, files: int) -> Iterator[Rows]:
    """Event time goes on by about three seconds a file, and jitters by more than the delay."""
    chance = random.Random(seed)
    for number in range(files):
        yield [
            (
                chance.choice((None, 0, 1, 2)),
                chance.randrange(6),
                None if chance.random() < 0.05 else 100.0 + max(0, 3 * number + chance.randrange(-18, 6)),
            )
            for _ in range(12)
        ]


def reached(files: Sequence[Rows]) -> float:
    return max(at for rows in files for _, _, at in rows if at is not None)


def by_spark(spark: SparkSession, files: Files, plans: dict[str, Plan], location: Path) -> dict[str, list[str]]:
    """Every plan's output, of one query on Spark's engine."""
    raw = files.stream(spark)
    timed = marked(raw)
    branches = [flat(plan(raw, timed)).select(F.lit(name), "*") for name, plan in plans.items()]
    union = branches[0]
    for branch in branches[1:]:
        union = union.union(branch)
    found: dict[str, list[str]] = {name: [] for name in plans}

    def keep(rows: DataFrame, _: int) -> None:
        for name, *row in rows.collect():
            found[name].append(text(row))

    writer = union.writeStream.foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", str(location)).start().awaitTermination()
    return {name: sorted(rows) for name, rows in found.items()}


def text(row: Sequence[Any]) -> str:
    key, value, at = row
    if isinstance(at, datetime):
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return f"{key} {value} {at}"


def came_back(query: StreamingQuery) -> bool:
    return query.view().generation > 1


@pytest.fixture
def queries() -> Iterator[list[StreamingQuery]]:
    """Are stopped at the end."""
    started: list[StreamingQuery] = []
    yield started
    for query in started:
        query.stop()


def test_every_row_that_spark_lets_pass_and_no_other(
    spark: SparkSession, spark_conf: Callable[[str, str], None], tmp_path: Path, queries: list[StreamingQuery]
) -> None:
    """All plans as outputs of one query, which is killed, and started again twice, with other parallelisms and another
    state backend; late rows go out by an output more."""
    theirs, ours = Files(tmp_path / "theirs"), Files(tmp_path / "ours")
    raw = ours.stream(spark)
    timed = marked(raw)
    outputs = {name: flat(plan(raw, timed)) for name, plan in (PLANS | CHAINED).items()}
    outputs["late"] = penstock.late(PLANS["within"](raw, timed))

    def start(parallelism: int, backend: str) -> StreamingQuery:
        writers = [
            penstock.writeStream(df).format("parquet").option("path", str(tmp_path / "out" / name))
            for name, df in outputs.items()
        ]
        options = {"checkpoint.interval": "200ms", "restart.delay": "10ms", "state.backend": backend}
        writers[0].options(checkpointLocation=str(tmp_path / "checkpoint"), parallelism=parallelism, **options)
        queries.append(penstock.start(writers))
        return queries[-1]

    query = start(2, "memory")
    files: list[Rows] = []
    late = []
    for number, rows in enumerate(some_files(3, 4)):
        if number == 1:
            os.kill(query.view().slots[0].pid, signal.SIGKILL)
            eventually(partial(came_back, query), "the next Generation")
        if number > 1:
            query.stop()
            query = start({2: 3, 3: 1}[number], {2: "rocksdb", 3: "memory"}[number])
        closed = reached(files) - DELAY_S if files else 0.0
        late += [text(row) for row in moments(rows) if row[2] is not None and row[2] <= closed]
        files.append(rows)
        ours.add(rows)
        query.processAllAvailable()
        theirs.add(rows)
        theirs.add([])  # behind it, Spark judges by the watermark that the file before has set
    query.stop()
    spark_conf("spark.sql.shuffle.partitions", "1")
    expected = {"late": sorted(late)}
    for number, plans in enumerate((PLANS, CHAINED)):  # all in one query, Spark closes no windows
        expected |= by_spark(spark, theirs, plans, tmp_path / f"spark-{number}")
    assert all(expected.values()), expected
    for name, rows in expected.items():
        assert sorted(map(text, rows_of(tmp_path / "out" / name))) == rows, name


def moments(rows: Rows) -> Rows:
    """Return the moments in the form in which they are read."""
    return [(key, value, None if at is None else float(at)) for key, value, at in rows]


def test_the_state_is_a_table_like_any_other(
    spark: SparkSession, tmp_path: Path, queries: list[StreamingQuery]
) -> None:
    files = Files(tmp_path / "in")
    keys = penstock.named(
        files.stream(spark).withWatermark("at", "5 seconds").dropDuplicatesWithinWatermark(["key"]), "recent"
    )
    writer = penstock.writeStream(keys).format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    queries.append(writer.option("parallelism", 2).start())
    snapshots = []
    for rows in ([(1, 1, 10.0), (None, 2, 11.0)], [(3, 1, 12.0), (1, 1, 13.5)]):
        files.add(rows)
        queries[0].processAllAvailable()
        snapshots.append(queries[0].snapshot().id)
    queries[0].stop()
    location = str(tmp_path / "checkpoint")
    reader = spark.read.format("penstock").option("snapshot", snapshots[1]).option("state", "recent/keys")
    table = reader.load(location)
    assert table.columns == ["key_group", "key", "__expires_at"]
    expiring = {(row["key"], row["__expires_at"].second) for row in table.collect()}
    assert expiring == {(1, 15), (None, 16), (3, 17)}
    runner = CliRunner()
    told = runner.invoke(app, ["snapshot", "diff", location, *snapshots])
    assert told.exit_code in (0, 1)
    assert "recent" in told.output
    exported = tmp_path / "exported"
    told = runner.invoke(app, ["snapshot", "export", location, snapshots[1], str(exported)])
    assert told.exit_code == 0, told.output
    parquet = list(exported.rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in parquet) == 3
