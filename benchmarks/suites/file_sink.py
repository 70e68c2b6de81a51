"""The Parquet sink at a commit every second against plain pyarrow writing the same rows, in alternating rounds.

*query*: a source that makes rows as fast as it is asked -> the sink, two slots. *writer*: the sink's writer and
committer alone, two threads, no engine. *reference*: two threads with a ``ParquetWriter`` each, one file each: nothing
is staged, synced, merged or renamed.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.lib import harness
from benchmarks.lib.max_rate_source import MaxRatePartition, MaxRateReader
from penstock.connectors.base import SinkContext
from penstock.connectors.files.parquet.sink import parquet_sink_format
from penstock.connectors.files.row_groups import ROW_GROUP_ROWS
from penstock.connectors.files.sink import FileSink
from penstock.connectors.option_texts import OptionTexts
from penstock.model.commits import EpochCommit

ROUNDS = 8
WARM_UP_S = 2.0
MEASURED_S = 5.0
COMMIT_S = 1.0
OPTIONS = {"keys": "1000000000"}


def batches(index: int) -> Iterator[pa.RecordBatch]:
    return MaxRateReader(OPTIONS).read(MaxRatePartition(index))


def query(spark: SparkSession, path: Path) -> float:
    df = spark.readStream.format("max-rate").options(**OPTIONS).load()
    with harness.running(df, sink="parquet", path=str(path), **{"checkpoint.interval": "1s"}) as running:
        harness.wait_for("the first row", lambda: harness.rows_in(running, 0) > 0)
        time.sleep(WARM_UP_S)
        return harness.rate(running, 0, MEASURED_S)


def writer(spark: SparkSession, path: Path) -> float:
    """Commits are made by a thread of their own, as on the driver; an epoch ends when the last one is committed."""
    schema = next(batches(0)).schema
    sink = FileSink(str(path), parquet_sink_format(schema, OptionTexts("parquet sink", {})))
    committer = sink.create_committer()
    committer.open("benchmark")
    writers = [sink.create_writer() for _ in range(harness.SLOTS)]
    messages: list[list[bytes]] = [[] for _ in writers]

    def work(index: int, ends: float) -> int:
        one, rows, epoch, due = writers[index], 0, 1, time.perf_counter() + COMMIT_S
        one.open(SinkContext("benchmark", 1, index, len(writers), "aa"))
        for batch in batches(index):
            one.write(batch)
            rows += batch.num_rows
            now = time.perf_counter()
            if now >= due:
                message = one.prepare(epoch)
                assert message is not None
                messages[index].append(message)
                epoch, due = epoch + 1, now + COMMIT_S
            if now >= ends:
                break
        one.close()
        return rows

    stopped = threading.Event()

    def commit() -> None:
        epoch = 1
        while not stopped.wait(0.01):
            if all(len(those) >= epoch for those in messages):
                committer.commit(EpochCommit("benchmark", epoch, {i: m[epoch - 1] for i, m in enumerate(messages)}))
                epoch += 1

    committing = threading.Thread(target=commit)
    committing.start()
    try:
        return together(work)
    finally:
        stopped.set()
        committing.join()
        committer.close()


def reference(spark: SparkSession, path: Path) -> float:
    path.mkdir()

    def work(index: int, ends: float) -> int:
        rows = 0
        gathered: list[pa.RecordBatch] = []
        source = batches(index)
        first = next(source)
        with pq.ParquetWriter(path / f"{index}.parquet", first.schema, compression="snappy") as plain:
            for batch in source:
                gathered.append(batch)
                rows += batch.num_rows
                if sum(b.num_rows for b in gathered) >= ROW_GROUP_ROWS:
                    plain.write_table(pa.Table.from_batches(gathered), row_group_size=ROW_GROUP_ROWS)
                    gathered.clear()
                if time.perf_counter() >= ends:
                    break
        return rows

    return together(work)


def together(work: Callable[[int, float], int]) -> float:
    """Rows per second of one thread per slot that work until the same moment."""
    rows = [0] * harness.SLOTS
    started = time.perf_counter()
    ends = started + MEASURED_S

    def run(index: int) -> None:
        rows[index] = work(index, ends)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(harness.SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(rows) / (time.perf_counter() - started)


FORMS: dict[str, Callable[[SparkSession, Path], float]] = {"reference": reference, "writer": writer, "query": query}


def one(spark: SparkSession, form: str) -> float:
    directory = Path(tempfile.mkdtemp(prefix="penstock-bench-out-"))
    try:
        return FORMS[form](spark, directory / "out")
    finally:
        shutil.rmtree(directory)


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    rates: dict[str, list[float]] = {form: [] for form in FORMS}
    one(spark, "query")  # the first query of a session pays for it
    for number in range(2 if quick else ROUNDS):
        order = list(FORMS)
        for form in order[number % len(order) :] + order[: number % len(order)]:
            rates[form].append(one(spark, form))
        print(f"  round {number + 1}: " + ", ".join(f"{f} {r[-1] / 1e6:.1f}" for f, r in rates.items()), flush=True)
    ratios = {
        form: statistics.median(ours / plain for ours, plain in zip(rates[form], rates["reference"], strict=True))
        for form in FORMS
    }
    return {"rows_per_second": rates, "ratio_to_reference": ratios}
