"""User functions in the slot and in a process of their own: checkpoints and throughput, both forms in the same run.

source -> hash -> stage -> noop, two slots. The stage is a function of one of these kinds:

- ``identity`` hands its batches on: what a crossing costs at worst;
- ``light`` adds up columns with Arrow, which does not hold the GIL: what everyday functions are like;
- ``burning`` is a pure Python loop, 20 us a row;
- ``holding`` makes one C call of about a second per batch that holds the GIL.

For each: source rows per second without checkpoints, then unaligned checkpoints one at a time under backpressure. The
forms alternate; a ratio is that of two neighbours.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from benchmarks.lib import harness
from benchmarks.lib.stages import Stage
from benchmarks.suites import backpressure
from penstock.queries.streaming_query import StreamingQuery

FORMS = ("none", "process")
ROUNDS = 3
MEASURED_S = 3.0
WARM_UP_S = 2.0
CHECKPOINTS = 20
PAUSE_S = 0.1
LOOP_US = 20.0
STAGE_VERTEX = 1
GATE = 2 << 20


def identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def light(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        value = pc.add(pc.multiply(batch.column("value"), 3), batch.column("key"))
        yield pa.RecordBatch.from_arrays([batch.column("key"), value], schema=batch.schema)


def burning(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        until = time.perf_counter() + batch.num_rows * LOOP_US / 1e6
        while time.perf_counter() < until:
            sum(range(100))
        yield batch


STAGES: dict[str, Stage] = {
    "identity": identity,
    "light": light,
    "burning": burning,
    "holding": backpressure.holding,
}


def job(spark: SparkSession, stage: str) -> DataFrame:
    source = spark.readStream.format("max-rate").load()
    return source.repartition("key").mapInArrow(STAGES[stage], source.schema)


def rows_per_second(spark: SparkSession, stage: str, form: str) -> float:
    """Through the stage, in the steady state."""
    with harness.running(job(spark, stage), **{"function.isolation": form}) as query:
        harness.wait_for("the first rows", lambda: harness.rows_in(query, STAGE_VERTEX) > 0)
        time.sleep(WARM_UP_S)
        return harness.rate(query, STAGE_VERTEX, MEASURED_S)


def checkpoint_ms(query: StreamingQuery, count: int) -> list[float]:
    """Durations of unaligned checkpoints, one at a time; the first, which pays for imports, is left out."""
    durations = []
    for _ in range(count + 1):
        query.snapshot(alignment="unaligned")
        durations.append(query.view().checkpoints[-1].duration_ms)
        time.sleep(PAUSE_S)
    return durations[1:]


def checkpoints(spark: SparkSession, stage: str, form: str, count: int) -> dict[str, float]:
    """Under backpressure, that is with full gates, where the stage is slow enough for that."""
    options = {"function.isolation": form, "exchange.memoryPerGate": str(GATE)}
    with harness.running(job(spark, stage), **options) as query:
        backpressure.fill(query)
        return harness.quantiles(checkpoint_ms(query, count))


def first_row_ms(spark: SparkSession, form: str) -> float:
    """Return the time from the start of a query to its first row after the stage."""
    began = time.perf_counter()
    with harness.running(job(spark, "identity"), **{"function.isolation": form}) as query:
        harness.wait_for("the first rows", lambda: harness.rows_in(query, STAGE_VERTEX) > 0)
        return (time.perf_counter() - began) * 1000


def run(spark: SparkSession, quick: bool) -> dict[str, object]:
    rounds, count = (2, 5) if quick else (ROUNDS, CHECKPOINTS)
    rows_per_second(spark, "identity", "none")  # the first query of a session pays for it
    table: dict[str, object] = {"call_seconds": backpressure.call_seconds(), "loop_us": LOOP_US}
    starts: dict[str, list[float]] = {form: [] for form in FORMS}
    for _ in range(rounds):
        for form in FORMS:
            starts[form].append(first_row_ms(spark, form))
    table["first_row_ms"] = {form: harness.quantiles(values) for form, values in starts.items()}
    stages: dict[str, object] = {}
    for stage in STAGES:
        rates: dict[str, list[float]] = {form: [] for form in FORMS}
        for number in range(rounds if stage != "holding" else 0):
            for form in FORMS if number % 2 == 0 else FORMS[::-1]:
                rates[form].append(rows_per_second(spark, stage, form))
        durations = {form: checkpoints(spark, stage, form, count) for form in FORMS}
        ratios = [there / here for here, there in zip(rates["none"], rates["process"], strict=True)]
        stages[stage] = {
            "rows_per_second": rates,
            "ratio": statistics.median(ratios) if ratios else None,
            "checkpoint_ms": durations,
        }
        print(f"  {stage}: {stages[stage]}", flush=True)
    table["stages"] = stages
    return table
