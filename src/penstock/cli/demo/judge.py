"""Spark as the judge: the same DataFrame as a batch over the same files, compared row by row."""

from __future__ import annotations

import time

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.cli.demo.compare import compare
from penstock.cli.demo.facts import Facts
from penstock.cli.demo.job_file import Job
from penstock.cli.demo.screen import Screen


def judge(spark: SparkSession, job: Job, facts: Facts, screen: Screen, max_event_time_us: int) -> None:
    """Fill in the verdict.

    Append mode shows a window once the watermark has passed its end, in Structured Streaming as here; a batch shows
    open ones too. So Spark's rows of windows that end after the watermark are left out, and how many is said.
    """
    screen.step("Spark runs the same DataFrame as a batch", "over the same files, without the slow stage's brake")
    began_s = time.monotonic()
    flights = spark.read.schema(job.schema).parquet(str(facts.run / "input"))
    batch = in_utc(job.build(flights, "").toArrow())
    facts.spark_s = time.monotonic() - began_s
    result = in_utc(read_output(spark, facts))
    watermark_us = max_event_time_us - int(pd.Timedelta(job.delay).total_seconds() * 1_000_000)
    ends = batch[job.window_end].cast(pa.int64())
    closed = pc.less_equal(ends, watermark_us)
    reference = batch.filter(closed)
    facts.windows = pc.count_distinct(ends).as_py()
    facts.open_windows = facts.windows - pc.count_distinct(ends.filter(closed)).as_py()
    facts.verdict = verdict = compare(result, reference)
    screen.say(
        f"Spark: {batch.num_rows:,} rows of {facts.windows} windows in {facts.spark_s:.1f} s; "
        f"{facts.open_windows} window(s) with {batch.num_rows - reference.num_rows} rows end after the watermark, "
        "are still open in append mode, and are not compared"
    )
    equal = "=" if verdict.rows == verdict.reference_rows else "!="
    word = "[bold green]identical[/]" if verdict.identical else "[bold red]DIFFERENT[/]"
    screen.say(
        f"[bold]{verdict.rows:,} {equal} {verdict.reference_rows:,} rows, {word}[/]; "
        f"dropped late {facts.dropped_late}; kills {facts.kills}"
    )


def read_output(spark: SparkSession, facts: Facts) -> pa.Table:
    """The committed rows as any Spark job reads them."""
    output: DataFrame = spark.read.parquet(str(facts.output))
    return output.toArrow()


def in_utc(table: pa.Table) -> pa.Table:
    """Time stamps in one zone and large strings as strings, so that types compare."""
    fields = []
    for field in table.schema:
        kind = pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) and field.type.tz else field.type
        fields.append(pa.field(field.name, pa.string() if pa.types.is_large_string(kind) else kind))
    return table.cast(pa.schema(fields))
