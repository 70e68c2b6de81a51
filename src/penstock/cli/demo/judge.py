"""Comparison with Spark: runs the same DataFrame as a batch over the same files and compares the rows."""

from __future__ import annotations

import time

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.cli.demo.compare import compare
from penstock.cli.demo.job_file import Job
from penstock.cli.demo.results import DemoResults
from penstock.cli.demo.screen import Screen


def judge(spark: SparkSession, job: Job, results: DemoResults, screen: Screen, max_event_time_us: int) -> None:
    """Compare with Spark's result, and store the verdict in ``results``.

    In append mode a window is emitted when the watermark has passed its end, in Structured Streaming and in Penstock. A
    batch also emits open windows. Therefore Spark's rows of windows that end after the watermark are left out, and
    their number is reported.
    """
    screen.step("Spark runs the same DataFrame as a batch", "over the same files, without the slow stage's brake")
    began_s = time.monotonic()
    flights = spark.read.schema(job.schema).parquet(str(results.run / "input"))
    batch = in_utc(job.build(flights, "").toArrow())
    results.spark_s = time.monotonic() - began_s
    result = in_utc(read_output(spark, results))
    watermark_us = max_event_time_us - int(pd.Timedelta(job.delay).total_seconds() * 1_000_000)
    ends = batch[job.window_end].cast(pa.int64())
    closed = pc.less_equal(ends, watermark_us)
    reference = batch.filter(closed)
    results.windows = pc.count_distinct(ends).as_py()
    results.open_windows = results.windows - pc.count_distinct(ends.filter(closed)).as_py()
    results.verdict = verdict = compare(result, reference)
    screen.say(
        f"Spark: {batch.num_rows:,} rows of {results.windows} windows in {results.spark_s:.1f} s; "
        f"{results.open_windows} window(s) with {batch.num_rows - reference.num_rows} rows end after the watermark, "
        "are still open in append mode, and are not compared"
    )
    equal = "=" if verdict.rows == verdict.reference_rows else "!="
    word = "[bold green]identical[/]" if verdict.identical else "[bold red]DIFFERENT[/]"
    screen.say(
        f"[bold]{verdict.rows:,} {equal} {verdict.reference_rows:,} rows, {word}[/]; "
        f"dropped late {results.dropped_late}; kills {results.kills}"
    )


def read_output(spark: SparkSession, results: DemoResults) -> pa.Table:
    """Return the committed rows, as any Spark job reads them."""
    output: DataFrame = spark.read.parquet(str(results.output))
    return output.toArrow()


def in_utc(table: pa.Table) -> pa.Table:
    """Convert timestamps to UTC and large strings to strings, so that types are comparable."""
    fields = []
    for field in table.schema:
        kind = pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) and field.type.tz else field.type
        fields.append(pa.field(field.name, pa.string() if pa.types.is_large_string(kind) else kind))
    return table.cast(pa.schema(fields))
