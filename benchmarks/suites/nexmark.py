"""Nexmark by Penstock, Spark's own engine and Flink in one run, in turns.

A part of the events first: every query's output equals Spark's batch result over it, Penstock's and Flink's, row for
row. Then all of them, into nowhere (``benchmarks.peers.against_spark`` says how Penstock and Spark run; Flink's job is
submitted to a cluster that is up). The event rate decides how much state a query keeps: it is the generator's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import penstock
from benchmarks.lib import harness
from benchmarks.lib.nexmark.generator import SPARK_SCHEMA, write_parquet
from benchmarks.lib.nexmark.queries import NAMES, query
from benchmarks.peers.against_spark import ENGINES, PEER, Prepared, Run, compare, in_turns, prepared
from benchmarks.peers.flink import blocks
from benchmarks.peers.flink import nexmark as flinks
from benchmarks.peers.flink.cluster import Cluster

EVENTS = 10_000_000
CHECKED = 1_000_000
"""Events that all outputs are compared over, and that engines warm up with before a query is measured."""
ROUNDS = 3
WARM_UPS = 3
"""Rounds over those."""
STARTED = 200_000
"""Events that every query reads some times before any is measured. While planning is new to the JVM of Spark's driver,
its compiler takes more CPU than planning: 0.7 s in a session's first ten starts, 0.2 s after 25."""
STARTS = 3
QUICK = 10
"""A quick run has so many times fewer of each."""
FILE_EVENTS = 250_000
SPARK_BATCH_EVENTS = 1_000_000
"""In a micro-batch: Spark is quickest with few large ones, and a batch of all would have to keep all of a join."""

OPTIONS = {"penstock": {"exchange.flushInterval": "500ms"}}
"""By engine. Rows wait so long for others to go to the next operator with: nobody waits for them here, and Flink's
mini-batches have them wait for 2 s."""
FLINKS_MEMORY = {"taskmanager.memory.process.size": "4g"}
"""Of each TaskManager: with its default of 1.7 GB q7 collects garbage until heartbeats are missed."""


@dataclass(frozen=True)
class Events:
    """So many, in Parquet files for Spark and Penstock, and in blocks for Flink."""

    folder: Path
    count: int

    @property
    def parquet(self) -> Path:
        return self.folder / "parquet"

    @property
    def blocks(self) -> Path:
        return self.folder / "blocks"

    def write(self, with_blocks: bool) -> None:
        self.folder.mkdir()
        write_parquet(self.parquet, self.count, max(harness.SLOTS, self.count // FILE_EVENTS))
        if with_blocks:
            blocks.write(self.blocks, self.count)


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    scale, rounds, warm_ups, starts = (QUICK, 1, 1, 0) if quick else (1, ROUNDS, WARM_UPS, STARTS)
    spark.conf.set("spark.sql.shuffle.partitions", str(harness.SLOTS))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-nexmark-")))
        part, whole = Events(folder / "part", CHECKED // scale), Events(folder / "whole", EVENTS // scale)
        few = Events(folder / "few", STARTED // scale)
        for events in (few, part, whole):
            events.write(with_blocks=True)
        peer = stack.enter_context(Cluster(harness.SLOTS, **FLINKS_MEMORY))
        for name in NAMES * starts:
            in_turns(engines(spark, peer, few, name), 1)
        found: dict[str, object] = {}
        for name in NAMES:
            rows = check_equal(spark, peer, part, name, folder / name)
            in_turns(engines(spark, peer, part, name), warm_ups, peer.pids())
            seconds, cpu = in_turns(engines(spark, peer, whole, name), rounds, peer.pids())
            found[name] = {"rows": rows, "seconds": seconds, "cpu_seconds": cpu}
            print(f"  {name}: {found[name]}", flush=True)
        return {
            "events": whole.count,
            "checked": part.count,
            "starts": starts * len(NAMES),
            "warm_ups": warm_ups,
            "spark_batch": SPARK_BATCH_EVENTS,
            "options": OPTIONS,
            "flink": peer.version,
            "queries": found,
        }


def engines(spark: SparkSession, peer: Cluster, events: Events, name: str) -> dict[str, Prepared]:
    found: dict[str, Prepared] = {
        engine: partial(
            prepared, engine, one_query(spark, events.parquet, name, engine), "append", **OPTIONS.get(engine, {})
        )
        for engine in ENGINES
    }
    return {**found, PEER: partial(by_flink, peer, events, name)}


def one_query(spark: SparkSession, parquet: Path, name: str, engine: str) -> Callable[[], DataFrame]:
    files = SPARK_BATCH_EVENTS // FILE_EVENTS if engine == "spark" else None
    return lambda: query(spark, stream(spark, parquet, files), name)


@contextmanager
def by_flink(peer: Cluster, events: Events, name: str) -> Iterator[Run]:
    yield lambda: flinks.run(peer, name, events.blocks, events.count // blocks.BLOCK, harness.SLOTS)


def beside_spark(spark: SparkSession, parquet: Path, name: str, rounds: int) -> dict[str, object]:
    """One query over the files of a folder by Penstock and Spark alone."""
    return compare(lambda: query(spark, stream(spark, parquet), name), "append", rounds)


def check_equal(spark: SparkSession, peer: Cluster, events: Events, name: str, folder: Path) -> int:
    """Run it to its drained end by Penstock and by Flink, and compare with the batch; the number of rows.

    Raises:
        AssertionError: some differ.
    """
    expected = query(spark, spark.read.schema(SPARK_SCHEMA).parquet(str(events.parquet)), name).cache()
    writer = penstock.writeStream(query(spark, stream(spark, events.parquet), name))
    started = (
        writer.options(**OPTIONS["penstock"])
        .option("path", str(folder / "penstock"))
        .start(checkpointLocation=str(folder / "checkpoint"), parallelism=harness.SLOTS)
    )
    started.processAllAvailable()
    started.stop(drain=True)
    flinks.run(peer, name, events.blocks, events.count // blocks.BLOCK, harness.SLOTS, folder / PEER)
    assert_same(f"{name} by Penstock", spark.read.schema(expected.schema).parquet(str(folder / "penstock")), expected)
    assert_same(f"{name} by Flink", spark.read.schema(expected.schema).json(str(folder / PEER)), expected)
    rows = expected.count()
    expected.unpersist()
    return rows


def assert_same(what: str, written: DataFrame, expected: DataFrame) -> None:
    differing = written.exceptAll(expected).count(), expected.exceptAll(written).count()
    assert differing == (0, 0), f"{what}: {differing[0]} rows too many, {differing[1]} missing"


def stream(spark: SparkSession, parquet: Path, files_a_batch: int | None = None) -> DataFrame:
    reader = spark.readStream.schema(SPARK_SCHEMA)
    if files_a_batch is not None:
        reader = reader.option("maxFilesPerTrigger", str(files_a_batch))
    return reader.parquet(str(parquet))
